//! What is learned from of a pod's steps: time and work of the same ones.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use weir_core::{EndKind, Event, PodId, Progress, PromptSize, Pulse, RequestId, Time};
use weir_schema::{Predict, PredictError, Prediction, Row, Sample, Status, StepTime, Stride};
use world::{Priors, World, steps_are_shared};

const STEP: Duration = Duration::from_millis(20);

/// The default, which passes on what it is shown.
struct Shown(Priors, SyncSender<Stride>);

impl Predict for Shown {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.0.predict(rows, out)
    }

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.0.step_time(pod_class)
    }

    fn observe_stride(&mut self, stride: &Stride) {
        assert!(self.1.try_send(*stride).is_ok());
    }

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

/// A pod, one request that streams there, and what the predictor was shown.
struct Pod {
    world: World,
    pulse: Pulse,
    streams: RequestId,
    strides: Receiver<Stride>,
    shown: Vec<Stride>,
}

impl Pod {
    fn new() -> Self {
        let (shown, strides) = sync_channel(16);
        let predictor = Shown(Priors(StepTime::default(), Arc::default()), shown);
        let mut world = World::with(steps_are_shared(), 1, Box::new(predictor));
        let streams = ask(&mut world, 100);
        let pulse = Pulse { steps: 0, last_step_at: Time::ZERO };
        let mut pod = Self { world, pulse, streams, strides, shown: Vec::new() };
        pod.tell();
        pod.first_token(streams);
        pod
    }

    fn tell(&mut self) {
        let events = vec![(self.streams, self.pulse.steps as u32)];
        let pulses = vec![(PodId(0), self.pulse)];
        self.world.send(Event::Progress(Progress { events, pulses }));
    }

    /// A step ends in which a prompt is computed.
    fn first_token(&mut self, id: RequestId) {
        self.world.send(Event::FirstToken(id));
        self.step();
    }

    fn step(&mut self) {
        self.world.pass(STEP);
        self.pulse = Pulse { steps: self.pulse.steps + 1, last_step_at: self.world.now };
        self.tell();
    }

    fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    fn shown(&mut self) -> &[Stride] {
        self.shown.extend(self.strides.try_iter());
        &self.shown
    }
}

fn ask(world: &mut World, tokens: u32) -> RequestId {
    let id = world.arrive(|request| request.prompt = PromptSize::Tokens(tokens));
    assert!(world.pod_of(id).is_some());
    id
}

#[test]
fn the_time_in_which_a_pod_stood_idle_is_no_step() {
    let mut pod = Pod::new();
    pod.world.end(pod.streams, EndKind::Complete);
    pod.world.pass(Duration::from_secs(5));
    pod.tell();
    pod.streams = ask(&mut pod.world, 100);
    // It is told of while its prompt is computed, and no step was seen since.
    pod.tell();
    pod.first_token(pod.streams);
    pod.steps(8);
    let shown = pod.shown();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].steps, shown[0].busy_ms), (8.0, 160.0));
}

#[test]
fn a_stride_waits_for_the_prompt_that_is_half_computed() {
    let mut pod = Pod::new();
    pod.steps(6);
    let prompt = ask(&mut pod.world, 3000);
    pod.steps(4);
    assert!(pod.shown().is_empty(), "its time is in these steps, and its tokens are not yet");
    pod.first_token(prompt);
    let shown = pod.shown();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].steps, shown[0].prefill_tokens), (11.0, 3000.0));
}

#[test]
fn it_does_not_wait_for_one_that_is_not_begun_nor_for_ever() {
    let mut pod = Pod::new();
    pod.steps(7);
    pod.world.pass(STEP);
    pod.pulse = Pulse { steps: pod.pulse.steps + 1, last_step_at: pod.world.now };
    let stays = ask(&mut pod.world, 3000);
    pod.tell();
    assert_eq!(pod.shown().len(), 1, "the step that ended knew nothing of it");
    pod.steps(63);
    assert_eq!(pod.shown().len(), 1);
    pod.step();
    let shown = pod.shown();
    assert_eq!((shown.len(), shown[1].steps), (2, 64.0));
    pod.first_token(stays);
}
