//! Whether the relation between what is stated and what is measured has changed.
//!
//! A two-sided Page-Hinkley test (Page, "Continuous inspection schemes", Biometrika 1954) on
//! ln(measured / stated median), one per latency. The residual is taken in units of its own spread
//! around its own level, both from a baseline of outcomes of the same evaluator, so that an evaluator
//! that is noisy, or always a tenth too low, is no drift; one that becomes so is.
//!
//! Evidence grows by each outcome's excess over half a spread. At 50 spreads it is an alarm: outcomes
//! that become half as slow again raise it after some 60 outcomes at a spread of 0.3, and 20 % after
//! some 500. Unchanged outcomes, even if each is correlated by one half with the one before it, raise
//! it once in 10^8. After an alarm, and when another evaluator or version takes over, a new baseline
//! is taken.

use weir_schema::{Drift, Source};

/// Outcomes of a new evaluator that are passed over: its fit may still be moving.
const SETTLING: u32 = 200;
/// Outcomes that the level and the spread are taken from.
const BASELINE: u32 = 300;
/// Excess below which a residual is no evidence, in spreads.
const TOLERANCE: f64 = 0.5;
/// Evidence that is an alarm, in spreads.
const ALARM: f64 = 50.0;
/// Largest residual that counts, in spreads: a few stalls are not a change.
const MOST: f64 = 4.0;
/// Smallest spread, as a logarithm: 5 %. Nothing in the dispatcher cares for less.
const LEAST_SPREAD: f64 = 0.05;

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Slower,
    Faster,
}

impl Change {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
        }
    }
}

/// Who stated a latency: the evaluator and its version.
pub(crate) type Author = (Source, u64);

/// The test of one latency.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriftTest {
    author: Option<Author>,
    seen: u32,
    /// Mean of the baseline, and sum of squared differences from it (Welford 1962).
    level: f64,
    squares: f64,
    slower: f64,
    faster: f64,
    alarms: [u64; 2],
}

impl DriftTest {
    /// Learns one outcome of who states latencies now; both in milliseconds and positive. Returns what has changed when
    /// this outcome raises the alarm.
    pub(crate) fn observe(
        &mut self,
        author: Author,
        median_ms: f32,
        measured_ms: f32,
    ) -> Option<Change> {
        let residual = (f64::from(measured_ms) / f64::from(median_ms)).ln();
        if !residual.is_finite() {
            return None;
        }
        if self.author != Some(author) {
            self.begin(author);
        }
        self.seen = self.seen.saturating_add(1);
        if self.seen <= SETTLING + BASELINE {
            self.learn(residual);
            return None;
        }
        let spread = (self.squares / f64::from(BASELINE - 1)).sqrt().max(LEAST_SPREAD);
        let excess = ((residual - self.level) / spread).clamp(-MOST, MOST);
        self.slower = (self.slower + excess - TOLERANCE).max(0.0);
        self.faster = (self.faster - excess - TOLERANCE).max(0.0);
        let change = if self.slower > ALARM {
            Change::Slower
        } else if self.faster > ALARM {
            Change::Faster
        } else {
            return None;
        };
        let [slower, faster] = &mut self.alarms;
        *(if change == Change::Slower { slower } else { faster }) += 1;
        self.begin(author);
        Some(change)
    }

    /// What is shown of it.
    pub(crate) fn status(&self) -> Drift {
        let [slower, faster] = self.alarms;
        let compares = self.seen >= SETTLING + BASELINE;
        let evidence = compares.then(|| (self.slower.max(self.faster) / ALARM) as f32);
        Drift { slower, faster, evidence }
    }

    fn begin(&mut self, author: Author) {
        *self = Self { author: Some(author), alarms: self.alarms, ..Self::default() };
    }

