//! Traces with one row per line and named columns.

use std::io::Read;

use csv::StringRecord;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::Exp1;
use xxhash_rust::xxh3::xxh3_64;

use super::{Arrival, BadRow, sane, stamp, tick};
use crate::prompt::Segment;

/// How a file writes the time of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Seconds,
    Millis,
    DateTime,
    /// Not at all.
    Absent,
}

/// A kind of file that is known by its columns.
#[derive(Debug)]
struct Kind {
    clock: Clock,
    time: &'static str,
    input: &'static str,
    output: &'static str,
    /// A row without prompt or answer tokens is a request that failed where it was recorded, not a mistake.
    has_failures: bool,
}

const fn kind(clock: Clock, time: &'static str, input: &'static str, output: &'static str) -> Kind {
    Kind { clock, time, input, output, has_failures: false }
}

/// The first one whose columns are all there is the one.
static KNOWN: [Kind; 7] = [
    kind(Clock::DateTime, "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    kind(Clock::Seconds, "timestamp_s", "input_tokens", "output_tokens"),
    kind(Clock::Millis, "timestamp_ms", "prompt_length", "output_length"),
    Kind {
        has_failures: true,
        ..kind(Clock::Seconds, "Timestamp", "Request tokens", "Response tokens")
    },
    kind(Clock::Seconds, "arrival_s", "input_tokens", "output_tokens"),
    kind(Clock::Seconds, "arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    kind(Clock::Absent, "", "num_prefill_tokens", "num_decode_tokens"),
];

/// The columns that each known kind is recognised by.
pub(super) fn known() -> impl Iterator<Item = String> {
    let columns = |kind: &Kind| [kind.time, kind.input, kind.output].map(str::to_owned);
    KNOWN.iter().map(move |kind| {
        let named = columns(kind).into_iter().filter(|name| !name.is_empty());
        named.collect::<Vec<_>>().join(",")
    })
}

/// Where the columns of a known file are.
#[derive(Debug)]
pub(super) struct Columns {
    kind: &'static Kind,
    time: Option<usize>,
    input: usize,
    output: usize,
    class: Option<usize>,
    prefix: Option<usize>,
    prefix_tokens: Option<usize>,
}

impl Columns {
    /// The columns of a file with this first line, if it is a known one. It is read as rows are: a name may hold a comma.
    pub(super) fn of(header: &str) -> Option<Self> {
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).from_reader(header.as_bytes());
        let header = reader.records().next()?.ok()?;
        let names: Vec<&str> = header.iter().map(|name| name.trim().trim_matches('"')).collect();
        let at = |name: &str| names.iter().position(|known| *known == name);
        KNOWN.iter().find_map(|kind| {
            let time = at(kind.time);
            (time.is_some() || kind.clock == Clock::Absent).then_some(())?;
            Some(Self {
                kind,
                time,
                input: at(kind.input)?,
                output: at(kind.output)?,
                class: at("class"),
                prefix: at("prefix_id"),
                prefix_tokens: at("prefix_tokens"),
            })
        })
    }

    /// The arrival of a row, or nothing for a request that failed where it was recorded.
    fn arrival(&self, record: &StringRecord) -> Result<Option<Arrival>, String> {
        let input_tokens = tokens(record, self.input)?;
        let output_tokens = tokens(record, self.output)?;
        if self.kind.has_failures && (input_tokens == 0 || output_tokens == 0) {
            return Ok(None);
        }
        if input_tokens == 0 {
            return Err("a prompt without tokens".to_owned());
        }
        let class = self.class.and_then(|at| record.get(at)).map(str::trim);
        Ok(Some(Arrival {
            at_s: self.time.map_or(Ok(0.0), |at| self.seconds(field(record, at)?))?,
            input_tokens,
            output_tokens: output_tokens.max(1),
            class: class.filter(|name| !name.is_empty()).map(str::to_owned),
            prefix: self.prefix(record, input_tokens)?,
        }))
    }

    fn seconds(&self, text: &str) -> Result<f64, String> {
        let seconds = match self.kind.clock {
            Clock::DateTime => stamp::seconds(text),
            Clock::Seconds => text.parse().ok(),
            Clock::Millis => text.parse().ok().map(|ms: f64| ms / 1e3),
            Clock::Absent => Some(0.0),
        };
        let seconds = seconds.filter(|value| value.is_finite() && *value >= 0.0);
        seconds.ok_or_else(|| format!("{text:?} is no time of arrival"))
    }

    /// Rows that name the same prefix share it; without a length it is half of the row's prompt.
    fn prefix(&self, record: &StringRecord, input_tokens: u32) -> Result<Vec<Segment>, String> {
        let id = self.prefix.and_then(|at| record.get(at)).map_or("", str::trim);
        if id.is_empty() {
            return Ok(Vec::new());
        }
        // A data frame with rows that have none writes numbers with a fraction. Any other name stands for itself.
        let whole = id.strip_suffix(".0").unwrap_or(id);
        let id = whole.parse().unwrap_or_else(|_| xxh3_64(id.as_bytes()));
        let given = |at: &usize| record.get(*at).is_some_and(|text| !text.trim().is_empty());
        let length = self.prefix_tokens.filter(given).map(|at| tokens(record, at)).transpose()?;
        Ok(vec![Segment { id, tokens: length.unwrap_or(input_tokens / 2).min(input_tokens) }])
    }

    /// Times that the file does not have, or has only to the second.
    fn complete(&self, rows: &mut [Arrival], seed: u64) {
        match self.kind.clock {
            Clock::Absent => poisson(rows, seed),
            Clock::Seconds if self.kind.has_failures => {
                let whole = rows.iter().all(|row| row.at_s.fract() == 0.0);
                if whole {
                    tick::spread(rows, 1.0, seed);
                }
            }
            _ => {}
        }
    }
}

/// One row per second on average; who replays at a rate scales that.
fn poisson(rows: &mut [Arrival], seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut at_s = 0.0;
    for row in rows {
        row.at_s = at_s;
        at_s += rng.sample::<f64, _>(Exp1);
    }
}

pub(super) fn read(file: impl Read, columns: &Columns, seed: u64) -> Result<Vec<Arrival>, BadRow> {
    let (mut rows, mut failed) = (Vec::new(), 0);
    for record in csv::Reader::from_reader(file).into_records() {
        let record = record.map_err(|error| BadRow {
            line: error.position().map_or(0, csv::Position::line),
            reason: error.to_string(),
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        match columns.arrival(&record).map_err(|reason| BadRow { line, reason })? {
            Some(arrival) => rows.push(arrival),
            None => failed += 1,
        }
    }
    if failed > 0 {
        let kept = rows.len();
        tracing::warn!(failed, kept, "left out the requests that failed where they were recorded");
    }
    columns.complete(&mut rows, seed);
    Ok(rows)
}

fn field(record: &StringRecord, at: usize) -> Result<&str, String> {
    record.get(at).map(str::trim).ok_or_else(|| format!("column {} is missing", at + 1))
}

/// A whole number, also one that a data frame wrote as `12.0`.
fn tokens(record: &StringRecord, at: usize) -> Result<u32, String> {
    let text = field(record, at)?;
    let whole = text.strip_suffix(".0").unwrap_or(text);
    whole.parse().map_err(|_| format!("{text:?} is no number of tokens")).and_then(sane)
}
