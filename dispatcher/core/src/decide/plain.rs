//! The pick of Weir's own policy: gates, predictions, fewest tokens.
//!
//! In pools of up to `ALL_ASKED` pods it decides what [`super::pick`] decides for the same rules, which any policy goes
//! through, and leaves out what cannot change that. The best pod is the one with the fewest tokens to compute, then, while long
//! prompts come, one that is of no use to them, then the one with the earliest first token. The tokens are known, and of the first
//! token the predictor says when it comes at the earliest, as a share of the step-time model's ([`Predict::least_ttft_share`]). So
//! the likeliest pods are looked at first, and those that could not beat the best of them by any prediction are left out: neither
//! their gates are looked at nor are they predicted. What is only shown is found when it is asked for (where a blocked head would
//! fit soonest) or is of the pods that were looked at (those that lost).
//!
//! In larger pools no more than the `ALL_ASKED` likeliest by the step-time model are asked about, which for a request that is
//! promised nothing are those where it costs all together least; the others only while none of these takes the request.
//!
//! [`Predict::least_ttft_share`]: weir_schema::Predict::least_ttft_share

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use weir_schema::Prediction;

use crate::{
    PodId, RequestId,
    decide::{
        Floor,
        grounds::Grounds,
        pick::{Fit, Pick, is_a_time},
        score,
        scorer::{Score, token_steps},
    },
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

/// Pods that are asked about first: as many as the predictor answers at the price of one.
const FIRST_BATCH: usize = 8;

/// Pods that are asked about as long as one of them takes the request. Pods of a large pool are so alike that to ask about more
/// brings nothing that a simulation shows, and takes a third of a decision's time (docs/performance.md).
const ALL_ASKED: usize = 24;

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
    /// The pod in a place, if it is to be asked about.
    fn of(grounds: &Grounds, likely: Likely, at: u32) -> Option<Self> {
        let cached_share = *grounds.cached_shares.get(at as usize)?;
        (likely != Likely::NEVER).then_some(Self { cached_share, likely, at })
    }

    /// The likelier one to be the best is the smaller.
    const fn order(&self) -> (Likely, u32) {
        (self.likely, self.at)
    }
}

/// The tokens that a pod would have to compute, and at least its predicted TTFT: one number, the smaller the better. Of a request
/// that is promised nothing, what it costs all together in the place of both.
///
/// Above are the tokens, in the steps in which they are compared; below the bits of the time in milliseconds, which for what is not
/// negative are in the order of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Likely(u64);

impl Likely {
    /// Of a pod that is not to be asked about.
    const NEVER: Self = Self(u64::MAX);

    /// What is no time counts as none.
    fn new(token_steps: f64, least_ms: f32) -> Self {
        let least_ms = if least_ms > 0.0 { least_ms } else { 0.0 };
        Self(start::above_32_bits(token_steps) | u64::from(least_ms.to_bits()))
    }

