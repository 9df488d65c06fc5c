//! What is counted.

use anyhow::{Context, Result, bail};
use weir_predict::Chain;

use super::{
    OF_REQUESTS, OF_TOKENS, TOLERANCE, callgrind,
    hop::{Hop, Weir},
};
use crate::decide::{Course, Leaves, drive, turnover_us};

/// Requests put into the board and taken out.
const TURNS: u64 = 20_000;

/// A workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    /// What one of its counts is of.
    pub(super) per: &'static str,
    /// How far a count may be above the stored one, as a share of it.
    pub(super) tolerance: f64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Pods, requests that wait and cannot go, decisions.
    Decide(usize, usize, u64),
    /// Requests that wait.
    Queue(u64),
    /// The whole program.
    Hop(Hop),
}

/// The workloads. Predictions are those of the step-time model, which needs no library and no file.
pub(super) const ALL: [Work; 7] = [
    Work {
        name: "decide-100",
        per: "decision, 100 pods",
        tolerance: TOLERANCE,
        what: What::Decide(100, 0, 1000),
    },
    Work {
        name: "decide-100-blocked",
        per: "decision, 100 pods, 1,000 waiting",
        tolerance: TOLERANCE,
        what: What::Decide(100, 1000, 1000),
    },
    Work {
        name: "queue-10000",
        per: "request in and out, 10,000 waiting",
        tolerance: TOLERANCE,
        what: What::Queue(10_000),
    },
    Work {
        name: "hop-small",
        per: "request of 150 bytes",
        tolerance: OF_REQUESTS,
        what: What::Hop(Hop::Small),
    },
    Work {
        name: "hop-24k",
        per: "request of 24 KB, code",
        tolerance: OF_REQUESTS,
        what: What::Hop(Hop::Code),
    },
    Work {
        name: "hop-tools",
        per: "request of 24 KB, tools",
        tolerance: OF_REQUESTS,
        what: What::Hop(Hop::Tools),
    },
    Work {
        name: "hop-token",
        per: "token of a stream",
        tolerance: OF_TOKENS,
        what: What::Hop(Hop::Token),
    },
];

impl Work {
    /// The workload of a name.
    pub(super) fn named(name: &str) -> Result<&'static Self> {
        ALL.iter().find(|work| work.name == name).with_context(|| format!("no workload {name:?}"))
    }

    /// Instructions of one time over. `None`: told to end.
    ///
    /// # Errors
    /// When what it needs cannot be started, or fails.
    pub(super) fn count(&self, weir: &Weir, handicap: u32) -> Result<Option<u64>> {
        match self.what {
            What::Decide(..) | What::Queue(_) => callgrind::count(self.name, handicap).map(Some),
            What::Hop(hop) => hop.count(weir, handicap),
        }
    }

    /// Does one that is done in this program, and says how many times over. `handicap` is how often more each call is padded with idle work.
    ///
    /// # Errors
    /// When it is the whole program's.
    pub(super) fn run(&self, handicap: u32) -> Result<u64> {
        Ok(match self.what {
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
            What::Hop(_) => bail!("{} is not done in one program", self.name),
        })
    }
}
