//! Weir's scheduler, set up with what somebody knows of the traffic before it comes.
//!
//! An operator knows the objectives that he profiles his pods under; a clairvoyant knows every length. Both are given the
//! requests before the first event, build the scheduler, and may say what it is told of each request as it arrives. What they
//! say reaches the scheduler alone: the engines serve the request as it is.

use weir_core::{Action, Event, Request, Scheduler, Snapshot, Time};

use crate::sim::{Dispatcher, SimRequest};

/// What the scheduler is told of a request that arrives.
pub(super) type Tell = Box<dyn FnMut(&mut Request)>;

type Setup = Box<dyn FnOnce(&[SimRequest]) -> (Scheduler, Tell)>;

/// A scheduler and who set it up.
pub(super) struct Informed {
    setup: Option<Setup>,
    inner: Option<(Scheduler, Tell)>,
}

impl Informed {
    pub(super) fn by(
        setup: impl FnOnce(&[SimRequest]) -> (Scheduler, Tell) + 'static,
    ) -> Box<dyn Dispatcher> {
        Box::new(Self { setup: Some(Box::new(setup)), inner: None })
    }
}

impl Dispatcher for Informed {
    fn foresee(&mut self, requests: &[SimRequest]) {
        if let Some(setup) = self.setup.take() {
            self.inner = Some(setup(requests));
        }
    }

    fn handle(&mut self, now: Time, mut event: Event, actions: &mut Vec<Action>) {
        // Whoever is told nothing sets it up for the objectives that most have.
        self.foresee(&[]);
        let Some((scheduler, tell)) = &mut self.inner else { return };
        if let Event::Arrive(request) = &mut event {
            tell(request);
        }
        scheduler.handle(now, event, actions);
    }

    fn waiting(&self) -> usize {
        self.inner.as_ref().map_or(0, |(scheduler, _)| scheduler.waiting())
    }

    fn takes_whole(&self, now: Time, request: &Request, local_tokens: f64) -> bool {
        let inner = self.inner.as_ref();
        inner.is_some_and(|(scheduler, _)| scheduler.takes_whole(now, request, local_tokens))
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        self.inner.as_ref().map(|(scheduler, _)| scheduler.snapshot(now))
    }
}
