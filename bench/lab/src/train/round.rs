//! A round in this process: from the spool to the published bundle, on one thread.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use weir_schema::{Holdout, Sample, manifest::current_bundle};
use weir_train::{Round, TrainConfig, Trainer};

use super::{
    clock::{Took, took},
    samples::{now_unix_ms, spool},
};

/// What rounds took, and what the last of them came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rounds {
    /// Rows of TTFT and of TPOT.
    pub rows: [usize; 2],
    /// Reading, training, proof, writing and publishing; the round of the median time on a processor.
    pub median: Took,
    pub all: Vec<Took>,
    pub holdout: Holdout,
    /// Where the last one's bundle is.
    #[serde(skip)]
    pub bundle: PathBuf,
}

/// So many rounds, each with a trainer that has seen nothing.
pub(super) fn rounds(samples: &[Sample], folder: &Path, count: usize) -> Result<Rounds> {
    let (mut all, mut last) = (Vec::new(), None);
    for turn in 0..count {
        let (spooled, bundles) =
            (folder.join(format!("spool-{turn}")), folder.join(format!("bundles-{turn}")));
        spool(samples, &spooled, now_unix_ms())?;
        let config =
            TrainConfig { spool: spooled, bundles: bundles.clone(), ..TrainConfig::default() };
        let mut trainer = Trainer::open(config)?;
        let (round, took) = took(|| trainer.run_once());
        let Round::Published { rows, holdout, .. } = round? else {
            bail!("a first round publishes");
        };
        all.push(took);
        last = Some((rows, holdout, bundles));
    }
    let (rows, holdout, bundles) = last.context("there is a round")?;
    let bundle = current_bundle(&bundles)?.context("a published bundle is there")?;
    let mut sorted = all.clone();
    sorted.sort_by(|one, other| one.cpu_s.total_cmp(&other.cpu_s));
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    Ok(Rounds { rows, median, all, holdout, bundle })
}
