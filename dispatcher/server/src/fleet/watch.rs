//! Watches one pod: scrapes it at a steady pace, tells the hub its gauges and its breaker its health.
//!
//! One task per pod, on the fleet's thread, so that a pod that answers slowly delays no other. It
//! ends with the pod. A scrape that fails changes nothing but the breaker's count: the last good
//! gauges stay in force until the scheduler finds them stale.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use weir_core::Event;

use super::{
    Pod,
    config::{ScrapeConfig, Seat},
    connection::{Connection, ScrapeError},
    gauges::{self, GaugeError, Gauges},
    roster::Roster,
};

/// Pause between two probes of a pod whose breaker is open, when scraping is off.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Watches the pod at `seat`, which has joined as `pod`, until it is dropped.
pub async fn watch(roster: Roster, seat: Seat, pod: Arc<Pod>, config: ScrapeConfig) {
    let mut tenure = Tenure { roster, pod };
    match config.every {
        Some(every) => tenure.scrape_forever(&seat, every, config.timeout).await,
        None => tenure.probe_forever(config.timeout).await,
    }
}

/// A pod's time in the hub: it leaves when its watcher ends.
struct Tenure {
    roster: Roster,
    pod: Arc<Pod>,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.roster.leave(&self.pod);
    }
}

/// How one scrape ended.
enum Outcome {
    Good(Gauges),
    /// The pod answered, but not with gauges.
    Garbled(String),
    /// The pod did not answer in time.
    Late,
    Failed(ScrapeError),
}

impl Tenure {
    async fn scrape_forever(&mut self, seat: &Seat, every: Duration, limit: Duration) {
        // Pods that joined together are not scraped together: multiples of the golden ratio spread
        // any number of them evenly over the interval.
        sleep(every.mul_f64((f64::from(self.pod.id.0) * 0.618_034).fract())).await;
        let mut pace = interval(every);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connection = Connection::default();
        let mut started_at_s = None;
        let mut steps_before = self.pod.pulse.read().steps;
        loop {
            pace.tick().await;
            let outcome = scrape(&mut connection, &self.pod.authority, limit).await;
            if let Outcome::Good(gauges) = &outcome {
                if restarted(started_at_s, gauges.started_at_s) {
                    self.replace(seat);
                }
                started_at_s = gauges.started_at_s.or(started_at_s);
            }
            let steps = self.pod.pulse.read().steps;
            self.take(outcome, steps != steps_before);
            steps_before = steps;
        }
    }

    /// Another process answers at this address: what is known of the one before it is void.
    fn replace(&mut self, seat: &Seat) {
        tracing::info!(pod = &*seat.name, "pod was restarted");
        self.roster.leave(&self.pod);
        self.pod = self.roster.join(seat);
    }

    fn take(&self, outcome: Outcome, streaming: bool) {
        let (pod, tally) = (&*self.pod, &self.pod.scrapes);
        match outcome {
            Outcome::Good(gauges) => {
                count(&tally.good);
                self.roster.hub().post(Event::Scraped(pod.id, gauges.scrape));
                pod.breaker.scrape_succeeded();
            }
            Outcome::Garbled(why) => {
                // Said once; a pod of another engine would fill the log.
                if count(&tally.garbled) == 0 {
                    tracing::warn!(pod = &*pod.name, why, "metrics not understood");
                }
                pod.breaker.scrape_succeeded();
            }
            // A busy pod misses a deadline now and then; while it streams tokens it is alive.
            Outcome::Late if streaming => {
                count(&tally.failed);
            }
            Outcome::Late => self.failed("no answer in time"),
            Outcome::Failed(error) => self.failed(&error.to_string()),
        }
    }

    fn failed(&self, why: &str) {
        count(&self.pod.scrapes.failed);
        let was_open = self.pod.breaker.is_open();
        self.pod.breaker.scrape_failed();
        if !was_open && self.pod.breaker.is_open() {
            tracing::warn!(pod = &*self.pod.name, why, "pod does not answer scrapes");
        }
    }

    async fn probe_forever(&self, limit: Duration) {
        let mut pace = interval(PROBE_EVERY);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            if !self.pod.breaker.is_open() {
                continue;
            }
            let connected = timeout(limit, TcpStream::connect(&self.pod.authority)).await;
            if matches!(connected, Ok(Ok(_))) {
                self.pod.breaker.scrape_succeeded();
            }
        }
    }
}

async fn scrape(connection: &mut Connection, authority: &str, limit: Duration) -> Outcome {
    match timeout(limit, connection.scrape(authority)).await {
        Ok(Ok(body)) => match gauges::parse(&body) {
            Ok(gauges) => Outcome::Good(gauges),
            Err(
                error @ (GaugeError::NotText | GaugeError::Missing(_) | GaugeError::Unusable(_)),
            ) => Outcome::Garbled(error.to_string()),
        },
        // It answers; that it has no metrics must not cost it its requests.
        Ok(Err(ScrapeError::Status(status))) if !status.is_server_error() => {
            Outcome::Garbled(format!("status {status}"))
        }
        Ok(Err(error)) => Outcome::Failed(error),
        Err(_) => Outcome::Late,
    }
}

/// Whether a process that started at `now` is another than the one that started at `before`.
fn restarted(before: Option<f64>, now: Option<f64>) -> bool {
    before.zip(now).is_some_and(|(before, now)| (now - before).abs() > 1.0)
}

/// Counts one; returns what was counted before.
fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Relaxed)
}
