//! Engines that put several tokens into an event: what is counted, labelled and judged is tokens.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{End, EndKind, Event, PodId, Progress, Pulse, RequestId, Scrape, Slo, Time};
use weir_schema::{Feature, Features, Sample, StepTime};
use world::{Priors, World, steps_are_shared};

const STEP: Duration = Duration::from_millis(40);

/// A pod and the streams that it answers with.
struct Pod {
    world: World,
    pulse: Pulse,
    streams: Vec<(RequestId, u32)>,
}

impl Pod {
    fn new(steps: StepTime) -> Self {
        let predictor = Priors(steps, Arc::default());
        let world = World::with(steps_are_shared(), 1, Box::new(predictor));
        let pulse = Pulse { steps: 0, last_step_at: Time::ZERO };
        Self { world, pulse, streams: Vec::new() }
    }

    /// One whose streams have shown that four tokens come with an event.
    fn speculating(steps: StepTime) -> Self {
        let mut pod = Self::new(steps);
        (0..8).for_each(|_| drop(pod.answer(100, Some(397))));
        pod
    }

    fn stream(&mut self) -> RequestId {
        self.stream_of(1)
    }

    fn stream_of(&mut self, sequences: u32) -> RequestId {
        let id = self.world.arrive(|request| {
            (request.slo, request.max_output_tokens) = (Slo::default(), None);
            request.sequences = sequences;
        });
        assert!(self.world.pod_of(id).is_some());
        self.world.send(Event::FirstToken(id));
        self.streams.push((id, 1));
        id
    }

    fn streams(&mut self, count: usize) {
        (0..count).for_each(|_| _ = self.stream());
    }

    /// Streams a whole answer in so many events, a step each.
    fn answer(&mut self, events: u32, usage: Option<u32>) -> Option<Sample> {
        let id = self.stream();
        self.ends(id, events, usage)
    }

    fn ends(&mut self, id: RequestId, events: u32, usage: Option<u32>) -> Option<Sample> {
        self.streams.pop();
        (1..events).for_each(|_| self.world.now = self.world.now.plus(STEP));
        self.world.send(Event::End(End {
            id,
            kind: EndKind::Complete,
            output_tokens: usage,
            events,
            prompt_tokens: None,
            last_token_at: Some(self.world.now),
        }));
        self.world.samples.pop()
    }

    /// A step ends that brings an event to some of the streams.
    fn step(&mut self, brings: impl Fn(u64, usize) -> bool) {
        self.world.pass(STEP);
        self.pulse = Pulse { steps: self.pulse.steps + 1, last_step_at: self.world.now };
        for (place, (_, events)) in self.streams.iter_mut().enumerate() {
            *events += u32::from(brings(self.pulse.steps, place));
        }
        let (events, pulses) = (self.streams.clone(), vec![(PodId(0), self.pulse)]);
        self.world.send(Event::Progress(Progress { events, pulses }));
    }

    fn tokens_per_step(&self) -> f64 {
        let seen = self.world.scheduler.snapshot(self.world.now);
        seen.pods.first().map_or(0.0, |pod| pod.tokens_per_step)
    }
}

#[test]
fn a_stream_without_usage_is_labelled_like_one_with_it() {
    let mut pod = Pod::speculating(StepTime::default());
    let with = pod.answer(100, Some(397)).unwrap();
    let without = pod.answer(100, None).unwrap();
    assert_eq!((with.output_tokens, with.tpot_ms), (397, Some(10.0)));
    assert_eq!((without.output_tokens, without.tpot_ms), (397, Some(10.0)));
    let dispatch = pod.world.dispatched.last().unwrap();
    assert_eq!((dispatch.tokens_per_event, dispatch.tokens(100)), (4.0, 397));
}

#[test]
fn where_a_token_is_an_event_nothing_is_multiplied() {
    let mut pod = Pod::new(StepTime::default());
    (0..100).for_each(|_| drop(pod.answer(100, Some(101))));
    let without = pod.answer(100, None).unwrap();
    assert_eq!((without.output_tokens, without.tpot_ms), (100, Some(40.0)));
    pod.streams(2);
    (0..100).for_each(|_| pod.step(|_, _| true));
    let seen = pod.world.scheduler.snapshot(pod.world.now);
    assert_eq!((seen.pods[0].tokens_per_event, seen.pods[0].tokens_per_step), (1.0, 1.0));
}

#[test]
fn several_sequences_teach_what_an_event_of_each_holds_and_are_counted_each() {
    let mut pod = Pod::new(StepTime::default());
    for _ in 0..8 {
        let id = pod.stream_of(4);
        pod.ends(id, 400, Some(4 * 397));
    }
    assert_eq!(pod.answer(100, None).unwrap().output_tokens, 397);
    let id = pod.stream_of(4);
    assert_eq!(pod.ends(id, 400, None).unwrap().output_tokens, 397, "of each");
    // Those of one sequence go before them.
    (0..8).for_each(|_| drop(pod.answer(100, Some(101))));
    assert_eq!(pod.answer(100, None).unwrap().output_tokens, 100);
}

#[test]
fn a_stream_is_counted_by_what_is_known_by_then_and_its_count_never_falls() {
    let mut pod = Pod::new(StepTime::default());
    let old = pod.stream();
    let tokens = |pod: &Pod| {
        let requests = &pod.world.scheduler.snapshot(pod.world.now).pods[0].requests;
        requests.iter().find(|one| one.id == old).map(|one| one.tokens).unwrap()
    };
    let mut before = 0;
    for turn in 0..40 {
        pod.step(|_, _| true);
        drop(pod.answer(100, Some(if turn < 20 { 397 } else { 101 })));
        assert!(tokens(&pod) > before, "{} after {before}", tokens(&pod));
        before = tokens(&pod);
    }
    assert_eq!(tokens(&pod), 161, "four with each of forty events");
}

