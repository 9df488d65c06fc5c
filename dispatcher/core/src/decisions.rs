//! The last decisions and the last requests that ended: what was done, and why.
//!
//! Both are rings of [`KEPT`] fixed slots: in a steady state nothing is allocated, and what falls out is
//! forgotten. They are for people who ask "what happened to this one?" within seconds; everything that
//! is to be known later is in the logs, the samples and the metrics.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Band, EndKind, PodId, Reason, RefusalReason, Request, RequestId, Slo, Time,
    headroom::Outlook,
    spread::{NumberMap, slim},
};

/// Decisions and ended requests remembered.
pub const KEPT: usize = 256;
/// Pods that lost and are remembered with a decision.
pub const ALTERNATIVES: usize = 4;

/// The last [`KEPT`] of something, numbered.
#[derive(Debug)]
pub struct Ring<T> {
    slots: Vec<T>,
    /// How many were ever put in.
    count: u64,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self { slots: Vec::with_capacity(KEPT), count: 0 }
    }
}

impl<T> Ring<T> {
    /// Puts one in; the oldest goes.
    pub fn push(&mut self, item: T) {
        let place = (self.count % KEPT as u64) as usize;
        match self.slots.get_mut(place) {
            Some(slot) => *slot = item,
            None => self.slots.push(item),
        }
        self.count += 1;
    }

    /// How many were ever put in: the number of the next.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Those that are left, newest first, each with its number.
    pub fn newest(&self) -> impl Iterator<Item = (u64, &T)> {
        let kept = self.slots.len() as u64;
        (0..kept).filter_map(move |back| {
            let number = self.count - 1 - back;
            Some((number, self.slots.get((number % KEPT as u64) as usize)?))
        })
    }
}

/// What was decided of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was sent to a pod.
    Dispatch,
    /// The same, to one on which it starts cold so that a prompt which several share is there as well.
    Spread,
    /// It was refused.
    Refuse(RefusalReason),
    /// It was moved behind those that can still make it.
    Demote,
    /// Its client left while it waited.
    Cancel,
    /// Nothing of it reached its pod: it went back to its lane.
    Requeue,
    /// An operator put it into another band.
    Move,
}

impl Verdict {
    /// The kind of decision.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Dispatch | Self::Spread => "dispatch",
            Self::Refuse(_) => "refuse",
            Self::Demote => "demote",
            Self::Cancel => "cancel",
            Self::Requeue => "requeue",
            Self::Move => "move",
        }
    }

    /// Why, in a word.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Dispatch => "fits",
            Self::Spread => "shared_prompt",
            Self::Refuse(reason) => reason.name(),
            Self::Demote => "hopeless",
            Self::Cancel => "client_left",
            Self::Requeue => "undelivered",
            Self::Move => "moved_by_operator",
        }
    }
}

/// A pod that was looked at and lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternative {
    /// Which.
    pub pod: PodId,
    /// What stood against it; `None`: another one was better.
    pub verdict: Option<Reason>,
    /// Time from dispatch to the first token there, in milliseconds, by the step-time model where nothing else was asked.
    pub ttft_ms: f64,
    /// Prompt tokens that it would have had to compute.
    pub uncached_tokens: f64,
    /// Whether it is kept for long prompts.
    pub kept: bool,
}

/// The best few of the pods that lost.
#[derive(Clone, Debug, Default)]
pub struct Losers(SmallVec<[Alternative; ALTERNATIVES]>);

impl Losers {
    /// Forgets them: another head is looked at.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A pod on which a gate was shut.
    pub fn shut(&mut self, outlook: &Outlook, why: Reason) {
        self.offer(Alternative {
            pod: outlook.pod,
            verdict: Some(why),
            ttft_ms: outlook.ttft_ms,
            uncached_tokens: outlook.uncached_tokens,
            kept: false,
        });
    }

    /// A pod that another one was better than, and whether it is kept for long prompts.
    pub fn fitted(&mut self, pod: PodId, ttft_ms: f64, uncached_tokens: f64, kept: bool) {
        self.offer(Alternative { pod, verdict: None, ttft_ms, uncached_tokens, kept });
    }

    /// One of them is the pod that it is after all.
    pub fn passed_over(&mut self, pod: PodId) {
        self.0.retain(|one| one.pod != pod);
    }

    /// Keeps it in its place among the best: those that fitted first, then the earliest first token.
    fn offer(&mut self, one: Alternative) {
        let order = |one: &Alternative| (one.verdict.is_some(), one.ttft_ms);
        let (shut, ttft_ms) = order(&one);
        let place = self.0.iter().position(|other| {
            let (other_shut, other_ms) = order(other);
            (other_shut && !shut) || (other_shut == shut && ttft_ms < other_ms)
        });
        let place = place.unwrap_or(self.0.len());
        if place < ALTERNATIVES {
            self.0.truncate(ALTERNATIVES - 1);
            self.0.insert(place, one);
        }
    }

