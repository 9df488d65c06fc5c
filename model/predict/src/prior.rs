//! The step-time prior, the evaluator of last resort.
//!
//! The scheduler computes both latencies from [`weir_schema::Predict::step_time`] when it fills the
//! row; here they are only read back. So the prior needs no file, no library and no state, and it is
//! missing only when the row itself says so.

use weir_schema::{Feature, Features, Row};

use crate::both::Both;

/// Median TTFT and TPOT of the step-time model in milliseconds; `None` where the row has none.
pub(crate) fn medians(row: &Row) -> Both<Option<f32>> {
    let features = Features(*row);
    Both {
        ttft: measurable(features.get(Feature::PriorTtftMs)),
        tpot: measurable(features.get(Feature::PriorTpotMs)),
    }
}

/// The value, if it can be a latency at all: finite and positive.
pub(crate) fn measurable(value_ms: f32) -> Option<f32> {
    (value_ms.is_finite() && value_ms > 0.0).then_some(value_ms)
}
