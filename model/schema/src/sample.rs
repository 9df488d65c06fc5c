//! One served request: the row it was decided with, and what was measured.

use serde::{Deserialize, Serialize};

use crate::{Prediction, Row};

/// How a sampled request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleOutcome {
    /// The pod finished the response.
    Complete,
    /// The client left before the end; TTFT may still be valid.
    ClientGone,
    /// The pod failed after the first token.
    PodFailed,
}

/// A line of the spool.
///
/// A missing value is written as `null` (JSON has no NaN) and read back as NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`crate::schema_hash`] of the writer.
    pub schema: String,
    /// Wall-clock time of the end, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Model the pool serves.
    pub model: String,
    /// Pod class by name; the row holds its index.
    pub pod_class: String,
    /// The exact vector used at the decision.
    #[serde(with = "row")]
    pub row: Row,
    /// What was predicted at the decision.
    pub predicted: Prediction,
    /// Whether the response was streamed. Only then are TTFT and TPOT known.
    pub streamed: bool,
    /// How it ended.
    pub outcome: SampleOutcome,
    /// Time from dispatch to the first token, in milliseconds.
    pub ttft_ms: Option<f32>,
    /// Mean time per output token after the first, in milliseconds; needs two tokens.
    pub tpot_ms: Option<f32>,
    /// Time from dispatch to the end, in milliseconds.
    pub e2e_ms: f32,
    /// Time spent in a lane before dispatch, in milliseconds.
    pub wait_ms: f32,
    /// Tokens of the response.
    pub output_tokens: u32,
}

mod row {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use crate::Row;

    pub(super) fn serialize<S: Serializer>(row: &Row, to: S) -> Result<S::Ok, S::Error> {
        row.map(|value| value.is_finite().then_some(value)).as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Row, D::Error> {
        let values = Vec::<Option<f32>>::deserialize(from)?;
        let row: Vec<f32> = values.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect();
        let got = row.len();
        row.try_into().map_err(|_| D::Error::custom(format!("a row of {got} features")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feature, Features, schema_hash};

    #[test]
    fn a_sample_survives_the_spool_with_its_missing_values() {
        let mut features = Features::default();
        features.set(Feature::InputTokens, 12.0);
        let sample = Sample {
            schema: schema_hash(),
            at_unix_ms: 1,
            model: "m".into(),
            pod_class: "c".into(),
            row: features.0,
            predicted: Prediction::default(),
            streamed: true,
            outcome: SampleOutcome::Complete,
            ttft_ms: Some(10.5),
            tpot_ms: None,
            e2e_ms: 20.0,
            wait_ms: 0.0,
            output_tokens: 1,
        };
        let line = serde_json::to_string(&sample).unwrap();
        let back: Sample = serde_json::from_str(&line).unwrap();
        assert_eq!(back.row.map(f32::to_bits), sample.row.map(f32::to_bits));
        assert_eq!(back.ttft_ms, sample.ttft_ms);
        assert!(serde_json::from_str::<Sample>(&line.replace("12.0", "12.0,1.0")).is_err());
    }
}
