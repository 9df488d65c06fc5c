//! One model server as this process knows it: where it is, and what its streams and scrapes showed.
//!
//! Made by the fleet, handed to the hub, shared with every relay that streams from it. A pod that
//! restarts or moves is a new [`Pod`] with a new id, so that nothing of the old one sticks to it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use http::HeaderValue;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_core::{Phase, PodId, PodSpec, Pulse, Time};

use super::{
    breaker::{Breaker, Failing},
    cordon::Cordon,
    occupancy::Occupancy,
};
use crate::tls::Secure;

/// A chunk that follows the one before it on the same pod within this time belongs to the same
/// engine step: the engine answers all sequences of a step at once, and steps take 5 ms and more.
const SAME_STEP_US: u64 = 2000;

/// A pod.
#[derive(Debug)]
pub struct Pod {
    /// Its name inside this process.
    pub id: PodId,
    /// Its name for people.
    pub name: Arc<str>,
    /// The name of the server that it is an engine of; its own where it is the whole of it.
    pub server: Arc<str>,
    /// Its name as a header's value, if it can be one.
    pub label: Option<HeaderValue>,
    /// Its address, by which other processes know it: its host and port, and after an `@` its rank where it has one.
    pub address: String,
    /// The host and port that it is spoken to at.
    pub authority: String,
    /// Which of the engines behind that port it is; `None`: all of them.
    pub rank: Option<u16>,
    /// Those that step together with it; `None`: nobody.
    pub group: Option<Arc<str>>,
    /// How it is spoken to by TLS; `None`: in the clear.
    pub secure: Option<Secure>,
    /// Index of its class in the scheduler's configuration.
    pub class: u16,
    /// When its steps end, as its streams show.
    pub pulse: PulseCell,
    /// Whether it may be used.
    pub breaker: Breaker,
    /// What an operator asks of it.
    pub cordon: Arc<Cordon>,
    /// What its scrapes came to.
    pub scrapes: ScrapeTally,
    /// What they say is on it.
    pub occupancy: Occupancy,
    /// What the requests that it was given came to.
    pub answers: AnswerTally,
    /// What its process says of itself.
    pub witness: Mutex<Witness>,
}

/// What a pod's process says of itself in a scrape, by which it is known again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Witness {
    /// When it began, in seconds of Unix time.
    pub started_at_s: Option<f64>,
    /// Tokens that it has generated since.
    pub generated: Option<u64>,
}

impl Witness {
    /// Whether whoever says this is the process that said `before`. One that does not say when it began, such as several API servers
    /// behind one port, is taken for it while its count of tokens has not fallen.
    pub fn goes_on_from(&self, before: &Self) -> bool {
        match (before.started_at_s, self.started_at_s) {
            (Some(before_s), Some(now_s)) => is_same_process(before_s, now_s),
            (None, None) => {
                let counts = before.generated.zip(self.generated);
                counts.is_some_and(|(before, now)| before > 0 && now >= before)
            }
            _ => false,
        }
    }
}

/// Whether a process that began at one time is the one that began at the other, in seconds: clocks are set right now and then.
pub fn is_same_process(one_s: f64, other_s: f64) -> bool {
    (one_s - other_s).abs() <= 1.0
}

/// What a pod's scrapes came to, for metrics.
#[derive(Debug, Default)]
pub struct ScrapeTally {
    /// Scrapes that were read and understood.
    pub good: AtomicU64,
    /// Scrapes that failed: no connection, no answer in time, not HTTP 200.
    pub failed: AtomicU64,
    /// Scrapes that were answered but not understood; the values before them stay in force.
    pub garbled: AtomicU64,
    /// Of these, those in a row.
    garbled_row: AtomicU64,
    /// Bytes of the answers to all of them.
    pub bytes: AtomicU64,
}

/// Answers in a row that are not understood and are worth a word: as many as failures that open a breaker.
const GARBLED: u64 = 3;

impl ScrapeTally {
    /// A scrape was read and understood.
    pub fn understood(&self) {
        self.good.fetch_add(1, Relaxed);
        self.garbled_row.store(0, Relaxed);
    }

    /// A scrape was answered and not understood. Whether that is to be said, which is so once in a row.
    pub fn not_understood(&self) -> bool {
        self.garbled.fetch_add(1, Relaxed);
        self.garbled_row.fetch_add(1, Relaxed) + 1 == GARBLED
    }
}

