//! Policies against their limits, over seeds: the lines of `weir-bench limits`.

use anyhow::Result;
use serde::Serialize;

use super::{Limits, Regret, Sight, clairvoyant, limits_of, regret};
use crate::{
    contender::Contender,
    sim::{Run, SimRequest},
    study::{Fingerprints, Setting, in_parallel, once, requests_of, warm_up},
};

/// Name of the oracle in results.
pub const ORACLE: &str = "clairvoyant";

/// One policy at one load against its limits. Counts are sums over the seeds, shares are of those sums, and means are over the
/// requests that were served.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Name of the traffic.
    pub workload: String,
    /// Name of the objectives.
    pub mix: String,
    /// Name of the pods' hardware.
    pub gpu: String,
    /// How many pods.
    pub pods: usize,
    /// Tokens of a step, of the first class of pods.
    pub chunk_tokens: u32,
    /// What its dispatcher knew of the engines, as `--prediction` says it.
    pub prediction: String,
    /// What tells traffic, objectives and pods from others that are called the same.
    pub fingerprints: Fingerprints,
    /// The load.
    pub load: f64,
    /// Name of the policy.
    pub policy: String,
    /// How many seeds.
    pub seeds: usize,
    /// Requests that are counted.
    pub requests: usize,
    /// Those that would be in time if each were alone.
    pub feasible: usize,
    /// Share of the requests in time.
    pub attainment: f64,
    /// Share that no policy can exceed.
    pub attainment_limit: f64,
    /// The first as a share of the second.
    pub of_limit: f64,
    /// The attainment as a share of the oracle's; `None` where it was left out.
    pub of_oracle: Option<f64>,
    /// Mean TTFT from arrival.
    pub ttft_ms_mean: Option<f64>,
    /// No less for any policy that serves the same requests.
    pub ttft_ms_limit: Option<f64>,
    /// Mean time from arrival to the last token.
    pub e2e_ms_mean: Option<f64>,
    /// No less for any policy that serves the same requests.
    pub e2e_ms_limit: Option<f64>,
    /// Prompt tokens found in a cache, of those of served requests.
    pub prefix_hit: f64,
    /// What a cache without bounds would have.
    pub prefix_hit_limit: f64,
}

impl Line {
    /// Mean TTFT as a multiple of its limit.
    pub fn ttft_over_limit(&self) -> Option<f64> {
        Some(self.ttft_ms_mean? / self.ttft_ms_limit?)
    }

    /// Mean time to the end as a multiple of its limit.
    pub fn e2e_over_limit(&self) -> Option<f64> {
        Some(self.e2e_ms_mean? / self.e2e_ms_limit?)
    }
}

/// Each of the contenders, and the oracle if it is given sight, at each of the loads.
///
/// # Errors
/// As for [`once`].
pub fn compare(
    setting: &Setting,
    contenders: &[Contender],
    loads: &[f64],
    seeds: &[u64],
    sight: Option<Sight>,
    threads: usize,
) -> Result<Vec<Line>> {
    type Job<'a> = Box<dyn FnOnce() -> Result<Sums> + Send + 'a>;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut names: Vec<(f64, &str)> = Vec::new();
    for load in loads {
        for contender in contenders {
            names.push((*load, contender.name()));
            jobs.extend(seeds.iter().map(|seed| {
                let job = move || {
                    let (requests, run) = once(setting, contender, *load, *seed)?;
                    Ok(Sums::of(setting, &requests, &run))
                };
                Box::new(job) as Job<'_>
            }));
        }
        if let Some(sight) = sight {
            names.push((*load, ORACLE));
            jobs.extend(
                seeds
                    .iter()
                    .map(|seed| Box::new(move || oracle(setting, *load, *seed, sight)) as Job<'_>),
            );
        }
    }
    let sums = in_parallel(jobs, threads).into_iter().collect::<Result<Vec<_>>>()?;
    let each = names.iter().zip(sums.chunks(seeds.len().max(1)));
    let mut lines: Vec<Line> =
        each.map(|((load, name), sums)| line(setting, *load, name, sums)).collect();
    let oracles: Vec<Line> = lines.iter().filter(|line| line.policy == ORACLE).cloned().collect();
    for line in &mut lines {
        let oracle = oracles.iter().find(|oracle| oracle.load == line.load);
        let attained = oracle.map(|oracle| oracle.attainment).filter(|share| *share > 0.0);
        line.of_oracle = attained.map(|attained| line.attainment / attained);
    }
    Ok(lines)
}

fn oracle(setting: &Setting, load: f64, seed: u64, sight: Sight) -> Result<Sums> {
    let requests = requests_of(setting, load, seed)?;
    let run = clairvoyant(&setting.pool, &requests, sight, seed);
    Ok(Sums::of(setting, &requests, &run))
}

/// What is added up over the seeds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requests: f64,
    feasible: f64,
    in_time: f64,
    in_time_limit: f64,
    served: f64,
    ttft_ms: f64,
    ttft_ms_limit: f64,
    e2e_ms: f64,
    e2e_ms_limit: f64,
    hit: f64,
    hit_limit: f64,
}

