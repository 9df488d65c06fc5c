//! What tells settings apart that are called the same: another month's trace under the same name, another pool in a file of it.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Setting;
use crate::{sim::Pool, workload::Objectives};

/// Digests of what was run, of eight digits each; empty in files that are older than they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprints {
    /// Of the traffic: of a trace its rows with their times.
    pub traffic: String,
    /// Of the classes and what they are promised.
    pub objectives: String,
    /// Of the pods, one by one.
    pub pods: String,
}

impl Fingerprints {
    /// Those of a setting.
    pub(crate) fn of(setting: &Setting) -> Self {
        Self {
            traffic: digits(setting.source.fingerprint()),
            objectives: digits(of_objectives(&setting.objectives)),
            pods: digits(of_pool(&setting.pool)),
        }
    }
}

fn digits(print: u64) -> String {
    format!("{:08x}", print >> 32)
}

fn of_objectives(objectives: &Objectives) -> u64 {
    xxh3_64(format!("{objectives:?}").as_bytes())
}

/// Of equal pods side by side the first is looked at, and their number: there may be thousands.
fn of_pool(pool: &Pool) -> u64 {
    let mut print = Xxh3::new();
    print.update(format!("{:?} {}", pool.scrape_every, pool.named_tokens).as_bytes());
    for alike in pool.pods.chunk_by(|a, b| a == b) {
        print.update(format!("{} x {:?}", alike.len(), alike.first()).as_bytes());
    }
    print.digest()
}
