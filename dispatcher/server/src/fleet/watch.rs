//! Watches one pod: scrapes it at a steady pace, tells its hubs its gauges and its breakers its health. One that takes long to
//! answer is asked less often, so that answering takes a twentieth of its time at most.
//!
//! One task per address, on the fleet's thread, so that a pod that answers slowly delays no other. A
//! pod in several pools is scraped once for all of them; each has a breaker of its own for what its
//! requests meet there. The task ends with the pod. A scrape that fails changes nothing but the breaker's count: the last good
//! gauges stay in force until the scheduler finds them stale.

use std::{
    io::ErrorKind,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use weir_core::{Event, Scrape, Time};

use super::{
    config::ScrapeConfig,
    connection::{Connection, ScrapeError},
    gauges::Gauges,
    pod::{Witness, is_same_process},
    roster::{Place, Places},
};
use crate::{
    descriptors,
    tls::{Secure, trust::greet},
};

/// Pause between two probes of a pod whose breaker is open, when scraping is off.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Times as long as a pod took to answer, for which it is left alone.
const REST: u32 = 20;

/// Pods that are scraped at the same moment.
const GROUP: u32 = 8;

/// Watches the pod at one address, in every pool where it has a place, until it is dropped.
pub async fn watch(places: Places, config: ScrapeConfig) {
    let Some((authority, id)) =
        places.lock().first().map(|first| (first.seat.authority.clone(), first.pod.id))
    else {
        return;
    };
    // Many pods that joined together are not scraped together: multiples of the golden ratio spread any
    // number of groups evenly over the interval. A group is woken for once, which costs more than its scrapes.
    let turn = (f64::from(id.0 / GROUP) * 0.618_034).fract();
    let mut tenure = Tenure { authority, places, engines: None };
    match config.every {
        Some(every) => {
            sleep(every.mul_f64(turn)).await;
            tenure.scrape_forever(every, &config).await;
        }
        None => tenure.probe_forever(config.timeout).await,
    }
}

/// A pod's time at its address.
struct Tenure {
    authority: String,
    places: Places,
    /// Engines that there were at the last look.
    engines: Option<usize>,
}

/// How one scrape ended.
enum Outcome {
    Good(Box<Gauges>),
    /// The pod answered, but not with gauges.
    Garbled(String),
    /// The pod did not answer in time.
    Late,
    Failed(ScrapeError),
}

impl Outcome {
    /// When the process that answered began, if it said so; nothing where none did.
    fn started(&self) -> Option<Option<f64>> {
        match self {
            Self::Good(gauges) => Some(gauges.started_at_s),
            Self::Garbled(_) => Some(None),
            Self::Late | Self::Failed(_) => None,
        }
    }

    /// Whether nobody has listened there since the last answer.
    fn is_gone(&self, before: bool) -> bool {
        match self {
            Self::Good(_) | Self::Garbled(_) => false,
            Self::Failed(ScrapeError::Connect(error))
                if error.kind() == ErrorKind::ConnectionRefused =>
            {
                true
            }
            Self::Late | Self::Failed(_) => before,
        }
    }
}

impl Tenure {
    async fn scrape_forever(&mut self, every: Duration, config: &ScrapeConfig) {
        let mut pace = interval(every);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connection = Connection::new(config.by_name);
        let mut started_at_s = None;
        // Whether it has answered, and whether nobody has listened there since.
        let (mut has_answered, mut was_gone) = (false, false);
        let mut steps_before = self.steps();
        let mut left_out = 0;
        loop {
            pace.tick().await;
            if left_out > 0 {
                left_out -= 1;
                continue;
            }
            if connection.has_moved(&self.authority, config.timeout).await {
                started_at_s = None;
                self.places.lock().iter_mut().for_each(Place::renew);
            }
            let (begun, read_before) = (self.now(), connection.read());
            let secure = self.secure();
            let to = (&*self.authority, secure.as_ref());
            let outcome = scrape(&mut connection, to, config.timeout).await;
            if matches!(outcome, Outcome::Good(_)) {
                let took = self.now().since(begun);
                left_out = ticks_to_leave_out(took, every, config.stale_after);
            }
            if let Outcome::Good(gauges) = &outcome {
                self.count_engines(gauges.engines());
            }
            if let Some(started) = outcome.started() {
                if restarted(started_at_s, started).unwrap_or(was_gone) {
                    self.places.lock().iter_mut().for_each(Place::renew);
                }
                started_at_s = started.or(started_at_s);
                has_answered = true;
            }
            was_gone = has_answered && outcome.is_gone(was_gone);
            let steps = self.steps();
            let streaming = steps != steps_before;
            let bytes = connection.read() - read_before;
            let heard = Heard { begun, outcome, bytes, streaming };
            self.places.lock().iter().for_each(|place| take(place, &heard));
            steps_before = steps;
        }
    }

    /// The time on the clock of all pools.
    fn now(&self) -> Time {
        let places = self.places.lock();
        places.first().map_or_else(Time::default, |place| place.roster.hub().clock().now())
    }

    /// Says once if there are not as many engines as the configuration has.
    fn count_engines(&mut self, engines: usize) {
        if self.engines.replace(engines) == Some(engines) {
            return;
        }
        let places = self.places.lock();
        let Some(first) = places.first() else { return };
        let pod = &*first.pod.server;
        // Ranks count from 0.
        let known = places.iter().filter_map(|place| place.seat.rank).max().map(|rank| rank + 1);
        match known.map(usize::from) {
            Some(known) if engines != known => tracing::warn!(
                pod,
                data_parallel_size = known,
                engines,
                "server has another number of engines than its class says; those beyond are not used"
            ),
            None if engines > 1 && first.seat.is_engine() => tracing::warn!(
                pod = &*first.pod.name,
                engines,
                "a port tells of several engines, which count as one pod; its class says that each has a port of its own (data_parallel_multi_port)"
            ),
            None if engines > 1 => tracing::info!(
                pod,
                engines,
                "server has several engines, which count as one pod; with data_parallel_size in its class each is one"
            ),
            _ => {}
        }
    }

    /// How it is spoken to now.
    fn secure(&self) -> Option<Secure> {
        self.places.lock().first().and_then(|place| place.seat.secure.clone())
    }

    /// Steps that any pool's streams have shown.
    fn steps(&self) -> u64 {
        self.places.lock().iter().map(|place| place.pod.pulse.read().steps).sum()
    }

    async fn probe_forever(&self, limit: Duration) {
        let mut pace = interval(PROBE_EVERY);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let is_open = |place: &&Place| place.pod.breaker.is_open();
            if !self.places.lock().iter().any(|place| is_open(&place)) {
                continue;
            }
            let secure = self.secure();
            let connected = timeout(limit, async {
                greet(TcpStream::connect(&self.authority).await?, secure.as_ref()).await
            });
            let connected = connected.await;
            if matches!(connected, Ok(Ok(_))) {
                let places = self.places.lock();
                places
                    .iter()
                    .filter(is_open)
                    .for_each(|place| place.pod.breaker.scrape_succeeded());
            }
        }
    }
}

