//! Samples to learn from: the built-in mix through simulated pods, as a dispatcher would have spooled them.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_core::{PodClass, SchedulerConfig};
use weir_engine::{EngineConfig, hardware};
use weir_predict::Chain;
use weir_schema::{Sample, SampleOutcome, spool::segment_name};

use crate::{
    load::{DemoMix, parse_classes},
    sim::{Mix, SimConfig, SimPod, run},
};

/// What the pods are.
pub(super) const GPU: &str = "h100-qwen3-32b-tp2";
const PODS: u64 = 4;
/// Rates that the pods go through: from half to all of what they can do at the tightest objective.
const RATES_RPS: [f64; 3] = [16.0, 24.0, 32.0];

/// So many samples that teach both targets, oldest first. Their times are virtual.
pub(crate) fn samples(count: usize) -> Result<Vec<Sample>> {
    let stretch_s = 1.15 * count as f64 / RATES_RPS.iter().sum::<f64>();
    let shares = ["interactive:0.5", "standard:0.2", "batch:0.3"].map(str::to_owned);
    let classes = parse_classes(&shares, &[])?;
    let stretches = RATES_RPS.iter().map(|rate| (*rate, stretch_s + 1.0)).collect();
    let mix = Mix { demo: DemoMix { stretches, classes, seed: 1 }, streamed: 1.0 };
    let hardware = hardware(GPU).context("the pods are known")?;
    let engine = |seed| EngineConfig { seed, ..EngineConfig::for_hardware(hardware) };
    let class = PodClass { kv_blocks: hardware.num_blocks, ..PodClass::default() };
    let config = SimConfig {
        scheduler: SchedulerConfig { classes: vec![class], ..SchedulerConfig::default() },
        pods: (1..=PODS).map(|seed| SimPod::of(engine(seed), 0)).collect(),
        scrape_every: Duration::from_millis(100),
    };
    let mut made = run(config, Box::new(Chain::new()), &mix.requests()?).samples;
    made.retain(|sample| {
        let both = sample.ttft_ms.is_some() && sample.tpot_ms.is_some();
        both && sample.outcome == SampleOutcome::Complete && sample.output_tokens >= 8
    });
    made.truncate(count);
    ensure!(made.len() == count, "the simulation made {} samples of {count}", made.len());
    Ok(made)
}

/// Writes them as the first segment of a spool, the last of them at this time.
pub(super) fn spool(samples: &[Sample], dir: &Path, last_unix_ms: u64) -> Result<()> {
    fs::create_dir_all(dir)?;
    let first = last_unix_ms.saturating_sub(10 * samples.len() as u64);
    let mut lines = Vec::new();
    for (number, sample) in (1..).zip(samples) {
        let sample = Sample { at_unix_ms: first + 10 * number, ..sample.clone() };
        serde_json::to_writer(&mut lines, &sample)?;
        lines.push(b'\n');
    }
    let path = dir.join(segment_name(1));
    // Whole at once: a trainer may be looking.
    let part = dir.join(".part");
    fs::write(&part, lines)?;
    fs::rename(part, &path).with_context(|| format!("cannot write {}", path.display()))
}

/// Milliseconds since 1970.
pub(super) fn now_unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
