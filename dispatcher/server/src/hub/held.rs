//! What an operator holds of a pool: what is paused, and pods that take nothing new.
//!
//! It is asked of the dispatcher that decides and has to hold when another one does. So the others are told of it, all of it each
//! time, and hold the same, though nothing waits behind it there as yet.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use weir_core::{Band, Control, Event, Gate, Scheduler};

use super::{Hub, led::Lead, seat::gates};
use crate::fleet::Ask;

/// What is held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// What is paused, by its names.
    pub gates: BTreeSet<String>,
    /// Pods of which something is asked, by host and port.
    pub pods: BTreeSet<(String, Ask)>,
}

impl Held {
    /// What is asked of a pod.
    fn asked(&self, authority: &str) -> Ask {
        let asked = self.pods.iter().find(|(pod, _)| pod == authority);
        asked.map_or(Ask::Serve, |(_, ask)| *ask)
    }
}

impl Hub {
    /// What is held here.
    pub fn held(&self) -> Held {
        let pods = self.pods();
        let asked = pods.iter().map(|pod| (pod, pod.cordon.asked().0));
        let asked = asked.filter(|(_, ask)| *ask != Ask::Serve);
        Held {
            gates: self.look(|scheduler, _| gates(scheduler).into_iter().collect()),
            pods: asked.map(|(pod, ask)| (pod.authority.clone(), ask)).collect(),
        }
    }

    /// Holds what is held at a lead. Says whether it is the one that decides, without which nothing is done.
    pub fn hold(&self, lead: &Arc<Lead>, held: &Held) -> bool {
        if self.lead().is_none_or(|decides| !Arc::ptr_eq(&decides, lead)) {
            return false;
        }
        if self.held() != *held {
            let model = &**self.model();
            tracing::info!(model, ?held, "an operator holds this where it is decided");
            self.take_over(held);
        }
        true
    }

    fn take_over(&self, held: &Held) {
        self.hold_gates(&held.gates);
        for pod in self.pods().iter() {
            if pod.cordon.ask(held.asked(&pod.authority), self.clock().now()) {
                self.pod_changed(pod.id);
            }
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
