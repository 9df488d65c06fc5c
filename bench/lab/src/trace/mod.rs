//! Recorded arrivals from files, in the order of time.
//!
//! [`read`] recognises a file by its first line and returns its rows with the first one at second 0; [`Window`] cuts and
//! compresses them. No trace holds text: a row is an arrival, two lengths, and where the source has it a class and the
//! identity of its prefix. A row that cannot be read is an error that names its line: a replay that silently lost rows
//! would measure a load that nobody asked for. The one exception is BurstGPT, which holds requests that failed at the provider
//! (no response tokens, often no request tokens): what they would have cost is not known, so they are left out, as the source's
//! own files "without fails" do, and their number is logged. Its timestamps are whole seconds and are spread over their second.
//! A file of lengths only gets Poisson arrivals, one per second on average. Blank lines are passed over, and columns are separated
//! by commas, tabs or semicolons; their names count in any case. A time far from all others is refused (`trace::gap`).
//!
//! | file | recognised by | prefix identity |
//! |---|---|---|
//! | Mooncake | JSON objects with `hash_ids` | 512 tokens per id, chained |
//! | Azure | `TIMESTAMP,ContextTokens,GeneratedTokens` | none |
//! | ServeGen | `timestamp_s,..,input_tokens,output_tokens` | none |
//! | AIBrix | `timestamp_ms,prompt_length,output_length` | none |
//! | BurstGPT | `Timestamp,Model,Request tokens,Response tokens,..` | none |
//! | Vidur | `num_prefill_tokens,num_decode_tokens`, with or without `arrived_at` | none |
//! | plain | `arrival_s,input_tokens,output_tokens[,class][,prefix_id][,prefix_tokens]` | `prefix_id` |

mod gap;
mod lines;
mod mooncake;
mod stamp;
mod table;
mod tick;

#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use crate::prompt::Segment;

/// What `--trace` takes, in the help of every command that has it.
pub(crate) const TRACE_HELP: &str = "Trace: Mooncake, Azure, ServeGen, BurstGPT, AIBrix, Vidur, or \
     arrival_s,input_tokens,output_tokens[,class][,prefix_id][,prefix_tokens]";

/// What some systems begin a file with: it says that it is UTF-8.
const MARK: &str = "\u{feff}";
/// What a file begins with that is no text in UTF-8, and what is to be said of it.
const NO_TEXT: [(&[u8], &str); 8] = [
    (&[0x1f, 0x8b], "packed by gzip: unpack it first, with gunzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "packed by zstd: unpack it first, with unzstd"),
    (b"PK\x03\x04", "packed by zip, as spreadsheets are too: unpack it, or save it as CSV"),
    (b"\xfd7zXZ\0", "packed by xz: unpack it first, with unxz"),
    (b"BZh", "packed by bzip2: unpack it first, with bunzip2"),
    (b"PAR1", "a Parquet file: write it as CSV first"),
    (&[0xff, 0xfe], "text in UTF-16: write it in UTF-8 first, with iconv -f UTF-16 -t UTF-8"),
    (&[0xfe, 0xff], "text in UTF-16: write it in UTF-8 first, with iconv -f UTF-16 -t UTF-8"),
];
/// Bytes of a first line that are looked at. No header is as long, and a file without line ends is not read whole for it.
const LONGEST: u64 = 1 << 16;
/// Characters that a message shows of a first line that nobody knows, or of a name.
const SHOWN: usize = 120;
/// Tokens of a prompt or an answer at most. No model takes as many, and more are a mistake that would be simulated for hours.
const MOST_TOKENS: u32 = 10_000_000;
/// Seconds since 1970 of the year 5138. What is later was written in another unit: milliseconds since 1970 are a thousand times
/// as many, and a rate by them a thousandth.
const LATEST_S: f64 = 1e11;

/// A length, if one can be as long.
fn sane(tokens: u32) -> Result<u32, String> {
    if tokens > MOST_TOKENS {
        return Err(format!("{tokens} tokens are more than the {MOST_TOKENS} that a row may have"));
    }
    Ok(tokens)
}

/// A time of arrival, if it can be one.
fn moment(at_s: f64) -> Result<f64, String> {
    if !at_s.is_finite() || at_s < 0.0 {
        return Err("is no time of arrival".to_owned());
    }
    if at_s >= LATEST_S {
        return Err("is after the year 5000: is it in another unit than its column's?".to_owned());
    }
    Ok(at_s)
}

/// The beginning of what a file holds, as much as a message shows of it.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Seconds after the trace's first row.
    pub at_s: f64,
    /// Prompt length in tokens, at least 1.
    pub input_tokens: u32,
    /// Output length in tokens, at least 1.
    pub output_tokens: u32,
    /// The row's own class, where the file has such a column.
    pub class: Option<String>,
    /// What it shares with other rows, from its first token on; may be longer than the prompt.
    pub prefix: Vec<Segment>,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A row is malformed.
    #[error("{} line {line}: {reason}", path.display())]
    Row {
        /// Which file.
        path: PathBuf,
        /// Which line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// It is no text.
    #[error("{} is {what}", path.display())]
    NoText {
        /// Which file.
        path: PathBuf,
        /// What it is instead, and what to do.
        what: &'static str,
    },
    /// The first line is none that the lab knows.
    #[error("{}: no known trace starts with {header:?}; first lines that are known: {}", path.display(), known())]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// Its first line, cut.
        header: String,
    },
    /// There is no row in it.
    #[error("{} has no rows", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// The first lines that are known.
fn known() -> String {
    let tables = table::known().collect::<Vec<_>>().join("; ");
    format!(
        "{tables}; or lines of JSON objects with timestamp, input_length, output_length, hash_ids"
    )
}

/// What is wrong on which line, before the file's name is known.
#[derive(Debug, PartialEq, Eq)]
struct BadRow {
    line: u64,
    reason: String,
}

/// A file of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    /// Its rows in the order of time, the first at second 0.
    pub(crate) rows: Vec<Arrival>,
    /// Whether the file says when they came: a rate that it does not have is nobody's.
    pub(crate) is_timed: bool,
}

