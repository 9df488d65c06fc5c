//! The pick of Weir's own policy: gates, fewest tokens, and a prediction of the best.
//!
//! In pools of up to `ALL_LOOKED_AT` pods it decides what [`super::pick`] decides for the same rules, which any policy goes
//! through, and leaves out what cannot change that. The best pod is the one with the fewest tokens to compute, then, while long
//! prompts come, one that is of no use to them, then the one with the earliest first token by the step-time model. All of that is
//! known of every pod without asking the predictor, and but for the long prompts without looking at it. So the gates of the best
//! pod are looked at and it is predicted, and whether the request may go there is theirs to say; where it may not the next ones
//! are looked at. What is only shown is found when it is asked for (where a blocked head would fit soonest) or is what was found
//! on the way (those that lost).
//!
//! In larger pools no more than the `ALL_LOOKED_AT` likeliest are looked at, which for a request that is promised nothing are those
//! where it costs all together least in short; the others only while none of these takes the request.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use weir_schema::Prediction;

use crate::{
    PodId, RequestId,
    decide::{
        Floor, filter,
        grounds::Grounds,
        pick::{self, Fit, Pick, is_a_time},
        score,
        scorer::{Score, token_steps},
    },
    decisions::ALTERNATIVES,
    explain::Reason,
    headroom::{Outlook, features, start},
    policy::{Affinity, Filter, Picker, Rules, Scorer},
    queue::Waiting,
};

/// Whether the rules ask for nothing but the gates, and for the pod with the fewest tokens to compute.
pub fn is_plain(rules: &Rules) -> bool {
    rules.gated()
        && rules.filters.iter().all(|filter| *filter == Filter::Headroom)
        && !matches!(rules.affinity, Affinity::PrefixCache { .. })
        && rules.scorer == Scorer::FewestTokens
        && rules.picker == Picker::Best
}

/// Pods that are looked at first.
const FIRST_BATCH: usize = 8;

/// Pods that are looked at as long as one of them takes the request. Pods of a large pool are so alike that to look at more brings
/// nothing that a simulation shows (docs/performance.md).
const ALL_LOOKED_AT: usize = 24;

/// A pod that may be picked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Share of the prompt that it has cached.
    cached_share: f64,
    /// At most how good it is.
    likely: Likely,
    /// Its place among the pods.
    at: u32,
}

impl Candidate {
    /// The pod in a place, if it is to be looked at.
    fn of(grounds: &Grounds, likely: Likely, at: u32) -> Option<Self> {
        let cached_share = *grounds.cached_shares.get(at as usize)?;
        (likely != Likely::NEVER).then_some(Self { cached_share, likely, at })
    }

    /// The likelier one to be the best is the smaller.
    const fn order(&self) -> (Likely, u32) {
        (self.likely, self.at)
    }
}

/// The tokens that a pod would have to compute, and its TTFT by the step-time model: one number, the smaller the better. Of a
/// request that is promised nothing, what it costs all together in the place of both.
///
/// Above are the tokens, in the steps in which they are compared; below the bits of the time in milliseconds, which for what is not
/// negative are in the order of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Likely(u64);

impl Likely {
    /// Of a pod that is not to be looked at.
    const NEVER: Self = Self(u64::MAX);

    /// What is no time counts as none.
    fn new(token_steps: f64, ttft_ms: f32) -> Self {
        let ttft_ms = if ttft_ms > 0.0 { ttft_ms } else { 0.0 };
        Self(start::above_32_bits(token_steps) | u64::from(ttft_ms.to_bits()))
    }

    /// Of a pod that was looked at; `None` where that cannot be compared.
    fn of(score: &Score) -> Option<Self> {
        let (token_steps, ttft_ms) = (-score.main, -score.tie as f32);
        let comparable = (0.0..f64::from(u32::MAX)).contains(&token_steps) && ttft_ms >= 0.0;
        comparable.then(|| Self::new(token_steps, ttft_ms))
    }

    /// Its TTFT, in milliseconds.
    fn ttft_ms(self) -> f64 {
        f64::from(f32::from_bits(self.0 as u32))
    }

    /// With as many tokens, whenever its first one comes.
    const fn at_any_time(self) -> Self {
        Self(self.0 | u32::MAX as u64)
    }
}

