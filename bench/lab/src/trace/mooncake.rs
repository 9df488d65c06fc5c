//! Mooncake traces: one JSON object per line, timestamps rounded to ticks, prefix blocks by id.
//!
//! The conversation trace has every timestamp on a multiple of three seconds. Replayed as it stands it would arrive in
//! volleys (a coefficient of variation of 3 that the traffic did not have), so the rows of one tick are spread uniformly
//! over it, in the file's order. The tick is the smallest gap between two different timestamps that one gap in
//! twenty has; the synthetic trace, whose timestamps are exact to the millisecond, has none, and is left as it is.

use std::io::BufRead;

use serde::Deserialize;

use super::{
    Arrival, BadRow,
    gap::Times,
    moment, sane,
    tick::{self, Tick},
};
use crate::prompt::Segment;

/// Tokens that one `hash_id` stands for.
const BLOCK_TOKENS: u32 = 512;

#[derive(Deserialize)]
struct Row {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Rows of a file that begins at a line.
pub(super) fn read(file: impl BufRead, first: u64, seed: u64) -> Result<Vec<Arrival>, BadRow> {
    let (mut rows, mut times) = (Vec::new(), Times::default());
    for (line, text) in (first..).zip(file.lines()) {
        let bad = |reason: String| BadRow { line, reason };
        let text = text.map_err(|error| bad(error.to_string()))?;
        if text.trim().is_empty() {
            continue;
        }
        let row: Row = serde_json::from_str(&text).map_err(|error| bad(no_row(&error)))?;
        if row.input_length == 0 {
            return Err(bad("a prompt without tokens".to_owned()));
        }
        let at_s = moment(row.timestamp / 1e3).map_err(|why| bad(format!("timestamp {why}")))?;
        sane(row.input_length).and(sane(row.output_length)).map_err(bad)?;
        times.push(at_s, line);
        rows.push(arrival(row));
    }
    times.check()?;
    if let Some(Tick { length_s, shorter }) = tick::found(&mut rows) {
        if shorter > 0 {
            tracing::warn!(
                tick_s = length_s,
                shorter,
                "times are rounded to ticks, and some are not"
            );
        } else {
            tracing::info!(tick_s = length_s, "times are rounded to ticks");
        }
        tick::spread(&mut rows, length_s, seed);
    }
    Ok(rows)
}

/// What is wrong with a line. The place that the parser names is within the line, of which it knows nothing else.
fn no_row(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let said = said.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&said);
    format!(
        "{said}, column {column}; a line is an object with timestamp (ms), input_length, output_length and hash_ids"
    )
}

fn arrival(row: Row) -> Arrival {
    Arrival {
        at_s: row.timestamp / 1e3,
        input_tokens: row.input_length,
        output_tokens: row.output_length.max(1),
        class: None,
        prefix: row.hash_ids.iter().map(|&id| Segment { id, tokens: BLOCK_TOKENS }).collect(),
    }
}
