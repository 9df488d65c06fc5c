//! How long a newcomer would wait, per band.
//!
//! The length of the band over its own recent rate of dispatch, once that is known. The rate is taken only
//! over time in which the band had a backlog, or it would measure arrivals, and it outlasts the backlog: a
//! lower band that often has one for a few seconds, for as long as a higher band takes what there is, would
//! else be measured in those seconds alone, and found to get nothing. Until it is known the age of the band's
//! oldest request tells, which is right whenever the load is steady. After that it says nothing of a newcomer
//! where others pass the oldest; but for as long as nobody of the band went, a newcomer waits as well.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{Band, Time};

/// Time constant of the rate, in seconds.
const MEMORY_S: f64 = 30.0;
/// As far as a wait is predicted.
pub const FAR: Duration = Duration::from_secs(3600);
/// Time with a backlog, faded like the rate, on which that has to rest to be believed, in seconds.
const SETTLED_S: f64 = 10.0;

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Since when the band has a backlog, if it has one.
    since: Option<Time>,
    /// When the others were last decayed.
    at: Time,
    /// Dispatches under backlog, decayed.
    dispatched: f64,
    /// Seconds under backlog, decayed the same way.
    seconds: f64,
    /// When one went last while another waited.
    last: Option<Time>,
}

impl Flow {
    fn decay(&mut self, now: Time) {
        let passed = now.since(self.at).as_secs_f64();
        let keep = (-passed / MEMORY_S).exp();
        let more = if self.since.is_some() { MEMORY_S * (1.0 - keep) } else { 0.0 };
        self.dispatched *= keep;
        self.seconds = self.seconds * keep + more;
        self.at = now;
    }

    /// Requests dispatched per second while something waits; `None` while too little is known.
    fn rate(mut self, now: Time) -> Option<f64> {
        self.decay(now);
        (self.seconds >= SETTLED_S).then(|| self.dispatched / self.seconds)
    }
}

/// Rates of dispatch per band while something waits in it.
#[derive(Debug, Default)]
pub struct Drain {
    /// Few; in no order.
    flows: SmallVec<[(Band, Flow); 4]>,
}

impl Drain {
    /// Whether something waits in a band from now on.
    pub fn backlog(&mut self, band: Band, waits: bool, now: Time) {
        match self.flow(band) {
            Some(flow) if flow.since.is_some() != waits => {
                flow.decay(now);
                flow.since = waits.then_some(now);
            }
            None if waits => {
                let (since, dispatched, seconds, last) = (Some(now), 0.0, 0.0, None);
                self.flows.push((band, Flow { since, at: now, dispatched, seconds, last }));
            }
            _ => {}
        }
    }

    /// A request of a band was dispatched. One that went the moment it came was no backlog, if it was the only one.
    pub fn dispatched(&mut self, band: Band, now: Time) {
        let flow = self.flow(band);
        if let Some(flow) = flow.filter(|flow| flow.since.is_some_and(|since| since < now)) {
            flow.decay(now);
            flow.dispatched += 1.0;
            flow.last = Some(now);
        }
    }

    fn flow(&mut self, band: Band) -> Option<&mut Flow> {
        self.flows.iter_mut().find(|(one, _)| *one == band).map(|(_, flow)| flow)
    }

