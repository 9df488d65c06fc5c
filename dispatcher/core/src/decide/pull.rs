//! The pass over the heads: dispatch, claim, or hold.
//!
//! Every policy goes through it. One that pushes holds nobody back: a head that has no pod keeps no
//! other from going. For the rest, as the policy's dispatch says:
//!
//! Heads are taken by band and deadline. One that fits a pod goes. One that fits none keeps its
//! place: under the strict rule nothing behind it goes; under claims it claims the pod where it
//! would fit soonest, and a later head of its band may use another pod if it needs at
//! most half as many uncached tokens. An earlier one that small leaves the claimed pod alone while it
//! fits on another. Where requests wait for long, or a head without objectives is not due yet, those of its band pass that fit.
//! Lower bands it holds back altogether: at once, or, where `bind_share` says so, when it has waited that share
//! of its TTFT objective, and until then they go as if it had not come. A late request goes only in a pass that held nobody
//! back ([`late`]), unless it goes for others ([`company`](super::company)). A head waits for the pod that has its prompt while that one can be in time, and joins what is pending there rather
//! than start cold in the last moment.
//! A head that could not be delivered somewhere holds back only the pods it may still use: the others
//! can never serve it, and nobody waits for what cannot happen.

use smallvec::SmallVec;

use crate::{
    Band, HeadRule, PodId, RequestId,
    decide::{
        Choice, Floor, affinity, filter, late,
        pick::{Fit, Pick},
        warm::Course,
    },
    explain::Reason,
    headroom::Outlook,
    policy::{Hopeless, Mode},
    queue::{Head, Waiting},
};

/// Share of a busy pod's predicted TTFT that is certain: what misses its deadline by less is not given up.
const CERTAIN_SHARE: f64 = 0.95;

/// Heads that can no longer meet their objective; the caller demotes or refuses them.
pub fn hopeless(floor: &mut Floor<'_>) -> Vec<RequestId> {
    let factor = floor.config.pull.hopeless_factor;
    let mut heads = std::mem::take(&mut floor.scratch.heads);
    floor.board.heads_into(&mut heads);
    let mut lost_ones = std::mem::take(&mut floor.scratch.lost);
    lost_ones.clear();
    let ids = heads.iter().map(|(_, rank)| rank.id());
    lost_ones.extend(ids.filter(|id| is_lost(floor, factor, *id)));
    floor.scratch.heads = heads;
    lost_ones
}

fn is_lost(floor: &mut Floor<'_>, factor: f64, id: RequestId) -> bool {
    floor.turn_to(id);
    if floor.rules.hopeless == Hopeless::Serve {
        return false;
    }
    let Some(waiting) = floor.board.get(id) else { return false };
    let Some(deadline) = waiting.request.deadline() else { return false };
    let left_ms = deadline.ms_until(floor.now);
    if !floor.thorough && floor.still_in_time(waiting, left_ms) {
        return false;
    }
    // What an idle pod can do cold, one that has some of the prompt can do: mostly nothing need be looked up.
    if floor.thorough || !floor.makes_it_cold(waiting, factor, left_ms) {
        floor.refresh(id);
        let Some(waiting) = floor.board.get(id) else { return false };
        if factor * floor.best_ttft_ms(waiting).unwrap_or(0.0) > left_ms {
            return true;
        }
    }
    no_pod_in_time(floor, factor, id, left_ms)
}

/// Whether a head that found no pod would be too late on each of them if it went there now. It would be
/// no earlier later: a backlog shrinks no faster than what is left of the objective. Until it is lost
/// even to an idle pod it would only keep others from pods that they could use.
fn no_pod_in_time(floor: &mut Floor<'_>, factor: f64, id: RequestId, left_ms: f64) -> bool {
    let considered = |waiting: &Waiting| waiting.reason() != Reason::NotConsidered;
    // Under a policy that asks no prediction a pod's TTFT is nobody's reason.
    if !floor.rules.gated() || !floor.board.get(id).is_some_and(considered) {
        return false;
    }
    floor.refresh(id);
    let Some(waiting) = floor.board.get(id) else { return false };
    let late = |one: Outlook| !one.empty && CERTAIN_SHARE * one.ttft_ms > left_ms;
    let mut usable = floor.usable(waiting).peekable();
    if usable.peek().is_none() {
        return false;
    }
    // Mostly the first pod is in time and the others need not be looked at: this is asked of every head in every pass.
    let Some(pod) = usable.find(|pod| !late(floor.outlook(waiting, pod))) else { return true };
    let in_time = floor.in_time(waiting, pod, [factor, CERTAIN_SHARE]);
    drop(usable);
    if let Some(standing) = floor.board.standing_of(id) {
        standing.in_time = in_time;
    }
    false
}

