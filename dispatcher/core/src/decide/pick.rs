//! The way from the pods that a head may use to the one it gets: gates or predictions, filters,
//! affinity, scores, pick. Where nothing is left, the reason, and the pod where it would fit soonest.

use weir_schema::{FEATURE_COUNT, Prediction, Quantiles, Row, Source};

use crate::{
    PodId, RequestId,
    decide::{
        Choice, Floor, affinity, filter, picker, plain,
        score::{self, Outlooks},
    },
    explain::Reason,
    fleet::PodState,
    headroom::{
        Outlook, features,
        judge::{self, tpot_slo_ms, ttft_slo_ms},
        outlook, risk,
    },
    queue::Waiting,
};

/// Of what predictions have against pods, what is said: that one is empty and waits for nothing goes before anything else.
pub(super) fn first_of(shut: Option<Reason>, why: Reason) -> Option<Reason> {
    if why == Reason::WaitsForFasterPod { Some(why) } else { shut.or(Some(why)) }
}

/// Why a head waits: for what is against it on the pod where it would fit soonest, `there`, or else for what predictions have.
pub(super) fn why(there: Option<Reason>, shut: Option<Reason>) -> Reason {
    let beside_an_empty_pod = shut.filter(|why| *why == Reason::WaitsForFasterPod);
    beside_an_empty_pod.or(there).or(shut).unwrap_or(Reason::PodsClaimed)
}

/// A pod that a head fits on.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The pod as it was looked at.
    pub outlook: Outlook,
    /// The row it was judged with.
    pub row: Row,
    /// The prediction it was judged by.
    pub prediction: Prediction,
    /// Whether the predictor gave it. If not, the step-time prior stands in.
    pub known: bool,
}

impl Fit {
    /// As a decision.
    pub const fn choice(&self, id: RequestId) -> Choice {
        Choice {
            id,
            pod: self.outlook.pod,
            uncached_tokens: self.outlook.uncached_tokens,
            row: self.row,
            prediction: self.prediction,
            regret: None,
            spreads: false,
        }
    }
}

/// The outcome for one head.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart where it is made; a box would allocate in every decision"
)]
pub enum Pick {
    /// It fits, best here.
    Fits(Fit),
    /// It fits nowhere now; the reason is that of the pod where it would fit soonest.
    Blocked(Reason, Option<PodId>),
}