    fn learn(&mut self, residual: f64) {
        let Some(count) = self.seen.checked_sub(SETTLING).filter(|count| *count > 0) else {
            return;
        };
        let before = residual - self.level;
        self.level += before / f64::from(count);
        self.squares += before * (residual - self.level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    const PRIOR: Author = (Source::Prior, 0);

    /// Outcomes of a median of 100 ms with this factor and spread until an alarm, if one comes.
    fn until_alarm(
        test: &mut DriftTest,
        noise: &mut Noise,
        factor: f64,
        most: u32,
    ) -> Option<(u32, Change)> {
        (1..=most).find_map(|count| {
            let measured_ms = 100.0 * factor * (0.3 * noise.correlated(0.5)).exp();
            test.observe(PRIOR, 100.0, measured_ms as f32).map(|change| (count, change))
        })
    }

    #[test]
    fn unchanged_outcomes_raise_no_alarm_however_noisy_and_biased_they_are() {
        let (mut test, mut noise) = (DriftTest::default(), Noise::new(1));
        assert_eq!(until_alarm(&mut test, &mut noise, 1.4, 50_000), None);
        assert!(test.status().evidence.is_some_and(|it| it < 0.9), "{:?}", test.status());
    }

    #[test]
    fn half_as_slow_again_is_found_within_a_hundred_and_fifty_outcomes() {
        for (factor, want) in [(1.5, Change::Slower), (1.0 / 1.5, Change::Faster)] {
            let (mut test, mut noise) = (DriftTest::default(), Noise::new(2));
            assert_eq!(until_alarm(&mut test, &mut noise, 1.0, 2000), None);
            let (count, change) = until_alarm(&mut test, &mut noise, factor, 150).unwrap();
            assert_eq!(change, want);
            assert!(count > 20, "{count} outcomes are no evidence");
            // The new level is the baseline now.
            assert_eq!(until_alarm(&mut test, &mut noise, factor, 5000), None);
            let status = test.status();
            assert_eq!(status.slower + status.faster, 1);
        }
    }

    #[test]
    fn a_slow_slide_is_found_too() {
        let (mut test, mut noise) = (DriftTest::default(), Noise::new(3));
        assert_eq!(until_alarm(&mut test, &mut noise, 1.0, 1000), None);
        let alarm = (0..3000).find(|step| {
            let factor = 1.0 + 0.3 * f64::from(*step) / 3000.0;
            until_alarm(&mut test, &mut noise, factor, 1).is_some()
        });
        assert!(alarm.is_some());
    }

    #[test]
    fn another_version_begins_a_baseline_of_its_own() {
        let (mut test, mut noise) = (DriftTest::default(), Noise::new(4));
        assert_eq!(until_alarm(&mut test, &mut noise, 1.5, 2000), None);
        for _ in 0..2000 {
            let measured_ms = 100.0 * (0.3 * noise.correlated(0.5)).exp();
            assert_eq!(test.observe((Source::Onnx, 7), 100.0, measured_ms as f32), None);
        }
    }

    #[test]
    fn while_there_is_no_baseline_nothing_is_said_of_evidence() {
        let (mut test, mut noise) = (DriftTest::default(), Noise::new(6));
        assert_eq!(test.status().evidence, None);
        assert_eq!(until_alarm(&mut test, &mut noise, 1.0, 499), None);
        assert_eq!(test.status().evidence, None);
        assert_eq!(until_alarm(&mut test, &mut noise, 1.0, 1), None);
        assert_eq!(test.status().evidence, Some(0.0));
        assert_eq!(test.observe((Source::Onnx, 7), 100.0, 100.0), None);
        assert_eq!(test.status().evidence, None, "of another version");
    }

    #[test]
    fn a_few_stalls_are_no_change() {
        let (mut test, mut noise) = (DriftTest::default(), Noise::new(5));
        assert_eq!(until_alarm(&mut test, &mut noise, 1.0, 1000), None);
        for _ in 0..10 {
            assert_eq!(test.observe(PRIOR, 100.0, 1e6), None);
        }
        assert_eq!(until_alarm(&mut test, &mut noise, 1.0, 1000), None);
    }
}
