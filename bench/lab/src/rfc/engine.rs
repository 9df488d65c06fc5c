//! The RFC's bi-pattern over engines that compute steps, instead of consumers whose latency is fixed.
//!
//! The patterns are the RFC's own examples for its latencies, 256 tokens in and 16 out, and 4096 in and 32 out. What is promised is
//! four times what an idle engine takes, as the RFC promises 2 s for 0.5 s. Each pattern is profiled alone on one engine, as
//! AIBrix's profiler does: the highest rate whose 99th percentile is within the promise, and the mean there. Arrivals then offer
//! each pattern's share of the RFC's load, at that load and above it. What a capacity leaves out shows here: patterns that share an
//! engine slow each other down, and what is pushed is not held behind a capacity that the engine does not have.

use std::time::Duration;

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::Exp1;
use serde::Serialize;
use serde_json::json;
use weir_core::{Profiles, PromptSize, Request, RequestId, Role, SchedulerConfig, Slo, Time};
use weir_engine::{Engine, EngineConfig, Job, Output, hardware};
use weir_schema::profile::{Percentile, Profile};

use super::{
    compare::{By, Cell, ORDERS, relations, rules},
    judge::{Check, mean},
    policy::{Head, Order, Placement},
    setup::BI,
};
use crate::{
    contender::Contender,
    sim::{Oracle, Pool, SimRequest, drive},
    study::in_parallel,
};

/// Tokens in and out of the RFC's two examples.
const PATTERNS: [(u32, u32); 2] = [(256, 16), (4096, 32)];
/// What is promised, as a multiple of the time of an idle engine: 2 s for 0.5 s, 20 s for 5 s.
const PROMISED: f64 = 4.0;
/// The RFC's load on six consumers, and one at which capacities do not suffice.
const LOADS: [f64; 2] = [4.9756 / 6.0, 1.1];
/// Arrivals from which a profile's rate is judged, at most.
const PROFILED_ARRIVALS: usize = 1000;

/// What a profile says of a pattern on a kind of engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Profiled {
    /// Tokens in.
    pub input_tokens: u32,
    /// Tokens out.
    pub output_tokens: u32,
    /// Seconds from arrival to the end on an idle engine.
    pub idle_s: f64,
    /// Requests per second within the objective.
    pub rps: f64,
    /// Mean seconds to the end at that rate.
    pub e2e_s: f64,
}

/// The bi-pattern on a pool of engines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnEngines {
    /// The pods.
    pub name: String,
    /// Work that comes, as a share of what the profiles say that the pods can do.
    pub offered: f64,
    /// The RFC's line for waits on such pods.
    pub line: usize,
    /// What the RFC's lines say, as it came out.
    pub checks: Vec<Check>,
    /// The profile of the first kind of pods, the RFC's two patterns.
    pub profile: Vec<Profiled>,
    /// The policies; waits are what a request took beyond an idle pod's time.
    pub cells: Vec<Cell>,
}

/// Seconds to the end of a pattern's requests on an engine to which so many come per second: the mean, and the 99th percentile.
fn e2e_s(engine: &EngineConfig, (input, output): (u32, u32), rps: f64, count: usize) -> (f64, f64) {
    let mut engine = Engine::new(EngineConfig { every_token: false, ..engine.clone() });
    let mut rng = SmallRng::seed_from_u64(7);
    let (mut at_ms, mut came, mut outputs) = (0.0, Vec::new(), Vec::new());
    for _ in 0..count {
        let gap: f64 = rng.sample(Exp1);
        at_ms += 1e3 * gap / rps;
        let job = Job {
            prompt_tokens: input,
            blocks: Vec::new(),
            output_tokens: output,
            priority: 0,
            brought_tokens: 0,
            keeps: false,
            adapter: None,
        };
        if let Ok(id) = engine.submit(at_ms, job) {
            came.push((id, at_ms));
        }
    }
    engine.advance(f64::INFINITY, &mut outputs);
    let came: std::collections::HashMap<_, _> = came.into_iter().collect();
    let ends = outputs.iter().filter_map(|output| match output {
        Output::Finished { id, at_ms, .. } => Some(at_ms - came.get(id)?),
        Output::Token { .. } => None,
    });
    let mut took_s: Vec<f64> = ends.map(|ms| ms / 1e3).collect();
    took_s.sort_by(f64::total_cmp);
    let rank = (0.99 * took_s.len() as f64).ceil() as usize;
    let p99_s = took_s.get(rank.saturating_sub(1)).copied().unwrap_or_default();
    (mean(&took_s), p99_s)
}

/// Profiles a pattern on one engine.
fn profile(
    engine: &EngineConfig,
    (input_tokens, output_tokens): (u32, u32),
    arrivals: usize,
) -> Profiled {
    let pattern = (input_tokens, output_tokens);
    let (idle_s, _) = e2e_s(engine, pattern, 1e-3, 5);
    let keeps = |rps| e2e_s(engine, pattern, rps, arrivals).1 <= PROMISED * idle_s;
    let (mut low, mut high) = (0.0, idle_s.recip());
    while keeps(high) && high < 1e6 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..8 {
        let middle = (low + high) / 2.0;
        if keeps(middle) { low = middle } else { high = middle }
    }
    let (e2e_s, _) = e2e_s(engine, pattern, low, arrivals);
    Profiled { input_tokens, output_tokens, idle_s, rps: low, e2e_s }
}