    /// Them, best first.
    pub fn take(&mut self) -> SmallVec<[Alternative; ALTERNATIVES]> {
        std::mem::take(&mut self.0)
    }
}

/// A decision as it was taken.
#[derive(Clone, Debug)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// On which request.
    pub id: RequestId,
    /// What its client calls it.
    pub name: Arc<str>,
    /// The band it was in.
    pub band: Band,
    /// What was decided.
    pub verdict: Verdict,
    /// Time since its arrival.
    pub waited: Duration,
    /// Why it had waited until then.
    pub waited_for: Option<Reason>,
    /// The pod it went to, or could not be delivered to.
    pub pod: Option<PodId>,
    /// Predicted time from arrival to its first token there, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// Predicted time per output token there, in milliseconds.
    pub tpot_ms: Option<f64>,
    /// The best of the pods that lost.
    pub alternatives: SmallVec<[Alternative; ALTERNATIVES]>,
}

impl Decision {
    /// A decision on a request that names no pod.
    pub fn of(now: Time, request: &Request, verdict: Verdict) -> Self {
        Self {
            at: now,
            id: request.id,
            name: request.name.clone(),
            band: request.band,
            verdict,
            waited: now.since(request.arrived),
            waited_for: None,
            pod: None,
            ttft_ms: None,
            tpot_ms: None,
            alternatives: SmallVec::new(),
        }
    }
}

/// How a request came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// On a pod.
    Ended(EndKind),
    /// It was refused.
    Refused(RefusalReason),
    /// Its client left while it waited.
    Cancelled,
}

impl Outcome {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended(EndKind::Complete) => "complete",
            Self::Ended(EndKind::ClientGone) => "client_gone",
            Self::Ended(EndKind::PodError) => "pod_error",
            Self::Ended(EndKind::BadRequest) => "bad_request",
            Self::Ended(EndKind::PodFailed) => "pod_failed",
            Self::Refused(reason) => reason.name(),
            Self::Cancelled => "client_left",
        }
    }
}

/// A request that is over.
#[derive(Clone, Debug)]
pub struct Ended {
    /// When it ended.
    pub at: Time,
    /// Which.
    pub id: RequestId,
    /// What its client calls it.
    pub name: Arc<str>,
    /// Its band.
    pub band: Band,
    /// Who sent it.
    pub tenant: Option<Arc<str>>,
    /// When it arrived.
    pub arrived: Time,
    /// Its objectives.
    pub slo: Slo,
    /// How it ended.
    pub outcome: Outcome,
    /// Input tokens; 0 when it was refused on arrival.
    pub input_tokens: u32,
    /// Output tokens, over all sequences.
    pub output_tokens: u32,
    /// Deliveries tried.
    pub attempts: u32,
    /// The pod it was on.
    pub pod: Option<PodId>,
    /// Time from arrival to dispatch, or to its end.
    pub waited: Duration,
    /// Time from arrival to the first token, in milliseconds, if it was seen.
    pub ttft_ms: Option<f64>,
    /// Mean time per output token, in milliseconds, if it was measured.
    pub tpot_ms: Option<f64>,
    /// Predicted time from arrival to the first token, in milliseconds.
    pub predicted_ttft_ms: Option<f64>,
    /// Predicted time per output token, in milliseconds.
    pub predicted_tpot_ms: Option<f64>,
    /// Whether its client got a whole response inside its objectives.
    pub attained: bool,
}

impl Ended {
    /// A request that never was on a pod.
    pub fn unserved(now: Time, request: &Request, outcome: Outcome) -> Self {
        Self {
            at: now,
            id: request.id,
            name: request.name.clone(),
            band: request.band,
            tenant: request.tenant.clone(),
            arrived: request.arrived,
            slo: request.slo,
            outcome,
            input_tokens: 0,
            output_tokens: 0,
            attempts: 0,
            pod: None,
            waited: now.since(request.arrived),
            ttft_ms: None,
            tpot_ms: None,
            predicted_ttft_ms: None,
            predicted_tpot_ms: None,
            attained: false,
        }
    }
}

/// Finds the requests that wait or are in flight by the names their clients gave them. Of several with one
/// name the youngest is found first.
///
/// Several tables by hash, so that none takes long to grow.
#[derive(Debug)]
pub struct Names {
    youngest: Vec<NumberMap<u64, RequestId>>,
    /// The others of names that several have, the younger the later.
    others: NumberMap<u64, Vec<RequestId>>,
}

/// Others of one name that are known: a gateway that calls everything alike is not to make them dear.
const MOST_OTHERS: usize = 64;

/// Tables of names.
const TABLES: u64 = 16;

impl Default for Names {
    fn default() -> Self {
        let youngest = (0..TABLES).map(|_| NumberMap::default()).collect();
        Self { youngest, others: NumberMap::default() }
    }
}

impl Names {
    /// A request came.
    pub fn enter(&mut self, request: &Request) {
        if !request.name.is_empty() {
            let hash = xxh3_64(request.name.as_bytes());
            let before = self.table(hash).and_then(|table| table.insert(hash, request.id));
            if let Some(before) = before {
                let others = self.others.entry(hash).or_default();
                if others.len() == MOST_OTHERS {
                    others.remove(0);
                }
                others.push(before);
            }
        }
    }