/// What a search has come to.
#[derive(Default)]
struct Found {
    /// The best pod so far.
    best: Option<(Score, Fit)>,
    /// Whether others can be compared with it without being looked at.
    is_bounded: bool,
    /// What another has to be better than, if it can be compared.
    bound: Option<(Likely, u32)>,
    /// What is said of the pods against which only a prediction stands: of an empty one, else of the first in order.
    shut: Option<(usize, Reason)>,
}

impl Found {
    /// Whether a pod of this score is better than the best so far. Of equals the one that joined first is.
    fn is_beaten_by(&self, score: &Score, outlook: &Outlook) -> bool {
        self.best.as_ref().is_none_or(|(best, known)| {
            let order = score.order(best).then(known.outlook.place.cmp(&outlook.place));
            order == Ordering::Greater
        })
    }
}

/// Moves the best pod to the front.
fn best_to_the_front(open: &mut [(Score, Outlook)]) {
    let better = |one: &(Score, Outlook), other: &(Score, Outlook)| {
        one.0.order(&other.0).then(other.1.place.cmp(&one.1.place))
    };
    let best = open.iter().enumerate().max_by(|(_, one), (_, other)| better(one, other));
    if let Some((at, _)) = best {
        open.swap(0, at);
    }
}

/// Takes the likeliest few out of all that are better than the bound, if there is one.
fn take_likeliest(
    all: &mut [Likely],
    (most, bound): (usize, Option<(Likely, u32)>),
    grounds: &Grounds,
    heap: &mut BinaryHeap<(Likely, u32)>,
    few: &mut Vec<Candidate>,
) {
    heap.clear();
    // One walk: nearly all are compared with the last of those found so far and nothing else.
    let mut last = bound.unwrap_or((Likely::NEVER, 0));
    for (at, likely) in (0..).zip(&*all) {
        let one = (*likely, at);
        // Mostly that is said by the first of the two. Of equals the one that joined first is better.
        if *likely > last.0 || one >= last {
            continue;
        }
        if heap.len() < most {
            heap.push(one);
        } else if let Some(mut worst) = heap.peek_mut() {
            *worst = one;
        }
        if let Some(worst) = heap.peek().filter(|_| heap.len() == most) {
            last = *worst;
        }
    }
    few.clear();
    for (likely, at) in heap.drain() {
        few.extend(Candidate::of(grounds, likely, at));
        if let Some(taken) = all.get_mut(at as usize) {
            *taken = Likely::NEVER;
        }
    }
}

/// Moves the likeliest candidates behind the first so many.
fn likeliest_to_the_end(all: &mut [Candidate], others: usize) {
    if others > 0 {
        all.select_nth_unstable_by_key(others, |one| Reverse(one.order()));
    }
}