/// What a pass has held back so far.
#[derive(Debug)]
pub(super) struct Hold {
    /// The band whose heads are looked at.
    band: Band,
    /// Pods that a head of this band waits for, or one of a higher band that binds lower ones.
    pub(super) claimed: SmallVec<[PodId; 8]>,
    /// Those of them that lower bands leave alone too.
    kept: SmallVec<[PodId; 8]>,
    /// The first blocked head of this band.
    blocked: Option<RequestId>,
    /// Whether nothing more of this band goes.
    stopped: bool,
    /// The first blocked head that binds lower bands: nothing of them goes any more.
    binds: Option<(Band, RequestId)>,
    /// Uncached tokens of the smallest blocked head of this band.
    smallest_tokens: f64,
    /// Whether a head was held back that may use every pod: then nothing late goes.
    any: bool,
    /// The pods of those that may not use every pod: nothing late goes there.
    wanted: SmallVec<[PodId; 8]>,
}

impl Hold {
    fn new(band: Band) -> Self {
        Self {
            band,
            claimed: SmallVec::new(),
            kept: SmallVec::new(),
            blocked: None,
            stopped: false,
            binds: None,
            smallest_tokens: f64::INFINITY,
            any: false,
            wanted: SmallVec::new(),
        }
    }

    /// The head that holds back one of a band, whatever that one needs.
    fn before(&mut self, band: Band) -> Option<RequestId> {
        if band < self.band {
            self.band = band;
            self.claimed.clone_from(&self.kept);
            (self.blocked, self.stopped, self.smallest_tokens) = (None, false, f64::INFINITY);
        }
        let above = self.binds.filter(|(above, _)| band < *above).map(|(_, head)| head);
        above.or(self.blocked.filter(|_| self.stopped))
    }

    /// Keeps everybody off a pod.
    pub(super) fn keep(&mut self, pod: PodId) {
        self.claimed.push(pod);
        self.kept.push(pod);
    }

    /// Keeps everybody off the pods that a blocked request may use, if it may not use all.
    pub(super) fn only_its_pods(&mut self, floor: &Floor<'_>, id: RequestId) -> bool {
        let pods = its_pods(floor, id);
        pods.iter().flatten().for_each(|pod| self.keep(*pod));
        pods.is_some()
    }
}

/// The pods that a request may use, if it may not use all. It is no reason to hold anybody back from the others.
fn its_pods(floor: &Floor<'_>, id: RequestId) -> Option<SmallVec<[PodId; 8]>> {
    let waiting = floor.board.get(id)?;
    let is_short = !waiting.excluded().is_empty()
        || filter::is_outsized(waiting)
        || waiting.adapter.is_some()
        || floor.pods.short_of(f64::from(waiting.input_tokens)) > 0;
    is_short.then(|| floor.usable(waiting).map(|pod| pod.spec.id).collect())
}

/// One pass: the first request that can go, if any. Notes on every head it looked at why it waits.
pub fn pass(floor: &mut Floor<'_>) -> Option<Choice> {
    let heads = floor.heads();
    let mut hold = Hold::new(heads.first().map_or(Band::default(), |(band, _)| *band));
    let mut choice = None;
    for (place, (band, rank)) in heads.iter().enumerate() {
        let behind = heads.get(place + 1..).unwrap_or_default();
        match turn_of(floor, &mut hold, (*band, rank.id()), behind) {
            Turn::Go(one) => {
                choice = Some(one);
                break;
            }
            Turn::Next => {}
            Turn::Stop => hold.stopped = true,
        }
    }
    floor.scratch.heads = heads;
    if choice.is_some() {
        return choice;
    }
    if hold.any {
        return late::ahead(floor, &hold);
    }
    let wanted = std::mem::take(&mut hold.wanted);
    hold.claimed.extend(wanted);
    late::pass(floor, &mut hold)
}

/// What a pass does with one head.
fn turn_of(
    floor: &mut Floor<'_>,
    hold: &mut Hold,
    (band, id): (Band, RequestId),
    behind: &[Head],
) -> Turn {
    floor.turn_to(id);
    let before = hold.before(band);
    if let Some(head) = before.filter(|_| floor.rules.dispatch != Mode::Push) {
        note(floor, id, Reason::BehindHead { head });
        return Turn::Next;
    }
    if floor.rules.dispatch == Mode::Push {
        push(floor, id)
    } else {
        try_head(floor, hold, (band, id), behind)
    }
}

