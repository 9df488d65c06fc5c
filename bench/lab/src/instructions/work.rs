//! What is counted.

use anyhow::{Context, Result};
use weir_predict::Chain;

use crate::decide::{Course, Leaves, drive, turnover_us};

/// Requests put into the board and taken out.
const TURNS: u64 = 20_000;

/// A workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    /// What one of its counts is of.
    pub(super) per: &'static str,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Pods, requests that wait and cannot go, decisions.
    Decide(usize, usize, u64),
    /// Requests that wait.
    Queue(u64),
}

/// The workloads. Predictions are those of the step-time model, which needs no library and no file.
pub(super) const ALL: [Work; 3] = [
    Work { name: "decide-100", per: "decision, 100 pods", what: What::Decide(100, 0, 1000) },
    Work {
        name: "decide-100-blocked",
        per: "decision, 100 pods, 1,000 waiting",
        what: What::Decide(100, 1000, 1000),
    },
    Work {
        name: "queue-10000",
        per: "request in and out, 10,000 waiting",
        what: What::Queue(10_000),
    },
];

impl Work {
    /// The workload of a name.
    pub(super) fn named(name: &str) -> Result<&'static Self> {
        ALL.iter().find(|work| work.name == name).with_context(|| format!("no workload {name:?}"))
    }

    /// Does it, and says how many times over. `handicap` is how often more each call is padded with idle work.
    pub(super) fn run(&self, handicap: u32) -> u64 {
        match self.what {
            What::Decide(pods, depth, decisions) => {
                let course = Course {
                    pods,
                    qps: 10_000.0,
                    patterns: 20,
                    load: 1.0,
                    unstreamed: 0.0,
                    unpromised: 0.0,
                    depth,
                    warm_up: 0,
                    decisions,
                    seed: 1,
                    is_timed: false,
                    handicap,
                };
                drive(&course, Box::new(Chain::new()), false).all_dispatched
            }
            What::Queue(depth) => {
                turnover_us(depth, 20, (TURNS, Leaves::Anyone), false);
                TURNS
            }
        }
    }
}
