//! What must be true of model and scheduler after every step: DESIGN.md's invariants, from outside.
//!
//! I1 and I2 are asserted by the model as it takes actions in; the rest is here.

use weir_core::{
    Band, Dispatch, LaneView, PodId, PodView, Policy, PromptSize, Reason, RequestId, Scheduler,
    Snapshot, Time,
};

use super::model::{Naive, Stay, Tale};

/// One call of the scheduler, as far as checks need it.
pub struct Call {
    pub name: &'static str,
    pub now: Time,
    /// Whether the event lets the pull loop run.
    pub pulled: bool,
    /// Whether nothing that waited has prompt blocks, so that no head waits for a warm pod.
    pub plain: bool,
    /// Whether step times are sound, so that a passed deadline means late.
    pub sound: bool,
    /// What was late before.
    pub late: Vec<RequestId>,
    /// What was paused before.
    pub paused: Vec<RequestId>,
    /// Whether the event may have opened a gate, or moved something past one.
    pub opened: bool,
    pub dispatched: Vec<Dispatch>,
}

/// Every check.
pub fn all(naive: &Naive, scheduler: &Scheduler, call: &Call) {
    let snapshot = scheduler.snapshot(call.now);
    outcomes(naive, &snapshot, call);
    ledgers(naive, &snapshot);
    queue(naive, scheduler, &snapshot, call);
    reasons(naive, scheduler, &snapshot, call);
    bounded_waits(naive, call);
    gates(naive, scheduler, call);
    if call.pulled {
        nothing_idles(naive, scheduler, &snapshot, call);
        lesser_requests_delay_nobody(naive, &snapshot, call);
    }
}

/// I1: every counter is the model's, and they add up.
fn outcomes(naive: &Naive, snapshot: &Snapshot, call: &Call) {
    let (counters, tally) = (&snapshot.counters, &naive.tally);
    let refused: u64 = counters.refused.iter().map(|(_, count)| count).sum();
    let seen = [
        counters.arrived,
        counters.dispatched,
        counters.requeued,
        counters.completed,
        counters.failed,
        counters.client_gone,
        counters.cancelled,
        refused,
    ];
    let expected = [
        tally.arrived,
        tally.dispatched,
        tally.requeued,
        tally.completed,
        tally.failed,
        tally.client_gone,
        tally.cancelled,
        tally.refused,
    ];
    assert_eq!(seen, expected, "I1: counters after {}", call.name);
    let over: u64 = seen.iter().skip(3).sum();
    let open = (snapshot.waiting + snapshot.in_flight) as u64;
    assert_eq!(counters.arrived, over + open, "I1: the sum after {}", call.name);
    if naive.closing {
        assert_eq!(snapshot.waiting, 0, "nothing waits after close");
    }
}

/// I3: per pod, the ledger is the model's account, and zero at idle.
fn ledgers(naive: &Naive, snapshot: &Snapshot) {
    assert_eq!(snapshot.in_flight, naive.flying().count(), "I3: in flight");
    assert_eq!(snapshot.pods.len(), naive.pods.len(), "I3: pods");
    for ((id, seen), view) in naive.pods.iter().zip(&snapshot.pods) {
        assert_eq!(view.phase, seen.phase);
        assert_eq!(view.dispatched, seen.dispatched, "I3: dispatched to {id:?}");
        ledger(naive, *id, view);
    }
}

fn ledger(naive: &Naive, id: PodId, view: &PodView) {
    let residents = naive.booked(id).filter(|(_, stay)| stay.resident).count();
    let pending = naive.booked(id).count() - residents;
    assert_eq!((view.residents, view.pending), (residents, pending), "I3: {id:?} {view:?}");
    if pending == 0 {
        assert_eq!(view.pending_tokens, 0, "I3: pending tokens of {id:?} at idle");
    }
    if residents == 0 {
        assert_eq!(view.kv_tokens, 0, "I3: kv tokens of {id:?} at idle");
    }
    let pending = naive.booked(id).filter(|(_, stay)| !stay.resident);
    if let Some(tokens) = pending.map(|(tale, _)| uncached_tokens(tale)).sum::<Option<u64>>() {
        // A sum of shares, cut to whole tokens: the last bit may take one away.
        assert!(view.pending_tokens.abs_diff(tokens) <= 1, "I3: pending tokens of {id:?}");
    }
    let residents = naive.booked(id).filter(|(_, stay)| stay.resident);
    if let Some(tokens) = residents.map(|(tale, stay)| kv_tokens(tale, stay)).sum::<Option<u64>>() {
        assert_eq!(view.kv_tokens, tokens, "I3: kv tokens of {id:?}");
    }
}

