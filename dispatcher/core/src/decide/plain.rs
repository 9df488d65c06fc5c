//! The pick of Weir's own policy, in one walk over the pods: gates, predictions, fewest tokens.
//!
//! It decides what [`super::pick`] decides for the same rules, which any policy goes through, and leaves
//! out what those rules never ask: filters beside the gates, draws, scores of pods that did not fit. What
//! is only shown (where a blocked head would fit soonest) is found when there is a blocked head.

use std::cmp::Ordering;

use weir_schema::Prediction;

use crate::{
    PodId, RequestId,
    decide::{
        Floor,
        pick::{Fit, Pick, is_a_time},
        score,
        scorer::{Score, token_steps},
    },
    decisions::Losers,
    explain::Reason,
    headroom::{Outlook, features},
    policy::{Affinity, Filter, Picker, Rules, Scorer},
};

/// Whether the rules ask for nothing but the gates, and for the pod with the fewest tokens to compute.
pub fn is_plain(rules: &Rules) -> bool {
    rules.gated()
        && rules.filters.iter().all(|filter| *filter == Filter::Headroom)
        && !matches!(rules.affinity, Affinity::PrefixCache { .. })
        && rules.scorer == Scorer::FewestTokens
        && rules.picker == Picker::Best
}

/// A pod whose gates are open, and what was predicted for it.
type Best = (usize, Score, Prediction, bool);

