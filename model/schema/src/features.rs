//! The feature row: one definition for the decision, the sample and the model.
//!
//! A row is a fixed array of `f32` in the order of [`Feature`], so that a batch of rows is one
//! contiguous slice and no evaluator allocates per row. A value that is not known is `NaN`, which
//! tree models treat as missing.

use std::sync::LazyLock;

/// Number of columns of a [`Row`].
pub const FEATURE_COUNT: usize = 20;

/// One request on one pod, in the order of [`Feature`].
pub type Row = [f32; FEATURE_COUNT];

/// The columns of a [`Row`]. The discriminant is the column's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Feature {
    /// Share of the pod's KV blocks in use, as scraped and corrected by the ledger.
    KvUsage = 0,
    /// Tokens of the prompt.
    InputTokens,
    /// Requests waiting inside the engine at the last scrape.
    QueueDepth,
    /// Requests that are decoding on the pod according to the ledger.
    RunningRequests,
    /// Share of the prompt that the pod is believed to have cached.
    PrefixMatch,
    /// Uncached prompt tokens sent to the pod whose first token has not been seen.
    PrefillTokensInFlight,
    /// Tokens held in the KV cache by the requests that are decoding.
    DecodeTokensInFlight,
    /// Prompt tokens that the pod must compute: input x (1 - prefix match).
    UncachedTokens,
    /// Uncached tokens plus the prefill tokens queued before them.
    WorkAheadTokens,
    /// Prompts sent to the pod without a first token yet.
    PendingRequests,
    /// Output tokens expected for this request.
    ExpectedOutputTokens,
    /// Mean gap between the pod's recent steps, as seen in its streams.
    StepGapMs,
    /// Time since the pod's last step was seen to end.
    StepPhaseMs,
    /// Uncached prompt tokens sent to the pod per second, lately.
    PrefillRate,
    /// Time since the oldest prompt without a first token was sent to the pod.
    PendingAgeMs,
    /// TTFT by the step-time model: the base that the learned ratio multiplies.
    PriorTtftMs,
    /// TPOT by the step-time model: the base that the learned ratio multiplies.
    PriorTpotMs,
    /// Index of the pod class (GPU type and engine configuration) in the configuration.
    PodClass,
    /// 0 for a pod that does both, 1 for prefill only, 2 for decode only.
    Role,
    /// Age of the last scrape.
    MetricAgeMs,
}

/// Name, unit, range and meaning of a feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeatureSpec {
    /// The column this describes.
    pub feature: Feature,
    /// Name used in manifests, docs and logs.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Smallest value that is not an error.
    pub min: f32,
    /// Largest value that is not an error.
    pub max: f32,
}

const fn spec(feature: Feature, name: &'static str, unit: &'static str, max: f32) -> FeatureSpec {
    FeatureSpec { feature, name, unit, min: 0.0, max }
}

const SPECS: [FeatureSpec; FEATURE_COUNT] = [
    spec(Feature::KvUsage, "kv_usage", "fraction", 1.0),
    spec(Feature::InputTokens, "input_tokens", "tokens", 1e7),
    spec(Feature::QueueDepth, "queue_depth", "requests", 1e6),
    spec(Feature::RunningRequests, "running_requests", "requests", 1e6),
    spec(Feature::PrefixMatch, "prefix_match", "fraction", 1.0),
    spec(Feature::PrefillTokensInFlight, "prefill_tokens_in_flight", "tokens", 1e9),
    spec(Feature::DecodeTokensInFlight, "decode_tokens_in_flight", "tokens", 1e9),
    spec(Feature::UncachedTokens, "uncached_tokens", "tokens", 1e7),
    spec(Feature::WorkAheadTokens, "work_ahead_tokens", "tokens", 1e9),
    spec(Feature::PendingRequests, "pending_requests", "requests", 1e6),
    spec(Feature::ExpectedOutputTokens, "expected_output_tokens", "tokens", 1e7),
    spec(Feature::StepGapMs, "step_gap_ms", "milliseconds", 1e6),
    spec(Feature::StepPhaseMs, "step_phase_ms", "milliseconds", 1e7),
    spec(Feature::PrefillRate, "prefill_rate", "tokens/second", 1e7),
    spec(Feature::PendingAgeMs, "pending_age_ms", "milliseconds", 1e7),
    spec(Feature::PriorTtftMs, "prior_ttft_ms", "milliseconds", 1e9),
    spec(Feature::PriorTpotMs, "prior_tpot_ms", "milliseconds", 1e7),
    spec(Feature::PodClass, "pod_class", "index", 1e4),
    spec(Feature::Role, "role", "index", 2.0),
    spec(Feature::MetricAgeMs, "metric_age_ms", "milliseconds", 1e9),
];

