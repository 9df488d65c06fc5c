//! What stands in front of the pods of a simulation: Weir's scheduler, or a rival of it.

use weir_core::{Action, Event, Need, PodId, Request, Scheduler, Snapshot, Time};

use super::{LoraScrape, SimRequest};

/// Takes the events of a dispatcher and says what is to be done. The simulation sends every dispatcher the same events at
/// the same moments; it sees of a pod what was scraped, and of a request what was relayed.
pub trait Dispatcher {
    /// Everything that will come, told before the first event. A real dispatcher knows nothing of it and ignores it; those
    /// that are to show what knowing more is worth say so.
    fn foresee(&mut self, _requests: &[SimRequest]) {}

    /// What a scrape says of adapters, told right before the rest of it from the first request for one on. For those who read it:
    /// Weir's scheduler does not.
    fn adapters(&mut self, _pod: PodId, _scrape: &LoraScrape) {}

    /// Something happened.
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>);

    /// Requests that wait. While there are any, ticks come.
    fn waiting(&self) -> usize;

    /// Whether a request of which other pods could compute the prompt is to come with nothing of it computed; see
    /// [`Scheduler::takes_whole`].
    fn takes_whole(&self, _now: Time, _request: &Request, _local_tokens: f64) -> bool {
        false
    }

    /// How many pods it could do with, where it works that out.
    fn need(&self, _now: Time) -> Option<Need> {
        None
    }

    /// How it looks from outside, where it has such a view.
    fn snapshot(&self, now: Time) -> Option<Snapshot>;
}

impl Dispatcher for Scheduler {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        Self::handle(self, now, event, actions);
    }

    fn waiting(&self) -> usize {
        Self::waiting(self)
    }

    fn takes_whole(&self, now: Time, request: &Request, local_tokens: f64) -> bool {
        Self::takes_whole(self, now, request, local_tokens)
    }

    fn need(&self, now: Time) -> Option<Need> {
        Some(Self::need(self, now))
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        Some(Self::snapshot(self, now))
    }
}
