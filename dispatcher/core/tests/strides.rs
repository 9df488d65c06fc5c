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

use weir_core::{
    End, EndKind, Event, PodId, Progress, PromptSize, Pulse, RequestId, Scrape, Slo, TICK, Time,
};
use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Row, Sample, Status, StepTime, Stride,
};
use world::{Priors, World, steps_are_shared};

const STEP: Duration = Duration::from_millis(20);

/// The default, which passes on what it is shown.
struct Shown(Priors, SyncSender<Stride>, SyncSender<FirstToken>);

impl Predict for Shown {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.0.predict(rows, out)
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.0.step_time(pod_class)
    }

    fn observe_stride(&mut self, stride: &Stride) {
        assert!(self.1.try_send(*stride).is_ok());
    }

    fn observe_first_token(&mut self, first: &FirstToken) {
        let _ = self.2.try_send(*first);
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
    first_tokens: Receiver<FirstToken>,
}

impl Pod {
    fn new() -> Self {
        let (shown, strides) = sync_channel(16);
        let (first, first_tokens) = sync_channel(16);
        let predictor = Shown(Priors(StepTime::default(), Arc::default()), shown, first);
        let mut world = World::with(steps_are_shared(), 1, Box::new(predictor));
        let streams = ask(&mut world, 100);
        let pulse = Pulse { steps: 0, last_step_at: Time::ZERO };
        let mut pod = Self { world, pulse, streams, strides, shown: Vec::new(), first_tokens };
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
fn nothing_is_learned_of_what_the_dispatcher_stood_still_for() {
    let mut pod = Pod::new();
    pod.steps(4);
    let under_way = ask(&mut pod.world, 100);
    pod.world.now = pod.world.now.plus(Duration::from_secs(5));
    pod.world.send(Event::StoodStill);
    pod.first_token(under_way);
    pod.steps(8);
    for id in [under_way, pod.streams] {
        pod.world.end(id, EndKind::Complete);
    }
    assert!(pod.world.samples.is_empty(), "{:?}", pod.world.samples);
    assert!(pod.shown().iter().all(|stride| stride.busy_ms == stride.steps * 20.0));

    pod.streams = ask(&mut pod.world, 100);
    // A pod that stands still does so for everybody.
    pod.world.pass(Duration::from_secs(5));
    pod.first_token(pod.streams);
    pod.world.end(pod.streams, EndKind::Complete);
    assert_eq!(pod.world.samples.len(), 1);
    assert_eq!(pod.world.samples[0].ttft_ms, Some(5000.0));
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

/// Chunks that come so soon after the one before belong to the same step, as the server has it.
const SAME_STEP: Duration = Duration::from_millis(2);
const ENGINE_STEP: Duration = Duration::from_millis(40);

/// A stream, its events so far and its length.
type Answer = (RequestId, u32, u32);

/// Engines behind one port, each of which brings a token to each of its streams every 40 ms, out of phase.
struct Engines {
    world: World,
    strides: Receiver<Stride>,
    pulse: Pulse,
    /// When each steps next, and what it answers.
    engines: Vec<(Time, Vec<Answer>)>,
}

impl Engines {
    fn new(count: u32, streams: u32, tokens: u32) -> Self {
        let (shown, strides) = sync_channel(100_000);
        let (first, _first_tokens) = sync_channel(64);
        let predictor = Shown(Priors(StepTime::default(), Arc::default()), shown, first);
        let mut world = World::with(steps_are_shared(), 1, Box::new(predictor));
        let scrape = Scrape { engines: count, ..Scrape::default() };
        world.send(Event::Scraped(PodId(0), scrape));
        let phase = |engine| Time::ZERO.plus(ENGINE_STEP * engine / count);
        let pulse = Pulse { steps: 0, last_step_at: Time::ZERO };
        let engines = (0..count).map(|engine| (phase(engine), Vec::new())).collect();
        let mut all = Self { world, strides, pulse, engines };
        for engine in 0..all.engines.len() {
            // They end at different times.
            (0..streams).for_each(|place| all.begin(engine, tokens + 7 * place));
        }
        all
    }

    fn begin(&mut self, engine: usize, tokens: u32) {
        let id = self.world.arrive(|request| {
            (request.prompt, request.slo) = (PromptSize::Tokens(10), Slo::default());
        });
        assert!(self.world.pod_of(id).is_some());
        self.world.send(Event::FirstToken(id));
        if let Some((_, streams)) = self.engines.get_mut(engine) {
            streams.push((id, 1, tokens));
        }
    }

    /// A millisecond passes.
    fn pass(&mut self, sweeps: bool) {
        let now = self.world.now.plus(Duration::from_millis(1));
        self.world.now = now;
        let mut over = Vec::new();
        for (engine, (next, streams)) in self.engines.iter_mut().enumerate() {
            if now < *next {
                continue;
            }
            *next = next.plus(ENGINE_STEP);
            streams.iter_mut().for_each(|(_, events, _)| *events += 1);
            let same = now.since(self.pulse.last_step_at) <= SAME_STEP;
            self.pulse = Pulse { steps: self.pulse.steps + u64::from(!same), last_step_at: now };
            let done = streams.extract_if(.., |(_, events, tokens)| events >= tokens);
            over.extend(done.map(|(id, events, _)| (engine, id, events)));
        }
        for (engine, id, events) in over {
            let (kind, output_tokens) = (EndKind::Complete, None);
            let (prompt_tokens, last_token_at) = (None, Some(now));
            let end = End { id, kind, output_tokens, events, prompt_tokens, last_token_at };
            self.world.send(Event::End(end));
            self.begin(engine, 12);
        }
        if sweeps {
            let streams = self.engines.iter().flat_map(|(_, streams)| streams);
            let events = streams.map(|(id, events, _)| (*id, *events)).collect();
            let pulses = vec![(PodId(0), self.pulse)];
            self.world.send(Event::Progress(Progress { events, pulses }));
        }
    }

    /// Steps and their time, over half a minute.
    fn learned_ms(&mut self) -> f64 {
        let tick = TICK.as_millis() as u64;
        (0..30_000).for_each(|turn| self.pass(turn % tick == 0));
        let sums = self.strides.try_iter().fold((0.0, 0.0), |(steps, busy_ms), stride| {
            (steps + stride.steps, busy_ms + stride.busy_ms)
        });
        sums.1 / sums.0
    }
}

#[test]
fn engines_behind_one_port_take_as_long_for_a_step_as_one_of_them() {
    // Sixteen of them step so often that the pulse runs together.
    for (engines, streams) in [(1, 8), (2, 4), (4, 4), (4, 1), (16, 2)] {
        let step_ms = Engines::new(engines, streams, 30).learned_ms();
        let off = (step_ms / 40.0 - 1.0).abs();
        assert!(off < 0.02, "{engines} engines of {streams} streams: {step_ms}");
    }
}

#[test]
fn a_first_token_shows_what_is_paid_beside_the_steps_that_were_thought_of() {
    let mut pod = Pod::new();
    let lone = pod.first_tokens.recv().unwrap();
    let steps = StepTime::default();
    // A step and a half before it, and its own.
    let steps_ms = 2.5 * steps.base_ms + steps.prefill_ms(100.0, 5000.0);
    assert!((lone.steps_ms - steps_ms).abs() < 0.01, "{lone:?} {steps_ms}");
    assert_eq!((lone.pod_class, lone.measured_ms), (0, 0.0));

    let id = ask(&mut pod.world, 100);
    pod.steps(3);
    pod.first_token(id);
    assert_eq!(pod.first_tokens.recv().unwrap().measured_ms, 60.0);

    // Of what came while the dispatcher stood still nobody knows when it did.
    let under_way = ask(&mut pod.world, 100);
    pod.world.now = pod.world.now.plus(Duration::from_secs(5));
    pod.world.send(Event::StoodStill);
    pod.first_token(under_way);
    assert!(pod.first_tokens.try_recv().is_err());
}
