//! A day's samples of the dispatcher as a trace.
//!
//! A sample says when its request ended, how long it waited and took, and how long prompt and answer were: that is an arrival.
//! What it shared with whom is not known, only how much of it was believed to be cached; so every prompt begins with that much of
//! one text that all share. The work of the prefills is then as it was, on whichever pod they land.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use weir_schema::{Feature, Features, Sample, schema_hash, spool::segments};

use crate::{prompt::Segment, trace::Arrival, workload::Replay};

/// Reads all samples of a model, or of the only one there is.
///
/// # Errors
/// When the folder cannot be read, holds no samples, or holds several models and none was named.
pub(super) fn read(dir: &Path, model: Option<&str>) -> Result<Replay> {
    let at = || format!("--spool {}", dir.display());
    let mut models: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
    let (mut left_out, schema) = (LeftOut::default(), schema_hash());
    for (_, path) in segments(dir).with_context(at)? {
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        for line in BufReader::new(file).split(b'\n') {
            let line = line.with_context(|| path.display().to_string())?;
            match admit(&line, schema) {
                Ok((model, arrival)) => models.entry(model).or_default().push(arrival),
                Err(why) => left_out.count(&why),
            }
        }
    }
    left_out.tell();
    let known = models.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = match model {
        Some(name) => name.to_owned(),
        None if models.len() == 1 => known.clone(),
        None if models.is_empty() => bail!("{}: there are no samples ({left_out})", at()),
        None => bail!("{}: choose one of {known} with --model", at()),
    };
    let rows = models.remove(&name);
    let mut rows =
        rows.with_context(|| format!("{}: no samples of {name:?}, but of {known}", at()))?;
    rows.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    let first_s = rows.first().map_or(0.0, |row| row.at_s);
    rows.iter_mut().for_each(|row| row.at_s -= first_s);
    Replay::new(name, rows).with_context(at)
}

/// Lines that are no arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    /// No sample: the last line of a segment may be torn, as after a crash.
    unreadable: usize,
    /// Of another version of the features: their places in a row mean something else. The trainer refuses them too.
    other_schema: usize,
    /// Without a prompt, or without an answer.
    untold: usize,
}

impl LeftOut {
    fn count(&mut self, why: &Why) {
        let count = match why {
            Why::Unreadable => &mut self.unreadable,
            Why::OtherSchema => &mut self.other_schema,
            Why::Untold => &mut self.untold,
        };
        *count += 1;
    }

    fn tell(self) {
        if self != Self::default() {
            tracing::warn!("left out lines of the spool: {self}");
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unreadable, other_schema, untold } = self;
        write!(
            to,
            "{unreadable} unreadable, {other_schema} of another schema, {untold} without lengths"
        )
    }
}

/// The part of a line that says which schema the rest is of.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// Why a line is left out.
enum Why {
    Unreadable,
    OtherSchema,
    Untold,
}

/// The model and the arrival in a line.
fn admit(line: &[u8], schema: &str) -> Result<(String, Arrival), Why> {
    let head: Head = serde_json::from_slice(line).map_err(|_| Why::Unreadable)?;
    if head.schema != schema {
        return Err(Why::OtherSchema);
    }
    let sample: Sample = serde_json::from_slice(line).map_err(|_| Why::Unreadable)?;
    let arrival = arrival(&sample).ok_or(Why::Untold)?;
    Ok((sample.model.to_string(), arrival))
}

/// When the request of a sample came and how long it was; `None` when the sample does not say.
fn arrival(sample: &Sample) -> Option<Arrival> {
    let features = Features(sample.row);
    let input = features.get(Feature::InputTokens);
    if !input.is_finite() || input < 1.0 || sample.output_tokens == 0 {
        return None;
    }
    let matched = features.get(Feature::PrefixMatch);
    let shared = if matched.is_finite() { matched.clamp(0.0, 1.0) * input } else { 0.0 };
    let prefix = (shared >= 1.0).then_some(Segment { id: 0, tokens: shared as u32 });
    let since_s = f64::from(sample.e2e_ms + sample.wait_ms) / 1000.0;
    Some(Arrival {
        at_s: sample.at_unix_ms as f64 / 1000.0 - since_s,
        input_tokens: input as u32,
        output_tokens: sample.output_tokens,
        class: None,
        prefix: prefix.into_iter().collect(),
    })
}
