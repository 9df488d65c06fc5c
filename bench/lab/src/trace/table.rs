//! Traces with one row per line and named columns.

use std::{io::BufRead, str};

use csv::ByteRecord;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::Exp1;
use xxhash_rust::xxh3::xxh3_64;

use super::{Arrival, BadRow, gap::Times, lines::Lines, moment, sane, stamp, tick};
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

/// What stands between columns: a comma, or what spreadsheets and `.tsv` files have.
const SEPARATORS: [u8; 3] = [b',', b'\t', b';'];

/// Where the columns of a known file are.
#[derive(Debug)]
pub(super) struct Columns {
    kind: &'static Kind,
    separator: u8,
    /// How many there are, those that nobody reads too.
    count: usize,
    time: Option<usize>,
    input: usize,
    output: usize,
    class: Option<usize>,
    prefix: Option<usize>,
    prefix_tokens: Option<usize>,
    /// One of these that the first line names twice: which of them is meant nobody knows.
    twice: Option<&'static str>,
}

impl Columns {
    /// The columns of a file with this first line, if it is a known one. It is read as rows are: a name may hold a comma.
    pub(super) fn of(header: &str) -> Option<Self> {
        SEPARATORS.into_iter().find_map(|separator| Self::separated_by(separator, header))
    }

    fn separated_by(separator: u8, header: &str) -> Option<Self> {
        let mut reader = csv::ReaderBuilder::new();
        let reader = reader.has_headers(false).delimiter(separator).from_reader(header.as_bytes());
        let header = reader.into_records().next()?.ok()?;
        let names: Vec<&str> = header.iter().map(|name| name.trim().trim_matches('"')).collect();
        let at = |name: &str| names.iter().position(|known| known.eq_ignore_ascii_case(name));
        KNOWN.iter().find_map(|kind| {
            let time = at(kind.time);
            (time.is_some() || kind.clock == Clock::Absent).then_some(())?;
            Some(Self {
                kind,
                separator,
                count: names.len(),
                time,
                input: at(kind.input)?,
                output: at(kind.output)?,
                class: at("class"),
                prefix: at("prefix_id"),
                prefix_tokens: at("prefix_tokens"),
                twice: twice(kind, &names),
            })
        })
    }

    /// Whether rows say when they came.
    pub(super) fn have_times(&self) -> bool {
        self.kind.clock != Clock::Absent
    }

    /// The arrival of a row, or nothing for a request that failed where it was recorded.
    fn arrival(&self, record: &ByteRecord) -> Result<Option<Arrival>, String> {
        if record.len() != self.count {
            let (count, columns) = (record.len(), self.count);
            return Err(format!("{count} values, and the first line has {columns} columns"));
        }
        let input_tokens = tokens(record, self.input)?;
        let output_tokens = tokens(record, self.output)?;
        if self.kind.has_failures && (input_tokens == 0 || output_tokens == 0) {
            return Ok(None);
        }
        if input_tokens == 0 {
            return Err("a prompt without tokens".to_owned());
        }
        let class = self.class.map_or(Ok(""), |at| field(record, at))?;
        Ok(Some(Arrival {
            at_s: self.time.map_or(Ok(0.0), |at| self.seconds(field(record, at)?))?,
            input_tokens,
            output_tokens: output_tokens.max(1),
            class: Some(class).filter(|name| !name.is_empty()).map(str::to_owned),
            prefix: self.prefix(record, input_tokens)?,
        }))
    }

    /// A time is a number of the column's unit, or a date with a time of day.
    fn seconds(&self, text: &str) -> Result<f64, String> {
        let number = text.parse::<f64>().ok();
        let seconds = match self.kind.clock {
            Clock::DateTime => None,
            Clock::Seconds | Clock::Absent => number,
            Clock::Millis => number.map(|ms| ms / 1e3),
        };
        let seconds = seconds.or_else(|| stamp::seconds(text)).unwrap_or(f64::NAN);
        moment(seconds).map_err(|why| format!("{text:?} {why}"))
    }

    /// Rows that name the same prefix share it; without a length it is half of the row's prompt.
    fn prefix(&self, record: &ByteRecord, input_tokens: u32) -> Result<Vec<Segment>, String> {
        let id = self.prefix.map_or(Ok(""), |at| field(record, at))?;
        if id.is_empty() {
            return Ok(Vec::new());
        }
        // A data frame with rows that have none writes numbers with a fraction. Any other name stands for itself.
        let whole = id.strip_suffix(".0").unwrap_or(id);
        let id = whole.parse().unwrap_or_else(|_| xxh3_64(id.as_bytes()));
        let given = |at: &usize| field(record, *at).is_ok_and(|text| !text.is_empty());
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

/// A column that is read and there twice.
fn twice(kind: &Kind, names: &[&str]) -> Option<&'static str> {
    let read = [kind.time, kind.input, kind.output, "class", "prefix_id", "prefix_tokens"];
    let count = |name: &str| names.iter().filter(|known| known.eq_ignore_ascii_case(name)).count();
    read.into_iter().find(|name| !name.is_empty() && count(name) > 1)
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

/// Rows of a file whose first line, that of the columns, is the one of this number.
pub(super) fn read(
    file: impl BufRead,
    first: u64,
    columns: &Columns,
    seed: u64,
) -> Result<Vec<Arrival>, BadRow> {
    if let Some(name) = columns.twice {
        return Err(BadRow { line: first, reason: format!("the column {name:?} is there twice") });
    }
    let (mut rows, mut failed, mut times) = (Vec::new(), 0, Times::default());
    let mut reader = csv::ReaderBuilder::new();
    // How many columns there are is for `arrival` to say, in its words.
    reader.delimiter(columns.separator).flexible(true);
    let mut reader = reader.from_reader(Lines::from(first, file));
    let mut record = ByteRecord::new();
    loop {
        let read = reader.read_byte_record(&mut record);
        let at = record.position().unwrap_or(reader.position()).line();
        let line = reader.get_ref().in_file(at);
        let bad = |reason| BadRow { line, reason };
        if !read.map_err(|error| bad(error.to_string()))? {
            break;
        }
        match columns.arrival(&record).map_err(bad)? {
            Some(arrival) => {
                times.push(arrival.at_s, line);
                rows.push(arrival);
            }
            None => failed += 1,
        }
    }
    times.check()?;
    if failed > 0 {
        let kept = rows.len();
        tracing::warn!(failed, kept, "left out the requests that failed where they were recorded");
    }
    columns.complete(&mut rows, seed);
    Ok(rows)
}

fn field(record: &ByteRecord, at: usize) -> Result<&str, String> {
    let bytes = record.get(at).ok_or_else(|| format!("column {} is missing", at + 1))?;
    let text = str::from_utf8(bytes);
    text.map(str::trim).map_err(|_| format!("column {} is no text in UTF-8", at + 1))
}

/// A whole number, also one that a data frame wrote as `12.0`.
fn tokens(record: &ByteRecord, at: usize) -> Result<u32, String> {
    let text = field(record, at)?;
    let whole = text.strip_suffix(".0").unwrap_or(text);
    whole.parse().map_err(|_| format!("{text:?} is no number of tokens")).and_then(sane)
}