/// What is done with a head.
pub(super) enum Turn {
    Go(Choice),
    Next,
    Stop,
}

/// Gives a request out at once, whatever is held back or claimed for others.
fn push(floor: &mut Floor<'_>, id: RequestId) -> Turn {
    if !floor.is_served(id) {
        note(floor, id, Reason::NoPodReady);
        return Turn::Next;
    }
    match floor.pick(id, &[]) {
        Pick::Fits(fit) => Turn::Go(fit.choice(id)),
        Pick::Blocked(reason, _) => {
            note(floor, id, reason);
            Turn::Next
        }
    }
}

fn try_head(
    floor: &mut Floor<'_>,
    hold: &mut Hold,
    (band, id): (Band, RequestId),
    behind: &[Head],
) -> Turn {
    if !floor.refresh(id) {
        note(floor, id, floor.unserved(id));
        return Turn::Next;
    }
    if let Some(head) = hold.blocked.filter(|_| !may_pass(floor, hold, id)) {
        note(floor, id, Reason::BehindHead { head });
        return Turn::Next;
    }
    if let Some(choice) = floor.goes_ahead(id, &hold.claimed) {
        return Turn::Go(choice);
    }
    if let Some(warm) = floor.still_waits(id, &hold.claimed) {
        return wait_for(floor, hold, id, (Reason::WaitsForWarmPod, Some(warm)));
    }
    if let Some((reason, claim)) = floor.still_blocked(id, &hold.claimed) {
        note(floor, id, reason);
        return block(floor, hold, band, id, Some(claim));
    }
    let elsewhere = pick_elsewhere(floor, hold, (band, id), behind);
    match elsewhere.unwrap_or_else(|| floor.pick(id, &hold.claimed)) {
        Pick::Fits(fit) => match floor.course(id, fit, &hold.claimed) {
            Course::Waits(warm) => wait_for(floor, hold, id, (Reason::WaitsForWarmPod, Some(warm))),
            Course::Goes(fit) => Turn::Go(floor.settled(id, &fit, &hold.claimed)),
            Course::Spreads(fit) => Turn::Go(fit.choice(id).for_others()),
        },
        Pick::Blocked(reason @ Reason::WaitsForFasterPod, soonest) => {
            wait_for(floor, hold, id, (reason, soonest))
        }
        Pick::Blocked(reason, soonest) => {
            note(floor, id, reason);
            if floor.is_infeasible(id) {
                return Turn::Next;
            }
            block(floor, hold, band, id, soonest)
        }
    }
}

/// The pick that leaves alone the pods that much larger heads behind a head have claimed, if it fits on another one that is hardly
/// colder. So a pod gets clear for a large prompt before that is the most urgent one, and nobody is held back for it.
fn pick_elsewhere(
    floor: &mut Floor<'_>,
    hold: &Hold,
    (band, id): (Band, RequestId),
    behind: &[Head],
) -> Option<Pick> {
    let waiting = floor.board.get(id).filter(|_| floor.rules.gated())?;
    let claim = |(_, larger): &Head| {
        let larger = floor.board.get(larger.id())?;
        Some((larger, larger.claim().filter(|pod| !hold.claimed.contains(pod))?))
    };
    let mut claims = behind.iter().take_while(|(of, _)| *of >= band).filter_map(claim).peekable();
    claims.peek()?;
    let tokens = floor.warmest_tokens(waiting)?;
    let share = floor.config.pull.pass_share;
    let is_larger = |larger: &Waiting| {
        floor.warmest_tokens(larger).is_some_and(|larger_tokens| tokens <= share * larger_tokens)
    };
    let mut claimed: SmallVec<[PodId; 8]> =
        claims.filter(|(larger, _)| is_larger(larger)).map(|(_, pod)| pod).collect();
    if claimed.is_empty() {
        return None;
    }
    claimed.extend_from_slice(&hold.claimed);
    let pick = floor.pick(id, &claimed);
    let is_colder =
        |fit: &Fit| affinity::much_colder(fit.outlook.uncached_tokens, tokens, &floor.config.pull);
    matches!(&pick, Pick::Fits(fit) if !is_colder(fit)).then_some(pick)
}

