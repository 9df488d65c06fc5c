//! Puts pods into a pool's hub and takes them out again.
//!
//! Every pod that joins gets an id that was never used, so that whatever is still said of an earlier
//! pod at the same address finds no listener.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use weir_core::PodId;

use super::{
    Ask, Breaker, Cordon, Pod,
    config::{ScrapeConfig, Seat},
    cordon::Cordons,
    occupancy::Occupancy,
};
use crate::hub::Hub;

/// The door through which a pool's pods come and go.
#[derive(Clone)]
pub struct Roster {
    hub: Arc<Hub>,
    /// Shared by all pools of the process.
    next: Arc<AtomicU32>,
    /// For how long a scrape is believed; `None`: there are none. With scrapes a pod must answer one before it is used.
    believed: Option<Duration>,
    cordons: Arc<Mutex<Cordons>>,
}

impl Roster {
    /// A roster for each hub; where pods are scraped, one takes requests only after its first good scrape.
    pub fn for_each(hubs: &[Arc<Hub>], scrape: ScrapeConfig) -> Vec<Self> {
        let next = Arc::new(AtomicU32::new(1));
        let of = |hub: &Arc<Hub>| Self {
            hub: hub.clone(),
            next: next.clone(),
            believed: scrape.every.map(|_| scrape.stale_after),
            cordons: Arc::default(),
        };
        hubs.iter().map(of).collect()
    }

    /// The pool.
    pub const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Lets a pod join, of which an operator may have asked something before.
    pub fn join(&self, seat: &Seat, cordon: Arc<Cordon>) -> Arc<Pod> {
        let id = PodId(self.next.fetch_add(1, Relaxed));
        // Weak: the hub owns the pod, whose breaker tells the hub.
        let hub = Arc::downgrade(&self.hub);
        let name = seat.name.clone();
        let listener = move |phase| {
            tracing::info!(pod = &*name, ?phase, "pod changed its phase");
            if let Some(hub) = hub.upgrade() {
                hub.pod_changed(id);
            }
        };
        let (name, authority) = (seat.name.clone(), seat.authority.clone());
        let pod = Arc::new(Pod {
            server: seat.server.clone(),
            address: seat.address(),
            rank: seat.rank,
            group: seat.group.clone(),
            breaker: Breaker::new(self.believed.is_none(), Box::new(listener)),
            secure: seat.secure.clone(),
            cordon,
            occupancy: Occupancy::new(self.believed, self.hub.clock().now()),
            ..Pod::new(id, name, authority, seat.class)
        });
        self.hub.add_pod(pod.clone());
        pod
    }

    /// Takes a pod out. What it has in flight ends by itself.
    pub fn leave(&self, pod: &Pod) {
        self.hub.remove_pod(pod.id);
    }
}

/// The places of one address, which its watcher tells what it sees. They change while it watches.
pub type Places = Arc<Mutex<Vec<Place>>>;

/// A pod's place in one pool. Dropping it takes the pod out.
pub struct Place {
    /// The pool's door.
    pub roster: Roster,
    /// Where the pod is, and what it is called there.
    pub seat: Seat,
    /// The pod as this pool knows it.
    pub pod: Arc<Pod>,
}

impl Place {
    /// Whether it is this seat in this pool, shared or not.
    pub fn is(&self, roster: &Roster, seat: &Seat) -> bool {
        Arc::ptr_eq(&self.roster.hub, &roster.hub)
            && self.seat == Seat { shared: self.seat.shared, ..seat.clone() }
    }

    /// Lets the pod of a seat join. What an operator asked of it before, under this name and at this address, still is.
    pub fn take(roster: &Roster, seat: Seat) -> Self {
        let cordon = roster.cordons.lock().of(&seat.name, &seat.authority);
        if let (asked @ (Ask::Cordon | Ask::Drain), _) = cordon.asked() {
            tracing::info!(
                pod = &*seat.name,
                ?asked,
                "pod is back, and still asked by an operator"
            );
        }
        Self { roster: roster.clone(), pod: roster.join(&seat, cordon), seat }
    }

    /// Another process answers at this address: what is known of the one before it is void.
    pub fn renew(&mut self) {
        tracing::info!(
            pod = &*self.seat.name,
            model = &**self.roster.hub().model(),
            "pod was restarted"
        );
        self.roster.hub.remove_restarted(self.pod.id);
        self.pod = self.roster.join(&self.seat, self.pod.cordon.clone());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.roster.leave(&self.pod);
    }
}

/// Who is to sit where: by host and port.
pub fn by_authority(
    sitters: impl Iterator<Item = (Roster, Seat)>,
) -> BTreeMap<String, Vec<(Roster, Seat)>> {
    let mut all: BTreeMap<String, Vec<(Roster, Seat)>> = BTreeMap::new();
    for (roster, seat) in sitters {
        all.entry(seat.authority.clone()).or_default().push((roster, seat));
    }
    all
}

/// Lets those leave an address that are no longer asked for, and those join that are new.
pub fn reseat(places: &Places, mut sitters: Vec<(Roster, Seat)>) {
    let mut places = places.lock();
    places.retain_mut(|place| {
        let stays = sitters.iter().position(|(roster, seat)| place.is(roster, seat));
        if let Some(at) = stays {
            place.seat = sitters.swap_remove(at).1;
        }
        stays.is_some()
    });
    places.extend(sitters.into_iter().map(|(roster, seat)| Place::take(&roster, seat)));
}
