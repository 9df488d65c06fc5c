//! How far a pod is thought to be with the prompt that it computes.
//!
//! An engine says nothing of a prompt until its first token, and one of 16,000 tokens takes a second or ten. Were all of it taken to be
//! ahead until then, whoever comes would be too late behind it on every pod, with the most of it computed long ago. So it is thought
//! to go on at the pace of the step-time model, from the first token of the prompt before it on: engines prefill in the order in
//! which they were sent. That may be wrong (another scheduler, a slow pod), and then it errs on the side of more to come: a twentieth
//! more than by the clock, and once a prompt is overdue, as much more as it is overdue by.

use crate::Time;

/// Share of a prompt that is thought to be left beyond what the clock says.
const DOUBT: f64 = 0.05;

/// Since when a pod is thought to compute the first of its pending prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Begun {
    /// It was sent then, to a pod that had none to compute.
    Sent(Time),
    /// The one before it was done then.
    Next(Time),
    /// The one before it was taken back, some time ago.
    #[default]
    Unknown,
}

/// How far a pod is with the first of its pending prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Underway {
    begun: Begun,
    computed_share: f64,
}

impl Underway {
    /// A prompt that was sent to a pod with none to compute.
    pub const fn sent(at: Time) -> Self {
        Self { begun: Begun::Sent(at), computed_share: 0.0 }
    }

    /// The next one, when that before it is done.
    pub const fn next(at: Time) -> Self {
        Self { begun: Begun::Next(at), computed_share: 0.0 }
    }

    /// The next one, when that before it is not asked for any more.
    pub const fn unknown() -> Self {
        Self { begun: Begun::Unknown, computed_share: 0.0 }
    }

    /// Share of the prompt that is thought to be computed, as last noted.
    pub const fn computed_share(&self) -> f64 {
        self.computed_share
    }

    /// Since when; `None` while that is not known.
    pub const fn begun_ms(&self, now: Time) -> Option<f64> {
        match self.begun {
            Begun::Sent(at) | Begun::Next(at) => Some(now.ms_since(at)),
            Begun::Unknown => None,
        }
    }

    /// The same at `now` of a prompt that takes so long, and so long more before it begins where the pod had nothing to compute.
    pub fn at(self, now: Time, takes_ms: f64, lead_ms: f64) -> Self {
        let had_ms = match self.begun {
            Begun::Sent(at) => now.ms_since(at) - lead_ms,
            Begun::Next(at) => now.ms_since(at),
            Begun::Unknown => return Self::next(now),
        };
        let left = (1.0 - had_ms / takes_ms).abs() + DOUBT;
        Self { computed_share: 1.0 - left.min(1.0), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO.plus(Duration::from_millis(ms))
    }

    fn share(underway: Underway, ms: u64) -> f64 {
        (100.0 * underway.at(at(ms), 1000.0, 50.0).computed_share()).round() / 100.0
    }

    #[test]
    fn a_prompt_goes_on_by_the_clock_less_a_doubt() {
        let sent = Underway::sent(at(100));
        let shares = [100, 150, 250, 350, 650, 1150].map(|ms| share(sent, ms));
        assert_eq!(shares, [0.0, 0.0, 0.05, 0.15, 0.45, 0.95]);
        assert_eq!(share(Underway::next(at(100)), 600), 0.45);
    }

    #[test]
    fn one_that_is_overdue_is_not_nearly_done() {
        let next = Underway::next(at(0));
        let shares = [1000, 1200, 1500, 1900, 60_000].map(|ms| share(next, ms));
        assert_eq!(shares, [0.95, 0.75, 0.45, 0.05, 0.0]);
    }

    #[test]
    fn one_behind_a_prompt_that_was_taken_back_begins_when_it_is_looked_at() {
        let looked_at = Underway::unknown().at(at(700), 1000.0, 50.0);
        assert_eq!(looked_at, Underway::next(at(700)));
    }
}