/// Reads a trace. `seed` places the arrivals inside the ticks of a source that rounds its timestamps, and everywhere in a file
/// without any.
///
/// # Errors
/// When the file cannot be read, is of no known kind, has no rows or has a malformed one.
pub fn read(path: &Path, seed: u64) -> Result<Vec<Arrival>, TraceError> {
    recorded(path, seed).map(|recorded| recorded.rows)
}

/// The same, and whether the file has times.
///
/// # Errors
/// As for [`read`].
pub(crate) fn recorded(path: &Path, seed: u64) -> Result<Recorded, TraceError> {
    let io = |source| TraceError::Io { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    let begins = file.fill_buf().map_err(io)?;
    if let Some((_, what)) = NO_TEXT.iter().find(|(with, _)| begins.starts_with(with)) {
        return Err(TraceError::NoText { path: path.to_owned(), what });
    }
    let (first, at) = first_line(&mut file).map_err(io)?;
    if first.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    let whole = first.as_slice().chain(file);
    let (parsed, is_timed) = if first.trim_ascii_start().first() == Some(&b'{') {
        (mooncake::read(whole, at, seed), true)
    } else {
        let header = String::from_utf8_lossy(&first);
        let Some(columns) = table::Columns::of(header.trim()) else {
            let header = shown(header.trim());
            return Err(TraceError::Unknown { path: path.to_owned(), header });
        };
        (table::read(whole, at, &columns, seed), columns.have_times())
    };
    let bad = |BadRow { line, reason }| TraceError::Row { path: path.to_owned(), line, reason };
    let rows = parsed.map_err(bad)?;
    if rows.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    Ok(Recorded { rows: from_zero(rows), is_timed })
}

/// The first line that is not blank, without a mark before it, and which it is, counted from 1. It is empty where there is none.
fn first_line(file: &mut impl BufRead) -> io::Result<(Vec<u8>, u64)> {
    for at in 1.. {
        let mut line = Vec::new();
        if file.take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let line =
            if at == 1 { line.strip_prefix(MARK.as_bytes()).unwrap_or(&line) } else { &line };
        if !line.trim_ascii().is_empty() {
            return Ok((line.to_vec(), at));
        }
    }
    Ok((Vec::new(), 1))
}

/// Rows in order of time, the first at 0; rows of equal time keep the file's order.
fn from_zero(mut rows: Vec<Arrival>) -> Vec<Arrival> {
    rows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let start = rows.first().map_or(0.0, |row| row.at_s);
    rows.iter_mut().for_each(|row| row.at_s -= start);
    rows
}

/// A stretch of a trace and how fast it is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First second of the trace that is replayed.
    pub from_s: f64,
    /// Seconds of the trace that are replayed; `None` is to its end.
    pub for_s: Option<f64>,
    /// Trace seconds per second of replay.
    pub speed: f64,
}

impl Window {
    /// The rows inside, with the window's start at second 0 and time compressed.
    pub fn cut(&self, rows: Vec<Arrival>) -> Vec<Arrival> {
        let end_s = self.for_s.map_or(f64::INFINITY, |for_s| self.from_s + for_s);
        rows.into_iter()
            .filter(|row| row.at_s >= self.from_s && row.at_s < end_s)
            .map(|row| Arrival { at_s: (row.at_s - self.from_s) / self.speed, ..row })
            .collect()
    }
}
