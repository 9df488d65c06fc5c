//! One assumption of the lab, made otherwise.

use std::{sync::Arc, time::Duration};

use crate::{
    sim::{Oracle, Pool},
    study::{Knowledge, Setting},
};

/// Standard deviation of the log of the predictions' noise where nothing else is said.
const ERROR: f64 = 0.05;

/// What is made otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Nothing: the line that all others are read against.
    Nothing,
    /// Time between two scrapes of a pod, in milliseconds.
    Scraped { every_ms: u64 },
    /// Dispatchers have the calibration and learn nothing: the standard deviation of the log of the predictions' noise.
    Error(f64),
    /// The engines take this many times as long for prompt tokens as the calibration says.
    Prefill(f64),
    /// The same, and dispatchers hold on to the calibration: their predictions are off by 5 % of what it says, and stay so.
    Unlearned(f64),
    /// The engines have half of their KV blocks, and say so.
    HalfMemory,
}

/// All of them, in the order of the table.
pub(super) const ALL: [Change; 12] = [
    Change::Nothing,
    Change::Scraped { every_ms: 500 },
    Change::Scraped { every_ms: 2000 },
    Change::Error(0.0),
    Change::Error(ERROR),
    Change::Error(0.15),
    Change::Error(0.30),
    Change::Prefill(0.7),
    Change::Prefill(1.3),
    Change::Unlearned(0.7),
    Change::Unlearned(1.3),
    Change::HalfMemory,
];

impl Change {
    /// What it is, for people.
    pub(super) fn name(self) -> String {
        match self {
            Self::Nothing => "metrics every 50 ms, step times learned".to_owned(),
            Self::Scraped { every_ms } => format!("metrics every {every_ms} ms"),
            Self::Error(error) => format!("as calibrated, {:.0} % off", error * 100.0),
            Self::Prefill(factor) => format!("prefill takes {factor} times as long"),
            Self::Unlearned(factor) => {
                format!("never learned, prefill takes {factor} times as long")
            }
            Self::HalfMemory => "half the KV blocks".to_owned(),
        }
    }

    /// The setting with it.
    pub(super) fn of(self, setting: &Setting) -> Setting {
        let mut changed = setting.clone();
        match self {
            Self::Nothing => {}
            Self::Scraped { every_ms } => {
                changed.pool.scrape_every = Duration::from_millis(every_ms);
            }
            Self::Error(error) => changed.knowledge = Knowledge::Oracle { error },
            Self::Prefill(factor) => prefill(&mut changed.pool, factor),
            Self::Unlearned(factor) => {
                let calibrated = setting.pool.clone();
                changed.knowledge = Knowledge::Custom(Arc::new(move |_, seed| {
                    Box::new(Oracle::new(&calibrated, ERROR, seed))
                }));
                prefill(&mut changed.pool, factor);
            }
            Self::HalfMemory => {
                changed.pool.pods.iter_mut().for_each(|pod| pod.engine.num_blocks /= 2);
                changed.pool.classes.iter_mut().for_each(|class| class.kv_blocks /= 2);
            }
        }
        changed
    }
}

fn prefill(pool: &mut Pool, factor: f64) {
    pool.pods.iter_mut().for_each(|pod| pod.engine.prefill_factor *= factor);
}
