//! An exponentially weighted rate.

use crate::Time;

/// How much comes per second, lately.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    memory_s: f64,
    at: Time,
    sum: f64,
}

impl Rate {
    /// One that nothing has come to, and that fades with this time constant, in seconds.
    pub const fn over(memory_s: f64) -> Self {
        Self { memory_s, at: Time::ZERO, sum: 0.0 }
    }

    fn decayed(self, now: Time) -> f64 {
        self.sum * (-now.since(self.at).as_secs_f64() / self.memory_s).exp()
    }

    /// So much comes.
    pub fn add(&mut self, now: Time, amount: f64) {
        self.sum = self.decayed(now) + amount;
        self.at = now;
    }

    /// The rate.
    pub fn per_second(self, now: Time) -> f64 {
        self.decayed(now) / self.memory_s
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
}