impl Floor<'_> {
    /// The pod that a head gets, of those that nobody claims, under plain rules.
    pub(super) fn pick_plain(
        &mut self,
        id: RequestId,
        outlooks: &[Outlook],
        claimed: &[PodId],
    ) -> Pick {
        self.losers.clear();
        let mut shut = Losers::default();
        let mut open = std::mem::take(&mut self.scratch.open);
        open.clear();
        if let Some(waiting) = self.board.get(id) {
            for (at, outlook) in outlooks.iter().enumerate() {
                if claimed.contains(&outlook.pod) {
                    continue;
                }
                match self.cheap(waiting, outlook) {
                    Ok(()) => open.push(at),
                    Err(why) => shut.shut(outlook, why),
                }
            }
        }
        let most = self.likeliest(id, outlooks, &mut open);
        let (first, rest) = open.split_at_mut(most);
        let best = match self.best_of(id, outlooks, first, shut.clone()) {
            // None of the likeliest will do: then all others are asked about.
            Err(_) if !rest.is_empty() => self.best_of(id, outlooks, rest, shut),
            best => best,
        };
        let pick = match best {
            Ok(fit) => Pick::Fits(fit),
            Err(why) => self.blocked(id, outlooks, claimed, why),
        };
        self.scratch.open = open;
        pick
    }

    /// Puts the pods that are likeliest to be the best first, as many as the predictor is asked about, and says
    /// how many they are: all of them unless the configuration says otherwise.
    fn likeliest(&self, id: RequestId, outlooks: &[Outlook], open: &mut [usize]) -> usize {
        let most = self.config.pull.scored_pods as usize;
        // What a request that is promised nothing costs is not in the step-time model's first token.
        let promised = self.board.get(id).is_some_and(|waiting| !waiting.request.slo.is_empty());
        if most == 0 || open.len() <= most || !promised {
            return open.len();
        }
        let key = |at: &usize| {
            let outlook = outlooks.get(*at);
            outlook.map_or((f64::INFINITY, 0.0), |one| (token_steps(one), one.ttft_ms))
        };
        open.select_nth_unstable_by(most, |a, b| {
            let ((steps, ttft_ms), (other_steps, other_ms)) = (key(a), key(b));
            steps.total_cmp(&other_steps).then(ttft_ms.total_cmp(&other_ms)).then(a.cmp(b))
        });
        let (first, rest) = open.split_at_mut(most);
        // In the order of the pods, of which the first wins where two are equal.
        first.sort_unstable();
        rest.sort_unstable();
        most
    }

    /// The best of the pods whose cheap gates are open, or why none of them will do.
    fn best_of(
        &mut self,
        id: RequestId,
        outlooks: &[Outlook],
        open: &[usize],
        shut: Losers,
    ) -> Result<Fit, Option<Reason>> {
        let answered = self.ask(id, outlooks, open);
        let Some(waiting) = self.board.get(id) else { return Err(None) };
        let predictions = std::mem::take(&mut self.scratch.predictions);
        let mut best: Option<Best> = None;
        let mut first_shut = None;
        let mut fitted = Losers::default();
        let looked = open.iter().filter_map(|at| outlooks.get(*at));
        for (place, (outlook, said)) in looked.zip(&predictions).enumerate() {
            let known = answered && is_a_time(said);
            let prediction = if known { *said } else { self.prior(outlook) };
            if let Err(why) = self.judge_prediction(id, outlook, &prediction) {
                self.losers.shut(outlook, why);
                first_shut = first_shut.or(Some(why));
                continue;
            }
            let score = self.fewest_tokens(waiting, outlook, &prediction);
            let one = (place, score, prediction, known);
            let beaten = match best {
                Some(best) if !is_better(&score, &best.1) => Some(one),
                _ => best.replace(one),
            };
            let beaten = beaten.and_then(|(place, _, prediction, _)| {
                Some((outlooks.get(*open.get(place)?)?, prediction))
            });
            beaten
                .into_iter()
                .for_each(|(outlook, prediction)| fitted.fitted(outlook, &prediction));
        }
        self.scratch.predictions = predictions;
        let best = best.and_then(|(place, _, prediction, known)| {
            let outlook = *outlooks.get(*open.get(place)?)?;
            let row = *self.scratch.rows.get(place)?;
            Some(Fit { outlook, row, prediction, known })
        });
        let Some(fit) = best else { return Err(first_shut) };
        self.losers.join(shut);
        self.losers.join(fitted);
        *self.last = Some(fit.outlook.pod);
        Ok(fit)
    }

    /// Asks the predictor about a head on some pods; rows and answers are in the buffers. Says whether it
    /// had answers.
    fn ask(&mut self, id: RequestId, outlooks: &[Outlook], open: &[usize]) -> bool {
        let Some(waiting) = self.board.get(id) else { return false };
        let (demand, stale) = (score::demand(waiting), self.config.pull.stale_after_ms);
        let pods = self.pods.as_slice();
        let rows = open.iter().filter_map(|at| {
            let outlook = outlooks.get(*at)?;
            Some(features::row(pods.get(outlook.place)?, demand, outlook, self.now, stale))
        });
        self.scratch.rows.clear();
        self.scratch.rows.extend(rows);
        self.scratch.predictions.clear();
        self.scratch.predictions.resize(self.scratch.rows.len(), Prediction::default());
        let (rows, predictions) = (&self.scratch.rows, &mut self.scratch.predictions);
        rows.is_empty() || self.predictor.predict(rows, predictions).is_ok()
    }

    /// A head that fits nowhere: the pod where it would fit soonest, and what stands against it there.
    fn blocked(
        &self,
        id: RequestId,
        outlooks: &[Outlook],
        claimed: &[PodId],
        shut: Option<Reason>,
    ) -> Pick {
        let Some(waiting) = self.board.get(id) else {
            return Pick::Blocked(Reason::NotConsidered, None);
        };
        let free = || outlooks.iter().filter(|outlook| !claimed.contains(&outlook.pod));
        let soonest = self.soonest(waiting, free);
        let there = soonest.and_then(|pod| free().find(|outlook| outlook.pod == pod));
        let reason = there.and_then(|outlook| self.cheap(waiting, outlook).err());
        Pick::Blocked(reason.or(shut).unwrap_or(Reason::PodsClaimed), soonest)
    }
}

/// Whether a pod beats one with a lower id: of equals the one that joined first is better.
fn is_better(one: &Score, best: &Score) -> bool {
    let order = one.main.total_cmp(&best.main).then(one.tie.total_cmp(&best.tie));
    order == Ordering::Greater
}
