//! vLLM's `priority`, written into a body from band and slack when the request is dispatched.
//!
//! Off by default. It has an effect on engines that run with `--scheduling-policy priority`: there the
//! lower value is scheduled first and preempted last. vLLM refuses any value but 0 under its other
//! policy, so that this is the operator's to switch on (`upstream.inject_priority`).
//!
//! The mapping: minus a million per band, plus the slack in milliseconds, held below half a million
//! either way, so that no slack outweighs a band. Slack is deadline less now less the predicted TTFT;
//! without a TTFT objective a request goes last in its band. The value is that of the moment of
//! dispatch and does not age in the engine's queue, which the pull loop keeps short.
//!
//! It is spliced in, once per attempt ([`super::splice`]).

use bytes::Bytes;
use weir_core::{Band, Dispatch, Request, Time};

use super::splice::spliced;

/// Distance between two bands.
const PER_BAND: i32 = 1_000_000;
/// Largest part that slack has in a priority, either way.
const MOST_SLACK_MS: f64 = 499_999.0;

/// What the priorities of a request's attempts are made from.
#[derive(Debug)]
pub(super) struct Urgency {
    band: Band,
    deadline: Option<Time>,
    /// What it is written into.
    pub(super) body: Bytes,
}

impl Urgency {
    pub(super) fn of(request: &Request, body: &Bytes) -> Self {
        Self { band: request.band, deadline: request.deadline(), body: body.clone() }
    }

    /// The body of an attempt that is dispatched now.
    pub(super) fn with_priority(&self, now: Time, dispatch: &Dispatch) -> Bytes {
        let ttft_ms = f64::from(dispatch.prediction.ttft_ms.p50);
        let priority = self.priority(now, ttft_ms);
        spliced(&self.body, "priority", itoa::Buffer::new().format(priority))
    }

    fn priority(&self, now: Time, ttft_ms: f64) -> i32 {
        let slack_ms = self.deadline.map_or(MOST_SLACK_MS, |at| at.ms_until(now) - ttft_ms);
        // The cast takes NaN for 0.
        let slack = slack_ms.clamp(-MOST_SLACK_MS, MOST_SLACK_MS) as i32;
        slack - i32::from(self.band.0) * PER_BAND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgency(band: i8, deadline_ms: Option<u64>) -> Urgency {
        let deadline = deadline_ms.map(Time::from_millis);
        Urgency { band: Band(band), deadline, body: Bytes::new() }
    }

    #[test]
    fn a_higher_band_and_less_slack_come_first_and_no_slack_outweighs_a_band() {
        let now = Time::from_millis(1000);
        let at = |band, deadline| urgency(band, deadline).priority(now, 300.0);
        assert_eq!(at(0, Some(3000)), 1700);
        assert_eq!(at(0, Some(1000)), -300, "a deadline out of reach is more urgent still");
        assert_eq!(at(1, Some(3000)), -998_300);
        assert_eq!(at(-1, Some(3000)), 1_001_700);
        assert_eq!(at(0, None), 499_999);
        assert!(at(1, None) < at(0, Some(0)), "the laxest of a band before the most urgent below");
        assert!(at(0, Some(u64::MAX / 2000)) <= at(0, None));
        assert_eq!(urgency(0, Some(3000)).priority(now, f64::NAN), 0);
        assert!(at(i8::MAX, None) < at(i8::MIN, None), "no overflow");
    }
}
