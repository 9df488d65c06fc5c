//! What an operator sees of a pool; what he does to it is in [`super::steer`].
//!
//! Called by the admin side's thread, never by the data plane. Every method takes the desk's lock for a
//! bounded time: walks over what waits go in slices of [`SLICE`] and let the lock go in between, so that
//! a hundred thousand waiting requests are listed or counted while dispatch goes on. Posters
//! never wait for it: they leave their messages in the mailbox, which each slice empties first.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use weir_core::{
    RequestId, Scheduler, Time,
    decisions::{Decision, KEPT},
    inspect::{
        BandView, Census, Count, Cursor, DecisionView, EndedView, Filter, Inspection, Page,
        PodDetail, QueueView, Summary, Supposed, Supposition,
    },
    queue::LaneKey,
};
use weir_schema::Status;

use super::{Hub, actor::Departed};
use crate::fleet::{Ask, Pod, breaker::BreakerSeen, occupancy::Beyond};

/// Waiting requests looked at in one turn at the desk: some 0.2 ms, less than a decision over hundreds of
/// pods takes.
pub const SLICE: usize = 250;
/// Lanes shown in one turn.
const LANES: usize = 200;
/// Pods shown in one turn.
const PODS: usize = 32;
/// Waiting requests looked at for one page at most, however few the filter leaves.
const SCAN: usize = 50_000;
/// A count of what waits is believed for so long.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What waits, counted at some moment.
#[derive(Clone, Debug)]
pub struct Counted {
    /// When the walk began.
    pub at: Time,
    /// What it came to.
    pub census: Arc<Census>,
}

/// Lanes, bands and tenants at one moment.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Lanes, with what the last count found in them, the highest band first.
    pub lanes: Vec<(QueueView, Option<Count>)>,
    /// Bands, with what the last count found in them, the highest first.
    pub bands: Vec<(BandView, Option<Count>)>,
    /// The last count.
    pub census: Arc<Census>,
    /// Age of the last count, in milliseconds.
    pub as_of_ms: f64,
}

/// A pod as an operator sees it.
#[derive(Clone, Debug)]
pub struct PodSeen {
    /// What the scheduler knows of it.
    pub detail: PodDetail,
    /// Its host and port, and after an `@` its rank where it has one; empty when it left a moment ago.
    pub address: String,
    /// What its breaker says.
    pub breaker: Option<BreakerSeen>,
    /// How far it is with what an operator asked, or with what ran there when it left.
    pub leaving: Option<Leaving>,
    /// It has left the pool: it is in the configuration, or in an answer of DNS, no more.
    pub has_left: bool,
}

impl PodSeen {
    /// Whether it is emptied after another: that is done last which has not been, or has more left.
    fn outlasts(&self, other: &Self) -> bool {
        let rank = |seen: &Self| {
            let done = seen.leaving.is_some_and(|leaving| leaving.is_done());
            (!done, seen.detail.view.residents + seen.detail.view.pending)
        };
        rank(self) > rank(other)
    }
}

/// A pod that takes no new request because an operator said so, or because it has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaving {
    /// What was asked.
    pub asked: Ask,
    /// How long ago, or since it left, in milliseconds.
    pub since_ms: f64,
    /// Requests of this pool that are still there.
    pub left: usize,
    /// What else is; `None` while some are left.
    pub beyond: Option<Beyond>,
    /// Predicted time until none is, in milliseconds.
    pub expected_ms: f64,
}

impl Leaving {
    /// Whether the pod was to be emptied, and is, as far as anybody can tell.
    pub fn is_done(&self) -> bool {
        let empty = matches!(self.beyond, Some(Beyond::Counted(0) | Beyond::Untold));
        self.asked == Ask::Drain && empty
    }

    /// Requests there that this pool does not know of; `None` until that is told.
    pub fn others(&self) -> Option<u32> {
        if let Some(Beyond::Counted(requests)) = self.beyond { Some(requests) } else { None }
    }
}

/// What a sampler reads once a second.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// When.
    pub at: Time,
    /// The pool in a few numbers.
    pub summary: Summary,
    /// Requests that ended since the last look, newest first; at most [`KEPT`].
    pub ended: Vec<EndedView>,
    /// Where the next look begins.
    pub next_ended: u64,
}

/// Which request is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// By its number.
    Id(RequestId),
    /// By what its client calls it.
    Name(String),
}

impl Called {
    /// What a path's last part may mean, the likelier first: digits are a client's name before they are a
    /// number, since an x-request-id may be all digits; behind a `#`, which no name has, they are a number.
    pub fn readings(text: &str) -> Vec<Self> {
        let digits = text.strip_prefix('#').unwrap_or(text);
        let digits = Some(digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        let number =
            digits.and_then(|digits| digits.parse().ok()).map(|it| Self::Id(RequestId(it)));
        let name = (!text.starts_with('#')).then(|| Self::Name(text.to_owned()));
        name.into_iter().chain(number).collect()
    }

    pub(super) fn find(&self, scheduler: &Scheduler) -> Option<RequestId> {
        match self {
            Self::Id(id) => Some(*id),
            Self::Name(name) => scheduler.find(name),
        }
    }
}

impl Hub {
    /// The pool in a few numbers.
    pub fn summary(&self) -> Summary {
        self.look(Scheduler::summary)
    }

