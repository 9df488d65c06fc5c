//! A request that two pods serve, one after the other: the first computes its prompt, the second loads that and answers.
//!
//! To each pool of pods, and to the scheduler that stands before it, its half is a request like any other. The first half is an
//! answer of one token without a pace, and is due before the whole is, for the second takes time to its first token as well
//! ([`Handover`]). The second half arrived when the whole did, and finds its prompt on every pod ([`Request::prefilled`]).

use std::time::Duration;

use crate::{Request, Slo};

/// A prompt of which a pod that answers has fewer tokens to compute is computed there unless somebody says otherwise. From none to so many it
/// makes no difference (docs/decisions/011).
pub const LOCAL_TOKENS: u32 = 256;

/// Share of the TTFT objective that the second half is left at most.
const MOST_LEFT: u32 = 2;

/// Of the time that the second half takes, the part that a newer one counts for.
const NEWER: f64 = 0.05;

impl Request {
    /// The half of it that computes its prompt, where the other half takes so long to its first token.
    #[must_use]
    pub fn prefill_half(&self, handover: Duration) -> Self {
        let left = |ttft: Duration| ttft - handover.min(ttft / MOST_LEFT);
        Self {
            max_output_tokens: Some(1),
            slo: Slo { ttft: self.slo.ttft.map(left), tpot: None },
            // Its one token is seen, whatever becomes of the answer.
            streamed: true,
            ..self.clone()
        }
    }

    /// The half of it that answers.
    #[must_use]
    pub fn decode_half(self) -> Self {
        Self { prefilled: true, ..self }
    }
}

/// How long the second half of requests takes, from the end of the first to its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Handover {
    mean_ms: f64,
}

impl Handover {
    /// One took so long.
    pub fn took(&mut self, took: Duration) {
        self.mean_ms += NEWER * (took.as_secs_f64() * 1e3 - self.mean_ms);
    }

    /// What is to be left for the next one.
    pub fn expected(&self) -> Duration {
        Duration::try_from_secs_f64(self.mean_ms / 1e3).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PromptSize, RequestId, Time};

    fn request(ttft_ms: Option<u64>) -> Request {
        let mut request = Request::new(RequestId(1), Time::ZERO, PromptSize::Tokens(100));
        let ttft = ttft_ms.map(Duration::from_millis);
        request.slo = Slo { ttft, tpot: Some(Duration::from_millis(50)) };
        request.streamed = false;
        request
    }

    #[test]
    fn the_first_half_is_due_before_the_whole_and_has_no_pace() {
        let half = |ttft_ms, handover_ms| {
            let half = request(ttft_ms).prefill_half(Duration::from_millis(handover_ms));
            assert_eq!((half.id, half.max_output_tokens), (RequestId(1), Some(1)));
            assert!(half.streamed && half.slo.tpot.is_none() && !half.prefilled);
            half.slo.ttft.map(|ttft| ttft.as_millis())
        };
        assert_eq!(half(Some(2000), 150), Some(1850));
        assert_eq!(half(Some(2000), 9000), Some(1000), "half of it is left to the first");
        assert_eq!(half(None, 150), None);
    }

    #[test]
    fn the_second_half_is_the_whole_with_its_prompt_computed() {
        let (whole, half) = (request(Some(2000)), request(Some(2000)).decode_half());
        assert!(half.prefilled);
        assert_eq!((half.id, half.slo, half.streamed), (whole.id, whole.slo, whole.streamed));
    }

    #[test]
    fn what_is_expected_of_the_next_follows_what_the_last_took() {
        let mut handover = Handover::default();
        assert_eq!(handover.expected(), Duration::ZERO);
        (0..200).for_each(|_| handover.took(Duration::from_millis(80)));
        let expected_ms = handover.expected().as_secs_f64() * 1e3;
        assert!((expected_ms - 80.0).abs() < 1.0, "{expected_ms}");
    }
}