impl Floor<'_> {
    /// The pod that a head gets, of those that nobody claims.
    pub fn pick(&mut self, id: RequestId, claimed: &[PodId]) -> Pick {
        if !self.thorough && plain::is_plain(self.rules) {
            return self.pick_plain(id, claimed);
        }
        let free = self.free(id, claimed);
        let Some(waiting) = self.board.get(id) else {
            return Pick::Blocked(Reason::NotConsidered, None);
        };
        let soonest = self.soonest(waiting, &free);
        self.losers.clear();
        let left = if self.rules.gated() {
            self.through_gates(id, &free, soonest)
        } else {
            Ok(self.candidates(id, &free))
        };
        self.scratch.outlooks = free;
        match left.and_then(|fits| self.sift(id, fits)) {
            Ok(fits) => match self.choose(id, &fits) {
                Some(fit) => Pick::Fits(fit),
                None => Pick::Blocked(Reason::PodsClaimed, soonest),
            },
            Err(why) => Pick::Blocked(why, soonest),
        }
    }

    /// Every pod that a head may use and nobody claims, looked at. The buffer is the scratch's.
    pub(super) fn free(&mut self, id: RequestId, claimed: &[PodId]) -> Outlooks {
        let mut free = self.look(id);
        if !claimed.is_empty() {
            free.retain(|outlook| !claimed.contains(&outlook.pod));
        }
        free
    }

    /// Every pod as a candidate, with its prediction if the rules look at it.
    fn candidates(&mut self, id: RequestId, free: &[Outlook]) -> Vec<Fit> {
        if self.rules.ask_predictions() {
            return self.predict(id, free);
        }
        let row = [f32::NAN; FEATURE_COUNT];
        let bare = |outlook: &Outlook| Fit {
            outlook: *outlook,
            row,
            prediction: self.prior(outlook),
            known: false,
        };
        free.iter().map(bare).collect()
    }

    /// Picks by score, and asks the predictor about the pick if nobody has yet.
    fn choose(&mut self, id: RequestId, fits: &[Fit]) -> Option<Fit> {
        let scores = self.scores(id, fits);
        let place = picker::pick(self.rules.picker, fits, &scores, *self.last, self.dice)?;
        let fit = *fits.get(place)?;
        let best = scores.get(place).copied().unwrap_or_default();
        let lost = fits.iter().zip(&scores).filter(|(one, _)| one.outlook.pod != fit.outlook.pod);
        for (one, score) in lost {
            let ttft_ms = f64::from(one.prediction.ttft_ms.p50);
            let Outlook { pod, uncached_tokens, .. } = one.outlook;
            self.losers.fitted(pod, ttft_ms, uncached_tokens, score.is_kept(&best));
        }
        *self.last = Some(fit.outlook.pod);
        if self.rules.gated() || self.rules.ask_predictions() {
            return Some(fit);
        }
        self.predict(id, &[fit.outlook]).first().copied()
    }

    /// The pods on which Weir's gates are open.
    fn through_gates(
        &mut self,
        id: RequestId,
        free: &Outlooks,
        soonest: Option<PodId>,
    ) -> Result<Vec<Fit>, Reason> {
        let Some(waiting) = self.board.get(id) else { return Err(Reason::NotConsidered) };
        let gates: Vec<_> = free.iter().map(|outlook| self.cheap(waiting, outlook)).collect();
        let open = free.iter().zip(&gates).filter(|(_, gate)| gate.is_ok());
        let open: Outlooks = open.map(|(outlook, _)| *outlook).collect();
        let there = soonest.and_then(|pod| {
            free.iter().zip(&gates).find(|(outlook, _)| outlook.pod == pod)?.1.err()
        });
        let predicted = self.predict(id, &open);
        let mut shut = None;
        let mut fits = Vec::with_capacity(open.len());
        for fit in predicted {
            match self.judge(id, &fit) {
                Ok(()) => fits.push(fit),
                Err(why) => {
                    self.losers.shut(&fit.outlook, why);
                    shut = first_of(shut, why);
                }
            }
        }
        for (outlook, gate) in free.iter().zip(&gates) {
            if let Err(why) = gate {
                self.losers.shut(outlook, *why);
            }
        }
        if fits.is_empty() { Err(why(there, shut)) } else { Ok(fits) }
    }

    /// The gates that need no prediction.
    pub(crate) fn cheap(&self, waiting: &Waiting, outlook: &Outlook) -> Result<(), Reason> {
        let pod = self.pods.as_slice().get(outlook.place);
        let Some(pod) = pod else { return Err(Reason::NoPodReady) };
        if filter::ungated(pod, waiting, outlook) {
            return Ok(());
        }
        self.has_memory(waiting, outlook, pod)?;
        judge::step_gate(pod, outlook, self.step_tokens(waiting, outlook), self.now)?;
        self.bears(waiting, outlook, pod, self.room_tokens(waiting, outlook))
    }

    /// The same for one that starts cold for all that share its prompt. What steps together with the pod bears that, for once: it is held up
    /// as long as few have the prompt, for these have more to do than the others.
    pub(super) fn cheap_to_spread(
        &self,
        waiting: &Waiting,
        outlook: &Outlook,
    ) -> Result<(), Reason> {
        let share = affinity::cached_share(waiting, outlook.pod);
        self.cheap(waiting, &self.apart(waiting, outlook, share))
    }

    /// The same for one that joins the prompts which are pending on a pod, as many as there are.
    pub(super) fn cheap_to_join(&self, waiting: &Waiting, outlook: &Outlook) -> Result<(), Reason> {
        let pod = self.pods.as_slice().get(outlook.place).ok_or(Reason::NoPodReady)?;
        self.has_memory(waiting, outlook, pod)?;
        self.bears(waiting, outlook, pod, f64::INFINITY)
    }

    fn has_memory(
        &self,
        waiting: &Waiting,
        outlook: &Outlook,
        pod: &PodState,
    ) -> Result<(), Reason> {
        let share = self.memory_share(waiting, pod);
        filter::fits_memory(pod, waiting, outlook, share, self.now, &self.config.pull)
    }

    /// Whether a pod with so much room for pending tokens, and those that decode there, bear a head.
    fn bears(
        &self,
        waiting: &Waiting,
        outlook: &Outlook,
        pod: &PodState,
        room_tokens: f64,
    ) -> Result<(), Reason> {
        let bounds = (room_tokens, self.bearable(waiting));
        let pace_ms = self.pace_to_keep_ms(waiting);
        let at_risk = |stall_ms| self.at_risk(pod, outlook, stall_ms);
        judge::cheap_gates(pace_ms, outlook, at_risk, bounds, &self.config.pull)
    }

    /// How many residents of a pod would lose their pace by a stall, on average. Where others step together with it theirs count too, but
    /// not those who lose it by what is sent there already: whoever begins with the same step holds up nobody any longer. Of a pod that is
    /// looked at as if nothing did nobody counts, for it is not the stall that is asked about ([`Self::cheap_to_spread`]).
    pub(super) fn at_risk(&self, pod: &PodState, outlook: &Outlook, stall_ms: f64) -> f64 {
        let own = || risk::at_risk(&pod.ledger, outlook, stall_ms, self.now);
        if !self.pods.step_together() {
            return own();
        }
        if outlook.is_apart {
            let alone = self.pods.peers(pod.spec.id).next().is_none();
            return if alone { own() } else { 0.0 };
        }
        if outlook.own_stall_ms <= 0.0 {
            return 0.0;
        }
        let stalls_ms = [stall_ms - outlook.own_stall_ms, stall_ms];
        let all = self.pods.peers(pod.spec.id).chain([pod]);
        all.map(|one| risk::more_at_risk(&one.ledger, outlook, stalls_ms, self.now)).sum()
    }

    /// How many residents a head may put at risk now.
    pub(crate) fn bearable(&self, waiting: &Waiting) -> f64 {
        risk::bearable(waiting.urgency(self.now), &self.config.pull)
    }

    /// Asks the predictor about a head on some pods. Where it has no answer, or one that is no time
    /// at all, the step-time priors serve: dispatch never stops for a predictor.
    pub fn predict(&mut self, id: RequestId, outlooks: &[Outlook]) -> Vec<Fit> {
        let Some(waiting) = self.board.get(id) else { return Vec::new() };
        let (demand, stale) = (score::demand(waiting), self.config.pull.stale_after_ms);
        let known =
            outlooks.iter().filter_map(|outlook| Some((outlook, self.pods.get(&outlook.pod)?)));
        let (rows, outlooks): (Vec<Row>, Vec<Outlook>) = known
            .map(|(outlook, pod)| (features::row(pod, demand, outlook, self.now, stale), *outlook))
            .unzip();
        let mut predictions = vec![Prediction::default(); rows.len()];
        let answered = rows.is_empty() || self.predictor.predict(&rows, &mut predictions).is_ok();
        let fits = outlooks.into_iter().zip(rows).zip(predictions);
        fits.map(|((outlook, row), prediction)| {
            let known = answered && is_a_time(&prediction);
            let prediction = if known { prediction } else { self.prior(&outlook) };
            Fit { outlook, row, prediction, known }
        })
        .collect()
    }

    /// The gates that ask the prediction.
    pub(crate) fn judge(&self, id: RequestId, fit: &Fit) -> Result<(), Reason> {
        let Some(waiting) = self.board.get(id) else { return Err(Reason::NotConsidered) };
        let pod = self.pods.as_slice().get(fit.outlook.place);
        let Some(pod) = pod else { return Ok(()) };
        let waited_ms = self.now.ms_since(waiting.request.arrived);
        let first_ms = ttft_slo_ms(&waiting.request.slo).filter(|_| !waiting.late);
        if filter::ungated(pod, waiting, &fit.outlook) {
            let late =
                judge::predicted_gates([first_ms, None], waited_ms, &fit.prediction).is_err();
            let waits = late && fit.outlook.empty && self.in_time_elsewhere(waiting, &fit.outlook);
            return if waits { Err(Reason::WaitsForFasterPod) } else { Ok(()) };
        }
        let to_keep_ms = [first_ms, self.pace_to_keep_ms(waiting)];
        judge::predicted_gates(to_keep_ms, waited_ms, &fit.prediction)
    }

    /// Whether a pod would be late with a head by the step-time model where another would not, which is faster or has its prompt.
    fn in_time_elsewhere(&self, waiting: &Waiting, on: &Outlook) -> bool {
        let Some(deadline) = waiting.request.deadline().filter(|_| !waiting.late) else {
            return false;
        };
        let left_ms = deadline.ms_until(self.now);
        let in_time = |pod: &PodState| self.outlook(waiting, pod).ttft_ms <= left_ms;
        let mut others = self.usable(waiting).filter(|pod| pod.spec.id != on.pod);
        on.ttft_ms > left_ms && others.any(in_time)
    }

    /// The pace that a head is to have where it goes, in milliseconds: its objective, unless it is late, for then that is lost, or
    /// no pod would keep it for this request alone. A gate that opens nowhere would only keep everybody from the pods.
    fn pace_to_keep_ms(&self, waiting: &Waiting) -> Option<f64> {
        let slo_ms = tpot_slo_ms(&waiting.request.slo).filter(|_| !waiting.late)?;
        let limit_ms = self.config.pull.tpot_margin * slo_ms;
        let demand = score::demand(waiting);
        let alone_ms = |class: &u16| outlook::alone_ms(&self.steps_of(*class), &demand);
        self.open_classes
            .iter()
            .map(alone_ms)
            .any(|alone_ms| alone_ms <= limit_ms)
            .then_some(slo_ms)
    }

    /// The pod where a head would fit soonest, keeping an earlier claim while the pod is free. An empty one that would be late with
    /// it is not waited for.
    pub(super) fn soonest(&self, waiting: &Waiting, free: &[Outlook]) -> Option<PodId> {
        if let Some(claim) = waiting.claim().filter(|pod| free.iter().any(|one| one.pod == *pod)) {
            return Some(claim);
        }
        let bearable = self.bearable(waiting);
        let delay = |outlook: &Outlook| {
            let (stall_ms, pod) = (outlook.stall_ms, self.pods.as_slice().get(outlook.place));
            let bears_ms = pod.map_or(stall_ms, |pod| {
                risk::bears_ms(&pod.ledger, outlook, bearable, self.now, stall_ms)
            });
            outlook.ttft_ms + stall_ms - bears_ms
        };
        let waited_for =
            |outlook: &&Outlook| !outlook.empty || !self.in_time_elsewhere(waiting, outlook);
        let free = free.iter().filter(waited_for);
        let delays = free.map(|outlook| (delay(outlook), outlook.pod));
        let best = delays.min_by(|(a, one), (b, other)| a.total_cmp(b).then(one.cmp(other)));
        best.map(|(_, pod)| pod)
    }

    /// TPOT by the step-time model, in milliseconds.
    pub(super) fn prior_tpot_ms(&self, outlook: &Outlook) -> f64 {
        let pod = self.pods.as_slice().get(outlook.place);
        outlook.tpot_ms(pod.map_or(0.0, |pod| pod.prefill_rate(self.now)))
    }

    /// The step-time model's own prediction.
    pub(super) fn prior(&self, outlook: &Outlook) -> Prediction {
        let quantiles = |p50: f64| Quantiles { p50: p50 as f32, p90: p50 as f32 * 1.5 };
        Prediction {
            ttft_ms: quantiles(outlook.ttft_ms),
            tpot_ms: quantiles(self.prior_tpot_ms(outlook)),
            ttft_source: Source::Prior,
            tpot_source: Source::Prior,
            ..Prediction::default()
        }
    }
}

/// Whether every quantile is finite and not negative.
pub(super) fn is_a_time(prediction: &Prediction) -> bool {
    let Prediction { ttft_ms, tpot_ms, .. } = prediction;
    let quantiles = [ttft_ms.p50, ttft_ms.p90, tpot_ms.p50, tpot_ms.p90];
    quantiles.iter().all(|ms| ms.is_finite() && *ms >= 0.0)
}