/// A pod that says how many tokens it has generated, and whose streams never say it.
struct Telling {
    pod: Pod,
    generated: u64,
    running: u32,
    shared: bool,
}

impl Telling {
    fn new(streams: u32) -> Self {
        let mut pod = Pod::new(steep());
        pod.streams(streams as usize);
        Self { pod, generated: u64::from(streams), running: streams, shared: false }
    }

    /// Steps that bring four tokens to each stream, with a scrape after each.
    fn steps(&mut self, steps: u32) {
        for _ in 0..steps {
            self.pod.step(|_, _| true);
            self.generated += 4 * self.pod.streams.len() as u64;
            let (generated, running, shared) = (Some(self.generated), self.running, self.shared);
            let scrape = Scrape { running, generated, shared, ..Scrape::default() };
            self.pod.world.send(Event::Scraped(PodId(0), scrape));
        }
    }

    fn tokens_per_event(&self) -> f64 {
        let seen = self.pod.world.scheduler.snapshot(self.pod.world.now);
        seen.pods.first().map_or(0.0, |pod| pod.tokens_per_event)
    }
}

#[test]
fn where_no_stream_carries_usage_a_pods_own_count_of_tokens_tells() {
    let mut telling = Telling::new(3);
    telling.steps(100);
    assert_eq!(telling.tokens_per_event(), 1.0, "two stretches");
    assert!(!joins(&mut telling.pod), "a token a step");
    let id = telling.pod.world.scheduler.waiting_ids()[0];
    telling.pod.world.send(Event::Cancel(id));
    telling.steps(100);
    assert_eq!(telling.tokens_per_event(), 4.0);
    assert!((telling.pod.tokens_per_step() - 4.0).abs() < 0.1, "what was seen of steps counts");
    assert!(joins(&mut telling.pod), "four tokens a step");
}

#[test]
fn a_count_that_others_have_a_part_in_tells_nothing() {
    let mut beside = Telling::new(3);
    beside.running = 4;
    beside.steps(1000);
    assert_eq!(beside.tokens_per_event(), 1.0, "one that another dispatcher sent");

    let mut beside = Telling::new(3);
    beside.shared = true;
    beside.steps(1000);
    assert_eq!(beside.tokens_per_event(), 1.0, "a pod of several pools");

    let mut beside = Telling::new(3);
    let silent = beside.pod.world.arrive(|request| request.streamed = false);
    beside.running = 4;
    beside.steps(1000);
    assert_eq!(beside.tokens_per_event(), 1.0, "a response that is not streamed");
    beside.pod.world.end(silent, EndKind::Complete);
    beside.running = 3;
    beside.steps(200);
    assert_eq!(beside.tokens_per_event(), 4.0, "once it is over");
}

#[test]
fn the_ledger_holds_the_tokens_of_a_stream_and_not_its_events() {
    let mut pod = Pod::speculating(StepTime::default());
    let id = pod.stream();
    let before = pod.world.scheduler.snapshot(pod.world.now).pods[0].kv_tokens;
    (0..25).for_each(|_| pod.step(|_, _| true));
    let seen = pod.world.scheduler.snapshot(pod.world.now);
    assert_eq!(seen.pods[0].kv_tokens - before, 100);
    let seen = &seen.pods[0].requests[0];
    assert_eq!((seen.id, seen.tokens, seen.tpot_ms), (id, 101, Some(10.0)));
}

#[test]
fn lengths_are_learned_in_tokens() {
    let mut pod = Pod::speculating(StepTime::default());
    (0..200).for_each(|_| drop(pod.answer(100, None)));
    let id = pod.stream();
    pod.world.end(id, EndKind::Complete);
    let row = Features(pod.world.samples.pop().unwrap().row);
    let expected = row.get(Feature::ExpectedOutputTokens);
    assert!((330.0..470.0).contains(&expected), "{expected}");
}

/// A step of two takes 36 ms, one of four 52.
fn steep() -> StepTime {
    StepTime { base_ms: 20.0, per_decode_ms: 8.0, per_kv_ms: 0.0, ..StepTime::default() }
}

/// Whether one with an objective of 50 ms a token may join three streams.
fn joins(pod: &mut Pod) -> bool {
    let tpot = Some(Duration::from_millis(50));
    let id = pod.world.arrive(|request| request.slo = Slo { ttft: None, tpot });
    pod.world.pod_of(id).is_some()
}

#[test]
fn a_pace_is_what_a_token_takes_and_not_what_a_step_takes() {
    let mut pod = Pod::new(steep());
    pod.streams(3);
    (0..400).for_each(|_| pod.step(|_, _| true));
    assert!(!joins(&mut pod), "a token a step");

    let mut pod = Pod::speculating(steep());
    pod.streams(3);
    (0..400).for_each(|_| pod.step(|_, _| true));
    assert!((pod.tokens_per_step() - 4.0).abs() < 0.1, "{}", pod.tokens_per_step());
    assert!(joins(&mut pod), "four tokens a step");
    let tpot_ms = pod.world.dispatched.last().unwrap().prediction.tpot_ms.p50;
    assert!((tpot_ms - 13.0).abs() < 0.5, "{tpot_ms}");
}

#[test]
fn what_is_kept_back_for_four_steps_is_no_four_tokens_a_step() {
    let mut pod = Pod::speculating(steep());
    pod.streams(3);
    // An event of four tokens each four steps, never of all streams at once.
    (0..400).for_each(|_| pod.step(|step, place| step % 4 == place as u64));
    assert!(pod.tokens_per_step() < 1.1, "{}", pod.tokens_per_step());
    assert!(!joins(&mut pod));
}
