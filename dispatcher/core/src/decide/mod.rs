//! The loop that gives requests to pods, one decision at a time.
//!
//! - [`filter`]: pods that may be used at all
//! - [`affinity`]: what each pod has cached of a prompt, and when to wait for a warm pod
//! - [`score`]: pods looked at for one head
//! - [`pick`]: the best of those that fit, or the one where it would fit soonest
//! - [`pull`]: the pass over the heads: dispatch, claim, hold
//! - [`push`]: round-robin and least-request, the plainest rivals
//!
//! A pass changes nothing but notes (reasons and claims) on the board; the scheduler books its
//! choice and calls again until there is none.

pub mod affinity;
pub mod filter;
pub mod pick;
pub mod pull;
pub mod push;
pub mod score;

use weir_schema::{Predict, Prediction, Row};

use crate::{Band, PodId, RequestId, SchedulerConfig, Time, fleet::Pods, queue::Board};

/// Everything a pass reads.
pub struct Floor<'a> {
    /// The pool's configuration.
    pub config: &'a SchedulerConfig,
    /// Its pods.
    pub pods: &'a Pods,
    /// What waits.
    pub board: &'a mut Board,
    /// Who predicts.
    pub predictor: &'a mut dyn Predict,
    /// The moment.
    pub now: Time,
    /// The smallest TPOT objective alive in the pool, in milliseconds.
    pub tightest_tpot_ms: Option<f64>,
    /// The highest band alive in the pool.
    pub top_band: Band,
}

/// A request and the pod it goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Which request.
    pub id: RequestId,
    /// To which pod.
    pub pod: PodId,
    /// Prompt tokens the pod has to compute.
    pub uncached_tokens: f64,
    /// The row it was decided with.
    pub row: Row,
    /// What was predicted.
    pub prediction: Prediction,
}
