//! How much of their objectives requests wait, and how much sooner a long prompt is due while that is little.
//!
//! By their deadlines alone the longest prompts are served last: a pod must get clear for one, and by the time it is the most
//! urgent one that takes longer than it has left. So each is due sooner by twice what it takes on an idle pod, and what it takes is no
//! part of the time in which it becomes urgent. Under overload, where one long prompt takes the place of several, that would cost
//! more than it serves; how long requests wait tells it.

use std::time::Duration;

/// Requests that the mean remembers.
const MEMORY: f64 = 64.0;
/// From this share of the objectives on, waited in the mean, no prompt is due sooner.
const STRAINED: f64 = 0.12;
/// Times that a prompt takes on an idle pod: once for itself, and once for the pod to get clear.
const STARTS: f64 = 2.0;
/// Share of the time that a prompt may wait which it has to spare at least, however long it takes.
const LEAST_SPARE: f64 = 0.1;

/// Mean share of their TTFT objectives that requests had waited when they left the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strain(f64);

impl Strain {
    /// A request leaves the queue, to a pod or refused. What waited longer than it had counts as all of it.
    pub fn left(&mut self, waited: Duration, objective: Duration) {
        let share = waited.as_secs_f64() / objective.as_secs_f64();
        self.0 += (share.min(1.0) - self.0) / MEMORY;
    }

    /// The mean of those that left lately.
    pub const fn share(self) -> f64 {
        self.0
    }

    /// How much sooner than its deadline a prompt is due that takes so long on an idle pod.
    pub fn head_start(self, idle_ms: f64) -> Duration {
        Duration::try_from_secs_f64(STARTS * self.counted_ms(idle_ms) / 1000.0).unwrap_or_default()
    }

    /// How long such a prompt has to spare that may wait so long.
    pub fn spare(self, may_wait: Duration, idle_ms: f64) -> Duration {
        let takes = Duration::try_from_secs_f64(self.counted_ms(idle_ms) / 1000.0);
        may_wait.saturating_sub(takes.unwrap_or_default()).max(may_wait.mul_f64(LEAST_SPARE))
    }

    /// One while nobody waits, and nothing under overload.
    pub const fn calm(self) -> f64 {
        (1.0 - self.0 / STRAINED).max(0.0)
    }

    /// As much of what a prompt takes as counts: all of it while nobody waits.
    fn counted_ms(self, idle_ms: f64) -> f64 {
        self.calm() * idle_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTIVE: Duration = Duration::from_secs(2);

    fn after(requests: usize, waited: Duration) -> Strain {
        let mut strain = Strain::default();
        (0..requests).for_each(|_| strain.left(waited, OBJECTIVE));
        strain
    }

    #[test]
    fn a_long_prompt_has_a_head_start_while_nobody_waits_and_none_under_strain() {
        let head_starts = [0, 100, 200, 2000].map(|waited_ms| {
            after(300, Duration::from_millis(waited_ms)).head_start(500.0).as_millis()
        });
        assert!(head_starts.is_sorted_by(|one, next| one > next || *next == 0), "{head_starts:?}");
        assert_eq!((head_starts[0], head_starts[3]), (1000, 0));
    }

    #[test]
    fn what_a_prompt_takes_is_no_time_to_spare_while_nobody_waits() {
        let spare_ms = |waited_ms, idle_ms| {
            after(3000, Duration::from_millis(waited_ms)).spare(OBJECTIVE, idle_ms).as_millis()
        };
        assert_eq!([spare_ms(0, 500.0), spare_ms(2000, 500.0)], [1500, 2000]);
        assert_eq!([spare_ms(0, 1950.0), spare_ms(0, 9000.0)], [200, 200], "a tenth is left");
    }

    #[test]
    fn what_waited_longer_than_it_had_counts_once() {
        assert!((after(1000, Duration::from_secs(60)).share() - 1.0).abs() < 1e-3);
    }

    #[test]
    fn what_is_no_time_is_no_head_start() {
        for idle_ms in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let none = Strain::default();
            assert_eq!(
                (none.head_start(idle_ms), none.spare(OBJECTIVE, idle_ms)),
                (Duration::ZERO, OBJECTIVE)
            );
        }
    }
}
