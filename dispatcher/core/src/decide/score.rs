//! Pods looked at for one head.

use smallvec::SmallVec;

use crate::{
    PodClass, RequestId, SchedulerConfig,
    decide::{Floor, affinity, filter},
    fleet::PodState,
    headroom::{Demand, Outlook, outlook},
    queue::Waiting,
};

/// Pods of a small pool stay on the stack.
pub type Outlooks = SmallVec<[Outlook; 8]>;

/// What a waiting request asks of a pod.
pub fn demand(waiting: &Waiting) -> Demand {
    Demand {
        input_tokens: f64::from(waiting.input_tokens),
        output_tokens: f64::from(waiting.output_tokens),
        sequences: f64::from(waiting.request.sequences),
    }
}

impl Floor<'_> {
    /// Every pod that a head may use, looked at. Empty when there is none.
    pub fn look(&mut self, id: RequestId) -> Outlooks {
        self.refresh(id);
        let Some(waiting) = self.board.get(id) else { return Outlooks::new() };
        self.usable(waiting).map(|pod| self.outlook(waiting, pod)).collect()
    }

    /// Brings up to date what each pod has cached of a waiting request.
    pub fn refresh(&mut self, id: RequestId) {
        if let Some(waiting) = self.board.get_mut(id) {
            affinity::refresh(waiting, self.pods);
        }
    }

    /// The pods that a head may use.
    pub fn usable(&self, waiting: &Waiting) -> impl Iterator<Item = &PodState> {
        self.pods.values().filter(|pod| filter::usable(pod, waiting))
    }

    /// A waiting request on a pod, with what was last known to be cached there.
    pub fn outlook(&self, waiting: &Waiting, pod: &PodState) -> Outlook {
        let steps = self.predictor.step_time(pod.spec.class);
        let share = affinity::cached_share(waiting, pod.spec.id);
        let others = pod.others(self.now, self.config.pull.stale_after_ms);
        Outlook::of(pod, &steps, demand(waiting), share, pod.prefill_rate(self.now), others)
    }

    /// Whether one full step of a pod would break the tightest objective alive: then what it has
    /// pending must be kept small.
    pub fn big_chunk(&self, outlook: &Outlook) -> bool {
        let share = self.config.pull.big_chunk_share;
        self.tightest_tpot_ms.is_some_and(|slo_ms| outlook.full_step_ms > share * slo_ms)
    }

    /// Uncached tokens that a pod may have pending together with a request, if it has any pending.
    pub fn room_tokens(&self, waiting: &Waiting, outlook: &Outlook) -> f64 {
        let pull = &self.config.pull;
        let top = waiting.pattern.band >= self.top_band && !waiting.request.slo.is_empty();
        let small = top && !self.big_chunk(outlook);
        f64::from(if small { pull.top_band_tokens } else { pull.pending_tokens })
    }

    /// The best TTFT that any pod could give a request if it were idle, in milliseconds.
    pub fn best_ttft_ms(&self, waiting: &Waiting) -> Option<f64> {
        let usable = self.pods.values().filter(|pod| filter::usable(pod, waiting));
        let best = usable.map(|pod| {
            let steps = self.predictor.step_time(pod.spec.class);
            let share = affinity::cached_share(waiting, pod.spec.id);
            let tokens = f64::from(waiting.input_tokens);
            outlook::best_ttft_ms(&steps, pod.class.chunk_tokens, tokens, share)
        });
        best.reduce(f64::min)
    }
}

/// The class of a pod by its index; the default class when the configuration has no such index.
pub fn class(config: &SchedulerConfig, index: u16) -> PodClass {
    config.classes.get(usize::from(index)).cloned().unwrap_or_default()
}

/// The fewest uncached tokens over the pods.
pub fn warmest_tokens(outlooks: &[Outlook]) -> f64 {
    outlooks.iter().map(|outlook| outlook.uncached_tokens).fold(f64::INFINITY, f64::min)
}

/// The pod with the fewest uncached tokens.
pub fn warmest(outlooks: &[Outlook]) -> Option<&Outlook> {
    outlooks.iter().min_by(|a, b| {
        let order = a.uncached_tokens.total_cmp(&b.uncached_tokens);
        order.then(a.ttft_ms.total_cmp(&b.ttft_ms)).then(a.pod.cmp(&b.pod))
    })
}
