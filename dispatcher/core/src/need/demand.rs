//! What came lately.

use super::Work;
use crate::{Band, Time};

/// Time constant of what came, in seconds: a crowd is seen within it, and it is as long as a pod mostly takes to start.
const MEMORY_S: f64 = 60.0;
/// So long a time at least is thought to lie behind what came, in seconds: of the first moments nobody knows whether more follows.
const BEGUN_S: f64 = 20.0;
/// Requests that ended over which estimates are compared with what came of them.
const COMPARED: f64 = 300.0;
/// The pace that is taken to be asked for by those that ask for none, in milliseconds per token: where the lab's load 1 is.
const PACE_MS: f64 = 50.0;

/// What came lately, and what is known of how far estimates of it are off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    kept: Flow,
    sheddable: Flow,
    /// When the first request came.
    since: Option<Time>,
    /// What was expected of requests that ended, and what came of them.
    expected: Work,
    actual: Work,
}

impl Demand {
    /// A request of a band came, of which so much is expected.
    pub fn came(&mut self, now: Time, band: Band, work: Work, tpot_ms: Option<f64>) {
        self.since = self.since.or(Some(now));
        self.flow(band).add(now, work, tpot_ms.unwrap_or(PACE_MS));
    }

    /// A request came of which nobody looked how much it asks for: as much as others of late.
    pub fn came_like_others(&mut self, now: Time, band: Band) {
        let flow = self.flow(band);
        *flow = flow.decayed(now);
        if flow.requests > 0.0 {
            *flow = flow.times(1.0 + 1.0 / flow.requests.max(1.0));
        }
    }

    const fn flow(&mut self, band: Band) -> &mut Flow {
        if band.sheddable() { &mut self.sheddable } else { &mut self.kept }
    }

    /// A request ended, of which so much was expected.
    pub fn ended(&mut self, expected: Work, actual: Work) {
        let kept = 1.0 - 1.0 / COMPARED;
        self.expected = self.expected * kept + expected;
        self.actual = self.actual * kept + actual;
    }

    /// Of what may not be shed: work of what came, per second, and the pace that it asks for in milliseconds per token; `None` where
    /// nothing came.
    pub fn kept(&self, now: Time) -> Option<(Work, f64)> {
        self.per_second(now, self.kept.decayed(now))
    }

    /// The same of all.
    pub fn all(&self, now: Time) -> Option<(Work, f64)> {
        self.per_second(now, self.kept.decayed(now) + self.sheddable.decayed(now))
    }

    fn per_second(&self, now: Time, flow: Flow) -> Option<(Work, f64)> {
        let lasts_s = now.since(self.since?).as_secs_f64().max(BEGUN_S);
        // What had no time to come does not count as time in which nothing came.
        let remembered_s = MEMORY_S * (1.0 - (-lasts_s / MEMORY_S).exp());
        let work = flow.work.times(self.actual.over(self.expected)) * (1.0 / remembered_s);
        // A trace of what came long ago is nothing.
        (flow.requests > 0.01).then(|| (work, flow.requests / flow.paces))
    }
}

/// Sums that fade.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    at: Time,
    work: Work,
    requests: f64,
    /// Tokens per millisecond that they ask for, summed: the mean pace is that of the mean number of tokens, in which fast ones count.
    paces: f64,
}

impl Flow {
    fn decayed(self, now: Time) -> Self {
        let left = (-now.since(self.at).as_secs_f64() / MEMORY_S).exp();
        Self { at: now, ..self.times(left) }
    }

    fn times(self, factor: f64) -> Self {
        let Self { at, work, requests, paces } = self;
        Self { at, work: work * factor, requests: requests * factor, paces: paces * factor }
    }

    fn add(&mut self, now: Time, work: Work, tpot_ms: f64) {
        *self = self.decayed(now);
        self.work += work;
        self.requests += 1.0;
        self.paces += 1.0 / tpot_ms;
    }
}

impl std::ops::Add for Flow {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            at: self.at,
            work: self.work + other.work,
            requests: self.requests + other.requests,
            paces: self.paces + other.paces,
        }
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
