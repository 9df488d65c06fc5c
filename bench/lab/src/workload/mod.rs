//! Requests for the simulator: from recorded traces and from generators, at any rate, under any objectives.
//!
//! A [`Source`] is a kind of traffic without a rate; [`Source::requests`] makes the same traffic at the rate that is asked
//! for, and another stretch of it for another seed. [`scenario`] finds a source by its name, [`names`] lists them all, and
//! docs/workloads.md says where the numbers of each come from. Objectives are given to the requests by [`Objectives`].
//!
//! # Layout
//! - `objective`, `objective_file`: classes of requests and what they are promised, built in or from a file
//! - `replay`: recorded traces as a source
//! - `conversation`: users who share system prompts and come back; `scenarios`: the ones that were published
//! - `mixture`: requests that share nothing, drawn from patterns; `builtin`: the demo's mix
//! - `shape`: any source with a rate that changes over the run; `adapted`: any source whose requests ask for LoRA adapters
//! - `catalog`: every source by its name
//! - `draft`: a request before it has objectives; `means`: what the mean request is like
//! - `chain`: text as a prefix cache sees it; `length`, `arrivals`, `draw`: what is random

mod adapted;
mod arrivals;
mod builtin;
mod catalog;
mod chain;
mod conversation;
mod draft;
mod draw;
mod length;
mod means;
mod mixture;
mod objective;
mod objective_file;
mod replay;
mod scenarios;
mod shape;
#[cfg(test)]
mod tests;

use anyhow::Result;
use xxhash_rust::xxh3::xxh3_64;

pub use adapted::Adapted;
pub use builtin::BuiltIn;
pub use catalog::{names, scenario, scenario_held_by};
pub use conversation::{Conversation, Reading};
pub use means::Means;
pub use mixture::Mixture;
pub use objective::{Objective, Objectives};
pub use replay::Replay;
pub(crate) use replay::Stretch;
pub use shape::{Shape, Shaped};

use crate::sim::SimRequest;

/// Tokens of a KV block, in the engines and in the dispatcher's hashes.
pub(crate) const BLOCK_TOKENS: u32 = 16;

/// A kind of traffic.
pub trait Source: Send + Sync {
    /// Its name, for tables.
    fn name(&self) -> &str;

    /// Its means, for the rate that a pool can hold.
    fn means(&self) -> Means;

    /// Its own rates, where it has such: requests per second and seconds of each stage, one after the other; a rate of zero is
    /// a pause. [`Self::requests`] then ignores the rate it is asked for, and has no more requests than the stages
    /// ([`staged_requests`]).
    fn stages(&self) -> Option<&[(f64, f64)]> {
        None
    }

    /// A digest of what it is made of: another for sources that make other requests under the same name.
    fn fingerprint(&self) -> u64 {
        // What is generated is what its name says.
        xxh3_64(self.name().as_bytes())
    }

    /// So many requests of it at a rate, in the order of their arrivals; ids are places in the list.
    ///
    /// # Errors
    /// When the rate or the count is not above zero.
    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>>;
}

/// How many requests stages have.
pub fn staged_requests(stages: &[(f64, f64)]) -> usize {
    stages.iter().map(|(rate_rps, for_s)| (rate_rps * for_s).round() as usize).sum()
}
