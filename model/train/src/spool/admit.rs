//! One line of the spool, checked: what is admitted here is learned from without another look.

use serde::Deserialize;
use weir_schema::{Sample, feature_specs};

/// A clock may run ahead of this one by so much. A sample from further ahead would stay the newest
/// of the window, and so in the holdout, for as long.
pub(crate) const MAX_AHEAD_MS: u64 = 10 * 60 * 1000;
/// No request takes longer than a day.
const MAX_LATENCY_MS: f32 = 86_400_000.0;

/// Why a line is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NotUtf8,
    NotJson,
    OtherSchema,
    Absurd(&'static str),
}

/// The part of a line that says which schema the rest is of.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// The sample in a line, if every value of it can be true.
pub(super) fn admit(line: &[u8], schema: &str, now_unix_ms: u64) -> Result<Sample, Refused> {
    let text = std::str::from_utf8(line).map_err(|_| Refused::NotUtf8)?;
    let sample: Sample = serde_json::from_str(text).map_err(|_| {
        // A row of another length is no garbage when the line says that it is of another schema.
        match serde_json::from_str::<Head>(text) {
            Ok(head) if head.schema != schema => Refused::OtherSchema,
            _ => Refused::NotJson,
        }
    })?;
    if sample.schema != schema {
        return Err(Refused::OtherSchema);
    }
    match absurdity(&sample, now_unix_ms) {
        Some(what) => Err(Refused::Absurd(what)),
        None => Ok(sample),
    }
}

/// The first value that cannot be true.
fn absurdity(sample: &Sample, now_unix_ms: u64) -> Option<&'static str> {
    if sample.at_unix_ms > now_unix_ms.saturating_add(MAX_AHEAD_MS) {
        return Some("time of the end lies in the future");
    }
    let outside = feature_specs()
        .iter()
        .zip(sample.row)
        .find(|(spec, value)| !value.is_nan() && !(spec.min..=spec.max).contains(value));
    if let Some((spec, _)) = outside {
        return Some(spec.name);
    }
    // The end is measured after the first token, with the clock's grain between them.
    let whole_ms = sample.e2e_ms * 1.01 + 1.0;
    let measured = [sample.ttft_ms, sample.tpot_ms, Some(sample.e2e_ms), Some(sample.wait_ms)];
    if measured.into_iter().flatten().any(|ms| !(0.0..=MAX_LATENCY_MS).contains(&ms)) {
        return Some("latency out of range");
    }
    if [sample.ttft_ms, sample.tpot_ms].into_iter().flatten().any(|ms| ms > whole_ms) {
        return Some("part longer than the whole");
    }
    None
}
