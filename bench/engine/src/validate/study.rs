//! The readings that are reported: what was fitted on what, and the error on what was held back.
//!
//! A step of an 8B model says nothing exact about a step of a 32B model, so there are two kinds of reading. Within a model:
//! five coefficients and the hinge from the service times of the log's first half, checked on the second half, whose queue
//! is ten times as long. Across models: coefficients of one model carried to the other by its architecture, once with
//! nothing measured there and once with a single factor from the first requests' TPOT. Engine-side parameters (async
//! pipelining, budgets) are never fitted.

use std::fmt::Write;

use crate::config::EngineConfig;
use crate::hardware::Hardware;
use crate::job::Rejected;

use super::{Comparison, Error, Fit, Times, logged_engine, replay};

/// Requests whose TPOT gives the single factor.
const FACTOR_FROM: usize = 30;

/// One row of the report.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What was fitted on what.
    pub fitted: String,
    /// Which requests were held back and are compared.
    pub checked: String,
    /// The configuration that the fit found.
    pub cfg: EngineConfig,
    /// How far it is from the log.
    pub comparison: Comparison,
}

/// Where the search starts for the 8B model on RTX PRO 6000: the H100 row, slower by the ratio of memory bandwidths
/// (3.35 to 1.79 TB/s by the data sheets).
fn start_8b() -> Hardware {
    Hardware {
        name: "rtx-pro-6000-llama-3.1-8b-tp1",
        gpu: "rtx-pro-6000",
        model: "llama-3.1-8b",
        tp: 1,
        m0: 512,
        a_ms: 11.9,
        b_us: 39.9,
        c_us: 21.6,
        d_ns: 78.8,
        e_ns: 1.41,
        num_blocks: 40_000,
        max_num_batched_tokens: 2048,
        max_num_seqs: 128,
    }
}

/// From Llama-3.1-8B to Qwen3-32B by architecture: 8.03 to 32.76 billion weights, 32 to 64 layers with the same 8 KV heads
/// of 128, 32 x 32 to 64 x 64 query heads. `m0` is the card's and stays.
fn to_32b(from: &Hardware) -> Hardware {
    let weights = 32.76 / 8.03;
    Hardware {
        name: "rtx-pro-6000-qwen3-32b-tp1",
        model: "qwen3-32b",
        a_ms: from.a_ms * weights,
        b_us: from.b_us * weights,
        c_us: from.c_us * weights,
        d_ns: from.d_ns * 2.0,
        e_ns: from.e_ns * 4.0,
        ..*from
    }
}

/// All readings from the two logs of one card, Llama-3.1-8B and Qwen3-32B.
pub fn study(llama: &[Times], qwen: &[Times]) -> Result<Vec<Reading>, Rejected> {
    let half = |log: &[Times]| log.len() / 2;
    let small = Fit::new(&logged_engine(&start_8b()), llama, half(llama))?.cfg;
    let large = Fit::new(&logged_engine(&to_32b(&start_8b())), qwen, half(qwen))?.cfg;
    let serial = EngineConfig { async_scheduling: false, ..small.clone() };
    let serial = Fit::new(&serial, llama, half(llama))?.cfg;
    let carried = logged_engine(&to_32b(&small.hardware));
    let paced = Fit::one_factor(&carried, qwen, FACTOR_FROM)?.cfg;
    let row = |fitted: &str, checked: &str, cfg: EngineConfig, log: &[Times], from: usize| {
        let model = replay(&cfg, log, f64::INFINITY)?;
        let held_back = log.iter().zip(&model).skip(from);
        let (log, model): (Vec<Times>, Vec<Times>) = held_back.map(|(l, m)| (*l, *m)).unzip();
        let comparison = Comparison::of(&log, &model);
        Ok(Reading { fitted: fitted.into(), checked: checked.into(), cfg, comparison })
    };
    Ok(vec![
        row("8B, first half", "8B, second half", small, llama, half(llama))?,
        row("32B, first half", "32B, second half", large, qwen, half(qwen))?,
        row("8B, scaled by architecture", "32B, all", carried, qwen, 0)?,
        row("8B, and 32B's pace from 30 TPOTs", "32B, the rest", paced, qwen, FACTOR_FROM)?,
        row("8B, first half, no async", "8B, second half", serial, llama, half(llama))?,
    ])
}

/// The readings as text: median, mean and bias of the relative error per quantity.
pub fn table(readings: &[Reading]) -> String {
    let mut text = format!("{:<34}{:<18}{:>4}", "fitted on", "checked on", "n");
    for quantity in ["ttft", "tpot", "queue", "prefill", "e2e"] {
        let _ = write!(text, "{quantity:>24}");
    }
    text.push_str("\n(median / mean / bias, %)\n");
    for reading in readings {
        let c = &reading.comparison;
        let _ = write!(text, "{:<34}{:<18}{:>4}", reading.fitted, reading.checked, c.requests);
        for error in [c.ttft, c.tpot, c.queue, c.prefill, c.e2e] {
            let _ = write!(text, "{:>24}", percent(&error));
        }
        text.push('\n');
    }
    text
}

fn percent(error: &Error) -> String {
    let [median, mean, bias] = [error.median, error.mean, error.bias].map(|x| x * 100.0);
    format!("{median:.1} / {mean:.1} / {bias:+.1}")
}