/// Prompt tokens to compute, where a naive eye can tell.
fn uncached_tokens(tale: &Tale) -> Option<u64> {
    match tale.request.prompt {
        PromptSize::Tokens(tokens) if tale.request.blocks.is_empty() => Some(tokens.max(1).into()),
        _ => None,
    }
}

/// Context tokens held, where a naive eye can tell.
fn kv_tokens(tale: &Tale, stay: &Stay) -> Option<u64> {
    match tale.request.prompt {
        PromptSize::Tokens(tokens) if tale.request.streamed => {
            Some(u64::from(tokens) + u64::from(stay.generated) * u64::from(tale.request.sequences))
        }
        _ => None,
    }
}

/// I4: the queue holds what the model holds, within its bounds.
fn queue(naive: &Naive, scheduler: &Scheduler, snapshot: &Snapshot, call: &Call) {
    let (mut count, mut bytes) = (0, 0);
    for tale in naive.waiting() {
        count += 1;
        bytes += u64::from(tale.request.body_bytes);
        assert!(!tale.request.immediate, "I8: after {} it waits: {tale:?}", call.name);
        let left = tale.attempts < naive.config.max_attempts.max(1);
        assert!(left, "I1: after {} no attempt is left, yet it waits: {tale:?}", call.name);
    }
    assert_eq!(snapshot.waiting, count, "I4: count after {}", call.name);
    assert_eq!(scheduler.waiting(), count, "I4: count after {}", call.name);
    assert_eq!(snapshot.waiting_bytes, bytes, "I4: bytes after {}", call.name);
    let in_lanes: usize = snapshot.lanes.iter().map(|lane| lane.depth).sum();
    assert_eq!(in_lanes + snapshot.late, count, "I4: lanes after {}", call.name);
    if naive.tally.requeued == 0 {
        assert!(count <= naive.config.bounds.max_requests, "I4: too many wait");
        assert!(bytes <= naive.config.bounds.max_bytes, "I4: too many bytes wait");
    }
}

/// I8: everything that waits has a reason, and the reason is true.
fn reasons(naive: &Naive, scheduler: &Scheduler, snapshot: &Snapshot, call: &Call) {
    let (mut late, mut held) = (0, 0);
    for tale in naive.waiting() {
        let reason = scheduler.reason(tale.request.id);
        let said = reason.is_some_and(|reason| reason != Reason::NotConsidered);
        assert!(said, "I8: after {}: {reason:?} for {tale:?}", call.name);
        late += usize::from(reason == Some(Reason::Late));
        held += usize::from(reason == Some(Reason::Paused));
    }
    let all_say_so = (late..=late + held).contains(&snapshot.late);
    assert!(all_say_so, "I8: late requests say so, or that they are paused");
    let over = naive.tales.values().find(|tale| !tale.waits());
    assert_eq!(over.and_then(|tale| scheduler.reason(tale.request.id)), None);
    for lane in snapshot.lanes.iter().filter(|_| call.pulled) {
        let tale = head(naive, lane);
        assert!(tale.is_some(), "I8: the head of {lane:?} does not wait");
        assert_ne!(lane.reason, Reason::NotConsidered, "I8: after {}: {lane:?}", call.name);
        if lane.reason == Reason::Paused {
            continue;
        }
        let due = tale.and_then(|tale| tale.request.deadline());
        let lost = due.is_some_and(|due| due < call.now);
        let holds = naive.config.policy == Policy::Weir && call.sound;
        assert!(!(lost && holds), "I7: a head that cannot make it is not late: {tale:?}");
        let of_pods = |usable: &dyn Fn(&Tale, PodId) -> bool| {
            tale.is_some_and(|tale| naive.pods.keys().any(|pod| usable(tale, *pod)))
        };
        let homeless = !of_pods(&|tale, pod| naive.may_use(tale, pod));
        let surely_not = of_pods(&|tale, pod| naive.surely_may_use(tale, pod));
        let says_so = lane.reason == Reason::NoPodReady;
        let behind = matches!(lane.reason, Reason::BehindHead { .. });
        let is_told = if says_so { !surely_not } else { !homeless || behind };
        assert!(is_told, "I8: {lane:?} of {tale:?}");
        if let Reason::BehindHead { head } = lane.reason {
            let before = naive.tales.get(&head).is_some_and(Tale::waits);
            assert!(before, "I8: {lane:?} waits behind what does not wait");
            let paused = scheduler.reason(head) == Some(Reason::Paused);
            assert!(!paused, "I7: {lane:?} waits behind what is paused");
        }
    }
}

