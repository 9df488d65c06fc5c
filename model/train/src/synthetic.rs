//! Samples that are made up: a world whose noise is known, so that what is learned can be judged.

use std::{fs, io::Write, path::Path};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_schema::{
    Feature, Features, Prediction, Row, Sample, SampleOutcome, schema_hash, spool::segment_name,
};

/// When the tests take place.
pub(crate) const NOW_UNIX_MS: u64 = 1_800_000_000_000;

/// A sample that every rule admits.
pub(crate) fn sample() -> Sample {
    World::new(0).next()
}

/// Where samples come from: measured = prior x f(features) x noise.
pub(crate) struct World {
    random: SmallRng,
    at_unix_ms: u64,
    /// Standard deviation of the logarithm of the noise.
    pub noise: f32,
    /// What every measured time is multiplied by besides.
    pub factor: f32,
    /// Share of the values that are missing.
    pub missing: f64,
}

impl World {
    /// A world that lies an hour back and moves 10 ms a sample.
    pub(crate) fn new(seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        Self { random, at_unix_ms: NOW_UNIX_MS - 3_600_000, noise: 0.05, factor: 1.0, missing: 0.0 }
    }

    /// The time of its last sample.
    pub(crate) const fn now_unix_ms(&self) -> u64 {
        self.at_unix_ms
    }

    /// A row of a state that a pod may be in.
    pub(crate) fn row(&mut self) -> Row {
        let random = &mut self.random;
        let input = random.random_range(50.0..8000.0_f32).round();
        let prefix = random.random_range(0.0..1.0_f32);
        let running = random.random_range(0.0..64.0_f32).floor();
        let queued = random.random_range(0.0..6000.0_f32).round();
        let uncached = input * (1.0 - prefix);
        let mut row = Features([0.0; weir_schema::FEATURE_COUNT]);
        for (feature, value) in [
            (Feature::KvUsage, random.random_range(0.0..1.0)),
            (Feature::InputTokens, input),
            (Feature::QueueDepth, random.random_range(0.0..16.0_f32).floor()),
            (Feature::RunningRequests, running),
            (Feature::PrefixMatch, prefix),
            (Feature::PrefillTokensInFlight, queued),
            (Feature::DecodeTokensInFlight, running * 900.0),
            (Feature::UncachedTokens, uncached),
            (Feature::WorkAheadTokens, uncached + queued),
            (Feature::ExpectedOutputTokens, random.random_range(8.0..900.0)),
            (Feature::StepGapMs, random.random_range(10.0..40.0)),
            (Feature::PriorTtftMs, 20.0 + (uncached + queued) * 0.05),
            (Feature::PriorTpotMs, 14.0 + running * 0.1),
            (Feature::PodClass, random.random_range(0.0..2.0_f32).floor()),
            (Feature::MetricAgeMs, random.random_range(0.0..500.0)),
        ] {
            row.set(feature, value);
        }
        let kept = [Feature::PriorTtftMs as usize, Feature::PriorTpotMs as usize];
        for (index, value) in row.0.iter_mut().enumerate() {
            if !kept.contains(&index) && random.random_bool(self.missing) {
                *value = f32::NAN;
            }
        }
        row.0
    }

    /// The next sample.
    pub(crate) fn next(&mut self) -> Sample {
        let row = self.row();
        let value = |feature| {
            let value = Features(row).get(feature);
            if value.is_nan() { 0.0 } else { value }
        };
        let kv = value(Feature::KvUsage);
        let ttft = 0.9 + 1.2 * kv * kv + 0.05 * value(Feature::QueueDepth);
        let tpot = (1.0 + 0.8 * kv) * (1.0 + 0.3 * value(Feature::PodClass));
        let mut noisy = |prior: Feature, ratio: f32| {
            // The sum of twelve uniforms is normal enough.
            let normal = (0..12).map(|_| self.random.random::<f32>()).sum::<f32>() - 6.0;
            Features(row).get(prior) * ratio * self.factor * (self.noise * normal).exp()
        };
        let ttft_ms = noisy(Feature::PriorTtftMs, ttft);
        let tpot_ms = noisy(Feature::PriorTpotMs, tpot);
        self.at_unix_ms += 10;
        Sample {
            schema: schema_hash().into(),
            at_unix_ms: self.at_unix_ms,
            model: "m".into(),
            pod_class: "h100".into(),
            row,
            predicted: Prediction::default(),
            streamed: true,
            outcome: SampleOutcome::Complete,
            ttft_ms: Some(ttft_ms),
            tpot_ms: Some(tpot_ms),
            e2e_ms: ttft_ms + tpot_ms * 40.0,
            wait_ms: 3.0,
            output_tokens: 41,
        }
    }

    /// Appends so many samples to a segment of a spool.
    pub(crate) fn write(&mut self, spool: &Path, segment: u64, samples: usize) {
        fs::create_dir_all(spool).unwrap();
        let path = spool.join(segment_name(segment));
        let file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let mut file = std::io::BufWriter::new(file);
        for _ in 0..samples {
            serde_json::to_writer(&mut file, &self.next()).unwrap();
            file.write_all(b"\n").unwrap();
        }
        file.flush().unwrap();
    }
}

/// The library, which these tests cannot do without.
pub(crate) fn xgboost() -> crate::xgboost::Xgboost {
    let loaded = crate::library::find(None).and_then(|path| crate::xgboost::Xgboost::load(&path));
    loaded.unwrap_or_else(|error| panic!("this test needs libxgboost: run `make native` ({error})"))
}
