//! The longest prompt that came lately: for the next one like it pods are kept that could bear it.
//!
//! Requests that are spread evenly leave no pod where nobody is hurt by a stall of seconds, and then a prompt that takes so long
//! waits until it is late. Where no such prompt comes an even spread is better, for it leaves no pod idle.

use std::time::Duration;

use crate::Time;

/// How long a prompt is remembered at least; at most twice as long.
const SPAN: Duration = Duration::from_secs(60);
/// Share of the longest prompt's stall that a pod has to bear to be kept for one.
const KEPT_SHARE: f64 = 0.5;

/// The longest of two spans of time, each by what it takes on an idle pod, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Longest {
    since: Time,
    now_ms: f64,
    before_ms: f64,
}

impl Longest {
    /// A prompt came. One that takes no time that could be compared is left out.
    pub fn came(&mut self, now: Time, idle_ms: f64) {
        *self = self.at(now);
        self.now_ms = self.now_ms.max(idle_ms);
    }

    /// The stall for which pods are kept, in milliseconds; `None` while no prompt takes so long on an idle pod as is called long.
    pub fn kept_for_ms(self, now: Time, long_ms: f64) -> Option<f64> {
        let Self { now_ms, before_ms, .. } = self.at(now);
        let longest_ms = now_ms.max(before_ms);
        (longest_ms >= long_ms).then_some(KEPT_SHARE * longest_ms)
    }

    /// The same with the spans that are over left behind.
    fn at(self, now: Time) -> Self {
        match now.since(self.since).as_micros() / SPAN.as_micros() {
            0 => self,
            1 => Self { since: self.since.plus(SPAN), now_ms: 0.0, before_ms: self.now_ms },
            _ => Self { since: now, now_ms: 0.0, before_ms: 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    #[test]
    fn the_longest_is_known_for_one_span_at_least_and_for_two_at_most() {
        let mut longest = Longest::default();
        assert_eq!(longest.kept_for_ms(at(7), 1.0), None);
        for (second, idle_ms) in [(10, 300.0), (59, 4000.0), (70, 20.0)] {
            longest.came(at(second), idle_ms);
        }
        let kept = [(70, 2000.0), (119, 2000.0), (120, 10.0), (179, 10.0)];
        for (second, ms) in kept {
            assert_eq!(longest.kept_for_ms(at(second), 1.0), Some(ms), "{second}");
        }
        assert_eq!(longest.kept_for_ms(at(180), 1.0), None);
        longest.came(at(1000), 50.0);
        let kept = [1059, 1119, 1120].map(|second| longest.kept_for_ms(at(second), 1.0));
        assert_eq!(kept, [Some(25.0), Some(25.0), None]);
    }

    #[test]
    fn nothing_is_kept_for_what_is_not_called_long() {
        let mut longest = Longest::default();
        longest.came(at(1), 999.0);
        assert_eq!(longest.kept_for_ms(at(2), 1000.0), None);
        longest.came(at(3), 1000.0);
        assert_eq!(longest.kept_for_ms(at(4), 1000.0), Some(500.0));
    }

    #[test]
    fn what_is_no_time_is_not_the_longest() {
        let mut longest = Longest::default();
        for idle_ms in [f64::NAN, -1.0, 5.0, f64::NAN] {
            longest.came(at(1), idle_ms);
        }
        assert_eq!(longest.kept_for_ms(at(2), 0.0), Some(2.5));
    }
}
