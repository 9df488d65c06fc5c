//! How long a newcomer would wait, per band.
//!
//! Two estimates, the larger counts. The age of the band's oldest waiting request is what the queue
//! has just been worth, and is right whenever the load is steady. After a burst it is still small
//! while thousands wait: then the length of the band over its own recent rate of dispatch tells.
//! The rate is taken only over time in which the band had a backlog, or it would measure arrivals.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{Band, Time};

/// Time constant of the rate, in seconds.
const MEMORY_S: f64 = 5.0;
/// As far as a wait is predicted.
pub const FAR: Duration = Duration::from_secs(3600);
/// A backlog must have lasted this long before its rate is believed, in seconds.
const SETTLED_S: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Since when the band has a backlog.
    since: Time,
    /// When `dispatched` was last decayed.
    at: Time,
    /// Dispatches under backlog, decayed.
    dispatched: f64,
    /// Seconds under backlog, decayed the same way.
    seconds: f64,
}

impl Flow {
    fn decay(&mut self, now: Time) {
        let passed = now.since(self.at).as_secs_f64();
        let keep = (-passed / MEMORY_S).exp();
        self.dispatched *= keep;
        self.seconds = self.seconds * keep + MEMORY_S * (1.0 - keep);
        self.at = now;
    }
}

/// Rates of dispatch per band while something waits in it.
#[derive(Debug, Default)]
pub struct Drain {
    /// Few; in no order.
    flows: SmallVec<[(Band, Flow); 4]>,
}

impl Drain {
    /// Something waits in a band from now on.
    pub fn backlog(&mut self, band: Band, now: Time) {
        let fresh = Flow { since: now, at: now, dispatched: 0.0, seconds: 0.0 };
        if !self.flows.iter().any(|(one, _)| *one == band) {
            self.flows.push((band, fresh));
        }
    }

    /// Nothing waits in a band any more.
    pub fn empty(&mut self, band: Band) {
        self.flows.retain(|(one, _)| *one != band);
    }

    /// A request of a band was dispatched.
    pub fn dispatched(&mut self, band: Band, now: Time) {
        if let Some((_, flow)) = self.flows.iter_mut().find(|(one, _)| *one == band) {
            flow.decay(now);
            flow.dispatched += 1.0;
        }
    }

    /// Requests of a band dispatched per second; `None` while it has no settled backlog.
    pub fn rate(&self, band: Band, now: Time) -> Option<f64> {
        let mut flow = self.flows.iter().find(|(one, _)| *one == band)?.1;
        if now.since(flow.since).as_secs_f64() < SETTLED_S {
            return None;
        }
        flow.decay(now);
        Some(flow.dispatched / flow.seconds)
    }

    /// Predicted wait of a newcomer to a band in which `ahead` requests wait, the oldest since
    /// `oldest`. At most [`FAR`].
    pub fn wait(&self, band: Band, ahead: usize, oldest: Option<Time>, now: Time) -> Duration {
        let age_s = oldest.map_or(0.0, |arrived| now.since(arrived).as_secs_f64());
        let length_s = self.rate(band, now).map_or(0.0, |rate| ahead as f64 / rate.max(1e-9));
        Duration::from_secs_f64(age_s.max(length_s).min(FAR.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: Band = Band(-1);

    #[test]
    fn the_age_of_the_oldest_is_the_wait_in_a_steady_queue() {
        let drain = Drain::default();
        let wait = drain.wait(BAND, 3, Some(Time::from_millis(500)), Time::from_millis(2500));
        assert_eq!(wait, Duration::from_secs(2));
    }

    #[test]
    fn a_burst_is_seen_by_its_length_once_the_rate_is_known() {
        let mut drain = Drain::default();
        drain.backlog(BAND, Time::ZERO);
        for tenth in 1..=40 {
            drain.dispatched(BAND, Time::from_millis(tenth * 100));
        }
        let now = Time::from_millis(4000);
        let rate = drain.rate(BAND, now).unwrap();
        assert!((9.0..11.5).contains(&rate), "{rate}");
        let wait = drain.wait(BAND, 1000, Some(now), now).as_secs_f64();
        assert!((85.0..115.0).contains(&wait), "{wait}");
    }

    #[test]
    fn a_band_that_is_not_backed_up_has_no_rate() {
        let mut drain = Drain::default();
        drain.backlog(BAND, Time::ZERO);
        drain.empty(BAND);
        drain.dispatched(BAND, Time::from_millis(10));
        assert_eq!(drain.rate(BAND, Time::from_millis(5000)), None);
    }
}
