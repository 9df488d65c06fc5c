//! Pods that say themselves that they take no more for now (503), as vLLM does with `--max-num-queued-reqs` and `--max-num-queued-tokens`.
//!
//! What they count is not known here: requests, tokens of prompts, others' requests too. So a pod that turned a request away is taken to hold as
//! many as it had then, and is tried with more and more as time passes: who is turned away costs a trip, who is never tried a GPU.

use std::time::Duration;

use crate::{Time, fleet::PodState};

/// After so long without a refusal a pod is tried with more.
const STEP: Duration = Duration::from_millis(250);
/// With so many more of what it had: one, and this share.
const MORE: f64 = 0.125;
/// After so long it is no longer thought full.
const OVER: Duration = Duration::from_secs(5);

/// A pod has turned a request away.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// Requests that it is thought to take.
    requests: usize,
    said_at: Time,
    stepped_at: Time,
}

impl PodState {
    /// It has turned a request away, beside those that are in its ledger.
    pub fn turned_away(&mut self, now: Time) {
        self.full = Some(Full { requests: self.ledger.len(), said_at: now, stepped_at: now });
    }

    /// Requests that it is thought to take, where it said that it takes no more.
    pub fn full_with(&self) -> Option<usize> {
        self.full.map(|full| full.requests)
    }

    /// Whether it has as many requests as it is thought to take.
    pub fn is_full(&self) -> bool {
        self.full_with().is_some_and(|most| self.ledger.len() >= most)
    }

    /// Whether time has come to think otherwise.
    pub fn is_to_be_tried(&self, now: Time) -> bool {
        self.full.is_some_and(|full| now.since(full.stepped_at) >= STEP)
    }

    /// It is tried with more.
    pub fn try_more(&mut self, now: Time) {
        self.full = self.full.filter(|full| now.since(full.said_at) < OVER).map(|full| {
            let more = 1 + (full.requests as f64 * MORE) as usize;
            Full { requests: full.requests + more, stepped_at: now, ..full }
        });
    }
}
