//! The matrices of a file, and what may be believed of them.
//!
//! [`PatternProfile`](super::PatternProfile) asks once, when a file is read; the rules and their
//! reasons are in its module.

use serde_json::Value;

use super::{Cell, Infeasible, Objectives, WhyInfeasible};
use crate::profile::{ProfileError, text::number};

/// The profiler accepts a throughput from 0.9 of the offered rate on (`TPUT_TOLERANCE`), so two cells
/// measured at one rate may differ by that much.
const RATE_TOLERANCE: f64 = 0.9;

/// Shortest latency believed: ten microseconds, in seconds. Files in the field hold a TTFT of one
/// microsecond, measured by a client whose server did not stream.
const LEAST_LATENCY_S: f64 = 1e-5;

/// Rows of output tokens, columns of input tokens.
pub(super) type Cells = Vec<Vec<Result<Cell, Infeasible>>>;

type Matrix = Vec<Vec<f64>>;

/// The matrices of a file, all of one shape.
pub(super) struct Draft {
    pub(super) inputs: Vec<f64>,
    pub(super) outputs: Vec<f64>,
    tputs: Matrix,
    e2e: Matrix,
    ttft: Option<Matrix>,
    tpot: Option<Matrix>,
    harder: Harder,
}

/// Along which axis a larger pattern can only be harder to serve, so that its rate must not rise.
#[derive(Clone, Copy)]
struct Harder {
    by_output: bool,
    by_input: bool,
}

impl Harder {
    /// A longer prompt is harder under any fixed objective, but not under one per token of prompt and
    /// output. A longer output is harder under one for the end or the first token, but not under one
    /// per output token: the same prompts then fall on more of them.
    fn under(objectives: &Objectives) -> Self {
        let per_token = objectives.tpat_s.is_some() || objectives.tpot_s.is_some();
        let whole = objectives.e2e_s.is_some() || objectives.ttft_s.is_some();
        Self { by_output: whole && !per_token, by_input: objectives.tpat_s.is_none() }
    }
}

impl Draft {
    pub(super) fn from_json(value: &Value, objectives: &Objectives) -> Result<Self, ProfileError> {
        let (outputs, inputs) = (axis(value, 0)?, axis(value, 1)?);
        let shape = [outputs.len(), inputs.len()];
        let required = |key: &str, missing: &str| {
            matrix(value, key, shape)?.ok_or_else(|| ProfileError::wrong(key, missing))
        };
        Ok(Self {
            tputs: required("tputs", "is missing")?,
            e2e: required("e2e", "is missing; without it no capacity RPS x E2E is known")?,
            ttft: matrix(value, "ttft", shape)?,
            tpot: matrix(value, "tpot", shape)?,
            inputs,
            outputs,
            harder: Harder::under(objectives),
        })
    }

    /// The cells, and what is unknown in them, by name.
    pub(super) fn cells(&self) -> Result<(Cells, Vec<String>), ProfileError> {
        let mut unknown = Vec::new();
        let mut cells = Vec::with_capacity(self.outputs.len());
        // The lowest rate believed of any smaller pattern in the row above, column by column.
        let mut above = vec![f64::INFINITY; self.inputs.len()];
        for row in 0..self.outputs.len() {
            let mut before = f64::INFINITY;
            let mut line = Vec::with_capacity(self.inputs.len());
            for (column, above) in above.iter_mut().enumerate() {
                let by_output = if self.harder.by_output { *above } else { f64::INFINITY };
                let by_input = if self.harder.by_input { before } else { f64::INFINITY };
                let smaller_rps = by_output.min(by_input);
                let cell = self.judge(row, column, smaller_rps, &mut unknown)?;
                before = match &cell {
                    Ok(cell) => smaller_rps.min(cell.rps),
                    Err(infeasible) if infeasible.why == WhyInfeasible::ZeroRate => 0.0,
                    Err(_) => smaller_rps,
                };
                *above = before;
                line.push(cell);
            }
            cells.push(line);
        }
        if cells.iter().flatten().all(Result::is_err) {
            return Err(ProfileError::wrong("tputs", "no pattern is feasible"));
        }
        Ok((cells, unknown))
    }

