//! Pods, looked at closely.

use crate::{Phase, PodId, Time, fleet::PodState, inspect::PodDetail, scheduler::Scheduler};

impl Scheduler {
    /// The pods from behind `after`, at most `limit`, each with at most `requests` of what it serves.
    pub fn pods_page(
        &self,
        now: Time,
        after: Option<PodId>,
        limit: usize,
        requests: usize,
    ) -> Vec<PodDetail> {
        let pods = self.pods.behind(after).iter().take(limit);
        pods.map(|pod| self.pod_detail(now, pod, requests)).collect()
    }

    /// A pod, with at most `requests` of what it serves.
    pub fn pod(&self, now: Time, id: PodId, requests: usize) -> Option<PodDetail> {
        Some(self.pod_detail(now, self.pods.get(&id)?, requests))
    }

    /// A pod, looked at closely, with at most `requests` of what it serves.
    pub(super) fn pod_detail(&self, now: Time, pod: &PodState, requests: usize) -> PodDetail {
        let mut view = self.pod_view(now, pod);
        view.requests = self.request_views(now, &pod.ledger, requests);
        let stale = self.config.pull.stale_after_ms;
        let beyond = pod.fresh_scrape(now, stale).map(|scrape| {
            pod.ledger.decodes_to_come() - f64::from(scrape.running) - f64::from(scrape.waiting)
        });
        let leaving = matches!(pod.phase, Phase::Cordoned | Phase::Draining);
        PodDetail {
            id: pod.spec.id,
            errors: pod.accuracy.errors(),
            ledger_minus_scrape: beyond,
            empty_in_ms: leaving
                .then(|| self.empty_in_ms(pod, view.step_ms / view.tokens_per_step)),
            view,
        }
    }

    /// How long until everything on a pod is over: the longest of the responses, each at its median
    /// length and the pace of now.
    fn empty_in_ms(&self, pod: &PodState, pace_ms: f64) -> f64 {
        let pending = pod.ledger.pending().iter().map(|pending| &pending.resident);
        let left_ms = pod.ledger.residents().iter().chain(pending).map(|one| {
            let left = self.length.remaining(
                one.tenant.as_ref(),
                one.input_tokens,
                one.max_output_tokens,
                one.generated,
                0.5,
            );
            f64::from(left) * pace_ms
        });
        let prefill_ms = self.predictor.step_time(pod.spec.class).per_prefill_ms;
        left_ms.fold(0.0, f64::max) + prefill_ms.max(0.0) * pod.ledger.pending_tokens()
    }
}
