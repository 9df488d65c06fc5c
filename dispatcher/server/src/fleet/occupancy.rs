//! How many requests a pod says it has, whoever sent them.
//!
//! A ledger knows what its own pool sent, in its pod's life here. On a pod may be more: of another dispatcher or
//! another pool, and of a time before the pod left and came back. Whether a pod that is being drained may be
//! stopped is read off its own gauges therefore, from a scrape that was begun after the ledger was empty, so that it
//! counts nothing of this pool any more. Gauges that are not fresh, since the pod is down or has none, say nothing: then the ledger
//! alone counts.

use std::time::Duration;

use parking_lot::Mutex;
use weir_core::Time;

/// What is on a pod beyond an empty ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// So many requests.
    Counted(u32),
    /// The next scrape tells.
    Awaited,
    /// Nobody tells.
    Untold,
}

/// What a pod's scrapes say is on it.
#[derive(Debug, Default)]
pub struct Occupancy {
    /// For how long a scrape is believed; `None`: there are none.
    believed: Option<Duration>,
    joined: Time,
    /// When the last good scrape was begun, and what it counted.
    scraped: Mutex<Option<(Time, u32)>>,
}

impl Occupancy {
    /// Of a pod that joins at `now`.
    pub fn new(believed: Option<Duration>, now: Time) -> Self {
        Self { believed, joined: now, scraped: Mutex::default() }
    }

    /// A scrape that was begun at `begun` counted so many requests, running and waiting.
    pub fn scraped(&self, begun: Time, requests: u32) {
        *self.scraped.lock() = Some((begun, requests));
    }

    /// Whether the pod has answered a scrape of late.
    pub fn is_told(&self, now: Time) -> bool {
        let begun = self.scraped.lock().map(|(begun, _)| begun);
        begun.zip(self.believed).is_some_and(|(begun, believed)| now.since(begun) <= believed)
    }

    /// What is on it beside a ledger that has been empty since `empty_at`.
    pub fn beyond(&self, empty_at: Time, now: Time) -> Beyond {
        let scraped = *self.scraped.lock();
        // A pod that has just joined has not had the time to say anything.
        let told = scraped.map_or(self.joined, |(begun, _)| begun);
        match (self.believed, scraped) {
            (Some(believed), _) if now.since(told) > believed => Beyond::Untold,
            (None, _) => Beyond::Untold,
            (Some(_), Some((begun, requests))) if begun >= empty_at => Beyond::Counted(requests),
            (Some(_), _) => Beyond::Awaited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn only_a_scrape_begun_after_the_ledger_was_empty_tells_what_else_is_there() {
        let occupancy = Occupancy::new(Some(Duration::from_secs(2)), ms(1000));
        assert_eq!(occupancy.beyond(ms(1000), ms(1100)), Beyond::Awaited, "not scraped yet");
        occupancy.scraped(ms(1200), 0);
        assert_eq!(occupancy.beyond(ms(1300), ms(1400)), Beyond::Awaited, "scraped before");
        occupancy.scraped(ms(1300), 3);
        assert_eq!(occupancy.beyond(ms(1300), ms(1400)), Beyond::Counted(3));
        assert_eq!(occupancy.beyond(ms(1300), ms(3301)), Beyond::Untold, "it is stale");
    }

    #[test]
    fn a_pod_that_never_answers_a_scrape_is_judged_by_the_ledger() {
        let occupancy = Occupancy::new(Some(Duration::from_secs(2)), ms(1000));
        assert_eq!(occupancy.beyond(ms(1000), ms(3001)), Beyond::Untold);
        assert_eq!(Occupancy::default().beyond(ms(0), ms(1)), Beyond::Untold, "scraping is off");
    }
}
