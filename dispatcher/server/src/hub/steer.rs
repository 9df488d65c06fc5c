//! What an operator does to a pool: cancel, move, pause, resume, cordon, drain.
//!
//! Called by the admin side's thread. Each method is done when it returns: the scheduler has booked it and
//! whoever waited for a verdict has it. Many requests are cancelled a few at a time.

use std::{sync::Arc, thread};

use weir_core::{
    Band, Control, Event, Gate, RefusalReason, RequestId,
    inspect::{Filter, WaitingView},
};

use super::{
    Hub,
    seat::{Called, PodSeen, SLICE, gates},
};
use crate::fleet::Ask;

/// Requests cancelled in one turn; each turn lets the pull loop run.
const CANCELS: usize = 200;
/// Names shown of what a filter matches.
const SAMPLE: usize = 20;

/// What became of a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Requests that it meant.
    pub matched: usize,
    /// Requests that were cancelled; others were gone meanwhile.
    pub cancelled: usize,
    /// What the first of them are called.
    pub sample: Vec<Arc<str>>,
}

impl Hub {
    /// Cancels a waiting request. Says whether it waited.
    pub fn cancel_waiting(&self, which: &Called) -> bool {
        self.at_desk(|desk, now, due| {
            let Some(id) = which.find(&desk.scheduler) else { return false };
            let before = desk.scheduler.refused(RefusalReason::Cancelled);
            desk.handle(now, Event::Control(Control::Cancel(vec![id])), due);
            desk.scheduler.refused(RefusalReason::Cancelled) > before
        })
    }

    /// Cancels everything that a filter leaves of what waits now; with `dry_run` only says what that is.
    pub fn cancel_matching(&self, filter: &Filter, dry_run: bool) -> Cancelled {
        let (mut ids, mut sample, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let page = self
                .look(|scheduler, now| scheduler.waiting_page(now, after, filter, SLICE, SLICE));
            let names = page.requests.iter().map(|one: &WaitingView| one.request_id.clone());
            sample.extend(names.take(SAMPLE - sample.len()));
            ids.extend(page.requests.iter().map(|one| one.id));
            after = page.next;
            if after.is_none() {
                break;
            }
            thread::yield_now();
        }
        let matched = ids.len();
        let cancelled = if dry_run { 0 } else { self.cancel_all(&ids) };
        Cancelled { matched, cancelled, sample }
    }

    fn cancel_all(&self, ids: &[RequestId]) -> usize {
        let some = |ids: &[RequestId]| {
            thread::yield_now();
            self.at_desk(|desk, now, due| {
                let before = desk.scheduler.refused(RefusalReason::Cancelled);
                desk.handle(now, Event::Control(Control::Cancel(ids.to_vec())), due);
                desk.scheduler.refused(RefusalReason::Cancelled) - before
            })
        };
        ids.chunks(CANCELS).map(some).sum::<u64>() as usize
    }

    /// Moves a waiting request to another band. Says whether it waited.
    pub fn move_waiting(&self, which: &Called, band: Band) -> bool {
        self.at_desk(|desk, now, due| {
            let id = which.find(&desk.scheduler);
            let Some(id) = id.filter(|id| desk.scheduler.reason(*id).is_some()) else {
                return false;
            };
            desk.handle(now, Event::Control(Control::Move(id, band)), due);
            true
        })
    }

    /// Holds what is behind a gate. Says what is held then.
    pub fn pause(&self, gate: Gate) -> Vec<String> {
        self.turn_gate(Control::Pause(gate))
    }

    /// Lets what is behind a gate go again. Says what is still held.
    pub fn resume(&self, gate: Gate) -> Vec<String> {
        self.turn_gate(Control::Resume(gate))
    }

    fn turn_gate(&self, control: Control) -> Vec<String> {
        self.change_held(|| {
            let held = self.at_desk(|desk, now, due| {
                desk.handle(now, Event::Control(control), due);
                gates(&desk.scheduler)
            });
            (held, true)
        })
    }

    /// Asks something of a pod, or of every engine of a server; of one that has left, for when it comes back. `None` when the pool has
    /// none of that name.
    pub fn ask_pod(&self, name: &str, what: Ask) -> Option<PodSeen> {
        let here = self.pods_called(name);
        let left = || self.departed_called(name).into_iter().map(|left| left.pod).collect();
        let pods = if here.is_empty() { left() } else { here };
        self.change_held(|| {
            let mut changed = false;
            for pod in pods.iter().filter(|pod| pod.cordon.ask(what, self.clock().now())) {
                let (pod_name, model) = (&*pod.name, &**self.model());
                tracing::info!(pod = pod_name, model, ?what, "asked by an operator");
                self.pod_changed(pod.id);
                changed = true;
            }
            ((), changed)
        });
        self.pod_seen(name)
    }
}
