//! What every look at the pods saw, as a file for pictures.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::{
    rule::Rule,
    run::{Figures, Moment},
};

/// A line of the file.
#[derive(Debug, Serialize)]
struct Line<'a> {
    rule: &'a str,
    t_s: f64,
    arrivals: usize,
    ready: usize,
    starting: usize,
    wanted: usize,
    load: Option<f64>,
    held: Option<f64>,
    in_time: usize,
}

/// Writes the first seed of every rule as CSV, with a line that names the columns.
pub(super) fn write(to: &mut dyn Write, played: &[(Rule, Vec<Figures>)]) -> Result<()> {
    let mut lines = csv::Writer::from_writer(to);
    for (rule, seeds) in played {
        let rule = rule.to_string();
        for moment in seeds.iter().take(1).flat_map(|seed| &seed.series) {
            lines.serialize(line(&rule, moment))?;
        }
    }
    lines.flush()?;
    Ok(())
}

fn line<'a>(rule: &'a str, moment: &Moment) -> Line<'a> {
    let Moment { t_s, arrivals, ready, starting, wanted, load, held, in_time } = *moment;
    Line { rule, t_s, arrivals, ready, starting, wanted, load, held, in_time }
}
