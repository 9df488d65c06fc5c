//! Virtual time for those who are not told of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use weir_core::{Action, Event, Request, Snapshot, Time};

use crate::sim::{Dispatcher, SimRequest};

/// The time of a simulation; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The time of the event that was handled last.
    pub fn now(&self) -> Time {
        Time::from_micros(self.0.load(Relaxed))
    }

    /// The same in milliseconds, as in the samples of a run.
    pub fn unix_ms(&self) -> u64 {
        self.now().as_micros() / 1000
    }

    /// It is `now`.
    pub fn set(&self, now: Time) {
        self.0.store(now.as_micros(), Relaxed);
    }
}

/// A dispatcher that notes the time of every event before it handles it.
pub struct Clocked {
    dispatcher: Box<dyn Dispatcher>,
    clock: Clock,
}

impl Clocked {
    /// The same dispatcher, with its time noted in `clock`.
    pub fn new(dispatcher: Box<dyn Dispatcher>, clock: Clock) -> Self {
        Self { dispatcher, clock }
    }
}

impl Dispatcher for Clocked {
    fn foresee(&mut self, requests: &[SimRequest]) {
        self.dispatcher.foresee(requests);
    }

    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.clock.set(now);
        self.dispatcher.handle(now, event, actions);
    }

    fn waiting(&self) -> usize {
        self.dispatcher.waiting()
    }

    fn takes_whole(&self, now: Time, request: &Request, local_tokens: f64) -> bool {
        self.dispatcher.takes_whole(now, request, local_tokens)
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        self.dispatcher.snapshot(now)
    }
}