/// A kind of engine with its profile: the RFC's patterns, and the file with the whole grid.
struct Kind {
    engine: EngineConfig,
    profiled: [Profiled; 2],
    file: String,
}

impl Kind {
    fn of(gpu: &str, arrivals: usize) -> Result<Self> {
        let engine = EngineConfig::for_hardware(hardware(gpu).context("no such hardware")?);
        let [small, large] = PATTERNS;
        let grid = [
            [small, (large.0, small.1)].map(|pattern| profile(&engine, pattern, arrivals)),
            [(small.0, large.1), large].map(|pattern| profile(&engine, pattern, arrivals)),
        ];
        let file = json!({
            "gpu": gpu,
            "cost": 1.0,
            "created": 0.0,
            "indexes": [[small.1, large.1], [small.0, large.0]],
            "tputs": grid.map(|row| row.map(|cell| cell.rps)),
            "e2e": grid.map(|row| row.map(|cell| cell.e2e_s)),
        });
        let [[first, _], [_, second]] = grid;
        Ok(Self { engine, profiled: [first, second], file: file.to_string() })
    }
}

/// A policy, and how much comes.
#[derive(Clone, Copy)]
struct Asked {
    load: f64,
    placement: Placement,
    order: Order,
}

/// A pool with what its pods' profiles say.
struct Stage {
    name: String,
    pool: Pool,
    profiles: Profiles,
    /// By pod.
    profiled: Vec<[Profiled; 2]>,
}

impl Stage {
    fn of(name: &str, kinds: &[(&str, usize)], arrivals: usize) -> Result<Self> {
        let mut pool = Pool::empty(Pool::SCRAPE_EVERY);
        let (mut profiles, mut profiled) = (Profiles::default(), Vec::new());
        for (class, (gpu, count)) in (0..).zip(kinds) {
            let kind = Kind::of(gpu, arrivals)?;
            pool.add(&kind.engine, *count, Role::Both);
            let mut profile = Profile::default();
            profile.add(&kind.file, Percentile::P50)?;
            profiles.insert(class, profile.patterns.context("a profile without patterns")?);
            profiled.extend(std::iter::repeat_n(kind.profiled, *count));
        }
        Ok(Self { name: name.to_owned(), pool, profiles, profiled })
    }

    /// Seconds that a pattern takes on the best idle pod.
    fn idle_s(&self, pattern: usize) -> f64 {
        let each = self.profiled.iter().filter_map(|pod| pod.get(pattern));
        each.map(|one| one.idle_s).fold(f64::INFINITY, f64::min)
    }

    /// Seconds that are promised: by the slowest pods, as a promise must hold on any.
    fn slo_s(&self, pattern: usize) -> f64 {
        let each = self.profiled.iter().filter_map(|pod| pod.get(pattern));
        PROMISED * each.map(|one| one.idle_s).fold(0.0, f64::max)
    }

    /// Mean latency of what comes, on the best idle pods.
    fn mean_idle_s(&self) -> f64 {
        mean(&[self.idle_s(0), self.idle_s(1)])
    }