/// What the requests given to a pod came to, for metrics. Those whose client left, or that could not be delivered, are not
/// in it.
#[derive(Debug, Default)]
pub struct AnswerTally {
    /// Answered with a status below 400.
    pub good: AtomicU64,
    /// Answered with an error of the client's.
    pub refused: AtomicU64,
    /// Answered with an error of the pod's.
    pub failed: AtomicU64,
    /// Lost or silent in the middle of an answer.
    pub cut: AtomicU64,
    /// Lost or silent before it.
    pub none: AtomicU64,
}

impl Pod {
    /// A pod that takes requests at once, in the clear.
    pub fn new(id: PodId, name: Arc<str>, authority: String, class: u16) -> Self {
        Self {
            label: HeaderValue::from_str(&name).ok(),
            id,
            server: name.clone(),
            name,
            address: authority.clone(),
            authority,
            rank: None,
            group: None,
            secure: None,
            class,
            pulse: PulseCell::default(),
            breaker: Breaker::default(),
            cordon: Arc::default(),
            scrapes: ScrapeTally::default(),
            occupancy: Occupancy::default(),
            answers: AnswerTally::default(),
            witness: Mutex::default(),
        }
    }

    /// Whether a name is its own, or that of the server that it is an engine of.
    pub fn is_called(&self, name: &str) -> bool {
        *self.name == *name || *self.server == *name
    }

    /// What the scheduler is told of it.
    pub fn spec(&self) -> PodSpec {
        let (name, group) = (self.name.clone(), self.group.clone());
        PodSpec { id: self.id, name, class: self.class, group }
    }

    /// A request did not go well there; `others`: another pod is ready. A row of these is said in the log once.
    pub fn fails(&self, failing: Failing, others: bool) {
        if self.breaker.fails(failing, others) {
            let (pod, taken_out) = (&*self.name, self.breaker.is_open());
            tracing::warn!(pod, taken_out, "requests to the pod fail");
        }
    }

    /// The phase it is in now: what an operator asks, or else what the breaker says. The hub reads it
    /// when the pod joins, for one that has not answered a scrape yet must not be given requests.
    pub fn phase(&self) -> Phase {
        self.cordon.over(if self.breaker.is_open() { Phase::Broken } else { Phase::Ready })
    }
}

/// Counts the steps of a pod from the chunks of all its streams.
#[derive(Debug, Default)]
pub struct PulseCell {
    steps: AtomicU64,
    last_step_at_us: AtomicU64,
}

impl PulseCell {
    /// A chunk of any of the pod's streams arrived.
    ///
    /// Two threads that see chunks of one step at the same instant may count it twice; the step
    /// model is fitted from sums over many steps, which a rare double does not move.
    pub fn chunk(&self, now: Time) {
        let now_us = now.as_micros();
        let before_us = self.last_step_at_us.swap(now_us, Relaxed);
        if now_us.saturating_sub(before_us) > SAME_STEP_US || before_us == 0 {
            self.steps.fetch_add(1, Relaxed);
        }
    }

    /// Another dispatcher's streams saw so many steps end, the last one at `at`, since it told of one at `told_before`. What streams
    /// here have seen too counts once.
    pub fn told(&self, at: Time, steps: u64, told_before: Time) {
        let at_us = at.as_micros();
        let before_us = self.last_step_at_us.fetch_max(at_us, Relaxed);
        if at_us <= before_us + SAME_STEP_US && before_us > 0 {
            return;
        }
        // Where somebody else has counted meanwhile, only the last one is new for certain.
        let alone = before_us <= told_before.as_micros() + SAME_STEP_US;
        self.steps.fetch_add(if alone { steps } else { steps.min(1) }, Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self) -> Pulse {
        Pulse {
            steps: self.steps.load(Relaxed),
            last_step_at: Time::from_micros(self.last_step_at_us.load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_are_not_understood_are_told_of_once_in_a_row() {
        let tally = ScrapeTally::default();
        let row = || [(); 5].map(|()| tally.not_understood());
        let once = [false, false, true, false, false];
        assert_eq!(row(), once);
        tally.understood();
        assert_eq!(row(), once, "another row");
        assert_eq!((tally.good.load(Relaxed), tally.garbled.load(Relaxed)), (1, 10));
    }

    #[test]
    fn chunks_of_one_step_count_once() {
        let pulse = PulseCell::default();
        for at_us in [10_000, 10_300, 11_900, 25_000, 25_001, 40_000] {
            pulse.chunk(Time::from_micros(at_us));
        }
        assert_eq!(pulse.read(), Pulse { steps: 3, last_step_at: Time::from_micros(40_000) });
    }
}