    /// A request is over.
    pub fn leave(&mut self, request: &Request) {
        if request.name.is_empty() {
            return;
        }
        let hash = xxh3_64(request.name.as_bytes());
        let others = self.others.get_mut(&hash);
        let Some(table) = self.youngest.get_mut((hash % TABLES) as usize) else { return };
        let is_youngest = table.get(&hash) == Some(&request.id);
        let Some(others) = others else {
            if is_youngest {
                table.remove(&hash);
                slim(table);
            }
            return;
        };
        if is_youngest {
            others.pop().map(|next| table.insert(hash, next));
        } else {
            others.retain(|one| *one != request.id);
        }
        if others.is_empty() {
            self.others.remove(&hash);
        }
    }

    /// Who may be called so, the youngest first; the caller looks whether they are.
    pub fn find(&self, name: &str) -> impl Iterator<Item = RequestId> {
        let hash = xxh3_64(name.as_bytes());
        let table = self.youngest.get((hash % TABLES) as usize);
        let youngest = table.and_then(|table| table.get(&hash)).copied();
        let others = self.others.get(&hash).into_iter().flatten().rev().copied();
        youngest.into_iter().chain(others)
    }

    fn table(&mut self, hash: u64) -> Option<&mut NumberMap<u64, RequestId>> {
        self.youngest.get_mut((hash % TABLES) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_newest_and_allocates_once() {
        let mut ring = Ring::default();
        assert_eq!(ring.newest().count(), 0);
        let room = ring.slots.capacity();
        for number in 0..1000u64 {
            ring.push(number);
        }
        let newest: Vec<(u64, u64)> = ring.newest().map(|(number, item)| (number, *item)).collect();
        assert_eq!(newest.len(), KEPT);
        assert_eq!((newest[0], newest[KEPT - 1]), ((999, 999), (744, 744)));
        assert_eq!(ring.slots.capacity(), room);
    }

    #[test]
    fn names_are_shared_out_among_their_tables() {
        let mut names = Names::default();
        let request = |id: u64| Request {
            name: format!("name-{id}").into(),
            ..Request::new(RequestId(id), Time::ZERO, crate::PromptSize::Tokens(1))
        };
        (0..10_000).for_each(|id| names.enter(&request(id)));
        assert_eq!(names.find("name-77").collect::<Vec<_>>(), [RequestId(77)]);
        assert!(names.youngest.iter().all(|table| table.len() < 1000));
        (0..10_000).for_each(|id| names.leave(&request(id)));
        assert!(names.youngest.iter().all(NumberMap::is_empty));
    }

    #[test]
    fn those_with_one_name_are_all_found_until_they_leave() {
        let mut names = Names::default();
        let request = |id: u64| Request {
            name: "same".into(),
            ..Request::new(RequestId(id), Time::ZERO, crate::PromptSize::Tokens(1))
        };
        let found = |names: &Names| names.find("same").map(|id| id.0).collect::<Vec<_>>();
        (0..5).for_each(|id| names.enter(&request(id)));
        assert_eq!(found(&names), [4, 3, 2, 1, 0]);
        for (leaves, left) in
            [(4, &[3, 2, 1, 0][..]), (1, &[3, 2, 0]), (9, &[3, 2, 0]), (3, &[2, 0]), (0, &[2])]
        {
            names.leave(&request(leaves));
            assert_eq!(found(&names), left, "{leaves} leaves");
        }
        names.leave(&request(2));
        assert!(found(&names).is_empty() && names.others.is_empty());
        // What calls everything alike costs no more than a handful.
        (0..1000).for_each(|id| names.enter(&request(id)));
        assert_eq!((found(&names).len(), found(&names)[0]), (MOST_OTHERS + 1, 999));
        (0..1000).for_each(|id| names.leave(&request(id)));
        assert!(found(&names).is_empty() && names.others.is_empty());
    }

    #[test]
    fn the_best_losers_are_kept_in_order() {
        let mut losers = Losers::default();
        let one = |pod, verdict, ttft_ms| Alternative {
            pod: PodId(pod),
            verdict,
            ttft_ms,
            uncached_tokens: 1.0,
            kept: false,
        };
        for (pod, verdict, ttft_ms) in [
            (0, Some(Reason::KvFull), 1.0),
            (1, None, 9.0),
            (2, Some(Reason::KvFull), 0.5),
            (3, None, 8.0),
            (4, None, 10.0),
            (5, Some(Reason::PendingFull), 0.1),
        ] {
            losers.offer(one(pod, verdict, ttft_ms));
        }
        let kept = losers.take();
        assert!(!kept.spilled());
        assert_eq!(kept.iter().map(|one| one.pod.0).collect::<Vec<_>>(), [3, 1, 4, 5]);
        assert!(losers.take().is_empty());
    }
}