    /// Predicted wait of a newcomer to a band in which `ahead` requests wait, the oldest since
    /// `oldest`. At most [`FAR`].
    pub fn wait(&self, band: Band, ahead: usize, oldest: Option<Time>, now: Time) -> Duration {
        let flow = self.flows.iter().find(|(one, _)| *one == band).map(|(_, flow)| *flow);
        let since = |moment: Time| now.since(moment).as_secs_f64();
        let age_s = oldest.map_or(0.0, since);
        let wait_s = match flow.and_then(|flow| Some((flow.rate(now)?, flow.last))) {
            Some((rate, last)) => {
                let still_s = last.map_or(age_s, |last| age_s.min(since(last)));
                still_s.max(ahead as f64 / rate.max(1e-9))
            }
            None => age_s,
        };
        Duration::from_secs_f64(wait_s.min(FAR.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: Band = Band(-1);

    fn rate_of(drain: &Drain, now: Time) -> Option<f64> {
        drain.flows.first()?.1.rate(now)
    }

    #[test]
    fn the_age_of_the_oldest_is_the_wait_in_a_steady_queue() {
        let drain = Drain::default();
        let wait = drain.wait(BAND, 3, Some(Time::from_millis(500)), Time::from_millis(2500));
        assert_eq!(wait, Duration::from_secs(2));
    }

    /// A drain of whose band, with a backlog, one goes each tenth of a second for so long.
    fn draining(seconds: u64) -> (Drain, Time) {
        let mut drain = Drain::default();
        drain.backlog(BAND, true, Time::ZERO);
        for tenth in 1..=seconds * 10 {
            drain.dispatched(BAND, Time::from_millis(tenth * 100));
        }
        (drain, Time::from_millis(seconds * 1000))
    }

    #[test]
    fn a_burst_is_seen_by_its_length_once_the_rate_is_known() {
        let (drain, now) = draining(20);
        let rate = rate_of(&drain, now).unwrap();
        assert!((9.5..10.5).contains(&rate), "{rate}");
        let wait = drain.wait(BAND, 1000, Some(now), now).as_secs_f64();
        assert!((95.0..105.0).contains(&wait), "{wait}");
        let (early, now) = draining(9);
        assert_eq!(rate_of(&early, now), None);
        assert_eq!(early.wait(BAND, 1000, Some(now), now), Duration::ZERO);
    }

    #[test]
    fn a_band_that_is_not_backed_up_is_not_measured() {
        let mut drain = Drain::default();
        drain.backlog(BAND, true, Time::ZERO);
        drain.backlog(BAND, false, Time::from_millis(5));
        drain.dispatched(BAND, Time::from_millis(10));
        assert_eq!(rate_of(&drain, Time::from_millis(50_000)), None);
    }

    #[test]
    fn what_goes_the_moment_it_comes_says_nothing_of_how_fast_a_backlog_goes() {
        let (mut drain, start) = draining(20);
        drain.backlog(BAND, false, start);
        let before = rate_of(&drain, start).unwrap();
        for hundredth in 1..=500 {
            let now = start.plus(Duration::from_millis(10 * hundredth));
            drain.backlog(BAND, true, now);
            drain.dispatched(BAND, now);
            drain.backlog(BAND, false, now);
        }
        let after = rate_of(&drain, start.plus(Duration::from_secs(5))).unwrap();
        assert!((after - before).abs() < 0.01, "{after} in place of {before}");
    }

    #[test]
    fn one_that_others_pass_does_not_stand_for_a_newcomer() {
        let (drain, now) = draining(60);
        let wait = drain.wait(BAND, 20, Some(Time::ZERO), now).as_secs_f64();
        assert!((1.8..2.2).contains(&wait), "{wait}");
    }

    #[test]
    fn where_nobody_goes_any_more_a_newcomer_waits_as_long() {
        let (drain, stopped) = draining(60);
        let now = stopped.plus(Duration::from_secs(25));
        assert_eq!(drain.wait(BAND, 1, Some(Time::ZERO), now), Duration::from_secs(25));
        let young = now.plus(Duration::from_secs(1));
        assert!(drain.wait(BAND, 1, Some(now), young) < Duration::from_secs(2));
    }

    #[test]
    fn a_rate_outlasts_its_backlog_for_a_while() {
        let (mut drain, now) = draining(60);
        drain.backlog(BAND, false, now);
        let soon = now.plus(Duration::from_secs(10));
        drain.backlog(BAND, true, soon);
        // Nothing has gone for three seconds, and what is known of the minute before counts.
        let rate = rate_of(&drain, soon.plus(Duration::from_secs(3))).unwrap();
        assert!((8.0..10.0).contains(&rate), "{rate}");
        drain.backlog(BAND, false, soon);
        assert_eq!(rate_of(&drain, soon.plus(Duration::from_secs(60))), None, "forgotten");
    }
}
