//! AIBrix's profile: throughput and latency by output and input tokens, under an objective.
//!
//! A cell holds the highest request rate at which the objective was met, and the latencies there, in
//! seconds. The file is read as its profiler writes it, `NaN` included. What is made of it:
//!
//! - **Refused**, with the cell named: no `e2e` (capacity would be unknown, and AIBrix then admits
//!   without bound), matrices of another shape than `indexes`, an axis that does not ascend, and a
//!   rate above zero beside a latency that is none.
//! - **Infeasible**, noted by name: a rate of zero or `NaN`; a rate well above that of a smaller
//!   pattern, or above zero where a smaller one has zero: the larger is harder, so one of the two was
//!   mismeasured and the larger is not believed. Harder are, under an objective for the end or the
//!   first token, more input and more output tokens; under one per output token only more input.
//! - **Unknown**, noted by name: a TTFT or TPOT that is no latency. They are optional.
//!
//! Between cells values are interpolated along the logarithms of tokens and value, over the feasible
//! neighbours: rate x latency is then the same whether it is interpolated before or after the product. Whether
//! a pattern is feasible is decided by the nearest cell in `log2`, as in AIBrix; halfway the larger
//! decides. Outside the grid the edge is read and said to be one.

mod draft;

use std::fmt;

use serde_json::Value;

use self::draft::{Cells, Draft};
use super::{ProfileError, Reading, axis::place};

/// One pattern as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Highest request rate under the objective, per second.
    pub rps: f64,
    /// End-to-end latency at that rate, in seconds.
    pub e2e_s: f64,
    /// Time to the first token at that rate, in seconds.
    pub ttft_s: Option<f64>,
    /// Time per output token after the first at that rate, in seconds.
    pub tpot_s: Option<f64>,
}

/// A pattern that cannot be served under the profile's objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Infeasible {
    /// Input tokens of the cell.
    pub input_tokens: f64,
    /// Output tokens of the cell.
    pub output_tokens: f64,
    /// Its place: row and column of `tputs`.
    pub at: [usize; 2],
    /// Why.
    pub why: WhyInfeasible,
}

/// Why a cell cannot be served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyInfeasible {
    /// No rate met the objective.
    ZeroRate,
    /// The rate is `NaN`.
    UnknownRate,
    /// A smaller pattern has a much lower rate.
    NotMonotone {
        /// The rate of this pattern, per second.
        rps: f64,
        /// The rate of the smaller one, per second.
        smaller_rps: f64,
    },
    /// A smaller pattern is infeasible.
    SmallerInfeasible,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([row, column], input, output) = (self.at, self.input_tokens, self.output_tokens);
        write!(f, "tputs[{row}][{column}] ({input} in, {output} out): infeasible, ")?;
        match self.why {
            WhyInfeasible::ZeroRate => f.write_str("no rate met the profile's objective"),
            WhyInfeasible::UnknownRate => f.write_str("the rate is not a number"),
            WhyInfeasible::NotMonotone { rps, smaller_rps } => {
                write!(f, "{rps:.3}/s but {smaller_rps:.3}/s for a smaller pattern")
            }
            WhyInfeasible::SmallerInfeasible => f.write_str("a smaller pattern is infeasible"),
        }
    }
}

/// The objectives that the profile was made under, in seconds; of a deployment, not of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objectives {
    /// End-to-end latency.
    pub e2e_s: Option<f64>,
    /// Time to the first token.
    pub ttft_s: Option<f64>,
    /// Time per token of prompt and output.
    pub tpat_s: Option<f64>,
    /// Time per output token.
    pub tpot_s: Option<f64>,
}

/// A profile whose every feasible cell has a rate and a latency.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternProfile {
    /// Name of the deployment it was made for.
    pub gpu: String,
    /// Its cost, in the unit of whoever wrote the file.
    pub cost: f64,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: f64,
    /// What it was made under.
    pub objectives: Objectives,
    inputs_log2: Vec<f64>,
    outputs_log2: Vec<f64>,
    cells: Cells,
    unknown: Vec<String>,
}

