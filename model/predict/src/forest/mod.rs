//! A bundle's trees, flattened: the evaluator of the hot path.
//!
//! [`Forest::build`] reads the graph itself, understands it as `column x scale x exp(sum of leaves)` per
//! latency, and lays its trees out for the processor. A graph of any other form is [`Unfit`], with the
//! reason, and stays with ONNX Runtime. A forest answers as the graph does up to the rounding of sums and
//! of the exponential: values are compared as 32-bit floats, and a missing value goes where its node says.
//! Nobody has to believe that: [`crate::Bundle`] compares before one serves.
//!
//! # Layout
//! - [`plan`]: from the graph's nodes to one product per latency; [`ensemble`]: its tree ensembles
//! - [`padded`]: a tree as three arrays; [`kernel`]: rows through them
//! - [`check`]: the rows on which it is compared with ONNX Runtime
//! - [`unfit`]: why a graph stays with ONNX Runtime
#![expect(rustdoc::private_intra_doc_links, reason = "the layout is for readers of the source")]

pub(crate) mod check;
mod ensemble;
mod kernel;
mod padded;
mod plan;
#[cfg(test)]
mod tests;
mod unfit;

use weir_schema::{FEATURE_COUNT, Row, onnx::graph};

use self::{kernel::Score, padded::Trees, plan::Plan};
pub use self::{padded::DEEPEST, unfit::Unfit};

/// Largest graph that is read, in bytes: eight times the usual one of 300 trees of depth 6 per target.
const MODEL_CAP: usize = 16 << 20;

/// The trees of one bundle with their output buffer.
#[derive(Debug)]
pub struct Forest {
    trees: Box<dyn Score>,
    /// Reused by every batch.
    medians: Vec<[f32; 2]>,
}

impl Forest {
    /// The trees in the bytes of a graph.
    ///
    /// # Errors
    /// When anything in the graph is not understood.
    pub fn build(model: &[u8]) -> Result<Self, Unfit> {
        if model.len() > MODEL_CAP {
            return Err(Unfit::Size);
        }
        let plan = Plan::of(&graph::read(model)?)?;
        let trees: Box<dyn Score> = match plan.depth() {
            0..=4 => Box::new(Trees::<16>::of(&plan)?),
            5..=6 => Box::new(Trees::<64>::of(&plan)?),
            7..=DEEPEST => Box::new(Trees::<256>::of(&plan)?),
            depth => return Err(Unfit::Depth { depth, most: DEEPEST }),
        };
        Ok(Self { trees, medians: Vec::new() })
    }

    /// Median TTFT and TPOT of each row, in milliseconds and as the trees gave them: not checked for
    /// being finite or sane. Allocates only for a batch that is larger than any before.
    pub fn evaluate(&mut self, rows: &[Row]) -> &[[f32; 2]] {
        self.medians.clear();
        self.medians.reserve(rows.len());
        self.trees.score(rows, &mut self.medians);
        &self.medians
    }

    /// The values that its nodes compare each column with.
    fn thresholds(&self) -> [Vec<f32>; FEATURE_COUNT] {
        let mut found = [const { Vec::new() }; FEATURE_COUNT];
        self.trees.each_question(&mut |column, below| {
            if let Some(list) = found.get_mut(column) {
                list.push(below);
            }
        });
        for list in &mut found {
            list.sort_unstable_by(f32::total_cmp);
            list.dedup();
        }
        found
    }
}
