//! The dispatchers of one pool, as far as they can be heard, and which of them decides.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::yield_now};

use super::rank::Rank;
use crate::{
    hub::{Hub, led::Lead},
    shutdown::{Life, Stage},
};

/// One pool's dispatchers.
#[derive(Debug)]
pub struct Circle {
    /// The pool's hub here.
    pub(super) hub: Arc<Hub>,
    /// This dispatcher's rank.
    pub(super) own: Rank,
    pub(super) life: Life,
    /// Those that can be asked.
    others: Mutex<BTreeMap<Rank, Arc<Lead>>>,
    /// Verdicts that came from another.
    pub(super) heard: AtomicU64,
    /// Verdicts that another was told.
    pub(super) told: AtomicU64,
    changes: AtomicU64,
    /// Somebody else decides than before.
    turned: Notify,
}

/// A pool's dispatchers at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircleView {
    /// Who decides; `None`: this one does.
    pub lead: Option<String>,
    /// Whether this one decides for anybody, be it for those who do not reach the one that decides for it.
    pub decides: bool,
    /// Others that can be asked.
    pub others: usize,
    /// Verdicts that came from another.
    pub heard: u64,
    /// Verdicts that another was told.
    pub told: u64,
    /// Times that somebody else decided than before.
    pub changes: u64,
}

impl Circle {
    /// One in which nobody else has been heard.
    pub(super) fn new(hub: Arc<Hub>, own: Rank, life: Life) -> Arc<Self> {
        Arc::new(Self {
            hub,
            own,
            life,
            others: Mutex::default(),
            heard: AtomicU64::new(0),
            told: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            turned: Notify::new(),
        })
    }

    /// One without others.
    #[cfg(test)]
    pub(crate) fn lone(hub: Arc<Hub>) -> Arc<Self> {
        let own = Rank::drawn(hub.clock().unix_ms());
        Self::new(hub, own, Life::default())
    }

    /// The model that the pool serves.
    pub fn model(&self) -> &Arc<str> {
        self.hub.model()
    }

    /// How it is now.
    pub fn view(&self) -> CircleView {
        CircleView {
            lead: self.hub.lead().map(|lead| lead.address.clone()),
            decides: self.hub.decides(),
            others: self.others.lock().len(),
            heard: self.heard.load(Relaxed),
            told: self.told.load(Relaxed),
            changes: self.changes.load(Relaxed),
        }
    }

    /// Another can be asked, until what is returned is dropped. `None` when it can be already, by another address of its.
    pub(super) fn join(self: &Arc<Self>, rank: Rank, lead: Arc<Lead>) -> Option<Seat> {
        let mut others = self.others.lock();
        if others.contains_key(&rank) {
            return None;
        }
        others.insert(rank, lead.clone());
        self.choose(&others);
        Some(Seat { circle: self.clone(), rank, lead })
    }

    /// This dispatcher was asked to stop: whoever is left decides.
    pub(super) fn leave(&self) {
        self.choose(&self.others.lock());
    }

    /// Goes by the first in rank. The lock is held, so that the last to look is the last to say.
    fn choose(&self, others: &BTreeMap<Rank, Arc<Lead>>) {
        let stays = self.life.stage() == Stage::Serving;
        let first = others.first_key_value();
        let lead = first.filter(|(rank, _)| !stays || **rank < self.own).map(|(_, lead)| lead);
        let before = self.hub.lead();
        let same = match (lead, &before) {
            (Some(lead), Some(before)) => Arc::ptr_eq(lead, before),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        self.changes.fetch_add(1, Relaxed);
        let model = &**self.hub.model();
        match lead {
            Some(lead) => {
                tracing::info!(model, decides = lead.address, "another dispatcher decides")
            }
            None => tracing::info!(model, "this dispatcher decides"),
        }
        self.hub.turn_to(lead.cloned());
        self.turned.notify_one();
    }

    /// Has what waits go to whoever decides now, while calls go on: a hundred thousand requests take longer than a beat.
    pub(super) async fn keep_moving(&self) {
        loop {
            self.turned.notified().await;
            while self.hub.move_on() {
                yield_now().await;
            }
        }
    }
}

/// Another's place in the circle.
#[derive(Debug)]
pub(super) struct Seat {
    circle: Arc<Circle>,
    rank: Rank,
    lead: Arc<Lead>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // First: what is asked from now on must not be lost in the channel.
        self.lead.part();
        let mut others = self.circle.others.lock();
        others.remove(&self.rank);
        self.circle.choose(&others);
    }
}
