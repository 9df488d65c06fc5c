//! What came lately.

use std::ops::{Add, Mul};

use super::Work;
use crate::{Band, Time, rate::Rate};

/// Time constant of what came, in seconds: a crowd is seen within it, and it is as long as a pod mostly takes to start.
const MEMORY_S: f64 = 60.0;
/// So long a time at least is thought to lie behind what came, in seconds: of the first moments nobody knows whether more follows.
const BEGUN_S: f64 = 20.0;
/// Requests that ended over which estimates are compared with what came of them.
const COMPARED: f64 = 300.0;
/// The pace that is taken to be asked for by those that ask for none, in milliseconds per token: where the lab's load 1 is.
const PACE_MS: f64 = 50.0;

/// What came lately, and what is known of how far the lengths of answers are estimated wrong.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    kept: Rate<Asked>,
    sheddable: Rate<Asked>,
    /// When the first request came.
    since: Option<Time>,
    /// What was expected of requests that ended, and what came of them.
    expected: Work,
    actual: Work,
}

impl Default for Demand {
    fn default() -> Self {
        let [kept, sheddable] = [Rate::over(MEMORY_S); 2];
        let (expected, actual) = (Work::default(), Work::default());
        Self { kept, sheddable, since: None, expected, actual }
    }
}

impl Demand {
    /// A request of a band came, of which so much is expected.
    pub fn came(&mut self, now: Time, band: Band, work: Work, tpot_ms: Option<f64>) {
        self.since = self.since.or(Some(now));
        let paces = 1.0 / tpot_ms.unwrap_or(PACE_MS);
        self.of(band).add(now, Asked { work, requests: 1.0, paces });
    }

    /// A request came of which nobody looked how much it asks for: as much as others of late.
    pub fn came_like_others(&mut self, now: Time, band: Band) {
        let others = self.of(band).sum(now);
        if others.requests > 0.0 {
            self.of(band).add(now, others * (1.0 / others.requests.max(1.0)));
        }
    }

    const fn of(&mut self, band: Band) -> &mut Rate<Asked> {
        if band.sheddable() { &mut self.sheddable } else { &mut self.kept }
    }

    /// A request ended, of which so much was expected.
    pub fn ended(&mut self, expected: Work, actual: Work) {
        let kept = 1.0 - 1.0 / COMPARED;
        self.expected = self.expected * kept + expected;
        self.actual = self.actual * kept + actual;
    }

    /// What was expected of requests that ended, and what came of them.
    pub const fn compared(&self) -> [Work; 2] {
        [self.expected, self.actual]
    }

    /// Goes on from what another has compared; ignores what cannot be.
    pub fn recall(&mut self, compared: [Work; 2]) {
        if compared.iter().all(Work::is_sound) {
            [self.expected, self.actual] = compared;
        }
    }

    /// Of what may not be shed: work of what came, per second, and the pace that it asks for in milliseconds per token; `None` where
    /// nothing came.
    pub fn kept(&self, now: Time) -> Option<(Work, f64)> {
        self.per_second(now, self.kept.sum(now))
    }

    /// The same of all.
    pub fn all(&self, now: Time) -> Option<(Work, f64)> {
        self.per_second(now, self.kept.sum(now) + self.sheddable.sum(now))
    }

    fn per_second(&self, now: Time, asked: Asked) -> Option<(Work, f64)> {
        let lasts_s = now.since(self.since?).as_secs_f64().max(BEGUN_S);
        // What had no time to come does not count as time in which nothing came.
        let remembered_s = MEMORY_S * (1.0 - (-lasts_s / MEMORY_S).exp());
        let work = asked.work.times(self.actual.over(self.expected)) * (1.0 / remembered_s);
        // A trace of what came long ago is nothing.
        (asked.requests > 0.01).then(|| (work, asked.requests / asked.paces))
    }
}

