//! The set-ups of the benchmark: traffic, pods, and what was said of them.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;

use super::published::{BEST, COMPARABLE, Claim};
use crate::{
    sim::Pool,
    study::{Knowledge, Setting},
    workload::{Objectives, Source, scenario, staged_requests},
};

/// Seconds in which the requests of a rate are sent where the traffic has no stages of its own: a third of the published ones, for
/// its answers take seconds and nobody comes back.
const STAGE_S: f64 = 30.0;
/// KV blocks of a pod in the published analysis of cache capacity, of 16 tokens.
pub(super) const KV_BLOCKS: u32 = 32_000;
/// Seed of a scenario's own sample.
const SAMPLE: u64 = 1;

/// What a turn of a conversation carries (docs/workloads.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reading {
    /// inference-perf of February 2026 (fc877d3), which the benchmark is taken to have used.
    Kept,
    /// inference-perf since April 2026: each turn repeats the system prompt, stages start empty.
    Head,
}

/// What is asked of a set-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asks {
    /// Time per output token and tokens per second at each rate, and claims about them.
    Ladder(&'static [Claim]),
    /// Latencies over the whole ladder, as in the published table.
    Production,
}

/// A set-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SetUp {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) asks: Asks,
    pods: usize,
    gpu: &'static str,
    /// Whether its pods have the published number of KV blocks, and not what the model leaves on that hardware.
    has_published_blocks: bool,
    /// Rates of traffic that has none of its own.
    rates_rps: &'static [f64],
}

const QWEN: &str = "h100-qwen3-32b-tp2";

const fn scenario_of(name: &'static str, title: &'static str, claims: &'static [Claim]) -> SetUp {
    SetUp {
        name,
        title,
        asks: Asks::Ladder(claims),
        pods: 10,
        gpu: QWEN,
        has_published_blocks: true,
        rates_rps: &[],
    }
}

/// All of them.
pub(super) const SET_UPS: [SetUp; 6] = [
    scenario_of("A", "6 system prompts of 1000 tokens, questions of 30", &BEST),
    scenario_of("B", "6 system prompts of 1000 tokens, questions of 3000", &BEST),
    scenario_of("C", "150 system prompts of 6000 tokens, questions of 1200", &COMPARABLE),
    scenario_of("D", "150 system prompts of 1000 tokens, questions of 6200", &COMPARABLE),
    SetUp {
        pods: 8,
        gpu: "h100-llama-3.1-8b-tp1",
        has_published_blocks: false,
        rates_rps: &[100.0, 250.0, 400.0, 550.0, 700.0, 850.0],
        ..scenario_of("sharegpt", "chat that shares nothing", &BEST)
    },
    SetUp {
        asks: Asks::Production,
        pods: 13,
        gpu: "h200-llama-3.1-70b-tp4",
        has_published_blocks: false,
        ..scenario_of("ladder", "the production ladder of 1 and 5 rps", &[])
    },
];

/// A run of a set-up: one rate, or a ladder of them one after the other.
pub(super) struct Course {
    pub(super) setting: Setting,
    /// Load at which [`crate::study::once`] runs it.
    pub(super) load: f64,
    /// Rate and seconds, as in [`Source::stages`].
    pub(super) stages: Vec<(f64, f64)>,
}

impl SetUp {
    /// Its pods in words.
    pub(super) fn pods(&self, kv_blocks: u32) -> String {
        let blocks =
            if self.has_published_blocks { format!(", {kv_blocks} blocks") } else { String::new() };
        format!("{} of {}{blocks}", self.pods, self.gpu)
    }

    /// What has to be run for it, with at most so many requests of each run.
    ///
    /// # Errors
    /// When the traffic or the pods are not known.
    pub(super) fn courses(
        &self,
        reading: Reading,
        kv_blocks: u32,
        most: usize,
    ) -> Result<Vec<Course>> {
        let name = match (self.asks, reading) {
            (Asks::Ladder(_), Reading::Kept) if self.rates_rps.is_empty() => {
                format!("{}:ladder", self.name)
            }
            (Asks::Ladder(_), Reading::Head) if self.rates_rps.is_empty() => {
                format!("{}@head:ladder", self.name)
            }
            _ => self.name.to_owned(),
        };
        let source = scenario(&name, SAMPLE).with_context(|| name.clone())?;
        if let Some(stages) = source.stages().map(<[_]>::to_vec) {
            let setting = self.setting(source, kv_blocks, staged_requests(&stages).min(most))?;
            return Ok(vec![Course { setting, load: 1.0, stages }]);
        }
        let course = |rate_rps: &f64| {
            let stages = vec![(*rate_rps, STAGE_S)];
            let requests = staged_requests(&stages).min(most);
            let setting = self.setting(Arc::clone(&source), kv_blocks, requests)?;
            let load = rate_rps / setting.capacity_rps();
            Ok(Course { setting, load, stages })
        };
        self.rates_rps.iter().map(course).collect()
    }

    fn setting(&self, source: Arc<dyn Source>, kv_blocks: u32, requests: usize) -> Result<Setting> {
        let mut pool = Pool::of(self.gpu, self.pods, None)?;
        if self.has_published_blocks {
            pool.pods.iter_mut().for_each(|pod| pod.engine.num_blocks = kv_blocks);
            pool.classes.iter_mut().for_each(|class| class.kv_blocks = kv_blocks);
        }
        let (mix, objectives) = Objectives::named_or_read("none")?;
        let (gpu, knowledge) = (self.gpu.to_owned(), Knowledge::CALIBRATED);
        let (means, engine) = (source.means(), pool.pods.first().map(|pod| &pod.engine));
        let needed = means.input_tokens + means.output_tokens;
        // One block is the engine's own.
        let held = engine.map_or(0.0, |engine| {
            f64::from(engine.num_blocks.saturating_sub(1)) * f64::from(engine.block_size)
        });
        ensure!(
            needed <= held,
            "--kv-blocks: the cache of a pod holds {held:.0} tokens, and the mean request of {} has {needed:.0}",
            self.name
        );
        Ok(Setting { pool, gpu, source, objectives, mix, requests, knowledge, dispatchers: 1 })
    }
}