    /// Requests of a seed: each pattern has the share of the load that it has in the RFC.
    fn requests(&self, load: f64, count: usize, seed: u64) -> Vec<SimRequest> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let total: f64 = BI.iter().map(|one| one.rate_rps / one.throughput_rps).sum();
        let rates: Vec<f64> = BI
            .iter()
            .enumerate()
            .map(|(pattern, one)| {
                let share = one.rate_rps / one.throughput_rps / total;
                let most = self.profiled.iter().filter_map(|pod| pod.get(pattern));
                share * load * most.map(|one| one.rps).sum::<f64>()
            })
            .collect();
        let all: f64 = rates.iter().sum();
        let first = rates.first().copied().unwrap_or_default() / all;
        let mut at_s = 0.0;
        let one = |place: usize| {
            let gap: f64 = rng.sample(Exp1);
            at_s += gap / all;
            let pattern = usize::from(rng.random::<f64>() >= first);
            self.request(place, at_s, pattern)
        };
        (0..count).map(one).collect()
    }

    fn request(&self, place: usize, at_s: f64, pattern: usize) -> SimRequest {
        let (input, output) = PATTERNS.get(pattern).copied().unwrap_or_default();
        let slo_s = self.slo_s(pattern);
        // What is promised for the whole, as the scheduler knows promises: a first token and a pace.
        let pace_s = slo_s / PROMISED / f64::from(output.max(1));
        let ttft_s = slo_s - pace_s * f64::from(output);
        let seconds = |s: f64| Some(Duration::from_secs_f64(s));
        SimRequest {
            request: Request {
                max_output_tokens: Some(output),
                slo: Slo { ttft: seconds(ttft_s), tpot: seconds(pace_s) },
                body_bytes: 4 * input,
                ..Request::new(
                    RequestId(place as u64),
                    Time::from_micros((at_s * 1e6) as u64),
                    PromptSize::Tokens(input),
                )
            },
            class: pattern,
            input_tokens: input,
            output_tokens: output,
            blocks_with_answer: None,
            after: None,
        }
    }

    fn told(&self, line: usize, offered: f64, cells: &[Cell]) -> OnEngines {
        let name = format!("{} at {offered:.2}", self.name);
        let all: Vec<&Cell> = cells.iter().collect();
        OnEngines {
            offered,
            line,
            checks: relations(line, &name, &all, self.mean_idle_s()),
            profile: self.profiled.first().map(|pod| pod.to_vec()).unwrap_or_default(),
            cells: cells.to_vec(),
            name,
        }
    }

    /// One policy over the seeds.
    fn cell(&self, asked: Asked, seeds: &[u64], count: usize) -> Cell {
        let Asked { load, placement, order } = asked;
        let (rules, profiles) = (rules(placement, order), self.profiles.clone());
        let contender = Contender::new("rfc", move |pool, predictor, seed| {
            let mut rules = rules.clone();
            rules.seed = seed;
            let config = SchedulerConfig {
                classes: pool.classes.clone(),
                profiles: profiles.clone(),
                rules: Some(rules),
                ..SchedulerConfig::default()
            };
            Box::new(weir_core::Scheduler::new(config, predictor))
        });
        let mut cell =
            Cell { by: By::Weir, placement, order, wait_s: Vec::new(), violations: Vec::new() };
        for seed in seeds {
            let requests = self.requests(load, count, *seed);
            let predictor = Box::new(Oracle::new(&self.pool, 0.05, *seed));
            let dispatcher = contender.build(&self.pool, predictor, *seed);
            let pods = self.pool.seeded(*seed);
            let run = drive(&pods, self.pool.scrape_every, dispatcher, &requests);
            let (mut wait_s, mut missed) = (0.0, 0.0);
            for (asked, outcome) in requests.iter().zip(&run.outcomes) {
                let crate::sim::Outcome::Served(served) = outcome else {
                    missed += 1.0;
                    continue;
                };
                let took_s = served.e2e_ms / 1e3;
                wait_s += took_s - self.idle_s(asked.class);
                missed += f64::from(u8::from(took_s > self.slo_s(asked.class)));
            }
            cell.wait_s.push(wait_s / requests.len().max(1) as f64);
            cell.violations.push(missed / requests.len().max(1) as f64);
        }
        cell
    }
}

/// The bi-pattern on six pods alike, and on pods of two kinds.
///
/// # Errors
/// When a profile cannot be made.
pub fn on_engines(seeds: &[u64], count: usize, threads: usize) -> Result<Vec<OnEngines>> {
    let (a100, h100) = ("a100-llama-3.1-8b-tp1", "h100-llama-3.1-8b-tp1");
    let arrivals = count.min(PROFILED_ARRIVALS);
    type Made = Result<Stage>;
    let stages: Vec<Box<dyn FnOnce() -> Made + Send>> = vec![
        Box::new(move || Stage::of("6 of a100-llama-3.1-8b-tp1", &[(a100, 6)], arrivals)),
        Box::new(move || {
            Stage::of(
                "3 of h100- and 2 of a100-llama-3.1-8b-tp1",
                &[(h100, 3), (a100, 2)],
                arrivals,
            )
        }),
    ];
    let stages = in_parallel(stages, threads).into_iter().collect::<Result<Vec<_>>>()?;
    let pushes = [Placement::Random, Placement::LeastPush].map(|one| (one, Order::Simple));
    let pulls = [Placement::LeastPull, Placement::BinpackPull];
    let pulls = pulls.into_iter().flat_map(|one| ORDERS.map(|order| (one, order)));
    // The scheduler's reservation is not the RFC's.
    let told = |(_, order): &(Placement, Order)| {
        !matches!(order, Order::Pattern { head: Head::Reserve, .. })
    };
    let policies: Vec<_> = pushes.into_iter().chain(pulls.filter(told)).collect();
    let mut jobs: Vec<Box<dyn FnOnce() -> Cell + Send + '_>> = Vec::new();
    let mut names = Vec::new();
    for (line, stage) in (1..).zip(&stages) {
        for load in LOADS {
            names.push((line, load, stage));
            for (placement, order) in policies.iter().copied() {
                let asked = Asked { load, placement, order };
                jobs.push(Box::new(move || stage.cell(asked, seeds, count)));
            }
        }
    }
    let cells = in_parallel(jobs, threads);
    let each = names.into_iter().zip(cells.chunks(policies.len()));
    Ok(each.map(|((line, offered, stage), cells)| stage.told(line, offered, cells)).collect())
}
