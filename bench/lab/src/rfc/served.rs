//! The scheduler that serves, in the RFC's world: its decisions with the RFC's capacities.
//!
//! A request's prompt has a token for each millisecond of its latency, its answer is one token and its TTFT is its whole time, so that
//! TTFT objective and prediction are the RFC's objective and latency. The profile says what a pattern takes of a pod.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use anyhow::Result;
use weir_core::{
    Action, Bounds, BucketEdges, End, EndKind, Event, PodClass, PodId, PodSpec, PromptSize,
    PullConfig, Request, RequestId, Rules, Scheduler, SchedulerConfig, Slo, Time,
};
use weir_schema::{
    Feature, Features, FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample,
    Status, StepTime, Stride,
};

use super::{
    setup::{Kind, SetUp},
    world::{Decide, Start, World},
};

/// Longer than any request waits.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// The scheduler, and what it gave out that the world has not asked for yet.
pub(super) struct Served {
    scheduler: Scheduler,
    actions: Vec<Action>,
    starts: VecDeque<Start>,
}

impl Served {
    /// The scheduler with these rules in front of the consumers of a set-up.
    pub(super) fn new(set_up: &SetUp, rules: Rules) -> Result<Self> {
        let kinds = set_up.kinds();
        let class = |kind: &Kind| PodClass {
            name: Arc::from(format!("speed {}, size {}", kind.speed, kind.size)),
            chunk_tokens: u32::MAX,
            ..PodClass::default()
        };
        let mut edges: Vec<u32> = set_up.patterns.iter().map(SetUp::tokens).collect();
        edges.sort_unstable();
        edges.dedup();
        let bounds = Bounds {
            max_requests: usize::MAX,
            max_bytes: u64::MAX,
            max_wait: FOR_EVER,
            max_wait_late: FOR_EVER,
            ..Bounds::default()
        };
        let config = SchedulerConfig {
            rules: Some(rules),
            classes: kinds.iter().map(class).collect(),
            profiles: set_up.profiles()?,
            buckets: BucketEdges { input: edges, output: Vec::new() },
            bounds,
            // Latencies are exact here.
            pull: PullConfig { hopeless_factor: 1.0, ..PullConfig::default() },
            ..SchedulerConfig::default()
        };
        let mut scheduler = Scheduler::new(config, Box::new(Known { kinds }));
        let mut actions = Vec::new();
        for (id, class) in (0..).zip(set_up.classes()) {
            let name = Arc::from(format!("consumer-{id}"));
            let spec = PodSpec { id: PodId(id), name, class, group: None };
            scheduler.handle(Time::ZERO, Event::PodUp(spec), &mut actions);
        }
        Ok(Self { scheduler, actions, starts: VecDeque::new() })
    }

    fn tell(&mut self, now_s: f64, event: Event) {
        self.scheduler.handle(time(now_s), event, &mut self.actions);
        self.starts.extend(self.actions.drain(..).filter_map(|action| match action {
            Action::Dispatch(to) => Some((to.id.0 as usize, to.pod.0 as usize)),
            Action::Refuse(_) | Action::Sample(_) => None,
        }));
    }
}

impl Decide for Served {
    fn arrive(&mut self, now_s: f64, request: usize, world: &World<'_>) {
        let pattern = world.arrivals.get(request);
        let pattern = pattern.and_then(|one| world.set_up.patterns.get(one.pattern));
        let Some(pattern) = pattern else { return };
        let tokens = SetUp::tokens(pattern);
        let request = Request {
            max_output_tokens: Some(1),
            slo: Slo { ttft: Some(Duration::from_secs_f64(pattern.slo_s)), tpot: None },
            ..Request::new(RequestId(request as u64), time(now_s), PromptSize::Tokens(tokens))
        };
        self.tell(now_s, Event::Arrive(Box::new(request)));
    }

    fn ended(&mut self, now_s: f64, request: usize, _: &World<'_>) {
        self.tell(
            now_s,
            Event::End(End {
                id: RequestId(request as u64),
                kind: EndKind::Complete,
                output_tokens: Some(1),
                events: 0,
                prompt_tokens: None,
                last_token_at: Some(time(now_s)),
            }),
        );
    }

    fn next(&mut self, _: f64, _: &World<'_>) -> Option<Start> {
        self.starts.pop_front()
    }
}

fn time(now_s: f64) -> Time {
    Time::from_micros((now_s * 1e6).round() as u64)
}

/// Knows what a request takes: a millisecond for each token of its prompt, less on a faster pod.
#[derive(Debug)]
struct Known {
    kinds: Vec<Kind>,
}

impl Known {
    fn per_token_ms(&self, class: usize) -> f64 {
        self.kinds.get(class).map_or(1.0, |kind| kind.speed.recip())
    }
}

impl Predict for Known {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        for (row, prediction) in rows.iter().zip(out) {
            let row = Features(*row);
            let class = row.get(Feature::PodClass) as usize;
            let ms = f64::from(row.get(Feature::InputTokens)) * self.per_token_ms(class);
            let ttft_ms = Quantiles { p50: ms as f32, p90: ms as f32 };
            *prediction = Prediction { ttft_ms, ..Prediction::default() };
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        StepTime {
            base_ms: 0.0,
            per_decode_ms: 0.0,
            per_kv_ms: 0.0,
            per_prefill_ms: self.per_token_ms(usize::from(pod_class)),
            per_pair_ms: 0.0,
            api_ms: 0.0,
            steps_per_token: 1.0,
        }
    }

    fn observe_stride(&mut self, _: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}
