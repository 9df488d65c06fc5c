//! The snapshot: what the scheduler shows of itself.

use crate::{
    LaneView, PodView, REQUESTS_SHOWN, RefusalReason, RequestId, RequestView, Snapshot, Time,
    fleet::PodState,
    headroom::{Demand, Outlook, judge, risk, start::Prefill},
    ledger::{Ledger, Resident},
    scheduler::Scheduler,
};

impl Scheduler {
    /// The pool at this moment. Costs a walk over lanes, pods and their ledgers, not over what waits.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let mut counters = self.counters.clone();
        let refused = RefusalReason::ALL.iter();
        counters.refused = refused
            .map(|reason| (*reason, self.refused.get(reason).copied().unwrap_or(0)))
            .collect();
        Snapshot {
            model: self.config.model.to_string(),
            policy: self.config.policy,
            rules: self.rules.clone(),
            rules_by_header: self.config.rules_by_header.clone(),
            lanes: self.lane_views(now),
            pods: self.pods.values().map(|pod| self.pod_view(now, pod)).collect(),
            waiting: self.board.len(),
            waiting_bytes: self.board.bytes(),
            late: self.board.late_len(),
            oldest_wait_ms: self.board.oldest().map_or(0.0, |(at, _)| now.ms_since(at)),
            drain_ms: self.pool_drain_ms(now),
            spent_share: self.strain.share(),
            kept_for_ms: self.kept_for_ms(now).unwrap_or(0.0),
            need: self.need(now),
            in_flight: self.flights.len(),
            counters,
            predictor: self.predictor.status(),
            tokens_per_byte: self.ratio.per_byte(),
        }
    }

    fn lane_views(&self, now: Time) -> Vec<LaneView> {
        let view = |(pattern, lane): (&crate::pattern::Pattern, &crate::queue::Lane)| {
            let head = lane.head()?.id();
            let waiting = self.board.get(head)?;
            Some(LaneView {
                pattern: pattern.name(&self.config.buckets),
                band: pattern.band,
                depth: lane.len(),
                head_wait_ms: now.ms_since(waiting.request.arrived),
                head,
                reason: self.reason_of(waiting),
            })
        };
        let mut lanes: Vec<LaneView> = self.board.lanes().filter_map(view).collect();
        lanes.sort_by(|a, b| b.band.cmp(&a.band).then(a.head.cmp(&b.head)));
        lanes
    }

    /// A pod as it is for whoever asks nothing of it.
    pub(super) fn look_at(&self, now: Time, pod: &PodState) -> Outlook {
        let steps = self.step_time(pod.spec.class);
        let nothing = Demand { input_tokens: 0.0, output_tokens: 0.0, sequences: 0.0 };
        let others = pod.others(now, self.config.pull.stale_after_ms);
        let outlook = Outlook::of(pod, &steps, nothing, 0.0, others, self.slower(now));
        let Some(together) = self.pods.together(pod, &steps) else { return outlook };
        let prompt = Prefill::of(0.0, 0.0);
        outlook.among(&together, &steps, prompt, pod.class.chunk_tokens)
    }

    pub(super) fn pod_view(&self, now: Time, pod: &PodState) -> PodView {
        let outlook = self.look_at(now, pod);
        let others = pod.others(now, self.config.pull.stale_after_ms);
        let scrape = pod.scrape.map(|(_, scrape)| scrape).unwrap_or_default();
        let at_once = self.config.pull.risk_at_once;
        PodView {
            name: pod.spec.name.to_string(),
            class: pod.class.name.to_string(),
            phase: pod.phase,
            residents: pod.ledger.residents().len(),
            pending: pod.ledger.pending().len(),
            pending_tokens: pod.ledger.pending_tokens() as u64,
            kv_tokens: pod.ledger.kv_tokens() as u64,
            kv_usage: scrape.kv_usage,
            kv_capacity_tokens: pod.kv_capacity_tokens() as u64,
            prefix_capacity_tokens: pod.prefix_tokens(),
            running: scrape.running,
            queued: scrape.waiting,
            elsewhere: others.sequences as u32,
            scrape_age_ms: pod.scrape.map(|(at, _)| now.ms_since(at)),
            step_ms: outlook.step_ms,
            tokens_per_event: self.per_event.tokens_per_event(pod.spec.class),
            tokens_per_step: self.per_event.tokens_per_step(pod.spec.class),
            tightest_tpot_ms: judge::tightest_tpot_ms(&pod.ledger),
            stall_budget_ms: risk::budget_ms(&pod.ledger, &outlook, at_once, now),
            dispatched: pod.dispatched,
            prompt_tokens: pod.prompt_tokens as u64,
            cached_tokens: pod.cached_tokens as u64,
            cache_found: pod.cache_found(),
            adapters: self.adapter_views(pod),
            max_loras: pod.max_loras().and_then(|most| u32::try_from(most).ok()),
            full_with: pod.full_with().and_then(|most| u32::try_from(most).ok()),
            requests: self.request_views(now, &pod.ledger, REQUESTS_SHOWN),
        }
    }

    pub(super) fn request_views(
        &self,
        now: Time,
        ledger: &Ledger,
        most: usize,
    ) -> Vec<RequestView> {
        let tightest = tightest(ledger, most).into_iter();
        let view = |(_, id, decoding)| Some(self.flights.get(&id)?.view(now, decoding));
        tightest.filter_map(view).collect()
    }
}

/// Requests with their TPOT objectives, the tightest first and the oldest of equals, and whether they
/// decode. Only those that are shown are put in order.
fn tightest(ledger: &Ledger, most: usize) -> Vec<(f64, RequestId, bool)> {
    let entry =
        |one: &Resident, decoding| (one.tpot_slo_ms.unwrap_or(f64::INFINITY), one.id, decoding);
    let pending = ledger.pending().iter().map(|one| entry(&one.resident, false));
    let decoding = ledger.residents().iter().map(|one| entry(one, true));
    let mut all: Vec<_> = pending.chain(decoding).collect();
    let order = |a: &(f64, RequestId, bool), b: &(f64, RequestId, bool)| {
        a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
    };
    if all.len() > most {
        all.select_nth_unstable_by(most, order);
        all.truncate(most);
    }
    all.sort_unstable_by(order);
    all
}
