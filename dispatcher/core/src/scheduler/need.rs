//! What comes and what becomes of it, for whoever starts and stops pods.

use crate::{
    CacheInfo, PodClass, RefusalReason, Request, Time,
    decide::filter,
    decisions::Ended,
    headroom::judge,
    need::{Capacity, Need, Work},
    queue::Waiting,
    scheduler::{Scheduler, flight::Flight},
};

impl Scheduler {
    /// How many pods what comes needs.
    pub fn need(&self, now: Time) -> Need {
        let held = self.held.load();
        let (kept, all) =
            (self.load(now, self.demand.kept(now)), self.load(now, self.demand.all(now)));
        let open = self.pods.values().filter(|pod| filter::is_open(pod));
        let servers: f64 = open.map(|pod| part_of_server(&pod.class)).sum();
        let first = || self.config.classes.first().map_or(1.0, part_of_server);
        let open = if servers > 0.0 { servers } else { first() };
        // A number that float arithmetic leaves a hair above a whole one is that one.
        let pods = |load: f64| (open * load / held - 1e-6).ceil().clamp(0.0, 1e6) as u32;
        Need { load: kept, load_of_all: all, held, pods: pods(kept), pods_for_all: pods(all) }
    }

    /// Work of a second, at a pace, over what the open pods hold by formula.
    fn load(&self, now: Time, comes: Option<(Work, f64)>) -> f64 {
        let Some((work, tpot_ms)) = comes else { return 0.0 };
        let steps = self.steps_in_use(now);
        let open = self.pods.values().filter(|pod| filter::is_open(pod));
        let of_pods = open.filter_map(|pod| {
            let steps = steps.get(usize::from(pod.spec.class))?;
            let capacity =
                Capacity { class: &pod.class, steps, kv_tokens: pod.kv_capacity_tokens() };
            Some(1.0 / capacity.pods(&work, tpot_ms))
        });
        let held: f64 = of_pods.sum();
        if held > 0.0 {
            return 1.0 / held;
        }
        let first = self.config.classes.first().zip(steps.first());
        first.map_or(0.0, |(class, steps)| {
            let kv_tokens = class.kv_tokens(&CacheInfo::default()) as f64;
            Capacity { class, steps, kv_tokens }.pods(&work, tpot_ms)
        })
    }

    /// A request is let in.
    pub(super) fn note_demand(&mut self, now: Time, waiting: &Waiting) {
        let request = &waiting.request;
        let work = work_of(request, waiting.input_tokens, waiting.share, waiting.output_tokens);
        let tpot_ms =
            judge::tpot_slo_ms(&request.slo).filter(|tpot_ms| self.can_keep(now, *tpot_ms));
        self.demand.came(now, request.band, work, tpot_ms);
    }

    /// A response is whole: how far what was expected of it was off, and whether it was in time.
    pub(super) fn note_served(&mut self, now: Time, flight: &Flight, ended: &Ended) {
        let (request, input_tokens) = (&flight.request, flight.input_tokens);
        let share = 1.0 - flight.uncached_tokens / f64::from(input_tokens.max(1));
        let of = |output_tokens| work_of(request, input_tokens, share, output_tokens);
        let answer = flight.per_sequence(ended.output_tokens);
        self.demand.ended(of(flight.output_tokens), of(answer));
        self.note_outcome(now, request, ended.attained, (input_tokens, share));
    }

    /// A request is refused.
    pub(super) fn note_unserved(
        &mut self,
        now: Time,
        request: &Request,
        reason: RefusalReason,
        waiting: Option<&Waiting>,
    ) {
        use RefusalReason::{Hopeless, MaxWait, QueueBytes, QueueFull};
        // Others are refused for what more pods do not change.
        if matches!(reason, QueueFull | QueueBytes | Hopeless | MaxWait) {
            let tokens = waiting.map_or(0, |waiting| waiting.input_tokens);
            self.note_outcome(now, request, false, (tokens, 0.0));
        }
    }

    fn note_outcome(
        &mut self,
        now: Time,
        request: &Request,
        in_time: bool,
        (input_tokens, share): (u32, f64),
    ) {
        let counts = self.config.need.learn && !request.band.sheddable() && !request.slo.is_empty();
        if counts && (in_time || self.could_be_in_time(now, request, (input_tokens, share))) {
            let mut held = self.held;
            held.over(now, in_time, &self.config.need, || self.load(now, self.demand.kept(now)));
            self.held = held;
        }
    }

    /// Whether an idle pod would have served a request in time: for one that none would, no number of pods is enough.
    fn could_be_in_time(
        &self,
        now: Time,
        request: &Request,
        (input_tokens, share): (u32, f64),
    ) -> bool {
        let idle_ms = self.idle_ttft_ms_of(input_tokens, share);
        judge::ttft_slo_ms(&request.slo).is_none_or(|objective| idle_ms <= objective)
            && judge::tpot_slo_ms(&request.slo)
                .is_none_or(|objective| self.can_keep(now, objective))
    }

    /// Whether a pod keeps a pace for a request alone. One that none keeps is not asked for.
    fn can_keep(&self, now: Time, tpot_ms: f64) -> bool {
        self.least_tpot_ms(&self.steps_in_use(now)) <= tpot_ms
    }
}

/// The part of a server that a pod of a class is.
fn part_of_server(class: &PodClass) -> f64 {
    1.0 / f64::from(class.data_parallel_size.max(1))
}

/// What a request asks of an engine.
fn work_of(request: &Request, input_tokens: u32, share: f64, output_tokens: u32) -> Work {
    let sizes = [f64::from(input_tokens), f64::from(output_tokens)];
    let sequences = f64::from(request.sequences.max(1));
    if request.prefilled {
        Work::loaded(sizes, sequences)
    } else {
        Work::of(sizes, share, sequences)
    }
}
