//! A scheduler with a predictor that answers with the priors, and short ways to drive it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_core::{
    Action, Dispatch, End, EndKind, Event, PodId, PodSpec, PromptSize, Refusal, Request, RequestId,
    Scheduler, SchedulerConfig, Slo, Time,
};
use weir_schema::{
    Feature, Features, FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample,
    Status, StepTime, Stride,
};

/// Answers every row with its own priors, and counts the strides it is shown since it was to doubt them.
pub struct Priors(pub StepTime, pub Arc<AtomicUsize>);

impl Predict for Priors {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        for (row, prediction) in rows.iter().zip(out) {
            let features = Features(*row);
            let quantiles = |feature| {
                let p50 = features.get(feature);
                Quantiles { p50, p90: p50 * 1.2 }
            };
            prediction.ttft_ms = quantiles(Feature::PriorTtftMs);
            prediction.tpot_ms = quantiles(Feature::PriorTpotMs);
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, _pod_class: u16) -> StepTime {
        self.0
    }

    fn observe_stride(&mut self, _stride: &Stride) {
        self.1.fetch_add(1, Relaxed);
    }

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn doubt_steps(&mut self, _pod_class: u16) {
        self.1.store(0, Relaxed);
    }

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

/// A scheduler, its clock, and everything it has asked for.
pub struct World {
    pub scheduler: Scheduler,
    pub now: Time,
    pub dispatched: Vec<Dispatch>,
    pub refused: Vec<Refusal>,
    pub samples: Vec<Sample>,
    pub strides: Arc<AtomicUsize>,
    next: u64,
}

impl World {
    pub fn new(config: SchedulerConfig, pods: u32) -> Self {
        let strides = Arc::<AtomicUsize>::default();
        let priors = Priors(StepTime::default(), strides.clone());
        let world = Self::with(config, pods, Box::new(priors));
        Self { strides, ..world }
    }

    /// With a predictor of the test's own.
    pub fn with(config: SchedulerConfig, pods: u32, predictor: Box<dyn Predict>) -> Self {
        let scheduler = Scheduler::new(config, predictor);
        let mut world = Self {
            scheduler,
            now: Time::ZERO,
            dispatched: Vec::new(),
            refused: Vec::new(),
            samples: Vec::new(),
            strides: Arc::default(),
            next: 0,
        };
        (0..pods).for_each(|id| world.join(id, 1));
        world
    }

    /// A pod joins, of which so many in a row step together.
    pub fn join(&mut self, id: u32, engines: u32) {
        let name = Arc::from(format!("pod-{id}"));
        let group = (engines > 1).then(|| format!("group-{}", id / engines).into());
        self.send(Event::PodUp(PodSpec { id: PodId(id), name, class: 0, group }));
    }

    pub fn send(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.scheduler.handle(self.now, event, &mut actions);
        for action in actions {
            match action {
                Action::Dispatch(dispatch) => self.dispatched.push(dispatch),
                Action::Refuse(refusal) => self.refused.push(refusal),
                Action::Sample(sample) => self.samples.push(*sample),
            }
        }
    }

    /// Lets time pass as the server does: a tick every ten milliseconds.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while self.now < end {
            self.now = self.now.plus(weir_core::TICK);
            self.send(Event::Tick);
        }
    }

    pub fn arrive(&mut self, build: impl FnOnce(&mut Request)) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let mut request = request(id, self.now);
        build(&mut request);
        self.send(Event::Arrive(Box::new(request)));
        id
    }

    pub fn end(&mut self, id: RequestId, kind: EndKind) {
        let now = Some(self.now);
        let (output_tokens, events) = (Some(100), 0);
        let end = End { id, kind, output_tokens, events, prompt_tokens: None, last_token_at: now };
        self.send(Event::End(end));
    }

    pub fn pod_of(&self, id: RequestId) -> Option<PodId> {
        self.dispatched.iter().rev().find(|one| one.id == id).map(|one| one.pod)
    }
}

/// The default, but prompts may begin together with the same step: for tests of the other gates.
pub fn steps_are_shared() -> SchedulerConfig {
    let mut config = SchedulerConfig::default();
    config.pull.step_tokens = u32::MAX;
    config
}

/// A streamed request of 1000 tokens with objectives of 2 s and 50 ms.
pub fn request(id: RequestId, now: Time) -> Request {
    Request {
        max_output_tokens: Some(200),
        slo: slo(2000, 50),
        body_bytes: 4000,
        ..Request::new(id, now, PromptSize::Tokens(1000))
    }
}

pub fn slo(ttft_ms: u64, tpot_ms: u64) -> Slo {
    Slo { ttft: Some(Duration::from_millis(ttft_ms)), tpot: Some(Duration::from_millis(tpot_ms)) }
}