/// Turns that a pod is left out of after it took so long to answer. Turns are kept, so that a group stays together, and a scrape is
/// never older than half of what is believed.
fn ticks_to_leave_out(took: Duration, every: Duration, stale_after: Duration) -> u128 {
    let rest = took.saturating_mul(REST).min(stale_after / 2);
    rest.as_nanos().div_ceil(every.as_nanos().max(1)).saturating_sub(1)
}

/// What is known of a scrape that is over.
struct Heard {
    begun: Time,
    outcome: Outcome,
    /// Bytes of its answer that came.
    bytes: u64,
    /// Whether tokens came from the pod meanwhile.
    streaming: bool,
}

/// Tells one pool how a scrape ended.
fn take(place: &Place, heard: &Heard) {
    let (pod, tally) = (&*place.pod, &place.pod.scrapes);
    tally.bytes.fetch_add(heard.bytes, Relaxed);
    match &heard.outcome {
        Outcome::Good(gauges) => {
            let Some(scrape) = gauges.of(place.seat.rank) else {
                return failed(place, "the server has no engine of this rank");
            };
            tally.understood();
            let Scrape { running, waiting, generated, .. } = scrape;
            pod.occupancy.scraped(heard.begun, running.saturating_add(waiting));
            let scrape = Scrape { shared: place.seat.shared, ..scrape };
            let hub = place.roster.hub();
            hub.post(Event::Scraped(pod.id, scrape));
            let witness = Witness { started_at_s: gauges.started_at_s, generated };
            *pod.witness.lock() = witness;
            // Now that the size of its cache is known, and before it is given anything.
            hub.recall_cached(pod, &witness);
            pod.breaker.scrape_succeeded();
        }
        Outcome::Garbled(why) => {
            // A pod of another engine would fill the log.
            if tally.not_understood() {
                tracing::warn!(pod = &*pod.name, why, "metrics not understood");
            }
            pod.breaker.scrape_succeeded();
        }
        // A busy pod misses a deadline now and then; while it streams tokens it is alive, whatever its metrics are.
        Outcome::Late | Outcome::Failed(_) if heard.streaming => {
            count(&tally.failed);
        }
        // What this machine lacks says nothing of the pod.
        Outcome::Failed(ScrapeError::Connect(error)) if descriptors::is_short(error) => {
            count(&tally.failed);
        }
        Outcome::Late => failed(place, "no answer in time"),
        Outcome::Failed(error) => failed(place, &error.to_string()),
    }
}

fn failed(place: &Place, why: &str) {
    let pod = &place.pod;
    count(&pod.scrapes.failed);
    if pod.breaker.scrape_failed() {
        tracing::warn!(pod = &*pod.name, why, "pod does not answer scrapes");
    }
}

async fn scrape(
    connection: &mut Connection,
    (authority, secure): (&str, Option<&Secure>),
    limit: Duration,
) -> Outcome {
    match timeout(limit, connection.scrape(authority, secure)).await {
        Ok(Ok(gauges)) => Outcome::Good(Box::new(gauges)),
        Ok(Err(ScrapeError::Garbled(error))) => Outcome::Garbled(error.to_string()),
        // It answers; that it has no metrics must not cost it its requests.
        Ok(Err(ScrapeError::Status(status))) if !status.is_server_error() => {
            Outcome::Garbled(format!("status {status}"))
        }
        Ok(Err(error)) => Outcome::Failed(error),
        Err(_) => Outcome::Late,
    }
}

/// Whether a process that started at `now` is another than the one that started at `before`; `None` where that is not said.
fn restarted(before: Option<f64>, now: Option<f64>) -> Option<bool> {
    before.zip(now).map(|(before, now)| !is_same_process(before, now))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_takes_long_to_answer_is_asked_less_often() {
        let [every, stale_after] = [100, 2000].map(Duration::from_millis);
        let left_out = |took_ms: u64| {
            ticks_to_leave_out(Duration::from_micros(1000 * took_ms), every, stale_after)
        };
        assert_eq!([0u64, 1, 5].map(left_out), [0; 3], "a twentieth of the time at most");
        assert_eq!([6, 10, 11, 40].map(left_out), [1, 1, 2, 7]);
        assert_eq!([50, 900].map(left_out), [9; 2], "never older than half of what is believed");
        let rare = ticks_to_leave_out(every, Duration::from_secs(60), Duration::from_secs(90));
        assert_eq!(rare, 0);
    }
}
