//! One served request: the row it was decided with, and what was measured.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{LEAST_STEP_MS, Prediction, Quantiles, Row, Source, Target};

/// Response length from which a mean time per token is a measurement, in tokens: that of so few gaps is mostly the noise of the
/// network and of the step around the first token, while the prior it is divided by describes a steady state.
const TPOT_TOKENS: u32 = 8;

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
    pub schema: Cow<'static, str>,
    /// Wall-clock time of the end, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Model the pool serves.
    pub model: Arc<str>,
    /// Pod class by name; the row holds its index.
    pub pod_class: Arc<str>,
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

impl Sample {
    /// What was measured of a target, in milliseconds, where it says something of the engine: on a stream, of enough tokens, and not
    /// below what a step takes.
    pub fn measured_ms(&self, target: Target) -> Option<f32> {
        let measured_ms = match target {
            Target::Ttft => self.ttft_ms,
            Target::Tpot => self.tpot_ms.filter(|_| self.output_tokens >= TPOT_TOKENS),
        };
        let says = |ms: &f32| self.streamed && ms.is_finite() && f64::from(*ms) >= LEAST_STEP_MS;
        measured_ms.filter(says)
    }

    /// Appends it as a line of the spool: what `serde_json` writes of it, at half the price, for every request is written so.
    pub fn write_line(&self, to: &mut Vec<u8>) {
        let mut line = Line(to);
        line.raw("{\"schema\":").text(&self.schema);
        line.raw(",\"at_unix_ms\":").whole(self.at_unix_ms);
        line.raw(",\"model\":").text(&self.model);
        line.raw(",\"pod_class\":").text(&self.pod_class);
        let mut before = ",\"row\":[";
        for value in self.row {
            line.raw(before).number(value);
            before = ",";
        }
        let said = &self.predicted;
        line.raw("],\"predicted\":{\"ttft_ms\":").quantiles(said.ttft_ms);
        line.raw(",\"tpot_ms\":").quantiles(said.tpot_ms);
        line.raw(",\"ttft_source\":").source(said.ttft_source);
        line.raw(",\"tpot_source\":").source(said.tpot_source);
        line.raw(",\"model_ttft_ms\":").maybe(said.model_ttft_ms);
        line.raw(",\"model_tpot_ms\":").maybe(said.model_tpot_ms);
        line.raw(",\"model_version\":").whole(said.model_version);
        line.raw(if self.streamed { "},\"streamed\":true" } else { "},\"streamed\":false" });
        line.raw(match self.outcome {
            SampleOutcome::Complete => ",\"outcome\":\"complete\"",
            SampleOutcome::ClientGone => ",\"outcome\":\"client_gone\"",
            SampleOutcome::PodFailed => ",\"outcome\":\"pod_failed\"",
        });
        line.raw(",\"ttft_ms\":").maybe(self.ttft_ms);
        line.raw(",\"tpot_ms\":").maybe(self.tpot_ms);
        line.raw(",\"e2e_ms\":").number(self.e2e_ms);
        line.raw(",\"wait_ms\":").number(self.wait_ms);
        line.raw(",\"output_tokens\":").whole(self.output_tokens.into()).raw("}\n");
    }
}

/// A line that is being written.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// What is no finite number is `null`.
    fn number(&mut self, value: f32) -> &mut Self {
        self.json(&value)
    }

    fn whole(&mut self, value: u64) -> &mut Self {
        self.json(&value)
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.json(text)
    }

    fn maybe(&mut self, value: Option<f32>) -> &mut Self {
        self.number(value.unwrap_or(f32::NAN))
    }

    fn quantiles(&mut self, Quantiles { p50, p90 }: Quantiles) -> &mut Self {
        self.raw("{\"p50\":").number(p50).raw(",\"p90\":").number(p90).raw("}")
    }

    fn source(&mut self, source: Source) -> &mut Self {
        self.raw("\"").raw(source.name()).raw("\"")
    }

    fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> &mut Self {
        // A number or a string in memory has nothing that can fail.
        let _ = serde_json::to_writer(&mut *self.0, value);
        self
    }
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
    fn a_line_is_what_serde_writes_whatever_is_in_it() {
        let odd = [f32::NAN, f32::INFINITY, -0.0, 1.0, 6.5e-6, 1e30, f32::MIN_POSITIVE, 0.1];
        let names = ["m", "", "a \"quoted\" \\ name", "two\nlines\u{7}", "名前"];
        let outcomes =
            [SampleOutcome::Complete, SampleOutcome::ClientGone, SampleOutcome::PodFailed];
        let sources = [Source::Onnx, Source::Forest, Source::Profile, Source::Prior];
        for turn in 0..60_usize {
            let number = |skip: usize| odd[(turn + skip) % odd.len()];
            let maybe = |skip: usize| (!(turn + skip).is_multiple_of(3)).then(|| number(skip));
            let name = |skip: usize| Arc::from(names[(turn + skip) % names.len()]);
            let quantiles = |skip| Quantiles { p50: number(skip), p90: number(skip + 1) };
            let mut at = 0;
            let sample = Sample {
                schema: schema_hash().into(),
                at_unix_ms: u64::MAX - turn as u64,
                model: name(0),
                pod_class: name(1),
                row: [(); crate::FEATURE_COUNT].map(|()| {
                    at += 1;
                    number(at)
                }),
                predicted: Prediction {
                    ttft_ms: quantiles(2),
                    tpot_ms: quantiles(5),
                    ttft_source: sources[turn % sources.len()],
                    tpot_source: sources[turn / 4 % sources.len()],
                    model_ttft_ms: maybe(0),
                    model_tpot_ms: maybe(1),
                    model_version: turn as u64 * 7,
                },
                streamed: turn.is_multiple_of(2),
                outcome: outcomes[turn % outcomes.len()],
                ttft_ms: maybe(2),
                tpot_ms: maybe(4),
                e2e_ms: number(3),
                wait_ms: number(4),
                output_tokens: turn as u32,
            };
            let mut line = b"before".to_vec();
            sample.write_line(&mut line);
            let expected = format!("before{}\n", serde_json::to_string(&sample).unwrap());
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }

    #[test]
    fn a_sample_survives_the_spool_with_its_missing_values() {
        let mut features = Features::default();
        features.set(Feature::InputTokens, 12.0);
        let sample = Sample {
            schema: schema_hash().into(),
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