/// Smallest and largest values, in column order.
const LEAST: Row = bounds(false);
const MOST: Row = bounds(true);

#[expect(clippy::indexing_slicing, reason = "both arrays have FEATURE_COUNT places")]
const fn bounds(most: bool) -> Row {
    let (mut row, mut at) = ([0.0; FEATURE_COUNT], 0);
    while at < FEATURE_COUNT {
        row[at] = if most { SPECS[at].max } else { SPECS[at].min };
        at += 1;
    }
    row
}

/// Every feature in column order.
pub const fn feature_specs() -> &'static [FeatureSpec; FEATURE_COUNT] {
    &SPECS
}

/// A row under construction, addressed by [`Feature`] instead of by index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features(pub Row);

impl Default for Features {
    /// Every value missing.
    fn default() -> Self {
        Self([f32::NAN; FEATURE_COUNT])
    }
}

impl Features {
    /// The value of one feature.
    #[expect(clippy::indexing_slicing, reason = "a Feature is below FEATURE_COUNT by construction")]
    pub const fn get(&self, feature: Feature) -> f32 {
        self.0[feature as usize]
    }

    /// Sets the value of one feature.
    #[expect(clippy::indexing_slicing, reason = "a Feature is below FEATURE_COUNT by construction")]
    pub const fn set(&mut self, feature: Feature, value: f32) {
        self.0[feature as usize] = value;
    }

    /// Clamps every value that is not missing into its documented range.
    pub fn clamp(&mut self) {
        // Bounds side by side and no branch, for a vector at a time: what is missing is neither below nor above anything.
        for ((value, least), most) in self.0.iter_mut().zip(LEAST).zip(MOST) {
            let raised = if *value < least { least } else { *value };
            *value = if raised > most { most } else { raised };
        }
    }
}

/// Hash of the names, units and order of all features and of the model's output contract.
///
/// It is in every sample and in every bundle; two files that differ in it never meet.
pub fn schema_hash() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Fnv::default();
        for spec in feature_specs() {
            hash.write(spec.name);
            hash.write(spec.unit);
        }
        hash.write("outputs: ttft_ms, tpot_ms = prior x exp(trees)");
        format!("{:016x}", hash.0)
    });
    &HASH
}

/// FNV-1a with 64 bits: stable across platforms and releases, which `std`'s hasher does not promise.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spec_stands_at_the_index_of_its_feature() {
        for (index, spec) in feature_specs().iter().enumerate() {
            assert_eq!(spec.feature as usize, index, "{}", spec.name);
        }
    }

    #[test]
    fn the_schema_hash_is_the_one_that_was_published() {
        // A change here orphans every spool and bundle in the field: change it knowingly.
        assert_eq!(schema_hash(), "6e1680f971bcbac5");
    }

    #[test]
    fn clamp_keeps_missing_values_missing() {
        let mut features = Features::default();
        features.set(Feature::KvUsage, 7.0);
        features.clamp();
        assert_eq!(features.get(Feature::KvUsage), 1.0);
        assert!(features.get(Feature::InputTokens).is_nan());
    }
}