    /// Of a pod that was predicted; `None` where that cannot be compared.
    fn of(score: &Score) -> Option<Self> {
        let (token_steps, ttft_ms) = (-score.main, -score.tie as f32);
        let comparable = (0.0..f64::from(u32::MAX)).contains(&token_steps) && ttft_ms >= 0.0;
        comparable.then(|| Self::new(token_steps, ttft_ms))
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
    /// Whether others can be compared with it without being asked about.
    is_bounded: bool,
    /// What another has to be better than, if it can be compared.
    bound: Option<(Likely, u32)>,
    /// The first pod in order against which only its prediction stands, by its place.
    shut: Option<(usize, Reason)>,
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
        // Of equals the one that joined first is better.
        if one >= last {
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
        let promised = self.board.get(id).is_some_and(|waiting| !waiting.request.slo.is_empty());
        // What a request that is promised nothing costs is not in its first token alone.
        let share = if promised { self.predictor.least_ttft_share() } else { 0.0 };
        let found = self.search(id, claimed, (share > 0.0).then_some(share));
        match found.best {
            Some((_, fit)) => {
                *self.last = Some(fit.outlook.pod);
                Pick::Fits(fit)
            }
            None => self.blocked(id, claimed, found.shut.map(|(_, why)| why)),
        }
    }

    /// How good each pod is for a head by the step-time model, of whose TTFT a share counts. It is never one that is claimed, or
    /// that the head may not use.
    fn rate(
        &self,
        waiting: &Waiting,
        claimed: &[PodId],
        share: f32,
        grounds: &mut Grounds,
        likely: &mut Vec<Likely>,
    ) {
        self.survey(waiting, grounds);
        let input_tokens = f64::from(waiting.input_tokens);
        // In the cost of a request that is promised nothing its tokens are already.
        let promised = !waiting.request.slo.is_empty();
        let counted_tokens = if promised { input_tokens } else { 0.0 };
        likely.resize(self.pods.len(), Likely::NEVER);
        let figures = grounds.cached_shares.iter().zip(&grounds.answers_ms).zip(&grounds.takes);
        for (likely, ((cached_share, answer_ms), takes)) in likely.iter_mut().zip(figures) {
            let token_steps = token_steps(start::uncached(counted_tokens, *cached_share));
            let known = Likely::new(token_steps, *answer_ms * share);
            *likely = if input_tokens <= *takes { known } else { Likely::NEVER };
        }
        for pod in claimed.iter().chain(waiting.excluded()) {
            let place = self.pods.place(*pod);
            if let Some(likely) = place.and_then(|place| likely.get_mut(place)) {
                *likely = Likely::NEVER;
            }
        }
    }

    /// The best of the pods that a head may use and nobody claims: the likeliest are asked about first, and of the next likeliest
    /// those that may still be better. Any may be where the predictor tells no least share of the step-time model's TTFT.
    fn search(&mut self, id: RequestId, claimed: &[PodId], least_share: Option<f32>) -> Found {
        let mut found = Found { is_bounded: least_share.is_some(), ..Found::default() };
        let mut grounds = std::mem::take(&mut self.scratch.grounds);
        let mut likely = std::mem::take(&mut self.scratch.likely);
        let mut likeliest = std::mem::take(&mut self.scratch.candidates);
        if let Some(waiting) = self.board.get(id) {
            let share = least_share.unwrap_or(1.0);
            self.rate(waiting, claimed, share, &mut grounds, &mut likely);
            // Where all are asked about anyway it is at once.
            let few_first = least_share.is_some() || self.pods.len() > ALL_ASKED;
            let first = if few_first { FIRST_BATCH } else { ALL_ASKED };
            for most in [first, ALL_ASKED - first] {
                let (heap, range) = (&mut self.scratch.likeliest, (most, found.bound));
                take_likeliest(&mut likely, range, &grounds, heap, &mut likeliest);
                self.try_batch(id, &mut likeliest, &mut found);
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

    /// Asks about those that are left, twice as many at a time as the last time, until there is a pod to go to.
    fn search_rest(&mut self, id: RequestId, rest: &mut Vec<Candidate>, found: &mut Found) {
        let mut batch = std::mem::take(&mut self.scratch.batch);
        let mut asked = ALL_ASKED;
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

    /// Looks at the gates of some pods, asks about those where they are open, and keeps the best.
    fn try_batch(&mut self, id: RequestId, batch: &mut [Candidate], found: &mut Found) {
        // In the order of the pods, as predictors are asked about all of them.
        batch.sort_unstable_by_key(|one| one.at);
        let mut open = std::mem::take(&mut self.scratch.outlooks);
        open.clear();
        let Some(waiting) = self.board.get(id) else { return };
        for one in batch {
            let Some(outlook) = self.outlook_at(waiting, one.at as usize, one.cached_share) else {
                continue;
            };
            match self.cheap(waiting, &outlook) {
                Ok(()) => open.push(outlook),
                Err(why) => self.losers.shut(&outlook, why),
            }
        }
        let answered = self.ask(id, &open);
        let (rows, predictions) =
            (std::mem::take(&mut self.scratch.rows), std::mem::take(&mut self.scratch.predictions));
        for ((outlook, row), said) in open.iter().zip(&rows).zip(&predictions) {
            let known = answered && is_a_time(said);
            let prediction = if known { *said } else { self.prior(outlook) };
            self.weigh(id, Fit { outlook: *outlook, row: *row, prediction, known }, found);
        }
        (self.scratch.rows, self.scratch.predictions) = (rows, predictions);
        self.scratch.outlooks = open;
    }

    /// Puts a pod whose cheap gates are open beside the best one so far.
    fn weigh(&mut self, id: RequestId, fit: Fit, found: &mut Found) {
        let Some(waiting) = self.board.get(id) else { return };
        let at = fit.outlook.place;
        if let Err(why) = self.judge(id, &fit) {
            self.losers.shut(&fit.outlook, why);
            if found.shut.is_none_or(|(first, _)| at < first) {
                found.shut = Some((at, why));
            }
            return;
        }
        let score = self.fewest_tokens(waiting, &fit.outlook, &fit.prediction);
        let better = found.best.as_ref().is_none_or(|(best, known)| {
            // Of equals the one that joined first is better.
            score.order(best).then(known.outlook.place.cmp(&at)) == Ordering::Greater
        });
        if better {
            let likely = Likely::of(&score).filter(|_| found.is_bounded);
            // While pods are kept for long prompts one with a later first token may be better. In a large pool enough are asked
            // about without it.
            let kept = self.kept_for_ms.is_some() && self.pods.len() <= ALL_ASKED;
            let likely = likely.map(|one| if kept { one.at_any_time() } else { one });
            found.bound = likely.map(|likely| (likely, at as u32));
        }
        let one = Some((score, fit));
        let beaten = if better { std::mem::replace(&mut found.best, one) } else { one };
        if let (Some((score, fit)), Some((best, _))) = (beaten, &found.best) {
            self.losers.fitted(&fit.outlook, &fit.prediction, score.is_kept(best));
        }
    }

    /// Asks the predictor about a head on some pods; rows and answers are in the buffers. Says whether it
    /// had answers.
    fn ask(&mut self, id: RequestId, open: &[Outlook]) -> bool {
        self.fill_rows(id, open);
        self.scratch.predictions.clear();
        self.scratch.predictions.resize(self.scratch.rows.len(), Prediction::default());
        let (rows, predictions) = (&self.scratch.rows, &mut self.scratch.predictions);
        rows.is_empty() || self.predictor.predict(rows, predictions).is_ok()
    }

    /// Puts the rows of a head on some pods into the buffer.
    fn fill_rows(&mut self, id: RequestId, outlooks: &[Outlook]) {
        self.scratch.rows.clear();
        let Some(waiting) = self.board.get(id) else { return };
        let (demand, stale) = (score::demand(waiting), self.config.pull.stale_after_ms);
        let pods = self.pods.as_slice();
        let rows = outlooks.iter().filter_map(|outlook| {
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
        let reason = there.and_then(|outlook| self.cheap(waiting, outlook).err());
        self.scratch.outlooks = free;
        Pick::Blocked(reason.or(shut).unwrap_or(Reason::PodsClaimed), soonest)
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
