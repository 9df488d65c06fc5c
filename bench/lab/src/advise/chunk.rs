//! Which chunk to give the engines: a sweep, and a rule that needs none.

use anyhow::Result;
use serde::Serialize;
use weir_engine::{EngineConfig, fluid_capacity, step_ms};

use super::beside_top_band;
use crate::{
    contender::Contender,
    sim::Pool,
    study::{Row, Setting, in_parallel, least_requests, max_load},
    workload::Means,
};

/// Chunks that are tried unless others are asked for, as a list of arguments: vLLM's default on large GPUs, and down to where prompts crawl.
pub(super) const TRIED: &str = "512,1024,2048,4096,8192";
/// Share of the tightest TPOT objective that a full step may take, by the rule of thumb.
pub(super) const RULE_SHARE: f64 = 0.85;
/// How finely a highest load is sought: rates that differ by less are equal.
const RESOLUTION: f64 = 0.01;

/// What a pool holds with one chunk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Tried {
    /// Tokens of an engine's step.
    pub chunk_tokens: u32,
    /// A step full of prompt tokens beside as many decodes as the pace allows, on the pods where it takes longest, in milliseconds.
    pub full_step_ms: f64,
    /// Highest load that keeps the promise; 1 is what the pods hold by formula with this chunk.
    pub max_load: f64,
    /// The same in requests per second, of the whole pool.
    pub rps: f64,
    /// Requests that a seed takes for a load as high to show; with fewer the load is too high.
    pub least_requests: usize,
    /// Figures at that load, of all classes together.
    pub row: Row,
    /// The same of the class of the highest band alone; where that band has several, of all classes too.
    pub top_row: Row,
}

/// Every chunk that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Sweep {
    /// Upwards.
    pub tried: Vec<Tried>,
    /// The largest one that the rule allows; `None` when it allows none, or no pace is promised.
    pub by_rule: Option<u32>,
}

impl Sweep {
    /// Seeks the highest load at each chunk.
    ///
    /// # Errors
    /// As for [`max_load`].
    pub(super) fn of(
        setting: &Setting,
        contender: &Contender,
        chunks: &[u32],
        at: f64,
        seeds: &[u64],
        threads: usize,
    ) -> Result<Self> {
        let mut chunks = chunks.to_vec();
        chunks.sort_unstable();
        chunks.dedup();
        let job = |chunk: &u32| {
            let chunk = *chunk;
            let job = move || one(setting, contender, chunk, at, seeds);
            Box::new(job) as Box<dyn FnOnce() -> Result<Tried> + Send>
        };
        let tried = in_parallel(chunks.iter().map(job).collect(), threads);
        let tried = tried.into_iter().collect::<Result<Vec<_>>>()?;
        let by_rule = by_rule(&tried, setting);
        Ok(Self { tried, by_rule })
    }

    /// The chunk with the highest rate; of equals the largest.
    pub(super) fn best(&self) -> Option<&Tried> {
        let highest = self.tried.iter().map(|one| one.rps).fold(0.0, f64::max);
        let equal =
            |one: &&Tried| one.rps >= highest - RESOLUTION * one.rps / one.max_load.max(RESOLUTION);
        self.tried.iter().rev().find(equal)
    }
}

fn one(
    setting: &Setting,
    contender: &Contender,
    chunk_tokens: u32,
    at: f64,
    seeds: &[u64],
) -> Result<Tried> {
    let setting = Setting { pool: with_chunk(&setting.pool, chunk_tokens), ..setting.clone() };
    let rows = max_load(&setting, contender, at, seeds)?;
    let top_row = beside_top_band(&rows, &setting.objectives);
    let row = rows.into_iter().next().unwrap_or_default();
    let max_load = row.max_load.unwrap_or_default();
    Ok(Tried {
        chunk_tokens,
        full_step_ms: full_step_ms(&setting),
        max_load,
        rps: max_load * setting.capacity_rps(),
        least_requests: least_requests(&setting, max_load),
        row,
        top_row,
    })
}

fn by_rule(tried: &[Tried], setting: &Setting) -> Option<u32> {
    let tightest = setting.objectives.classes.iter().filter_map(|class| class.tpot_ms);
    let limit_ms = RULE_SHARE * tightest.reduce(f64::min)?;
    let allowed = tried.iter().filter(|one| one.full_step_ms <= limit_ms);
    allowed.map(|one| one.chunk_tokens).max()
}

/// The pool with this chunk in every engine, and known to the dispatcher.
pub(super) fn with_chunk(pool: &Pool, chunk_tokens: u32) -> Pool {
    let mut pool = pool.clone();
    pool.classes.iter_mut().for_each(|class| class.chunk_tokens = chunk_tokens);
    pool.pods.iter_mut().for_each(|pod| pod.engine.max_num_batched_tokens = chunk_tokens);
    pool
}

/// A full step at the rate that a pod holds by formula, of the pods where it takes longest.
fn full_step_ms(setting: &Setting) -> f64 {
    let (means, tpot_ms) = (setting.source.means(), setting.objectives.tightest_tpot_ms());
    let steps = setting.pool.pods.iter().map(|pod| full_step_of(&pod.engine, &means, tpot_ms));
    steps.fold(0.0, f64::max)
}

fn full_step_of(engine: &EngineConfig, means: &Means, tpot_ms: f64) -> f64 {
    let (input, output) = (means.input_tokens, means.output_tokens);
    let decodes = fluid_capacity(engine, input, output, means.hit, tpot_ms).running;
    let chunk = f64::from(engine.max_num_batched_tokens);
    let decodes = decodes.min(chunk / 2.0);
    let prefill = chunk - decodes;
    let kv_tokens = decodes * (input + output / 2.0);
    // The chunk is the prompt's first: the attention of later ones to what came before is not in the rule.
    let pairs = prefill * prefill / 2.0;
    step_ms(&engine.charged(), prefill as u32, decodes as u32, kv_tokens as u64, pairs)
}