fn head<'a>(naive: &'a Naive, lane: &LaneView) -> Option<&'a Tale> {
    naive.tales.get(&lane.head).filter(|tale| tale.waits())
}

/// I8: no wait is longer than its bound while ticks arrive.
fn bounded_waits(naive: &Naive, call: &Call) {
    if call.name != "tick" {
        return;
    }
    let bounds = &naive.config.bounds;
    for tale in naive.waiting() {
        let arrived = tale.request.arrived;
        let late = call.late.contains(&tale.request.id);
        let bound = tale.request.expires.since(arrived).min(bounds.longest_wait(late, None));
        assert!(call.now.since(arrived) < bound, "I8: waits too long: {tale:?}");
        if let Some(since) = naive.no_pod_since {
            let homeless = call.now.since(since.max(arrived));
            assert!(homeless < bounds.max_wait_no_pods, "I8: waits too long for a pod: {tale:?}");
        }
        let surely = naive.is_outsized(tale) == Some(true);
        let outsized = naive.outsized_for(call.now, tale).filter(|_| surely);
        let soon = outsized.is_none_or(|outsized| outsized < bounds.max_wait_no_pods);
        assert!(soon, "I8: waits too long for a larger pod: {tale:?}");
    }
}

/// What is behind a shut gate says so and is not given out; what an operator cancels is over.
fn gates(naive: &Naive, scheduler: &Scheduler, call: &Call) {
    for tale in naive.waiting() {
        let id = tale.request.id;
        let paused = scheduler.reason(id) == Some(Reason::Paused);
        assert!(paused || !naive.held(tale), "{id:?} is held and does not say so");
        assert!(!paused || !naive.gates.is_empty(), "{id:?} is held by nobody");
        assert!(!naive.cancelling.contains(&id), "I1: {id:?} was cancelled and waits");
    }
    let out = |dispatch: &&Dispatch| call.paused.contains(&dispatch.id);
    let out = call.dispatched.iter().find(out).filter(|_| !call.opened);
    assert_eq!(out, None, "after {}: it was paused", call.name);
}

/// I5: whatever the predictor says, a request is not left waiting beside an empty pod that it may
/// use, except while a head waits for its warm pod or a faster one, or where late requests leave pods to others and one is at work. A policy that pushes leaves none beside any.
fn nothing_idles(naive: &Naive, scheduler: &Scheduler, snapshot: &Snapshot, call: &Call) {
    let holds = naive.config.policy == Policy::Weir;
    let waits = |why: Reason| matches!(why, Reason::WaitsForWarmPod | Reason::WaitsForFasterPod);
    if snapshot.lanes.iter().any(|lane| waits(lane.reason)) {
        return assert!(holds, "a policy that pushes waits for a pod");
    }
    let idle = |pod: &PodId| !holds || naive.booked(*pod).next().is_none();
    let idle: Vec<PodId> = naive.pods.keys().copied().filter(idle).collect();
    let held = |tale: &&Tale| scheduler.reason(tale.request.id) == Some(Reason::Paused);
    let leave = naive.config.pull.late_share < 1.0 && naive.flying().any(|(_, stay)| stay.booked);
    let leaves = |tale: &&Tale| leave && scheduler.reason(tale.request.id) == Some(Reason::Late);
    for tale in naive.waiting().filter(|tale| !held(tale) && !leaves(tale)) {
        let beside = idle.iter().find(|pod| naive.surely_may_use(tale, **pod));
        assert_eq!(beside, None, "I5: after {}: idle beside {tale:?}; {snapshot:?}", call.name);
    }
}