/// What requests ask for together.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    work: Work,
    requests: f64,
    /// Tokens per millisecond of each, summed: the mean pace is that of the mean number of tokens, in which fast ones count.
    paces: f64,
}

impl Add for Asked {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            work: self.work + other.work,
            requests: self.requests + other.requests,
            paces: self.paces + other.paces,
        }
    }
}

impl Mul<f64> for Asked {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        let Self { work, requests, paces } = self;
        Self { work: work * factor, requests: requests * factor, paces: paces * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(decodes: f64) -> Work {
        Work { decodes, ..Work::default() }
    }

    const KEPT: Band = Band(0);
    const SHEDDABLE: Band = Band(-1);

    fn decodes(demand: &Demand, at_s: u64) -> Option<f64> {
        let (work, _) = demand.all(Time::from_millis(at_s * 1000))?;
        Some(work.decodes)
    }

    /// Ten requests a second for so long.
    fn traffic(demand: &mut Demand, band: Band, from_s: u64, to_s: u64, tpot_ms: Option<f64>) {
        for tenth in from_s * 10..to_s * 10 {
            demand.came(Time::from_millis(tenth * 100), band, work(20.0), tpot_ms);
        }
    }

    #[test]
    fn it_follows_what_comes_and_fades() {
        let mut demand = Demand::default();
        assert_eq!(decodes(&demand, 5), None, "nothing came");
        traffic(&mut demand, KEPT, 0, 600, Some(40.0));
        let steady = decodes(&demand, 600).unwrap();
        assert!((steady - 200.0).abs() < 1.0, "{steady}");
        let later = decodes(&demand, 660).unwrap();
        assert!((later / steady - (-1.0_f64).exp()).abs() < 1e-4);
        assert_eq!(decodes(&demand, 3000), None);
    }

    #[test]
    fn it_is_known_soon_after_the_start() {
        let mut demand = Demand::default();
        traffic(&mut demand, KEPT, 100, 130, None);
        let at_once = decodes(&demand, 130).unwrap();
        assert!((at_once / 200.0 - 1.0).abs() < 0.01, "{at_once}");
        let mut one = Demand::default();
        one.came(Time::ZERO, KEPT, work(20.0), None);
        assert!(decodes(&one, 0).unwrap() < 1.2, "no crowd yet");
    }

    #[test]
    fn sheddable_requests_are_told_apart_and_the_pace_is_that_of_both() {
        let mut demand = Demand::default();
        traffic(&mut demand, KEPT, 0, 600, Some(40.0));
        traffic(&mut demand, SHEDDABLE, 600, 660, Some(80.0));
        let now = Time::from_millis(660_000);
        let (kept, kept_ms) = demand.kept(now).unwrap();
        let (all, all_ms) = demand.all(now).unwrap();
        assert!(all.decodes > kept.decodes && (kept_ms - 40.0).abs() < 1e-6);
        assert!(all_ms > 40.0 && all_ms < 80.0, "{all_ms}");
    }

    #[test]
    fn what_is_turned_away_is_taken_to_be_like_what_is_not() {
        let mut demand = Demand::default();
        demand.came_like_others(Time::ZERO, KEPT);
        assert_eq!(decodes(&demand, 0), None, "nothing is known of any");
        for tenth in 0..6000 {
            let now = Time::from_millis(tenth * 100);
            match tenth % 4 {
                0 => demand.came(now, KEPT, work(20.0), None),
                _ => demand.came_like_others(now, KEPT),
            }
        }
        let all = decodes(&demand, 600).unwrap();
        assert!((all / 200.0 - 1.0).abs() < 0.02, "{all}");
    }

    #[test]
    fn what_came_of_others_mends_estimates() {
        let mut demand = Demand::default();
        traffic(&mut demand, KEPT, 0, 600, None);
        (0..2000).for_each(|_| demand.ended(work(20.0), work(30.0)));
        let mended = decodes(&demand, 600).unwrap();
        assert!((mended - 300.0).abs() < 1.0, "{mended}");
    }
}
