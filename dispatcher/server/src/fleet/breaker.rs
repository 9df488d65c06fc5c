//! Takes a pod out when it keeps failing, and back when it answers again.
//!
//! Told by two sides: the relay ([`Breaker::failed`], [`Breaker::answered_badly`], [`Breaker::begins`],
//! [`Breaker::succeeded`]) and the scraper ([`Breaker::scrape_failed`], [`Breaker::scrape_succeeded`]). Three failures in a
//! row on one side open it: three, because a busy engine misses a single deadline many times a day. What the scraper
//! opened, its next good scrape closes. What traffic opened stays open for a hold that doubles from
//! 1 s to 30 s, for a pod that answers `/metrics` but no request would flap otherwise; then a good
//! scrape lets traffic try again, and a single further failure opens it for the doubled hold.
//!
//! A pod that answers, but badly, is taken out too: it is done with each request at once, looks idle, and would be given
//! most of them. But a bad answer may be the fault of what was asked, which another pod would answer as badly. So it takes
//! more of them in a row, with no good answer between, and they never open the breaker of the last pod that is ready. Nor does
//! what a pod took and left without an answer, for the same reason. What failed before its first token is made up for by
//! anybody's first token, for a pod whose streams are long has few ends; a stream that broke off in the middle only by one that
//! did not.
//!
//! Every change is told to the listener, once, in order.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use weir_core::Phase;

/// Failures in a row that open the breaker.
const FAILURES: u32 = 3;
/// The same where the last of them is a bad answer: more than one call with the two further tries of the OpenAI clients brings,
/// and what Envoy's outlier detection takes (`consecutive_5xx`).
const BAD_ANSWERS: u32 = 5;
/// First hold after traffic opened it.
const FIRST_HOLD: Duration = Duration::from_secs(1);
/// Longest hold.
const LONGEST_HOLD: Duration = Duration::from_secs(30);

/// What a request that did not go well says of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failing {
    /// See [`Breaker::failed`]: nothing reached the pod, which may be for want of a way to it.
    Undelivered,
    /// The same of what has reached it, which may be what it fails at.
    Unanswered,
    /// See [`Breaker::answered_badly`].
    Badly {
        /// After its first token.
        begun: bool,
    },
    /// See [`Breaker::failed`]: it says itself that it takes nothing, 503.
    Unwilling,
}

/// Told of every change: `Broken` when it opens, `Ready` when it closes.
pub type Listener = Box<dyn Fn(Phase) + Send + Sync>;

/// Whether a pod may be used.
pub struct Breaker {
    /// Copy of the state for readers on the hot path.
    open: AtomicBool,
    /// Failures of traffic in a row, bad answers included; read without the lock so that success is one load.
    traffic_failures: AtomicU32,
    state: Mutex<State>,
    listener: Listener,
}

/// What is shown of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSeen {
    /// Whether the pod is left alone.
    pub open: bool,
    /// Requests that failed there in a row.
    pub traffic_failures: u32,
    /// Scrapes that failed in a row.
    pub scrape_failures: u32,
    /// Why it is open.
    pub why: Option<&'static str>,
    /// How long it stays open at least, when requests opened it.
    pub held: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    scrape_failures: u32,
    /// Of the failures of traffic in a row, those that were no answers.
    unanswered: u32,
    /// Those before a first token, the former included.
    unbegun: u32,
    /// Whether it was said of this row that requests to the pod fail.
    is_said: bool,
    /// Not proven yet, or lost by the scraper.
    unseen: bool,
    /// Opened by traffic: not before this time, and only by a good scrape.
    held_until: Option<Instant>,
    /// Length of the last hold; zero once traffic succeeded.
    hold: Duration,
}

impl Default for Breaker {
    /// Closed, heard by nobody.
    fn default() -> Self {
        Self::new(true, Box::new(|_| {}))
    }
}

impl Breaker {
    /// A breaker that is closed when the pod is `proven`, or else opens with its first good scrape.
    pub fn new(proven: bool, listener: Listener) -> Self {
        let state = State { unseen: !proven, ..State::default() };
        Self {
            open: AtomicBool::new(!proven),
            traffic_failures: AtomicU32::new(0),
            state: Mutex::new(state),
            listener,
        }
    }

    /// What it counts and why it is open.
    pub fn seen(&self) -> BreakerSeen {
        let state = self.state.lock();
        let now = Instant::now();
        let held = state.held_until.map(|until| until.saturating_duration_since(now));
        let why = match held {
            Some(_) => Some("requests to it failed"),
            None if state.unseen && state.scrape_failures >= FAILURES => {
                Some("it does not answer scrapes")
            }
            None if state.unseen => Some("it has not answered a scrape yet"),
            None => None,
        };
        BreakerSeen {
            open: self.is_open(),
            traffic_failures: self.traffic_failures.load(Relaxed),
            scrape_failures: state.scrape_failures,
            why,
            held,
        }
    }

