//! Traces with one row per line and named columns.

use std::io::Read;

use csv::StringRecord;

use super::{Arrival, BadRow, stamp};
use crate::prompt::Segment;

/// How a file writes the time of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Seconds,
    Millis,
    DateTime,
}

/// Where the columns of a known file are.
#[derive(Debug)]
pub(super) struct Columns {
    clock: Clock,
    time: usize,
    input: usize,
    output: usize,
    class: Option<usize>,
    prefix: Option<usize>,
    prefix_tokens: Option<usize>,
}

/// Time, input and output columns by which a file is known.
const KNOWN: [(&str, Clock, &str, &str); 4] = [
    ("TIMESTAMP", Clock::DateTime, "ContextTokens", "GeneratedTokens"),
    ("timestamp_s", Clock::Seconds, "input_tokens", "output_tokens"),
    ("timestamp_ms", Clock::Millis, "prompt_length", "output_length"),
    ("arrival_s", Clock::Seconds, "input_tokens", "output_tokens"),
];

impl Columns {
    /// The columns of a file with this first line, if it is a known one.
    pub(super) fn of(header: &str) -> Option<Self> {
        let names: Vec<&str> =
            header.split(',').map(|name| name.trim().trim_matches('"')).collect();
        let at = |name: &str| names.iter().position(|known| *known == name);
        KNOWN.iter().find_map(|&(time, clock, input, output)| {
            Some(Self {
                clock,
                time: at(time)?,
                input: at(input)?,
                output: at(output)?,
                class: at("class"),
                prefix: at("prefix_id"),
                prefix_tokens: at("prefix_tokens"),
            })
        })
    }

    fn arrival(&self, record: &StringRecord) -> Result<Arrival, String> {
        let input_tokens = tokens(record, self.input)?;
        if input_tokens == 0 {
            return Err("a prompt without tokens".to_owned());
        }
        let class = self.class.and_then(|at| record.get(at)).map(str::trim);
        Ok(Arrival {
            at_s: self.seconds(record)?,
            input_tokens,
            output_tokens: tokens(record, self.output)?.max(1),
            class: class.filter(|name| !name.is_empty()).map(str::to_owned),
            prefix: self.prefix(record, input_tokens)?,
        })
    }

    fn seconds(&self, record: &StringRecord) -> Result<f64, String> {
        let text = field(record, self.time)?;
        let seconds = match self.clock {
            Clock::DateTime => stamp::seconds(text),
            Clock::Seconds => text.parse().ok(),
            Clock::Millis => text.parse().ok().map(|ms: f64| ms / 1e3),
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
        let id = id.parse().map_err(|_| format!("{id:?} is no prefix_id, a whole number"))?;
        let length = self.prefix_tokens.map(|at| tokens(record, at)).transpose()?;
        Ok(vec![Segment { id, tokens: length.unwrap_or(input_tokens / 2).min(input_tokens) }])
    }
}

pub(super) fn read(file: impl Read, columns: &Columns) -> Result<Vec<Arrival>, BadRow> {
    let mut rows = Vec::new();
    for record in csv::Reader::from_reader(file).into_records() {
        let record = record.map_err(|error| BadRow {
            line: error.position().map_or(0, csv::Position::line),
            reason: error.to_string(),
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        rows.push(columns.arrival(&record).map_err(|reason| BadRow { line, reason })?);
    }
    Ok(rows)
}

fn field(record: &StringRecord, at: usize) -> Result<&str, String> {
    record.get(at).map(str::trim).ok_or_else(|| format!("column {} is missing", at + 1))
}

fn tokens(record: &StringRecord, at: usize) -> Result<u32, String> {
    let text = field(record, at)?;
    text.parse().map_err(|_| format!("{text:?} is no number of tokens"))
}
