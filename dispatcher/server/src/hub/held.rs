//! What an operator holds of a pool: what is paused, and pods that take nothing new.
//!
//! It is asked of the dispatcher that decides and has to hold when another one does. So the others are told of it, all of it each
//! time, and hold the same, though nothing waits behind it there as yet. Every change that an operator makes has a higher number than
//! the one before: one that decides again after others did meanwhile takes theirs over, and does not bring its own back.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};
use weir_core::{Band, Control, Event, Gate, Scheduler};

use super::{Hub, led::Lead, seat::gates};
use crate::fleet::{Ask, Pod};

/// Pods that are not there and of which something is asked all the same; of more, some are forgotten.
const AWAY: usize = 1024;

/// What is held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How many changes it has seen.
    pub version: u64,
    /// What is paused, by its names.
    pub gates: BTreeSet<String>,
    /// Pods of which something is asked, by host and port.
    pub pods: BTreeSet<(String, Ask)>,
}

impl Held {
    /// What is asked of a pod.
    fn asked(&self, address: &str) -> Ask {
        let asked = self.pods.iter().find(|(pod, _)| pod == address);
        asked.map_or(Ask::Serve, |(_, ask)| *ask)
    }
}

impl Hub {
    /// What is held here.
    pub fn held(&self) -> Held {
        let told = self.held.lock();
        self.held_beside(&told)
    }

    /// The same while nobody changes it, with what was told of pods that are not here.
    fn held_beside(&self, told: &Held) -> Held {
        let pods = self.pods_to_ask();
        let is_here = |address: &str| pods.iter().any(|pod| pod.address == *address);
        let away = told.pods.iter().filter(|(address, _)| !is_here(address)).take(AWAY).cloned();
        let here = pods.iter().map(|pod| (pod.address.clone(), pod.cordon.asked().0));
        let here = here.filter(|(_, ask)| *ask != Ask::Serve);
        Held {
            version: told.version,
            gates: self.look(|scheduler, _| gates(scheduler).into_iter().collect()),
            pods: here.chain(away).collect(),
        }
    }

    /// The pods, and those that have left while something ran there: what is asked of these holds when they come back.
    fn pods_to_ask(&self) -> Vec<Arc<Pod>> {
        let departed = self.departed().into_iter().map(|left| left.pod);
        self.pods().iter().cloned().chain(departed).collect()
    }

    /// An operator may change something; `change` says whether it did. No other change comes in between, be it another dispatcher's.
    pub(super) fn change_held<T>(&self, change: impl FnOnce() -> (T, bool)) -> T {
        let mut held = self.held.lock();
        let (done, changed) = change();
        if changed {
            let now = self.held_beside(&held);
            *held = Held { version: now.version + 1, ..now };
        }
        done
    }

    /// Holds what is held at a lead. Says whether it is the one that decides, without which nothing is done. What is newer here it was
    /// told when that began.
    pub fn hold(&self, lead: &Arc<Lead>, held: &Held) -> bool {
        if self.lead().is_none_or(|decides| !Arc::ptr_eq(&decides, lead)) {
            return false;
        }
        let mut own = self.held.lock();
        if own.version <= held.version && self.held_beside(&own) != *held {
            self.take_over(&mut own, held);
        }
        true
    }

    /// Holds what is held at another that asks here, if that is newer.
    pub fn hold_newer(&self, held: &Held) {
        let mut own = self.held.lock();
        if held.version > own.version {
            self.take_over(&mut own, held);
        }
    }

    fn take_over(&self, own: &mut Held, held: &Held) {
        let model = &**self.model();
        tracing::info!(model, ?held, "an operator holds this");
        own.clone_from(held);
        self.is_told.store(true, Relaxed);
        self.hold_gates(&held.gates);
        for pod in self.pods_to_ask() {
            if pod.cordon.ask(held.asked(&pod.address), self.clock().now()) {
                self.pod_changed(pod.id);
            }
        }
    }

    /// Asks of a pod that joins what is asked of it where it is decided.
    pub(super) fn ask_newcomer(&self, pod: &Pod) {
        if self.is_told.load(Relaxed) {
            let asked = self.held.lock().asked(&pod.address);
            pod.cordon.ask(asked, self.clock().now());
        }
    }

    fn hold_gates(&self, wanted: &BTreeSet<String>) {
        self.at_desk(|desk, now, due| {
            // First what is let go, for to let the pool go is to let everything go.
            for name in gates(&desk.scheduler).iter().filter(|name| !wanted.contains(*name)) {
                if let Some(gate) = gate(&desk.scheduler, name) {
                    desk.handle(now, Event::Control(Control::Resume(gate)), due);
                }
            }
            for name in wanted {
                if let Some(gate) = gate(&desk.scheduler, name) {
                    desk.handle(now, Event::Control(Control::Pause(gate)), due);
                }
            }
        });
    }
}

/// What [`gates`] calls so.
fn gate(scheduler: &Scheduler, name: &str) -> Option<Gate> {
    if name == "pool" {
        return Some(Gate::Pool);
    }
    let band = name.strip_prefix('b').and_then(|band| band.parse().ok());
    band.map(|band| Gate::Band(Band(band))).or_else(|| scheduler.lane_called(name).map(Gate::Lane))
}