    /// Whether the pod must be left alone.
    pub fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// A request did not go well. `others`: another pod is ready. Whether that is to be said: once in a row of failures.
    pub fn fails(&self, failing: Failing, others: bool) -> bool {
        match failing {
            Failing::Undelivered | Failing::Unwilling => self.failed(true),
            Failing::Unanswered => self.failed(others),
            Failing::Badly { begun } => self.answered_badly(begun, others),
        }
    }

    /// A request could not be delivered or was not answered: no connection, no first token in time,
    /// or a 503 before any token. `may`: that may open it. Whether it is to be said: once in a row of failures.
    pub fn failed(&self, may: bool) -> bool {
        let mut state = self.state.lock();
        state.unanswered = state.unanswered.saturating_add(1);
        state.unbegun = state.unbegun.saturating_add(1);
        let unanswered = state.unanswered;
        self.counts(&mut state, |_| unanswered >= FAILURES, may)
    }

    /// The pod's answer was an error of its own, or was lost; `begun`: after its first token. `others`: another pod is ready,
    /// without which this one stays as it is. Whether that is to be said: once in a row of failures.
    pub fn answered_badly(&self, begun: bool, others: bool) -> bool {
        let mut state = self.state.lock();
        state.unbegun = state.unbegun.saturating_add(u32::from(!begun));
        self.counts(&mut state, |row| row >= BAD_ANSWERS, others)
    }

    /// One more failure of traffic, where a row of so many is `enough` to open it, if it `may` open.
    fn counts(&self, state: &mut State, enough: impl Fn(u32) -> bool, may: bool) -> bool {
        let row = self.traffic_failures.fetch_add(1, Relaxed) + 1;
        let on_probation = !state.hold.is_zero() && state.held_until.is_none();
        if state.held_until.is_some() || !(enough(row) || on_probation) {
            return false;
        }
        if may {
            state.hold = (state.hold * 2).clamp(FIRST_HOLD, LONGEST_HOLD);
            state.held_until = Some(Instant::now() + state.hold);
            self.publish(state);
        }
        !std::mem::replace(&mut state.is_said, true)
    }

    /// The first token of an answer came.
    pub fn begins(&self) {
        self.ends_row(false);
    }

    /// A request was answered well, to its end.
    pub fn succeeded(&self) {
        self.ends_row(true);
    }