impl Sums {
    fn of(setting: &Setting, requests: &[SimRequest], run: &Run) -> Self {
        let (warm_up, objectives) = (warm_up(requests), &setting.objectives);
        let limits: Limits = limits_of(&setting.pool, requests, objectives, run, warm_up);
        let regret: Regret = regret(run, requests, &limits);
        let served = run.outcomes.iter().skip(warm_up);
        let served = served.filter(|one| matches!(one, crate::sim::Outcome::Served(_))).count();
        let (limit, served) = (limits.all, served as f64);
        let total = |mean: Option<f64>| mean.unwrap_or_default() * served;
        Self {
            requests: limit.requests as f64,
            feasible: limit.feasible as f64,
            in_time: regret.in_time as f64,
            in_time_limit: limit.in_time as f64,
            served,
            ttft_ms: total(regret.ttft_ms_mean),
            ttft_ms_limit: total(limit.ttft_ms_mean),
            e2e_ms: total(regret.e2e_ms_mean),
            e2e_ms_limit: total(limit.e2e_ms_mean),
            hit: regret.prefix_hit * served,
            hit_limit: limit.prefix_hit * served,
        }
    }
}

fn line(setting: &Setting, load: f64, policy: &str, sums: &[Sums]) -> Line {
    let sum = |of: fn(&Sums) -> f64| sums.iter().map(of).sum::<f64>();
    let (requests, served) = (sum(|one| one.requests), sum(|one| one.served));
    let mean = |of: fn(&Sums) -> f64| (served > 0.0).then(|| sum(of) / served);
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let (in_time, limit) = (sum(|one| one.in_time), sum(|one| one.in_time_limit));
    Line {
        workload: setting.source.name().to_owned(),
        mix: setting.mix.clone(),
        gpu: setting.gpu.clone(),
        pods: setting.pool.pods.len(),
        chunk_tokens: setting.pool.classes.first().map_or(0, |class| class.chunk_tokens),
        prediction: setting.knowledge.name(),
        fingerprints: Fingerprints::of(setting),
        load,
        policy: policy.to_owned(),
        seeds: sums.len(),
        requests: requests as usize,
        feasible: sum(|one| one.feasible) as usize,
        attainment: share(in_time, requests),
        attainment_limit: share(limit, requests),
        of_limit: share(in_time, limit),
        of_oracle: None,
        ttft_ms_mean: mean(|one| one.ttft_ms),
        ttft_ms_limit: mean(|one| one.ttft_ms_limit),
        e2e_ms_mean: mean(|one| one.e2e_ms),
        e2e_ms_limit: mean(|one| one.e2e_ms_limit),
        prefix_hit: mean(|one| one.hit).unwrap_or_default(),
        prefix_hit_limit: mean(|one| one.hit_limit).unwrap_or_default(),
    }
}