impl Floor<'_> {
    /// The pod that a head gets, of those that nobody claims, under plain rules.
    pub(super) fn pick_plain(&mut self, id: RequestId, claimed: &[PodId]) -> Pick {
        self.losers.clear();
        self.refresh(id);
        let found = self.search(id, claimed);
        match found.best {
            Some((_, fit)) => {
                *self.last = Some(fit.outlook.pod);
                Pick::Fits(fit)
            }
            None => self.blocked(id, claimed, found.shut.map(|(_, why)| why)),
        }
    }

    /// How good each pod is for a head. It is never one that is claimed, or that the head may not use.
    fn rate(
        &self,
        waiting: &Waiting,
        claimed: &[PodId],
        grounds: &mut Grounds,
        likely: &mut Vec<Likely>,
    ) {
        self.survey(waiting, grounds);
        let input_tokens = f64::from(waiting.input_tokens);
        // In the cost of a request that is promised nothing its tokens are already.
        let promised = !waiting.request.slo.is_empty();
        let counted_tokens = if promised { input_tokens } else { 0.0 };
        likely.resize(self.pods.len(), Likely::NEVER);
        // No pod takes a prompt that is not a number: one that waits for a pod that is out.
        let asked = if filter::is_outsized(waiting) { f64::NAN } else { input_tokens };
        let figures = grounds.cached_shares.iter().zip(&grounds.answers_ms).zip(&grounds.takes);
        for (likely, ((cached_share, answer_ms), takes)) in likely.iter_mut().zip(figures) {
            let token_steps = token_steps(start::uncached(counted_tokens, *cached_share));
            let known = Likely::new(token_steps, *answer_ms);
            *likely = if asked <= *takes { known } else { Likely::NEVER };
        }
        if let Some(adapter) = waiting.adapter {
            let slotless = self.pods.as_slice().iter().map(|pod| !pod.has_slot(adapter));
            let slotless = likely.iter_mut().zip(slotless).filter(|(_, slotless)| *slotless);
            slotless.for_each(|(likely, _)| *likely = Likely::NEVER);
        }
        for pod in claimed.iter().chain(waiting.excluded()) {
            let place = self.pods.place(*pod);
            if let Some(likely) = place.and_then(|place| likely.get_mut(place)) {
                *likely = Likely::NEVER;
            }
        }
    }

    /// The best of the pods that a head may use and nobody claims: the likeliest are looked at first, and of the next likeliest
    /// those that may still be better. Any may be for a request that is promised nothing, for which pods are rated in short.
    fn search(&mut self, id: RequestId, claimed: &[PodId]) -> Found {
        let promised = self.board.get(id).is_some_and(|waiting| !waiting.request.slo.is_empty());
        let mut found = Found { is_bounded: promised, ..Found::default() };
        let mut grounds = std::mem::take(&mut self.scratch.grounds);
        let mut likely = std::mem::take(&mut self.scratch.likely);
        let mut likeliest = std::mem::take(&mut self.scratch.candidates);
        if let Some(waiting) = self.board.get(id) {
            self.rate(waiting, claimed, &mut grounds, &mut likely);
            // Where all are looked at anyway it is at once.
            let few_first = promised || self.pods.len() > ALL_LOOKED_AT;
            let first = if few_first { FIRST_BATCH } else { ALL_LOOKED_AT };
            // While no pods are kept for long prompts, the likeliest that takes the request is the best. Where some step together it need not
            // be, for what it holds up counts too.
            let in_order = promised && self.kept_for_ms.is_none() && !self.pods.step_together();
            for most in [first, ALL_LOOKED_AT - first] {
                let (heap, range) = (&mut self.scratch.likeliest, (most, found.bound));
                take_likeliest(&mut likely, range, &grounds, heap, &mut likeliest);
                if in_order {
                    self.try_in_turn(id, &mut likeliest, &mut found);
                } else {
                    self.try_batch(id, &mut likeliest, &mut found);
                }
                if in_order && found.best.is_some() {
                    break;
                }
            }
            if found.best.is_none() {
                likeliest.clear();
                let others = (0..).zip(&likely);
                likeliest.extend(others.filter_map(|(at, one)| Candidate::of(&grounds, *one, at)));
                self.search_rest(id, &mut likeliest, &mut found);
            }
        }
        self.scratch.candidates = likeliest;
        (self.scratch.grounds, self.scratch.likely) = (grounds, likely);
        found
    }

    /// Looks at pods in their order, one and then twice as many at a time, until one takes the request. The others are worse, and
    /// that is all that is noted of them.
    fn try_in_turn(&mut self, id: RequestId, all: &mut [Candidate], found: &mut Found) {
        all.sort_unstable_by_key(Candidate::order);
        let (mut rest, mut few) = (all, 1);
        while found.best.is_none() && !rest.is_empty() {
            let (next, others) = rest.split_at_mut(few.min(rest.len()));
            self.try_batch(id, next, found);
            (rest, few) = (others, 2 * few);
        }
        let Some(waiting) = self.board.get(id) else { return };
        let input_tokens = f64::from(waiting.input_tokens);
        for one in rest.iter().take(ALTERNATIVES) {
            let Some(pod) = self.pods.as_slice().get(one.at as usize) else { continue };
            let uncached_tokens = start::uncached(input_tokens, one.cached_share);
            self.losers.fitted(pod.spec.id, one.likely.ttft_ms(), uncached_tokens, false);
        }
    }

    /// Looks at those that are left, twice as many at a time as the last time, until there is a pod to go to.
    fn search_rest(&mut self, id: RequestId, rest: &mut Vec<Candidate>, found: &mut Found) {
        let mut batch = std::mem::take(&mut self.scratch.batch);
        let mut asked = ALL_LOOKED_AT;
        while found.best.is_none() && !rest.is_empty() {
            asked *= 2;
            let others = rest.len().saturating_sub(asked);
            likeliest_to_the_end(rest, others);
            batch.clear();
            batch.extend(rest.drain(others..));
            self.try_batch(id, &mut batch, found);
        }
        self.scratch.batch = batch;
    }

    /// Looks at the gates of some pods, asks about the best of those where they are open, and about the others where that one does
    /// not take the request; keeps the best.
    fn try_batch(&mut self, id: RequestId, batch: &mut [Candidate], found: &mut Found) {
        // In the order in which pods lie in memory.
        batch.sort_unstable_by_key(|one| one.at);
        let mut open = std::mem::take(&mut self.scratch.open);
        open.clear();
        let Some(waiting) = self.board.get(id) else { return };
        for one in batch {
            let Some(outlook) = self.outlook_at(waiting, one.at as usize, one.cached_share) else {
                continue;
            };
            match self.cheap(waiting, &outlook) {
                Ok(()) => open.push((self.fewest_tokens(waiting, &outlook), outlook)),
                Err(why) => self.losers.shut(&outlook, why),
            }
        }
        best_to_the_front(&mut open);
        let (best, others) = open.split_at(open.len().min(1));
        self.try_open(id, best, found);
        self.try_open(id, others, found);
        self.scratch.open = open;
    }

    /// Asks about some pods whose cheap gates are open, unless there is a better one than any of them, and keeps the best.
    fn try_open(&mut self, id: RequestId, open: &[(Score, Outlook)], found: &mut Found) {
        if !open.iter().any(|(score, outlook)| found.is_beaten_by(score, outlook)) {
            open.iter().for_each(|(score, outlook)| self.lose(score, outlook, found));
            return;
        }
        let answered = self.ask(id, open);
        let (rows, predictions) =
            (std::mem::take(&mut self.scratch.rows), std::mem::take(&mut self.scratch.predictions));
        for (((score, outlook), row), said) in open.iter().zip(&rows).zip(&predictions) {
            let known = answered && is_a_time(said);
            let prediction = if known { *said } else { self.prior(outlook) };
            let fit = Fit { outlook: *outlook, row: *row, prediction, known };
            self.weigh(id, (*score, fit), found);
        }
        (self.scratch.rows, self.scratch.predictions) = (rows, predictions);
    }

    /// Puts a pod whose cheap gates are open beside the best one so far.
    fn weigh(&mut self, id: RequestId, (score, fit): (Score, Fit), found: &mut Found) {
        let at = fit.outlook.place;
        if let Err(why) = self.judge(id, &fit) {
            self.losers.shut(&fit.outlook, why);
            // That one is empty goes before what is said of any other.
            let order = if why == Reason::WaitsForFasterPod { 0 } else { at + 1 };
            if found.shut.is_none_or(|(first, _)| order < first) {
                found.shut = Some((order, why));
            }
            return;
        }
        if !found.is_beaten_by(&score, &fit.outlook) {
            return self.lose(&score, &fit.outlook, found);
        }
        let likely = Likely::of(&score).filter(|_| found.is_bounded);
        // While pods are kept for long prompts one with a later first token may be better. In a large pool enough are looked at
        // without it.
        let kept = self.kept_for_ms.is_some() && self.pods.len() <= ALL_LOOKED_AT;
        let likely = likely.map(|one| if kept { one.at_any_time() } else { one });
        found.bound = likely.map(|likely| (likely, at as u32));
        if let Some((score, fit)) = found.best.replace((score, fit)) {
            self.lose(&score, &fit.outlook, found);
        }
    }

    /// A pod fits, and the best one so far is better.
    fn lose(&mut self, score: &Score, outlook: &Outlook, found: &Found) {
        if let Some((best, _)) = &found.best {
            let Outlook { pod, ttft_ms, uncached_tokens, .. } = *outlook;
            self.losers.fitted(pod, ttft_ms, uncached_tokens, score.is_kept(best));
        }
    }

    /// Asks the predictor about a head on some pods; rows and answers are in the buffers. Says whether it
    /// had answers.
    fn ask(&mut self, id: RequestId, open: &[(Score, Outlook)]) -> bool {
        self.fill_rows(id, open);
        self.scratch.predictions.clear();
        self.scratch.predictions.resize(self.scratch.rows.len(), Prediction::default());
        let (rows, predictions) = (&self.scratch.rows, &mut self.scratch.predictions);
        rows.is_empty() || self.predictor.predict(rows, predictions).is_ok()
    }

    /// Puts the rows of a head on some pods into the buffer.
    fn fill_rows(&mut self, id: RequestId, open: &[(Score, Outlook)]) {
        self.scratch.rows.clear();
        let Some(waiting) = self.board.get(id) else { return };
        let (demand, stale) = (score::demand(waiting), self.config.pull.stale_after_ms);
        let pods = self.pods.as_slice();
        let rows = open.iter().filter_map(|(_, outlook)| {
            Some(features::row(pods.get(outlook.place)?, demand, outlook, self.now, stale))
        });
        self.scratch.rows.extend(rows);
    }

    /// A head that fits nowhere: the pod where it would fit soonest, and what stands against it there.
    fn blocked(&mut self, id: RequestId, claimed: &[PodId], shut: Option<Reason>) -> Pick {
        let free = self.free(id, claimed);
        let Some(waiting) = self.board.get(id) else {
            return Pick::Blocked(Reason::NotConsidered, None);
        };
        let soonest = self.soonest(waiting, &free);
        let there = soonest.and_then(|pod| free.iter().find(|outlook| outlook.pod == pod));
        let there = there.and_then(|outlook| self.cheap(waiting, outlook).err());
        self.scratch.outlooks = free;
        Pick::Blocked(pick::why(there, shut), soonest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_tokens_are_likelier_than_an_earlier_first_token_and_what_is_no_time_is_no_bound() {
        let in_order = [(0.0, 0.0), (0.0, 2.5), (0.0, f32::INFINITY), (1.0, 0.0), (2e9, 1e-9)];
        let likely = in_order.map(|(steps, ms)| Likely::new(steps, ms));
        assert!(likely.is_sorted_by(|one, next| one < next), "{likely:?}");
        for no_time in [f32::NAN, -1.0, -0.0, f32::NEG_INFINITY] {
            assert_eq!(Likely::new(3.0, no_time), Likely::new(3.0, 0.0));
        }
    }

    #[test]
    fn the_likeliest_are_taken_out_and_of_equals_the_first() {
        let likely = |at: usize| Likely::new((at * 7 % 10) as f64, 0.0);
        let mut all: Vec<Likely> = (0..60).map(likely).collect();
        all[0] = Likely::NEVER;
        let before = all.clone();
        let mut grounds = Grounds::default();
        grounds.cached_shares.resize(all.len(), 0.5);
        let (mut heap, mut few) = (BinaryHeap::new(), Vec::new());
        let mut wanted: Vec<_> = (0..).zip(&before).filter(|(at, _)| *at > 0).collect();
        wanted.sort_by_key(|(at, one)| (**one, *at));
        let mut wanted = wanted.into_iter().map(|(at, one)| (*one, at));
        let bound = (likely(15), 15);
        for (most, bound, taken) in [(8, None, 8), (16, None, 16), (16, Some(bound), 6)] {
            take_likeliest(&mut all, (most, bound), &grounds, &mut heap, &mut few);
            let mut got: Vec<_> = few.iter().map(Candidate::order).collect();
            got.sort_unstable();
            let next: Vec<_> = wanted.by_ref().take(taken).collect();
            assert_eq!(got, next, "{most} {bound:?}");
            for (one, at) in next {
                assert_eq!((all[at as usize], before[at as usize]), (Likely::NEVER, one));
            }
        }
        assert_eq!(all.iter().filter(|one| **one == Likely::NEVER).count(), 31);
    }

    #[test]
    fn what_cannot_be_compared_may_be_beaten_by_anybody() {
        for (main, tie) in [(f64::NAN, -1.0), (-1.0, f64::NAN), (1.0, -1.0), (-1.0, 1.0)] {
            assert_eq!(Likely::of(&Score { main, lost: 0.0, tie }), None);
        }
        let known = Likely::of(&Score { main: -2.0, lost: 1.0, tie: -5.0 });
        assert_eq!(known, Some(Likely::new(2.0, 5.0)));
        let later = known.unwrap().at_any_time();
        assert!(Likely::new(2.0, f32::INFINITY) < later && later < Likely::new(3.0, 0.0));
    }
}
