//! An exponentially weighted rate.

use std::ops::{Add, Mul};

use crate::Time;

/// How much comes per second, lately: a number, or what adds up like one.
#[derive(Clone, Copy, Debug)]
pub struct Rate<T = f64> {
    memory_s: f64,
    at: Time,
    sum: T,
}

impl<T: Copy + Default + Add<Output = T> + Mul<f64, Output = T>> Rate<T> {
    /// One that nothing has come to, and that fades with this time constant, in seconds.
    pub fn over(memory_s: f64) -> Self {
        Self { memory_s, at: Time::ZERO, sum: T::default() }
    }

    /// What came, faded.
    pub fn sum(self, now: Time) -> T {
        self.sum * (-now.since(self.at).as_secs_f64() / self.memory_s).exp()
    }

    /// So much comes.
    pub fn add(&mut self, now: Time, amount: T) {
        self.sum = self.sum(now) + amount;
        self.at = now;
    }
}

impl Rate {
    /// So much of what came at `then` did not come after all.
    pub fn take_back(&mut self, now: Time, then: Time, amount: f64) {
        let left = amount * (-now.since(then).as_secs_f64() / self.memory_s).exp();
        (self.sum, self.at) = ((self.sum(now) - left).max(0.0), now);
    }

    /// The rate.
    pub fn per_second(self, now: Time) -> f64 {
        self.sum(now) / self.memory_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tends_to_what_comes_and_fades() {
        let mut rate = Rate::over(5.0);
        (0..600).for_each(|tenth| rate.add(Time::from_millis(tenth * 100), 2.0));
        let now = Time::from_millis(60_000);
        assert!((rate.per_second(now) - 20.0).abs() < 0.5);
        let later = Time::from_millis(65_000);
        assert!((rate.per_second(later) / rate.per_second(now) - (-1.0_f64).exp()).abs() < 1e-9);
    }

    #[test]
    fn what_did_not_come_leaves_it_as_it_would_have_been() {
        let at = Time::from_millis;
        let [mut rate, mut other] = [Rate::over(5.0); 2];
        rate.add(at(1000), 3.0);
        other.add(at(1000), 3.0);
        other.add(at(2000), 500.0);
        other.take_back(at(4000), at(2000), 500.0);
        assert!((rate.per_second(at(5000)) - other.per_second(at(5000))).abs() < 1e-9);
        other.take_back(at(6000), at(6000), 1e9);
        assert_eq!(other.per_second(at(7000)), 0.0);
    }
}