    /// What the pool's predictor says of itself.
    pub fn predictor(&self) -> Status {
        self.look(|scheduler, _| scheduler.predictor())
    }

    /// Every lane, band and tenant with something waiting.
    pub fn queues(&self) -> Queues {
        let counted = self.counted();
        let keys = self.look(|scheduler, _| scheduler.lanes());
        let mut lanes: Vec<QueueView> = Vec::with_capacity(keys.len());
        for some in keys.chunks(LANES) {
            lanes.extend(self.look(|scheduler, now| scheduler.queue_views(now, some)));
        }
        lanes.sort_by(|a, b| b.band.cmp(&a.band).then_with(|| a.lane.cmp(&b.lane)));
        let bands = self.look(Scheduler::band_views);
        let census = counted.census;
        let of_lane = |lane: QueueView| {
            let count = census.lanes.get(&lane.lane).copied();
            (lane, count)
        };
        let of_band = |band: BandView| (band, census.bands.get(&band.band).copied());
        Queues {
            lanes: lanes.into_iter().map(of_lane).collect(),
            bands: bands.into_iter().map(of_band).collect(),
            as_of_ms: self.clock().now().ms_since(counted.at),
            census,
        }
    }

    /// What waits, counted; anew when the last count is older than a second.
    pub fn counted(&self) -> Counted {
        // Held during the walk: whoever comes meanwhile waits for this count and makes none of its own.
        let mut last = self.counted.lock();
        let now = self.clock().now();
        if let Some(counted) = last.as_ref().filter(|it| now.since(it.at) < COUNT_EVERY) {
            return counted.clone();
        }
        let (mut census, mut after) = (Census::default(), None);
        loop {
            after = self.look(|scheduler, now| scheduler.count(now, after, SLICE, &mut census));
            if after.is_none() {
                break;
            }
            thread::yield_now();
        }
        let counted = Counted { at: now, census: Arc::new(census) };
        *last = Some(counted.clone());
        counted
    }

