//! A small pool for tests: the real scheduler over a predictor that always says the same.

use std::{sync::Arc, time::Duration};

use async_channel::Receiver;
use weir_core::{
    Bounds, Learned, NeedConfig, PodId, Policy, PromptSize, Request, RequestId, Scheduler,
    SchedulerConfig, Slo,
    learned::{ClassLearned, Lengths, PerEventLearned, Seen},
    need::Work,
    ratio::TokenRatio,
};
use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample, Status, StepTime,
    StepsLearned, Stride,
};

use super::Hub;
use crate::{clock::Clock, fleet::Pod};

/// Predicts 20 ms to the first token and 10 ms per token, whatever it is asked.
#[derive(Debug, Default)]
pub(crate) struct Flat;

impl Predict for Flat {
    fn predict(&mut self, _rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        out.fill(Prediction {
            ttft_ms: Quantiles { p50: 20.0, p90: 30.0 },
            tpot_ms: Quantiles { p50: 10.0, p90: 12.0 },
            ..Prediction::default()
        });
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, _pod_class: u16) -> StepTime {
        StepTime::default()
    }

    fn observe_stride(&mut self, _stride: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

/// A pool to be made.
pub(crate) struct Fixture {
    pub policy: Policy,
    pub bounds: Bounds,
    pub mailbox: usize,
    pub predictor: Box<dyn Predict>,
    pub samples: usize,
}

impl Default for Fixture {
    fn default() -> Self {
        Self {
            policy: Policy::LeastRequest,
            bounds: Bounds::default(),
            mailbox: 64,
            predictor: Box::new(Flat),
            samples: 64,
        }
    }
}

impl Fixture {
    pub(crate) fn hub(self) -> (Arc<Hub>, Receiver<Sample>) {
        let config = SchedulerConfig {
            policy: self.policy,
            bounds: self.bounds,
            ..SchedulerConfig::default()
        };
        let (sink, samples) = async_channel::bounded(self.samples);
        let model = config.model.clone();
        let scheduler = Scheduler::new(config, self.predictor);
        (Hub::with_mailbox(self.mailbox, scheduler, model, Clock::new(), sink), samples)
    }
}

pub(crate) fn pod(id: u32, authority: impl ToString) -> Arc<Pod> {
    Arc::new(Pod::new(PodId(id), format!("pod-{id}").into(), authority.to_string(), 0))
}

pub(crate) fn request(hub: &Hub, id: u64) -> Request {
    Request {
        max_output_tokens: Some(100),
        slo: Slo { ttft: Some(Duration::from_secs(2)), tpot: Some(Duration::from_millis(100)) },
        body_bytes: 400,
        ..Request::new(RequestId(id), hub.clock().now(), PromptSize::Tokens(100))
    }
}

/// Fails unless everything that was debited is credited and every request had one outcome.
#[track_caller]
pub(crate) fn assert_settled(hub: &Hub) {
    let seen = hub.snapshot();
    assert_eq!((seen.waiting, seen.waiting_bytes, seen.in_flight), (0, 0, 0), "{seen:?}");
    for pod in &seen.pods {
        assert_eq!((pod.residents, pod.pending, pod.kv_tokens), (0, 0, 0), "{pod:?}");
    }
    let counters = &seen.counters;
    let refused: u64 = counters.refused.iter().map(|(_, count)| count).sum();
    let outcomes = counters.completed + counters.failed + counters.client_gone + counters.cancelled;
    let (came, went) = (counters.arrived + counters.adopted, counters.handed_over);
    assert_eq!(came, outcomes + refused + went, "{counters:?}");
    assert_eq!(counters.ignored, 0, "{counters:?}");
    assert!(hub.idle());
}

/// Turns that everything else has between two looks, at most.
const MOST_TURNS: u32 = 64;

/// Returns once `done` says so, letting everything else on this thread go on meanwhile.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    let waiting = async {
        let mut turns = 1;
        // Where it takes long to find out, everything else would have a turn now and then only.
        while !done() {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            turns = MOST_TURNS.min(2 * turns);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect(what);
}

/// Some of everything that can be learned.
pub(crate) fn learned() -> Learned {
    let seen = Seen(vec![(12, 0.5), (300, 1.0)]);
    let steps = StepsLearned {
        multiples: [1.0; 5],
        covariance: [[0.1; 5]; 5],
        ceiling: [4.0; 5],
        usual_residual: 0.1,
        lean: -0.01,
        strides: 300,
        outside_ms: 5.5,
        outside_usual_ms: 1.5,
    };
    let per_event = PerEventLearned {
        single: vec![2.0],
        several: vec![],
        counted: vec![1.5, 1.0],
        events_per_step: 0.9,
        stepped: 9,
    };
    Learned {
        lengths: Lengths {
            input_edges: vec![1024],
            all: seen.clone(),
            any_tenant: vec![seen.clone(), Seen::default()],
            sizes: vec![(7, seen.clone())],
            tenants: vec![(Arc::from("t"), true, vec![Seen::default(), seen])],
        },
        ratio: TokenRatio::new(),
        need: NeedConfig::default(),
        held: 0.5,
        expected: Work { decodes: 9.0, ..Work::default() },
        actual: Work::default(),
        classes: vec![ClassLearned { name: Arc::from("c"), steps: Some(steps), per_event }],
    }
}
