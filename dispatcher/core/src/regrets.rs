//! What it has cost that a prompt is on too few pods.
//!
//! Whether it pays that one pod more computes a prompt which many requests begin with cannot be said of one of them: that depends on
//! how many are to come. So it is bought once it would have paid: what requests lost on the busy pods that have the prompt is summed
//! up, and when that is as much as a cold start costs one of them makes it. Where nothing of what they lost is left out, that costs at
//! most twice what it would cost to know beforehand how many come.

use std::time::Duration;

use crate::{Time, spread::NumberMap};

/// Prompts that are summed up at the most.
const MOST: usize = 256;
/// What was lost longer ago than this, with nothing lost since, says nothing of what is to come.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What was lost with a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regret {
    /// The name of its last block that is shared.
    pub prompt: u64,
    /// All of it, in milliseconds; zero once a further pod has the prompt.
    pub ms: f64,
}

/// What was lost with each of the prompts that anything was lost with of late.
#[derive(Clone, Debug, Default)]
pub struct Regrets(NumberMap<u64, Sum>);

#[derive(Clone, Copy, Debug)]
struct Sum {
    ms: f64,
    at: Time,
}

impl Sum {
    fn is_remembered(self, now: Time) -> bool {
        now.since(self.at) < REMEMBERED
    }
}

impl Regrets {
    /// What was lost with a prompt, in milliseconds.
    pub fn of(&self, prompt: u64, now: Time) -> f64 {
        let known = self.0.get(&prompt).filter(|sum| sum.is_remembered(now));
        known.map_or(0.0, |sum| sum.ms)
    }

    /// Notes what was lost with a prompt.
    pub fn note(&mut self, now: Time, regret: Regret) {
        if regret.ms <= 0.0 {
            self.0.remove(&regret.prompt);
            return;
        }
        if self.0.len() >= MOST && !self.0.contains_key(&regret.prompt) {
            self.forget(now);
        }
        self.0.insert(regret.prompt, Sum { ms: regret.ms, at: now });
    }

    /// Makes room: forgets what is too long ago, or else what is the longest ago.
    fn forget(&mut self, now: Time) {
        self.0.retain(|_, sum| sum.is_remembered(now));
        if self.0.len() >= MOST {
            let oldest = self.0.iter().min_by_key(|(prompt, sum)| (sum.at, **prompt));
            if let Some(prompt) = oldest.map(|(prompt, _)| *prompt) {
                self.0.remove(&prompt);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::ZERO.plus(Duration::from_secs(second))
    }

    #[test]
    fn what_was_lost_is_known_until_it_is_paid_or_long_ago() {
        let mut regrets = Regrets::default();
        regrets.note(at(0), Regret { prompt: 1, ms: 40.0 });
        regrets.note(at(30), Regret { prompt: 2, ms: 7.0 });
        assert_eq!([1, 2, 3].map(|prompt| regrets.of(prompt, at(59))), [40.0, 7.0, 0.0]);
        assert_eq!([1, 2].map(|prompt| regrets.of(prompt, at(60))), [0.0, 7.0]);
        regrets.note(at(61), Regret { prompt: 2, ms: 0.0 });
        assert_eq!(regrets.of(2, at(61)), 0.0);
    }

    #[test]
    fn of_too_many_prompts_the_one_that_cost_nothing_for_the_longest_is_forgotten() {
        let mut regrets = Regrets::default();
        for prompt in 0..MOST as u64 {
            regrets.note(Time::from_micros(prompt), Regret { prompt, ms: 1.0 });
        }
        regrets.note(at(1), Regret { prompt: 0, ms: 2.0 });
        regrets.note(at(1), Regret { prompt: 999, ms: 3.0 });
        assert_eq!([0, 1, 2, 999].map(|prompt| regrets.of(prompt, at(2))), [2.0, 0.0, 1.0, 3.0]);
        regrets.note(at(70), Regret { prompt: 5000, ms: 1.0 });
        assert_eq!(regrets.0.len(), 1, "the others are of long ago");
    }
}