    /// What a filter leaves of what waits, oldest first from behind `after`, at most `limit`. Of much that
    /// the filter does not leave a page may be short, or empty, and still have a next one.
    pub fn waiting_page(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Page {
        let mut page = Page { next: after, ..Page::default() };
        loop {
            let left = limit - page.requests.len();
            let some = self.look(|scheduler, now| {
                scheduler.waiting_page(now, page.next, filter, left.min(SLICE), SLICE)
            });
            page.requests.extend(some.requests);
            page.scanned += some.scanned;
            page.next = some.next;
            if page.next.is_none() || page.requests.len() >= limit || page.scanned >= SCAN {
                return page;
            }
            thread::yield_now();
        }
    }

    /// Everything known of a request; `None` when nothing is, or it ended too long ago.
    pub fn inspect(&self, which: &Called) -> Option<Inspection> {
        self.at_desk(|desk, now, _| {
            let id = which.find(&desk.scheduler)?;
            desk.scheduler.inspect(now, id)
        })
    }

    /// The number of a request; `None` when nothing is known of it.
    pub fn number(&self, which: &Called) -> Option<RequestId> {
        self.at_desk(|desk, now, _| {
            let id = which.find(&desk.scheduler)?;
            desk.scheduler.inspect(now, id).map(|_| id)
        })
    }

    /// The numbers of the waiting requests that are called so, the youngest first.
    pub fn waiting_called(&self, name: &str) -> Vec<RequestId> {
        self.look(|scheduler, _| scheduler.waiting_called(name).collect())
    }

    /// What would become of a request. Nothing is sent and nothing changes.
    pub fn suppose(&self, what: &Supposition) -> Supposed {
        self.at_desk(|desk, now, _| desk.scheduler.suppose(now, what))
    }

    /// The last decisions, newest first: those numbered `since` or later, of one request if one is named,
    /// at most `limit`.
    pub fn decisions(&self, since: u64, limit: usize, of: Option<&Called>) -> Vec<DecisionView> {
        let wanted = |decision: &Decision| match of {
            None => true,
            Some(Called::Id(id)) => decision.id == *id,
            Some(Called::Name(name)) => *decision.name == **name,
        };
        self.look(|scheduler, now| scheduler.decisions(now, since, limit.min(KEPT), wanted))
    }

    /// What a sampler reads once a second; `since` is what the last look said.
    pub fn sampling(&self, since: u64) -> Sampling {
        self.look(|scheduler, now| Sampling {
            at: now,
            summary: scheduler.summary(now),
            ended: scheduler.ended(now, since, KEPT),
            next_ended: scheduler.next_ended(),
        })
    }

    /// The lane that a name means, whether or not it holds anything.
    pub fn lane_called(&self, name: &str) -> Option<LaneKey> {
        self.look(|scheduler, _| scheduler.lane_called(name))
    }

    /// What is held: `pool`, bands as `b0`, lanes by their names.
    pub fn paused(&self) -> Vec<String> {
        self.look(|scheduler, _| gates(scheduler))
    }

    /// Every pod, each with at most `requests` of what it serves; at last those that have left while something ran there.
    pub fn pods_seen(&self, requests: usize) -> Vec<PodSeen> {
        let mut details: Vec<PodDetail> = Vec::new();
        loop {
            let after = details.last().map(|pod| pod.id);
            let some = self.look(|scheduler, now| scheduler.pods_page(now, after, PODS, requests));
            let all = some.len() < PODS;
            details.extend(some);
            if all {
                break;
            }
        }
        let (pods, now) = (self.pods(), self.clock().now());
        let known = |detail: &PodDetail| pods.iter().find(|pod| pod.id == detail.id);
        let mut all: Vec<PodSeen> =
            details.into_iter().map(|detail| seen(now, known(&detail), detail)).collect();
        let departed = self.departed();
        all.extend(departed.iter().filter_map(|left| self.departed_seen(left, requests)));
        all
    }

    /// A pod by its name, with all that it serves; one that has left, where there is no other of that name. By the name of a server the
    /// one of its engines that has most: what is asked of all of them is done once it is.
    pub fn pod_seen(&self, name: &str) -> Option<PodSeen> {
        let detail = |id| self.look(|scheduler, now| scheduler.pod(now, id, usize::MAX));
        let here = |pod: &Arc<Pod>| Some(seen(self.clock().now(), Some(pod), detail(pod.id)?));
        let mut all: Vec<PodSeen> = self.pods_called(name).iter().filter_map(here).collect();
        if all.is_empty() {
            let left = self.departed_called(name).into_iter();
            all.extend(left.filter_map(|left| self.departed_seen(&left, usize::MAX)));
        }
        let last = |one: PodSeen, other: PodSeen| if other.outlasts(&one) { other } else { one };
        all.into_iter().reduce(last)
    }

    /// The pods of a name: one, or of the name of a server all of its engines.
    pub fn pods_called(&self, name: &str) -> Vec<Arc<Pod>> {
        let pods = self.pods();
        let own = pods.iter().find(|pod| &*pod.name == name);
        let engines = || pods.iter().filter(|pod| pod.is_called(name)).cloned().collect();
        own.map_or_else(engines, |pod| vec![pod.clone()])
    }

    /// Pods that have left while something ran there, in the order in which they had joined.
    pub(super) fn departed(&self) -> Vec<Departed> {
        let mut departed: Vec<Departed> =
            self.at_desk(|desk, _, _| desk.departed.values().cloned().collect());
        departed.sort_unstable_by_key(|left| left.pod.id);
        departed
    }

    /// Those of them that were called so, of each name the last.
    pub(super) fn departed_called(&self, name: &str) -> Vec<Departed> {
        let mut called = self.departed();
        called.retain(|left| left.pod.is_called(name));
        called.sort_by_key(|left| left.at);
        let by_name = called.into_iter().map(|left| (left.pod.name.clone(), left));
        by_name.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// `None` when nothing runs there any more.
    fn departed_seen(&self, left: &Departed, requests: usize) -> Option<PodSeen> {
        let (detail, now) = self.look(|scheduler, now| {
            Some((scheduler.departed(now, left.pod.spec(), requests)?, now))
        })?;
        let leaving = Leaving {
            asked: left.pod.cordon.asked().0,
            since_ms: now.ms_since(left.at),
            left: detail.view.residents + detail.view.pending,
            beyond: None,
            expected_ms: detail.empty_in_ms.unwrap_or(0.0),
        };
        Some(PodSeen {
            address: left.pod.address.clone(),
            breaker: None,
            leaving: Some(leaving),
            has_left: true,
            detail,
        })
    }
}

pub(super) fn gates(scheduler: &Scheduler) -> Vec<String> {
    let gates = scheduler.paused().gates().into_iter();
    gates.map(|gate| scheduler.gate_name(gate)).collect()
}

fn seen(now: Time, pod: Option<&Arc<Pod>>, detail: PodDetail) -> PodSeen {
    let left = detail.view.residents + detail.view.pending;
    let leaving = pod.and_then(|pod| {
        let (asked, since) = pod.cordon.asked();
        (asked != Ask::Serve).then(|| Leaving {
            asked,
            since_ms: now.ms_since(since),
            left,
            beyond: pod.cordon.empty_since(left, now).map(|at| pod.occupancy.beyond(at, now)),
            expected_ms: if left == 0 { 0.0 } else { detail.empty_in_ms.unwrap_or(0.0) },
        })
    });
    PodSeen {
        address: pod.map(|pod| pod.address.clone()).unwrap_or_default(),
        breaker: pod.map(|pod| pod.breaker.seen()),
        leaving,
        has_left: false,
        detail,
    }
}

#[cfg(test)]
#[path = "seat_tests.rs"]
mod tests;