    /// What was counted is void: all of it, or what had not begun.
    fn ends_row(&self, whole: bool) {
        // The usual case, with every request: nothing failed lately, nothing to lock.
        if self.traffic_failures.load(Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        // An answer to a request sent before the breaker opened proves nothing about the pod now.
        if state.held_until.is_some() {
            return;
        }
        let begun = self.traffic_failures.load(Relaxed).saturating_sub(state.unbegun);
        let row = if whole { 0 } else { begun };
        (state.unanswered, state.unbegun) = (0, 0);
        self.traffic_failures.store(row, Relaxed);
        if row == 0 {
            state.hold = Duration::ZERO;
            state.is_said = false;
        }
    }

    /// A scrape failed. Whether that makes the pod one that does not answer, which is so once in a row of failures: also
    /// of a pod that has never answered, whose breaker was open before.
    pub fn scrape_failed(&self) -> bool {
        let mut state = self.state.lock();
        state.scrape_failures = state.scrape_failures.saturating_add(1);
        if state.scrape_failures >= FAILURES {
            state.unseen = true;
        }
        self.publish(&state);
        state.scrape_failures == FAILURES
    }

    /// A scrape, or a probe in its place, was answered.
    pub fn scrape_succeeded(&self) {
        let mut state = self.state.lock();
        state.scrape_failures = 0;
        state.unseen = false;
        if state.held_until.is_some_and(|until| Instant::now() >= until) {
            state.held_until = None;
        }
        self.publish(&state);
    }

    /// Tells the listener if the state changed. Called under the lock, so that two changes are told
    /// in the order in which they happened.
    fn publish(&self, state: &State) {
        let open = state.unseen || state.held_until.is_some();
        if self.open.swap(open, Relaxed) != open {
            (self.listener)(if open { Phase::Broken } else { Phase::Ready });
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A breaker and what its listener was told.
    fn told(proven: bool) -> (Breaker, Arc<Mutex<Vec<Phase>>>) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = heard.clone();
        (Breaker::new(proven, Box::new(move |phase| ear.lock().push(phase))), heard)
    }

    #[test]
    fn a_pod_that_never_answers_is_told_of_once_in_a_row_of_failures() {
        let breaker = Breaker::new(false, Box::new(|_| {}));
        let row = || (0..5).map(|_| breaker.scrape_failed()).collect::<Vec<_>>();
        assert_eq!(row(), [false, false, true, false, false]);
        breaker.scrape_succeeded();
        assert_eq!(row(), [false, false, true, false, false]);
    }

    #[test]
    fn a_pod_that_was_never_seen_is_open_until_its_first_good_scrape() {
        let (breaker, heard) = told(false);
        assert!(breaker.is_open());
        breaker.scrape_failed();
        breaker.scrape_succeeded();
        breaker.scrape_succeeded();
        assert!(!breaker.is_open());
        assert_eq!(*heard.lock(), [Phase::Ready]);
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let (breaker, heard) = told(true);
        for _ in 0..5 {
            breaker.failed(true);
            breaker.scrape_failed();
            breaker.failed(true);
            breaker.succeeded();
            breaker.scrape_succeeded();
        }
        assert!(heard.lock().is_empty());
        for _ in 0..3 {
            breaker.scrape_failed();
        }
        assert_eq!(*heard.lock(), [Phase::Broken]);
    }

    #[test]
    fn bad_answers_in_a_row_open_it_and_are_said_once() {
        let (breaker, heard) = told(true);
        let row = || (0..BAD_ANSWERS - 1).any(|_| breaker.answered_badly(false, true));
        assert!(!row());
        breaker.succeeded();
        assert!(!row());
        assert!(heard.lock().is_empty());
        assert!(breaker.answered_badly(false, true));
        assert_eq!(*heard.lock(), [Phase::Broken]);
        assert!(!breaker.answered_badly(false, true));
    }

    #[test]
    fn the_last_pod_stays_whatever_it_does_not_answer_but_not_where_it_takes_nothing() {
        let fails = |failing: Failing, others: bool| {
            let (breaker, _) = told(true);
            let said: Vec<bool> = (0..4).map(|_| breaker.fails(failing, others)).collect();
            (breaker.is_open(), said)
        };
        let said = vec![false, false, true, false];
        assert_eq!(fails(Failing::Unanswered, false), (false, said.clone()));
        assert_eq!(fails(Failing::Unanswered, true), (true, said.clone()));
        for failing in [Failing::Undelivered, Failing::Unwilling] {
            assert_eq!(fails(failing, false), (true, said.clone()));
        }
    }

    #[test]
    fn a_stream_that_begins_does_not_make_up_for_those_that_were_cut() {
        let (breaker, _) = told(true);
        for _ in 0..BAD_ANSWERS {
            breaker.begins();
            breaker.answered_badly(true, true);
        }
        assert!(breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_begins_makes_up_for_what_did_not() {
        let (breaker, heard) = told(true);
        for _ in 0..9 {
            breaker.failed(true);
            breaker.failed(true);
            breaker.answered_badly(false, true);
            breaker.begins();
        }
        assert!(heard.lock().is_empty());
        for _ in 0..BAD_ANSWERS {
            breaker.answered_badly(false, true);
        }
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        breaker.begins();
        breaker.answered_badly(false, true);
        assert!(!breaker.is_open(), "its probation is over");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_pod_is_not_taken_out_for_its_bad_answers() {
        let (breaker, heard) = told(true);
        let said: Vec<bool> = (0..20).map(|_| breaker.answered_badly(false, false)).collect();
        assert_eq!(said.iter().filter(|said| **said).count(), 1, "{said:?}");
        assert!(heard.lock().is_empty());
        // Another one is ready again.
        assert!(!breaker.answered_badly(false, true));
        assert!(breaker.is_open());
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        breaker.answered_badly(false, false);
        assert!(!breaker.is_open(), "on probation neither");
        assert!(!breaker.failed(true));
        assert!(breaker.is_open(), "but one that does not answer is of no use");
    }

    #[tokio::test(start_paused = true)]
    async fn what_traffic_opened_stays_open_for_the_hold() {
        let (breaker, _) = told(true);
        for _ in 0..FAILURES {
            breaker.failed(true);
        }
        breaker.scrape_succeeded();
        assert!(breaker.is_open(), "a pod that only answers scrapes is not well");
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn on_probation_one_failure_opens_it_for_twice_as_long() {
        let (breaker, _) = told(true);
        for _ in 0..FAILURES {
            breaker.failed(true);
        }
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        breaker.failed(true);
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        assert!(breaker.is_open());
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        assert!(!breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_probation() {
        let (breaker, _) = told(true);
        for _ in 0..FAILURES {
            breaker.failed(true);
        }
        breaker.succeeded();
        tokio::time::advance(FIRST_HOLD).await;
        breaker.scrape_succeeded();
        breaker.succeeded();
        breaker.failed(true);
        assert!(!breaker.is_open(), "one failure of a well pod is one failure");
    }

    #[tokio::test(start_paused = true)]
    async fn the_hold_has_a_bound() {
        let (breaker, _) = told(true);
        for _ in 0..FAILURES {
            breaker.failed(true);
        }
        for _ in 0..10 {
            tokio::time::advance(LONGEST_HOLD).await;
            breaker.scrape_succeeded();
            assert!(!breaker.is_open());
            breaker.failed(true);
        }
    }
}
