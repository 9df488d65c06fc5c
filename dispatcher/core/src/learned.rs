//! What a scheduler has learned of its pool, for one that comes after it or may decide next.
//!
//! It is what is lost with a process and takes long to find again: how long answers get, what steps take, how many tokens come with an
//! event, the load at which requests are in time. What a few requests show again is not in it: the strain, rates, how wrong predictions
//! were lately. Of what the pods have cached [`crate::prefix::Cached`] tells, one pod at a time.
//!
//! Each part is taken up by itself, and only where it can be true of the pool as it is configured now.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_schema::StepsLearned;

use crate::{NeedConfig, need::Work, ratio::TokenRatio};
pub use crate::{
    length::learned::{Lengths, Seen},
    per_event::learned::PerEventLearned,
};

/// What a scheduler has learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// How long answers get.
    pub lengths: Lengths,
    /// Tokens per byte of prompt.
    pub ratio: TokenRatio,
    /// What was asked of the pool when [`Self::held`] was learned.
    pub need: NeedConfig,
    /// The load at which as many requests are in time.
    pub held: f64,
    /// Work that was expected of requests that ended.
    pub expected: Work,
    /// Work that came of them.
    pub actual: Work,
    /// What was found of pods, by class.
    pub classes: Vec<ClassLearned>,
}

/// What was found of the pods of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassLearned {
    /// The class.
    pub name: Arc<str>,
    /// What their steps take, where any were seen.
    pub steps: Option<StepsLearned>,
    /// Tokens per event and per step.
    pub per_event: PerEventLearned,
}