/// Whether a head is small enough to go while another is blocked.
fn may_pass(floor: &Floor<'_>, hold: &Hold, id: RequestId) -> bool {
    let waiting = floor.board.get(id);
    let warmest_tokens = waiting.and_then(|waiting| floor.warmest_tokens(waiting));
    warmest_tokens
        .is_none_or(|tokens| tokens <= floor.config.pull.pass_share * hold.smallest_tokens)
}

/// Books a head that waits for a pod though it would fit on another: it keeps nobody from any but that one, which may be another
/// head's already.
fn wait_for(
    floor: &mut Floor<'_>,
    hold: &mut Hold,
    id: RequestId,
    (reason, pod): (Reason, Option<PodId>),
) -> Turn {
    note(floor, id, reason);
    pod.into_iter().for_each(|pod| hold.keep(pod));
    hold.any = true;
    Turn::Next
}

/// Books a blocked head: what it claims, and what may still go.
fn block(
    floor: &mut Floor<'_>,
    hold: &mut Hold,
    band: Band,
    id: RequestId,
    soonest: Option<PodId>,
) -> Turn {
    let its_pods = its_pods(floor, id);
    match &its_pods {
        Some(pods) => hold.wanted.extend_from_slice(pods),
        None => hold.any = true,
    }
    if floor.rules.dispatch == Mode::PullBackfill {
        return Turn::Next;
    }
    let (claims, binds) = (claims(floor, id), binds(floor, id));
    if let Some(standing) = floor.board.standing_of(id) {
        standing.claim = soonest.filter(|_| claims);
    }
    if let Some(pods) = its_pods {
        if binds {
            hold.kept.extend_from_slice(&pods);
        }
        match soonest.filter(|_| claims) {
            _ if lets_pass(floor, id) => {}
            Some(pod) => hold.claimed.push(pod),
            None => hold.claimed.extend(pods),
        }
        return Turn::Next;
    }
    hold.binds = hold.binds.or(binds.then_some((band, id)));
    if lets_pass(floor, id) {
        return Turn::Next;
    }
    hold.blocked = hold.blocked.or(Some(id));
    let warmest = floor.board.get(id).and_then(|waiting| floor.warmest_tokens(waiting));
    hold.smallest_tokens = hold.smallest_tokens.min(warmest.unwrap_or(f64::INFINITY));
    match soonest {
        Some(pod) if claims => {
            if binds {
                hold.keep(pod);
            } else {
                hold.claimed.push(pod);
            }
            let all = floor.pods.keys().all(|pod| hold.claimed.contains(pod));
            if all { Turn::Stop } else { Turn::Next }
        }
        _ => Turn::Stop,
    }
}

/// Whether those of its own band that fit may pass a blocked head: while requests wait so long that to stand still for one costs
/// several, and where it is promised nothing, until it is due.
fn lets_pass(floor: &Floor<'_>, id: RequestId) -> bool {
    let pull = &floor.config.pull;
    if floor.rules.dispatch != Mode::Pull || pull.head_rule != HeadRule::Auto {
        return false;
    }
    let waiting = floor.board.get(id);
    floor.strain > pull.hold_share
        || waiting.is_some_and(|one| one.request.slo.is_empty() && floor.now < one.due)
}

/// Whether a blocked head holds lower bands back.
fn binds(floor: &Floor<'_>, id: RequestId) -> bool {
    let Some(waiting) = floor.board.get(id) else { return true };
    // Who is promised no first token has no time to spare that could be told.
    let Some(ttft) = waiting.request.slo.ttft else { return true };
    let least = ttft.mul_f64(floor.config.pull.bind_share);
    floor.rules.dispatch != Mode::Pull || floor.now.since(waiting.request.arrived) >= least
}

/// Whether a blocked head claims a pod and lets others use the rest.
fn claims(floor: &Floor<'_>, id: RequestId) -> bool {
    let rule = match floor.rules.dispatch {
        Mode::PullStrict => HeadRule::Strict,
        Mode::PullReservation => HeadRule::Claims,
        Mode::Pull | Mode::PullBackfill | Mode::Push => floor.config.pull.head_rule,
    };
    match rule {
        HeadRule::Strict => false,
        HeadRule::Claims => true,
        HeadRule::Auto => floor.board.get(id).is_some_and(|waiting| {
            // What is promised nothing need not stand still for anybody.
            waiting.request.slo.is_empty()
                || floor.usable(waiting).any(|pod| floor.big_chunk(&floor.outlook(waiting, pod)))
        }),
    }
}

fn note(floor: &mut Floor<'_>, id: RequestId, reason: Reason) {
    if let Some(standing) = floor.board.standing_of(id) {
        standing.reason = Some(reason);
    }
}
