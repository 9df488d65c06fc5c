//! `weir-bench advise`: what a pool holds of one's own traffic, how many pods it takes, and which chunk to give the engines.
//!
//! From a trace, or from a day's samples of the dispatcher, every question is answered by simulation of Weir's own scheduler
//! over the modelled engines: the highest load that keeps the promise at each size of the engines' chunk (vLLM:
//! `--max-num-batched-tokens`), the fewest pods that keep it at the traffic's own rate, and the figures around the highest load.
//! Rates are in requests per second, because load 1 is another rate at every chunk.
//!
//! Beside it stands a rule of thumb that needs no simulation: the largest chunk whose full step takes at most 85 % of the
//! tightest TPOT objective. A step that is longer than the objective is a stall for everybody on the pod; below that, a
//! larger chunk wastes fewer steps on prompts.
//!
//! # Layout
//! - `args`: the command line; `spool`: samples as a trace
//! - `chunk`: the sweep and the rule; `pods`: the fewest pods; `traffic`: what is looked at for them
//! - `report`: everything that is told, for people and as JSON

mod args;
mod chunk;
mod pods;
mod report;
mod spool;
#[cfg(test)]
mod tests;
mod traffic;

pub use args::AdviseArgs;

use crate::{study::Row, workload::Objectives};

/// Names of the classes of the highest band.
fn top_band(objectives: &Objectives) -> Vec<&str> {
    let top = objectives.classes.iter().map(|class| class.band).max();
    let banded = objectives.classes.iter().filter(|class| Some(class.band) == top);
    banded.map(|class| class.name.as_str()).collect()
}

/// The rows of these classes, of which the first is all classes together.
fn of_classes<'a>(rows: &'a [Row], classes: &[&str]) -> impl Iterator<Item = &'a Row> {
    rows.iter().skip(1).filter(|row| classes.contains(&row.class.as_str()))
}

/// Attainment of the classes of the highest band in rows of one load, of which the first is all classes together.
fn of_top_band(rows: &[Row], objectives: &Objectives) -> f64 {
    let top = top_band(objectives);
    let rows = of_classes(rows, &top);
    let (met, sent) = rows.fold((0.0, 0.0), |(met, sent), row| {
        let requests = row.requests as f64;
        (met + row.attainment * requests, sent + requests)
    });
    if sent > 0.0 { met / sent } else { 0.0 }
}

/// The row whose latencies stand beside that share: of the class of the highest band, and of all classes together where it has
/// several, whose percentiles do not add up.
fn beside_top_band(rows: &[Row], objectives: &Objectives) -> Row {
    let top = top_band(objectives);
    let only = of_classes(rows, &top).next().filter(|_| top.len() == 1);
    only.or(rows.first()).cloned().unwrap_or_default()
}
