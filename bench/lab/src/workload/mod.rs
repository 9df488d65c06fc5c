//! Requests for the simulator: from recorded traces and from generators, at any rate, under any objectives.
//!
//! A [`Source`] is a kind of traffic without a rate; [`Source::requests`] makes the same traffic at the rate that is asked
//! for, and another stretch of it for another seed. Objectives are given to the requests by [`Objectives`].
//!
//! # Layout
//! - `objective`: classes of requests and what they are promised; `replay`: recorded traces as a source

mod objective;
mod replay;

use anyhow::Result;

pub use objective::{Objective, Objectives};
pub use replay::Replay;

use crate::sim::SimRequest;

/// A kind of traffic.
pub trait Source: Send + Sync {
    /// Its name, for tables.
    fn name(&self) -> &str;

    /// Its means, for the rate that a pool can hold.
    fn means(&self) -> Means;

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

/// What the mean request of a source is like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Means {
    /// Prompt tokens.
    pub input_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
    /// Share of the prompt tokens that a cache without bounds would have.
    pub hit: f64,
}
