//! The highest loads that keep a promise, beside the oracle's and the one beyond which nobody can: the rows of
//! `weir-bench limits --at`.

use anyhow::Result;
use serde::Serialize;

use super::{
    Sight,
    clairvoyant::{clairvoyant, clairvoyant_while},
    limits_of_top_band,
    lines::ORACLE,
};
use crate::{
    contender::Contender,
    sim::SimRequest,
    study::{
        Found, GoesOn, Row, Setting, TopBand, in_parallel, max_load, max_load_of, requests_of,
        seek, warm_up,
    },
};

/// Name of the bound in results.
pub const LIMIT: &str = "limit";

/// One policy's highest load. The bound and the oracle are rows too.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Highest {
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
    /// Share of the requests of the highest band that meets both objectives.
    pub at: f64,
    /// Name of the policy.
    pub policy: String,
    /// How many seeds.
    pub seeds: usize,
    /// Requests of each seed.
    pub requests: usize,
    /// The highest load; 0 where none keeps the promise.
    pub max_load: f64,
    /// Whether a higher load was tried that does not keep it.
    pub bounded: bool,
    /// It as a share of the load beyond which nobody can.
    pub of_limit: Option<f64>,
    /// It as a share of the oracle's; `None` where that was left out.
    pub of_oracle: Option<f64>,
}

/// Each of the contenders, the oracle if it is given sight, and the bound.
///
/// # Errors
/// As for [`max_load`].
pub fn highest(
    setting: &Setting,
    contenders: &[Contender],
    at: f64,
    seeds: &[u64],
    sight: Option<Sight>,
    threads: usize,
) -> Result<Vec<Highest>> {
    type Job<'a> = Box<dyn FnOnce() -> Result<(String, Found)> + Send + 'a>;
    let contender = |one: &Contender| {
        let rows = max_load(setting, one, at, seeds)?;
        let found =
            |row: &Row| Found { load: row.max_load.unwrap_or_default(), bounded: row.bounded };
        Ok((one.name().to_owned(), rows.first().map(found).unwrap_or_default()))
    };
    let mut jobs: Vec<Job<'_>> = Vec::new();
    // The longest first.
    if let Some(sight) = sight {
        jobs.push(Box::new(move || {
            Ok((ORACLE.to_owned(), oracle(setting, at, seeds, sight.promised())?))
        }));
    }
    jobs.extend(contenders.iter().map(|one| Box::new(move || contender(one)) as Job<'_>));
    jobs.push(Box::new(move || Ok((LIMIT.to_owned(), bound(setting, at, seeds)?))));
    let mut loads = in_parallel(jobs, threads).into_iter().collect::<Result<Vec<_>>>()?;
    loads.rotate_left(usize::from(sight.is_some()));
    let load_of = |name: &str| {
        let found = loads.iter().find(|(of, _)| of == name).map(|(_, found)| found.load);
        found.filter(|load| *load > 0.0)
    };
    let (limit, oracle) = (load_of(LIMIT), load_of(ORACLE));
    let row = |(policy, found): &(String, Found)| Highest {
        workload: setting.source.name().to_owned(),
        mix: setting.mix.clone(),
        gpu: setting.gpu.clone(),
        pods: setting.pool.pods.len(),
        chunk_tokens: setting.pool.classes.first().map_or(0, |class| class.chunk_tokens),
        at,
        policy: policy.clone(),
        seeds: seeds.len(),
        requests: setting.requests,
        max_load: found.load,
        bounded: found.bounded,
        of_limit: limit.map(|limit| found.load / limit),
        of_oracle: oracle.map(|oracle| found.load / oracle),
    };
    Ok(loads.iter().map(row).collect())
}

fn oracle(setting: &Setting, at: f64, seeds: &[u64], sight: Sight) -> Result<Found> {
    let play = |seed, requests: &[SimRequest], goes_on: GoesOn<'_>| {
        Ok(clairvoyant_while(&setting.pool, requests, sight, seed, goes_on))
    };
    Ok(max_load_of(setting, &play, at, seeds)?.0)
}

/// Share of the requests of the highest band that the oracle has in time at a load when it is after that alone, the mean over the seeds.
///
/// # Errors
/// As for [`max_load`].
pub fn oracle_attains(
    setting: &Setting,
    load: f64,
    seeds: &[u64],
    sight: Sight,
    threads: usize,
) -> Result<f64> {
    type Job<'a> = Box<dyn FnOnce() -> Result<f64> + Send + 'a>;
    let of_seed = |seed: u64| {
        let requests = requests_of(setting, load, seed)?;
        let run = clairvoyant(&setting.pool, &requests, sight.promised(), seed);
        Ok(TopBand::of(&requests, &setting.objectives).attained(&requests, &run))
    };
    let jobs = seeds.iter().map(|seed| Box::new(move || of_seed(*seed)) as Job<'_>);
    let shares = in_parallel(jobs.collect(), threads).into_iter().collect::<Result<Vec<f64>>>()?;
    Ok(shares.iter().sum::<f64>() / shares.len().max(1) as f64)
}

/// The highest load at which the bound of the requests in time leaves the share, as if lower bands did not come.
///
/// # Errors
/// As for [`max_load`].
pub(crate) fn bound(setting: &Setting, at: f64, seeds: &[u64]) -> Result<Found> {
    seek(|load| {
        let mut share = 0.0;
        for seed in seeds {
            let requests = requests_of(setting, load, *seed)?;
            let (objectives, from) = (&setting.objectives, warm_up(&requests));
            let limit = limits_of_top_band(&setting.pool, &requests, objectives, from);
            share += limit.attainment() / seeds.len() as f64;
        }
        Ok(share >= at - 1e-9)
    })
}