impl PatternProfile {
    /// The cell of a pattern, interpolated.
    ///
    /// # Errors
    /// When the nearest cell is infeasible.
    pub fn at(&self, input: f64, output: f64) -> Result<Reading<Cell>, &Infeasible> {
        let column = place(&self.inputs_log2, input.max(1.0).log2());
        let row = place(&self.outputs_log2, output.max(1.0).log2());
        let cell = |row: usize, column: usize| self.cells.get(row)?.get(column);
        let nearer = |place: super::axis::Place| {
            if place.share >= 0.5 { place.high } else { place.low }
        };
        if let Some(Err(infeasible)) = cell(nearer(row), nearer(column)) {
            return Err(infeasible);
        }
        if let (0.0, 0.0, Some(Ok(cell))) = (row.share, column.share, cell(row.low, column.low)) {
            return Ok(Reading { value: *cell, inside: row.inside && column.inside });
        }
        let mut mean = MeanCell::default();
        for (row_index, row_share) in [(row.low, 1.0 - row.share), (row.high, row.share)] {
            for (index, share) in [(column.low, 1.0 - column.share), (column.high, column.share)] {
                if let Some(Ok(cell)) = cell(row_index, index) {
                    mean.add(cell, row_share * share);
                }
            }
        }
        Ok(Reading { value: mean.cell(), inside: row.inside && column.inside })
    }

    /// The cells that can be served, row by row.
    pub fn feasible(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().flatten().filter_map(|cell| cell.as_ref().ok())
    }

    /// The cells that cannot be served, row by row.
    pub fn infeasible(&self) -> impl Iterator<Item = &Infeasible> {
        self.cells.iter().flatten().filter_map(|cell| cell.as_ref().err())
    }

    /// The number of cells.
    pub fn len(&self) -> usize {
        self.cells.iter().map(Vec::len).sum()
    }

    /// Whether there is no cell; a profile that was read has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let infeasible = self.infeasible().map(ToString::to_string);
        infeasible.chain(self.unknown.iter().cloned()).collect()
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// As the module's documentation says.
    pub(super) fn from_json(value: &Value) -> Result<Self, ProfileError> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let plain = |key: &str| value.get(key).and_then(Value::as_f64).unwrap_or_default();
        let objective = |key: &str| value.get("slos")?.get(key)?.as_f64().filter(|s| *s > 0.0);
        let objectives = Objectives {
            e2e_s: objective("e2e"),
            ttft_s: objective("ttft"),
            tpat_s: objective("tpat"),
            tpot_s: objective("tpot"),
        };
        let draft = Draft::from_json(value, &objectives)?;
        let (cells, unknown) = draft.cells()?;
        let log2 = |axis: &[f64]| axis.iter().map(|tokens| tokens.log2()).collect();
        Ok(Self {
            gpu: text("gpu").to_owned(),
            cost: plain("cost"),
            created_unix_s: plain("created"),
            objectives,
            inputs_log2: log2(&draft.inputs),
            outputs_log2: log2(&draft.outputs),
            cells,
            unknown,
        })
    }
}

/// Geometric mean of cells by weight.
#[derive(Default)]
struct MeanCell {
    rps: MeanLog,
    e2e_s: MeanLog,
    ttft_s: MeanLog,
    tpot_s: MeanLog,
}

#[derive(Default)]
struct MeanLog {
    sum: f64,
    weight: f64,
}

impl MeanLog {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += weight * value.ln();
        self.weight += weight;
    }

    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| (self.sum / self.weight).exp())
    }
}

impl MeanCell {
    fn add(&mut self, cell: &Cell, weight: f64) {
        self.rps.add(cell.rps, weight);
        self.e2e_s.add(cell.e2e_s, weight);
        cell.ttft_s.into_iter().for_each(|ttft_s| self.ttft_s.add(ttft_s, weight));
        cell.tpot_s.into_iter().for_each(|tpot_s| self.tpot_s.add(tpot_s, weight));
    }

    /// The nearest cell is feasible, so there is always a rate and a latency.
    fn cell(&self) -> Cell {
        Cell {
            rps: self.rps.value().unwrap_or_default(),
            e2e_s: self.e2e_s.value().unwrap_or_default(),
            ttft_s: self.ttft_s.value(),
            tpot_s: self.tpot_s.value(),
        }
    }
}

#[cfg(test)]
#[path = "aibrix_tests.rs"]
mod tests;
