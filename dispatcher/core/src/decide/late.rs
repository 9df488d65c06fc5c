//! Late requests: what can be in time goes first, and has pods left for it.
//!
//! They go in the order of their arrival, in a pass that held nobody back, and wait for the pod that has their prompt, unless
//! several do ([`company`](super::company)). A long
//! prompt keeps everybody from its pod for seconds, and were all pods at work on such, whoever comes next would be late as well. So
//! at most a share of them is at work on those of late requests ([`late_share`]), and a larger one as the next of these comes near
//! its longest wait. Where nobody came for as long as such a prompt takes that could be in time, no pod is left idle for one.
//!
//! [`late_share`]: crate::PullConfig::late_share

use crate::{
    RequestId, Time,
    decide::{
        Choice, Floor,
        pick::Pick,
        pull::{Hold, Turn},
    },
    fleet::PodState,
    headroom::outlook,
    ledger::Pending,
    queue::Waiting,
};

/// The late request that goes first, if it fits anywhere.
pub(super) fn pass(floor: &mut Floor<'_>, hold: &mut Hold) -> Option<Choice> {
    first(floor, |floor, id| try_late(floor, hold, id))
}

/// The same in a pass that held somebody back: what goes now goes for several.
pub(super) fn ahead(floor: &mut Floor<'_>, hold: &Hold) -> Option<Choice> {
    first(floor, |floor, id| floor.goes_ahead(id, &hold.claimed).map_or(Turn::Next, Turn::Go))
}

/// Looks at the first of each lane, until one goes or lets nobody pass.
fn first(
    floor: &mut Floor<'_>,
    mut turn_of: impl FnMut(&mut Floor<'_>, RequestId) -> Turn,
) -> Option<Choice> {
    let mut heads = std::mem::take(&mut floor.scratch.heads);
    floor.board.late_heads_into(&mut heads);
    let mut turn = Turn::Next;
    for (_, rank) in &heads {
        floor.turn_to(rank.id());
        turn = turn_of(floor, rank.id());
        if !matches!(turn, Turn::Next) {
            break;
        }
    }
    floor.scratch.heads = heads;
    match turn {
        Turn::Go(choice) => Some(choice),
        Turn::Next | Turn::Stop => None,
    }
}

/// It has nothing to lose by waiting for the pod that has its prompt, unless another pod is empty. One that goes nowhere, or leaves
/// the pods to others, lets nobody pass, except to pods that did not take it.
fn try_late(floor: &mut Floor<'_>, hold: &mut Hold, id: RequestId) -> Turn {
    if let Some(choice) = floor.goes_ahead(id, &hold.claimed) {
        return Turn::Go(choice);
    }
    floor.refresh(id);
    let leaves = floor.board.get(id).is_some_and(|waiting| floor.leaves_pods(waiting));
    let pick = (!leaves).then(|| floor.pick(id, &hold.claimed));
    if let Some(Pick::Fits(fit)) = pick {
        let idle = |waiting| floor.usable(waiting).any(|pod| pod.ledger.is_empty());
        return match floor.warmer(id, &fit) {
            Some(warm) if !floor.board.get(id).is_some_and(idle) => {
                hold.keep(warm.pod);
                Turn::Next
            }
            _ => Turn::Go(fit.choice(id)),
        };
    }
    let passed = floor.is_infeasible(id) || hold.only_its_pods(floor, id);
    if passed { Turn::Next } else { Turn::Stop }
}

/// For so long after a request that could be in time others like it are thought to come.
const OTHERS_COME_MS: f64 = 10_000.0;

impl Floor<'_> {
    /// The share of a pod's KV cache that a request may use: some of it is left to those of higher bands that are there, and by a
    /// late one, to those that come.
    pub(crate) fn memory_share(&self, waiting: &Waiting, pod: &PodState) -> f64 {
        let others_come = |at: Time| self.now.ms_since(at) <= OTHERS_COME_MS;
        let leaves = waiting.late && self.in_time_at.is_some_and(others_come);
        let yields = leaves || pod.ledger.top_band() > Some(waiting.request.band);
        if yields { self.config.pull.yield_share } else { 1.0 }
    }

    /// Whether a late request leaves all pods to those that can be in time: as many as may are at work on long prompts of late ones.
    pub(crate) fn leaves_pods(&self, waiting: &Waiting) -> bool {
        let in_time_at = self.in_time_at.filter(|_| waiting.late && self.rules.gated());
        let Some(in_time_at) = in_time_at else { return false };
        let pull = &self.config.pull;
        // A shorter prompt keeps nobody from its pod for long.
        let is_long = |idle_ms: f64| idle_ms >= pull.long_prompt_ms;
        let takes_ms = self.best_ttft_ms(waiting).unwrap_or_default();
        if !is_long(takes_ms) || self.now.ms_since(in_time_at) > takes_ms {
            return false;
        }
        let is_at_work = |pod: &PodState| {
            let late = pod.ledger.pending().iter().filter(|one| one.late);
            late.map(|one| self.idle_ms(pod, one)).any(is_long)
        };
        let (pods, at_work) =
            self.usable(waiting).fold((0_usize, 0_usize), |(pods, at_work), pod| {
                (pods + 1, at_work + usize::from(is_at_work(pod)))
            });
        let waited = self.now.since(waiting.request.arrived).as_secs_f64();
        let longest = self.config.bounds.longest_wait(waiting.late, None);
        let share = pull.late_share.max(waited / longest.as_secs_f64());
        let may = ((share * pods as f64) as usize).max(1);
        at_work >= may
    }

    /// What a prompt that was sent to a pod would take if it were alone there, in milliseconds.
    fn idle_ms(&self, pod: &PodState, prompt: &Pending) -> f64 {
        let tokens = f64::from(prompt.resident.input_tokens.max(1));
        let cached_share = 1.0 - prompt.uncached_tokens / tokens;
        let steps = self.steps_of(pod.spec.class);
        outlook::best_ttft_ms(&steps, pod.class.chunk_tokens, tokens, cached_share)
    }
}
