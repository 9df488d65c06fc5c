//! How each model version does in service, pool by pool.
//!
//! Told every sample by the spool's thread, read by the admin side. A version's error is that of its
//! own predictions, chosen or not: a sample carries what the model said even when the prior decided.
//! The newest eight versions of a pool are kept, and the one that an outcome comes from.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use serde::Serialize;
use weir_core::RecentError;
use weir_schema::{Sample, SampleOutcome, Target};

/// Versions kept per pool.
const KEPT: usize = 8;

/// The error of one target. It looks back over as many outcomes as make it steady, and few enough that a
/// change shows within a minute of a busy pool.
type LiveError = RecentError<500>;

/// The versions of all pools.
#[derive(Debug, Default)]
pub struct Versions {
    pools: Mutex<BTreeMap<Arc<str>, BTreeMap<u64, Live>>>,
    samples: AtomicU64,
}

/// One version of one pool.
#[derive(Debug, Default)]
struct Live {
    served: u64,
    ttft: LiveError,
    tpot: LiveError,
}

/// What is shown of a version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VersionView {
    /// The version.
    pub version: u64,
    /// Samples whose TTFT or TPOT was decided by it.
    pub served: u64,
    /// Mean absolute relative error of its median TTFT lately, as a fraction; `None` before any.
    pub mape_ttft: Option<f64>,
    /// Outcomes behind `mape_ttft`, forgotten ones included.
    pub rows_ttft: u64,
    /// Mean absolute relative error of its median TPOT lately, as a fraction; `None` before any.
    pub mape_tpot: Option<f64>,
    /// Outcomes behind `mape_tpot`, forgotten ones included.
    pub rows_tpot: u64,
}

impl Versions {
    /// Learns from a sample.
    pub fn observe(&self, sample: &Sample) {
        self.samples.fetch_add(1, Relaxed);
        let predicted = &sample.predicted;
        // Zero is no bundle; what a failed pod measured says nothing about the model.
        if predicted.model_version == 0 || sample.outcome == SampleOutcome::PodFailed {
            return;
        }
        let mut pools = self.pools.lock();
        let versions = pools.entry(sample.model.clone()).or_default();
        let live = versions.entry(predicted.model_version).or_default();
        let decided = predicted.ttft_source.is_bundle() || predicted.tpot_source.is_bundle();
        live.served += u64::from(decided);
        live.ttft.learn(predicted.model_ttft_ms, sample.measured_ms(Target::Ttft));
        live.tpot.learn(predicted.model_tpot_ms, sample.measured_ms(Target::Tpot));
        if versions.len() > KEPT {
            let mut others = versions.keys().filter(|one| **one != predicted.model_version);
            if let Some(oldest) = others.next().copied() {
                versions.remove(&oldest);
            }
        }
    }

    /// Samples seen since the start, of all pools and with or without a version.
    pub fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }

    /// The versions of a pool, oldest first.
    pub fn of(&self, model: &str) -> Vec<VersionView> {
        let pools = self.pools.lock();
        let versions = pools.get(model).into_iter().flatten();
        versions
            .map(|(&version, live)| VersionView {
                version,
                served: live.served,
                mape_ttft: live.ttft.mean(),
                rows_ttft: live.ttft.count(),
                mape_tpot: live.tpot.mean(),
                rows_tpot: live.tpot.count(),
            })
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_schema::{Features, Prediction, Source, schema_hash};

    use super::*;

    /// A sample of pool `m` whose model said 100 ms and 10 ms.
    pub(crate) fn sample(version: u64, ttft_ms: f32) -> Sample {
        let predicted = Prediction {
            ttft_source: Source::Onnx,
            model_version: version,
            model_ttft_ms: (version > 0).then_some(100.0),
            model_tpot_ms: (version > 0).then_some(10.0),
            ..Prediction::default()
        };
        Sample {
            schema: schema_hash().into(),
            at_unix_ms: 1,
            model: "m".into(),
            pod_class: "c".into(),
            row: Features::default().0,
            predicted,
            streamed: true,
            outcome: SampleOutcome::Complete,
            ttft_ms: Some(ttft_ms),
            tpot_ms: None,
            e2e_ms: 500.0,
            wait_ms: 0.0,
            output_tokens: 9,
        }
    }

    #[test]
    fn each_version_has_its_own_error() {
        let versions = Versions::default();
        versions.observe(&sample(1, 200.0));
        versions.observe(&sample(2, 125.0));
        versions.observe(&sample(2, 80.0));
        versions.observe(&sample(0, 80.0));
        let views = versions.of("m");
        assert_eq!(views.iter().map(|view| view.version).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(views[0].mape_ttft, Some(0.5));
        assert!((views[1].mape_ttft.unwrap() - 0.225).abs() < 1e-6);
        assert_eq!((views[1].served, views[1].rows_ttft), (2, 2));
        assert_eq!((views[1].mape_tpot, views[1].rows_tpot), (None, 0));
        assert_eq!(versions.samples(), 4);
        assert!(versions.of("other").is_empty());
    }

    #[test]
    fn only_the_newest_versions_are_kept() {
        let versions = Versions::default();
        for version in 1..=20 {
            versions.observe(&sample(version, 100.0));
        }
        let views = versions.of("m");
        assert_eq!((views.len(), views[0].version), (KEPT, 13));
    }

    #[test]
    fn an_outcome_that_is_no_number_does_not_spoil_the_mean() {
        let versions = Versions::default();
        for ttft_ms in [100.0, 0.0, f32::NAN, f32::INFINITY] {
            versions.observe(&sample(1, ttft_ms));
        }
        assert_eq!(versions.of("m")[0].mape_ttft, Some(0.0));
    }
}
