//! What a request pays outside the steps of its engine, from its first token.
//!
//! A server in front of the engine reads the request and counts its tokens, and hands on what each of its streams gets, one after the
//! other: on a real vLLM some 5 ms for a lone request, and some 18 with a hundred streams beside it. It moves with the load, so it is
//! followed and not fitted. It is never below the default: what comes sooner than that has steps that were priced too high, and in the
//! lab to take them for cheaper than they are cost prompts with little to spare their objectives.
//!
//! What a first token takes longer than its steps errs by what the steps do, so of two first tokens the one with the shorter steps
//! says more; and one that is far off, for its engine paused or its prefix was not cached, says no more than one that is off as usual.

use weir_schema::{FirstToken, StepTime};

/// Error of what the formula has for the steps before a first token, as a share.
const STEPS_ERROR: f64 = 0.1;
/// Share of its way that a first token with short steps moves the estimate.
const FOLLOW: f64 = 0.03;
/// The same of the usual distance.
const USUAL_FOLLOW: f64 = 0.05;
/// A distance beyond so many usual ones counts as so many: for the estimate, which so comes near the median, and for the usual one.
const CLIPS: [f64; 2] = [1.0, 3.0];
/// The least usual distance, in milliseconds.
const LEAST_USUAL_MS: f64 = 1.0;
/// The most that a request can pay there, in milliseconds.
const MOST_MS: f64 = 1000.0;
/// What is stated changes by at least such a share of it: by each change everything that was found of pods is found anew.
const NOTED_SHARE: f64 = 0.1;

/// An estimate of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    ms: f64,
    stated_ms: f64,
    /// Recent mean distance of a first token with short steps from it, in milliseconds.
    usual_ms: f64,
}

impl Default for Outside {
    fn default() -> Self {
        let ms = StepTime::default().api_ms;
        Self { ms, stated_ms: ms, usual_ms: ms }
    }
}

impl Outside {
    /// The estimate, and the usual distance from it.
    pub(super) const fn parts(&self) -> (f64, f64) {
        (self.ms, self.usual_ms)
    }

    /// One of these; `None` where no first tokens lead there.
    pub(super) fn from_parts(ms: f64, usual_ms: f64) -> Option<Self> {
        let is_sound = (StepTime::default().api_ms..=MOST_MS).contains(&ms)
            && (LEAST_USUAL_MS..=MOST_MS).contains(&usual_ms);
        is_sound.then_some(Self { ms, stated_ms: ms, usual_ms })
    }

    /// The estimate as it is stated, in milliseconds.
    pub(super) const fn stated_ms(&self) -> f64 {
        self.stated_ms
    }

    /// Learns from a first token.
    pub(super) fn observe(&mut self, first: &FirstToken) {
        let FirstToken { measured_ms, steps_ms, .. } = *first;
        let sound = measured_ms.is_finite() && steps_ms.is_finite() && steps_ms >= 0.0;
        if !sound {
            return;
        }
        let off_ms = measured_ms - steps_ms - self.ms;
        let weight = 1.0 / (1.0 + (STEPS_ERROR * steps_ms / self.usual_ms).powi(2));
        let [off_ms, far_ms] =
            CLIPS.map(|clip| off_ms.clamp(-clip * self.usual_ms, clip * self.usual_ms));
        self.ms = (self.ms + FOLLOW * weight * off_ms).clamp(StepTime::default().api_ms, MOST_MS);
        if (self.ms - self.stated_ms).abs() > NOTED_SHARE * self.stated_ms {
            self.stated_ms = self.ms;
        }
        let usual_ms = self.usual_ms + USUAL_FOLLOW * weight * (far_ms.abs() - self.usual_ms);
        self.usual_ms = usual_ms.max(LEAST_USUAL_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    /// What is found after so many first tokens of engines that take `outside_ms`, whose steps take what is said.
    fn found(outside_ms: f64, count: usize, steps: impl Fn(usize) -> [f64; 2]) -> f64 {
        let (mut outside, mut noise) = (Outside::default(), Noise::new(5));
        for n in 0..count {
            let [said_ms, true_ms] = steps(n);
            let measured_ms = true_ms + outside_ms * (0.3 * noise.normal()).exp();
            outside.observe(&FirstToken { pod_class: 0, measured_ms, steps_ms: said_ms });
        }
        outside.stated_ms()
    }

    #[test]
    fn what_is_paid_beside_the_steps_is_found_within_some_hundred_first_tokens() {
        let short = |_| [40.0, 40.0];
        assert!((found(18.0, 300, short) - 18.0).abs() < 2.0);
        assert!((found(8.0, 300, short) - 8.0).abs() < 1.0);
        assert!((found(300.0, 2000, short) - 300.0).abs() < 20.0);
    }

    #[test]
    fn long_prompts_say_little_of_it_and_outliers_no_more_than_others() {
        // Every second prompt takes two seconds, a twentieth less than is said.
        let mixed = |n| if n % 2 == 0 { [40.0, 40.0] } else { [2000.0, 1900.0] };
        assert!((found(18.0, 1000, mixed) - 18.0).abs() < 3.0);
        let paused = |n| if n % 20 == 0 { [40.0, 3000.0] } else { [40.0, 40.0] };
        assert!((found(18.0, 1000, paused) - 18.0).abs() < 3.0);
    }

    #[test]
    fn it_is_never_below_the_default_and_nonsense_is_ignored() {
        let default_ms = StepTime::default().api_ms;
        assert_eq!(found(0.0, 1000, |_| [40.0, 20.0]), default_ms, "sooner than its steps");
        let mut outside = Outside::default();
        for (measured_ms, steps_ms) in [(f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, -1.0)] {
            outside.observe(&FirstToken { pod_class: 0, measured_ms, steps_ms });
        }
        assert_eq!(outside.stated_ms(), default_ms);
    }

    #[test]
    fn what_is_stated_moves_in_steps() {
        let (mut outside, mut stated) = (Outside::default(), Vec::new());
        for n in 0..400_u16 {
            let measured_ms = 40.0 + 18.0 + f64::from(n % 5) - 2.0;
            outside.observe(&FirstToken { pod_class: 0, measured_ms, steps_ms: 40.0 });
            stated.push(outside.stated_ms().to_bits());
        }
        stated.dedup();
        assert!((5..20).contains(&stated.len()), "{}", stated.len());
    }
}
