//! Policies in a set-up: what every request got, by stage.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use weir_core::{Policy, Time};

use super::set_up::{Course, Reading, SetUp};
use crate::{
    contender::Contender,
    sim::{Outcome, Run, SimRequest},
    study::{Quantiles, in_parallel, once},
};

/// Longer than anything waits.
const PATIENCE: Duration = Duration::from_secs(86_400);

/// One rate under one policy and one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    pub(super) rate_rps: f64,
    /// Requests that were sent.
    pub(super) requests: usize,
    /// Requests that were not served.
    pub(super) failed: usize,
    /// Mean over requests of the time from arrival to the last token per output token.
    pub(super) ntpot_ms: f64,
    /// Output tokens from the first arrival on until the last answer was over, per second.
    pub(super) tokens_per_s: f64,
    /// Share of the prompt tokens that were found in a cache.
    pub(super) prefix_hit: f64,
    #[serde(skip)]
    pub(super) calls: Vec<Call>,
}

/// What a served request got, in milliseconds from arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) e2e_ms: f64,
    pub(super) ttft_ms: f64,
    pub(super) tpot_ms: Option<f64>,
}

/// One policy in a set-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) policy: String,
    /// Steps of each seed.
    pub(super) seeds: Vec<Vec<Step>>,
}

/// A set-up under all policies.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    #[serde(serialize_with = "named")]
    pub(super) set_up: SetUp,
    pub(super) measured: Vec<Measured>,
}

fn named<S: serde::Serializer>(set_up: &SetUp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(set_up.name)
}

/// How much is run.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    pub(super) reading: Reading,
    pub(super) kv_blocks: u32,
    pub(super) seeds: u64,
    /// Requests of a run at most.
    pub(super) most: usize,
    pub(super) threads: usize,
}

/// Who holds requests has no bound on their wait here: the benchmark waits for every answer.
pub(super) fn contender(name: &str) -> Result<Contender> {
    if name != "weir" {
        return Contender::asked("--policy", name);
    }
    Ok(Contender::scheduler(name, |config| {
        (config.policy, config.bounds.max_wait) = (Policy::Weir, PATIENCE);
    }))
}

/// Runs a set-up under these policies.
///
/// # Errors
/// When a policy or the set-up is not known.
pub(super) fn compare(set_up: SetUp, policies: &[String], effort: &Effort) -> Result<Compared> {
    let contenders = policies.iter().map(|name| contender(name));
    let contenders = contenders.collect::<Result<Vec<_>>>()?;
    let courses = set_up.courses(effort.reading, effort.kv_blocks, effort.most)?;
    let each = contenders.iter().flat_map(|who| (1..=effort.seeds).map(move |seed| (who, seed)));
    let asked = each.flat_map(|(who, seed)| courses.iter().map(move |course| (who, seed, course)));
    let jobs = asked.map(|(who, seed, course)| job(course, who, seed)).collect();
    let steps = in_parallel(jobs, effort.threads);
    let mut steps = steps.into_iter();
    let mut measured = Vec::new();
    for contender in &contenders {
        let mut seeds = Vec::new();
        for _ in 0..effort.seeds {
            let mut of_seed = Vec::new();
            for _ in &courses {
                of_seed.extend(steps.next().context("a run is missing")??);
            }
            seeds.push(of_seed);
        }
        measured.push(Measured { policy: contender.name().to_owned(), seeds });
    }
    Ok(Compared { set_up, measured })
}

type Job<'a> = Box<dyn FnOnce() -> Result<Vec<Step>> + Send + 'a>;

fn job<'a>(course: &'a Course, contender: &'a Contender, seed: u64) -> Job<'a> {
    Box::new(move || steps(course, contender, seed))
}

/// One run.
fn steps(course: &Course, contender: &Contender, seed: u64) -> Result<Vec<Step>> {
    let (requests, run) = once(&course.setting, contender, course.load, seed)?;
    let mut steps = Vec::new();
    let mut start_s = 0.0;
    for &(rate_rps, for_s) in &course.stages {
        let within = start_s..start_s + for_s;
        if rate_rps > 0.0 {
            let of = |asked: &SimRequest| within.contains(&seconds(asked.request.arrived));
            steps.extend(step(rate_rps, start_s, &requests, &run, of));
        }
        start_s += for_s;
    }
    Ok(steps)
}

fn seconds(at: Time) -> f64 {
    at.as_micros() as f64 / 1e6
}

/// The requests of a stage; `None` when there is none.
fn step(
    rate_rps: f64,
    start_s: f64,
    requests: &[SimRequest],
    run: &Run,
    is_of_it: impl Fn(&SimRequest) -> bool,
) -> Option<Step> {
    let all = requests.iter().zip(&run.outcomes).filter(|(asked, _)| is_of_it(asked));
    let (mut sent, mut output, mut prompt, mut cached, mut end_s) =
        (0, 0_u64, 0_u64, 0_u64, start_s);
    let (mut ntpot, mut calls) = (0.0, Vec::new());
    for (asked, outcome) in all {
        sent += 1;
        let Outcome::Served(served) = outcome else { continue };
        let tokens = served.output_tokens.max(1);
        ntpot += served.e2e_ms / f64::from(tokens);
        output += u64::from(tokens);
        prompt += u64::from(asked.input_tokens);
        cached += u64::from(served.cached_tokens);
        end_s = f64::max(end_s, seconds(served.arrived) + served.e2e_ms / 1e3);
        let (e2e_ms, ttft_ms) = (served.e2e_ms, served.ttft_from_arrival_ms());
        calls.push(Call { e2e_ms, ttft_ms, tpot_ms: served.tpot_ms });
    }
    (sent > 0).then(|| Step {
        rate_rps,
        requests: sent,
        failed: sent - calls.len(),
        ntpot_ms: ntpot / calls.len().max(1) as f64,
        tokens_per_s: output as f64 / (end_s - start_s).max(1e-9),
        prefix_hit: cached as f64 / prompt.max(1) as f64,
        calls,
    })
}

impl Measured {
    /// The mean over the seeds of something about the step of a place.
    pub(super) fn mean(&self, place: usize, of: impl Fn(&Step) -> f64) -> f64 {
        let steps = self.seeds.iter().filter_map(|steps| steps.get(place));
        let (sum, count) =
            steps.fold((0.0, 0.0), |(sum, count), step| (sum + of(step), count + 1.0));
        sum / f64::max(count, 1.0)
    }

    /// Rates of its steps.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.seeds.first().into_iter().flatten().map(|step| step.rate_rps).collect()
    }

    /// Requests that were not served, of all.
    pub(super) fn failed(&self) -> usize {
        self.seeds.iter().flatten().map(|step| step.failed).sum()
    }

    /// The columns of the production table, in milliseconds, over the steps of these rates.
    pub(super) fn production(&self, is_wanted: impl Fn(f64) -> bool) -> [Option<f64>; 6] {
        let steps = self.seeds.iter().flatten().filter(|step| is_wanted(step.rate_rps));
        let calls: Vec<Call> = steps.flat_map(|step| step.calls.iter().copied()).collect();
        let of = |value: fn(&Call) -> Option<f64>| {
            Quantiles::of(calls.iter().filter_map(value).collect())
        };
        let e2e = of(|call| Some(call.e2e_ms));
        let ttft = of(|call| Some(call.ttft_ms));
        let tpot = of(|call| call.tpot_ms);
        [e2e.p50, e2e.p95, ttft.p50, ttft.p95, tpot.p50, tpot.p99]
    }
}