    fn judge(
        &self,
        row: usize,
        column: usize,
        smaller_rps: f64,
        unknown: &mut Vec<String>,
    ) -> Result<Result<Cell, Infeasible>, ProfileError> {
        let rps = entry(&self.tputs, row, column);
        let why = match rps {
            rps if rps.is_nan() => WhyInfeasible::UnknownRate,
            rps if rps < 0.0 => {
                let part = self.name("tputs", row, column);
                return Err(ProfileError::wrong(part, "must not be negative"));
            }
            0.0 => WhyInfeasible::ZeroRate,
            _ if smaller_rps == 0.0 => WhyInfeasible::SmallerInfeasible,
            rps if rps * RATE_TOLERANCE > smaller_rps => {
                WhyInfeasible::NotMonotone { rps, smaller_rps }
            }
            _ => return self.cell(row, column, unknown).map(Ok),
        };
        Ok(Err(self.infeasible(row, column, why)))
    }

    fn infeasible(&self, row: usize, column: usize, why: WhyInfeasible) -> Infeasible {
        Infeasible {
            input_tokens: self.inputs.get(column).copied().unwrap_or_default(),
            output_tokens: self.outputs.get(row).copied().unwrap_or_default(),
            at: [row, column],
            why,
        }
    }

    fn cell(
        &self,
        row: usize,
        column: usize,
        unknown: &mut Vec<String>,
    ) -> Result<Cell, ProfileError> {
        let e2e_s = entry(&self.e2e, row, column);
        if !is_latency(e2e_s) {
            let part = self.name("e2e", row, column);
            let why = format!("{e2e_s} is no latency, though the rate is above 0");
            return Err(ProfileError::wrong(part, why));
        }
        let mut optional = |key: &str, matrix: &Option<Matrix>| {
            let value = entry(matrix.as_ref()?, row, column);
            if is_latency(value) {
                return Some(value);
            }
            let name = self.name(key, row, column);
            unknown.push(format!("{name}: {value} is no latency; unknown"));
            None
        };
        let ttft_s = optional("ttft", &self.ttft);
        let decoded = self.outputs.get(row).copied().unwrap_or_default() - 1.0;
        let derived = || ttft_s.map(|ttft_s| (e2e_s - ttft_s) / decoded);
        let tpot_s = optional("tpot", &self.tpot);
        let tpot_s = tpot_s.or_else(|| derived().filter(|tpot_s| is_latency(*tpot_s)));
        Ok(Cell { rps: entry(&self.tputs, row, column), e2e_s, ttft_s, tpot_s })
    }

    fn name(&self, key: &str, row: usize, column: usize) -> String {
        let of = |axis: &[f64], index: usize| axis.get(index).copied().unwrap_or_default();
        let (input, output) = (of(&self.inputs, column), of(&self.outputs, row));
        format!("{key}[{row}][{column}] ({input} in, {output} out)")
    }
}

fn is_latency(seconds: f64) -> bool {
    seconds.is_finite() && seconds >= LEAST_LATENCY_S
}

fn entry(matrix: &Matrix, row: usize, column: usize) -> f64 {
    matrix.get(row).and_then(|row| row.get(column)).copied().unwrap_or(f64::NAN)
}

/// Axis 0 is output tokens, 1 input tokens.
fn axis(value: &Value, which: usize) -> Result<Vec<f64>, ProfileError> {
    let part = format!("indexes[{which}]");
    let axis = value.get("indexes").and_then(|axes| axes.get(which)).and_then(Value::as_array);
    let axis = axis.ok_or_else(|| ProfileError::wrong(&part, "is missing"))?;
    let axis: Option<Vec<f64>> = axis.iter().map(number).collect();
    let axis = axis.ok_or_else(|| ProfileError::wrong(&part, "must hold numbers"))?;
    let sound = axis.iter().all(|tokens| tokens.is_finite() && *tokens >= 1.0);
    let ascends = axis.is_sorted_by(|one, next| one < next);
    if axis.is_empty() || !sound || !ascends {
        return Err(ProfileError::wrong(part, "must ascend from at least 1"));
    }
    Ok(axis)
}

/// `None` when the key is absent or null.
fn matrix(
    value: &Value,
    key: &str,
    [rows, columns]: [usize; 2],
) -> Result<Option<Matrix>, ProfileError> {
    let Some(value) = value.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
    let found = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if found.len() != rows {
        let why = format!("{} rows for {rows} output lengths", found.len());
        return Err(ProfileError::wrong(key, why));
    }
    let mut matrix = Matrix::with_capacity(rows);
    for (index, row) in found.iter().enumerate() {
        let part = format!("{key}[{index}]");
        let row = row.as_array().map(Vec::as_slice).unwrap_or_default();
        if row.len() != columns {
            let why = format!("{} cells for {columns} input lengths", row.len());
            return Err(ProfileError::wrong(part, why));
        }
        let row: Option<Vec<f64>> = row.iter().map(number).collect();
        matrix.push(row.ok_or_else(|| ProfileError::wrong(part, "must hold numbers"))?);
    }
    Ok(Some(matrix))
}