/// I7: a sheddable or late request takes no pod from one of a higher band that can still make it. Where heads bind lower bands only
/// after a time, that is said of late ones alone.
fn lesser_requests_delay_nobody(naive: &Naive, snapshot: &Snapshot, call: &Call) {
    if naive.config.policy != Policy::Weir || !call.plain {
        return;
    }
    let strict = naive.config.pull.bind_share == 0.0;
    let pending = snapshot.pods.iter().map(|pod| pod.pending_tokens).sum();
    // What others have on an empty pod may make it late, which a naive eye does not see; then a request may wait for another pod.
    let crowded = snapshot.pods.iter().any(|pod| pod.elsewhere > 0);
    let tells = |tale: &Tale| !crowded || tale.request.deadline().is_none();
    let mut before: Vec<((bool, Band), PodId)> = Vec::new();
    for dispatch in &call.dispatched {
        let tale = naive.tales.get(&dispatch.id).filter(|tale| !naive.is_endless(tale));
        let Some(tale) = tale else { continue };
        let Some(late) = late(tale, call, pending) else { continue };
        let band = tale.request.band;
        // One that has come back may have had no pod before those that passed it.
        let rank = (!late, if strict { band } else { Band::default() });
        // A lesser one that went to a pod that this one may not use took nothing from it.
        let lesser = |(other, pod): &(_, _)| *other < rank && naive.surely_may_use(tale, *pod);
        let in_order = !before.iter().any(lesser) || !tale.excluded.is_empty() || !tells(tale);
        assert!(in_order, "I7: {:?} after lesser ones: {:?}", tale, call.dispatched);
        before.push((rank, dispatch.pod));
        // Who waits for a faster pod would be late on those that are left.
        let not_here = [Reason::Paused, Reason::WaitsForFasterPod];
        let open = snapshot.lanes.iter().filter(|lane| !not_here.contains(&lane.reason));
        for lane in open.filter(|lane| late || strict && lane.band > band) {
            // One that would be late on an empty pod may wait for another.
            let surely =
                |head: &&Tale| tells(head) && self::late(head, call, pending) == Some(false);
            let head = head(naive, lane).filter(surely);
            let delayed = head.is_some_and(|head| naive.surely_may_use(head, dispatch.pod));
            assert!(!delayed, "I7: {dispatch:?} (late: {late}) went before {lane:?}");
        }
    }
}

/// Whether a request was late when it was dispatched in a call, where a naive eye can tell. What is pending on all pods counts
/// against it: behind it on the pod where it would fit soonest, it may be lost.
fn late(tale: &Tale, call: &Call, pending_tokens: u64) -> Option<bool> {
    let request = &tale.request;
    let Some(due) = request.deadline() else { return Some(false) };
    if call.late.contains(&request.id) {
        return Some(true);
    }
    let PromptSize::Tokens(tokens) = request.prompt else { return None };
    // Far above the best TTFT of any pod there is, where step times are the default.
    let enough_ms = 50.0 + 0.1 * (f64::from(tokens) + pending_tokens as f64);
    match due.ms_until(call.now) {
        left_ms if left_ms < 0.0 && call.sound => Some(true),
        // What was paused did not say whether it was late.
        _ if call.paused.contains(&request.id) => None,
        left_ms if left_ms > enough_ms && call.sound => Some(false),
        _ => None,
    }
}
