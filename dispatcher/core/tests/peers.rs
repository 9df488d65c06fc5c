//! What other dispatchers get wrong, each with its source: here it is right. The list is in
//! docs/policies.md; bugs of a policy's own parts are tested beside those parts.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use weir_core::{Band, EndKind, Event, PodClass, PodId, PodSpec, Policy, SchedulerConfig, Slo};
use weir_schema::{
    Feature, Features, FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample,
    Status, StepTime, Stride,
};
use world::World;

/// Predicts 10 ms per token, and a TTFT by what the row says; notes the longest batch.
struct ByRow {
    ttft_ms: Box<dyn Fn(&Features) -> f32 + Send>,
    longest: Arc<AtomicUsize>,
}

impl Predict for ByRow {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.longest.fetch_max(rows.len(), Relaxed);
        for (row, prediction) in rows.iter().zip(out) {
            let ttft_ms = (self.ttft_ms)(&Features(*row));
            prediction.ttft_ms = Quantiles { p50: ttft_ms, p90: ttft_ms };
            prediction.tpot_ms = Quantiles { p50: 10.0, p90: 12.0 };
        }
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

/// A pool of so many pods of class 0 and, last, one of class 1; and the longest batch.
fn by_class(policy: Policy, pods: u32, [of_most, of_last]: [f32; 2]) -> (World, Arc<AtomicUsize>) {
    let classes = vec![PodClass::default(), PodClass::default()];
    let config = SchedulerConfig { policy, classes, ..SchedulerConfig::default() };
    let longest = Arc::<AtomicUsize>::default();
    let ttft_ms = Box::new(move |row: &Features| match row.get(Feature::PodClass) {
        0.0 => of_most,
        _ => of_last,
    });
    let predictor = ByRow { ttft_ms, longest: longest.clone() };
    let mut world = World::with(config, pods, Box::new(predictor));
    world.send(Event::PodUp(PodSpec {
        id: PodId(pods),
        name: "other".into(),
        class: 1,
        group: None,
    }));
    (world, longest)
}

/// llm-d, MaxBulkSize: "a pool of >100 endpoints gets no prediction at all".
#[test]
fn a_pool_of_more_than_a_hundred_pods_is_predicted_like_any_other() {
    let (mut world, longest) = by_class(Policy::LlumnixSlo, 150, [100.0, 50.0]);
    let id = world.arrive(|_| {});
    assert_eq!(longest.load(Relaxed), 151, "every pod is asked about");
    assert_eq!(world.pod_of(id), Some(PodId(150)), "the fastest is the last");
}

/// llm-d, /predict/bulk/strict: "one failed row fails the batch".
#[test]
fn a_row_without_an_answer_takes_no_prediction_from_the_other_pods() {
    for odd in [f32::NAN, f32::INFINITY, -1.0] {
        let (mut world, _) = by_class(Policy::PredictedLatency, 2, [100.0, odd]);
        for _ in 0..20 {
            let id = world.arrive(|_| {});
            assert!(world.pod_of(id).is_some_and(|pod| pod < PodId(2)), "unknown is never best");
            assert_eq!(world.dispatched.last().unwrap().prediction.ttft_ms.p50, 100.0);
            world.send(Event::FirstToken(id));
            world.end(id, EndKind::Complete);
        }
    }
}

fn expected_tokens(sample: &Sample) -> f32 {
    Features(sample.row).get(Feature::ExpectedOutputTokens)
}

/// AIBrix: "TokenLength() calls Predict each time; Enqueue, rank, consumption and accounting can each
/// see a different length"; a cold prediction is 1 token.
#[test]
fn the_output_length_is_predicted_once_and_stays_what_it_was() {
    let policy = Policy::PatternPull;
    let config = SchedulerConfig { policy, default_capacity: 1.0, ..SchedulerConfig::default() };
    let mut world = World::new(config, 1);
    let mut running = world.arrive(|request| request.max_output_tokens = None);
    let waiting = world.arrive(|request| request.max_output_tokens = None);
    for _ in 0..60 {
        let next = world.arrive(|request| {
            request.max_output_tokens = None;
            request.band = Band(1);
        });
        world.send(Event::FirstToken(running));
        world.end(running, EndKind::Complete);
        running = next;
    }
    assert_eq!(world.pod_of(waiting), None, "the others were of a higher band");
    world.send(Event::FirstToken(running));
    world.end(running, EndKind::Complete);
    world.send(Event::FirstToken(waiting));
    world.end(waiting, EndKind::Complete);
    let [first, .., latest, waited] = &world.samples[..] else { panic!("{:?}", world.samples) };
    assert_eq!(expected_tokens(first), 256.0, "cold: a guess, not one token");
    assert!((90.0..=110.0).contains(&expected_tokens(latest)), "all had 100");
    assert_eq!(expected_tokens(waited), 256.0, "as on its arrival");
}

/// llm-d: "TPOT training row mixes kv/waiting at *last token* with running/tif at *dispatch*; prediction
/// uses dispatch values -> train/serve skew".
#[test]
fn the_row_of_a_sample_is_the_one_that_its_prediction_was_made_from() {
    let in_flight = |row: &Features| row.get(Feature::PrefillTokensInFlight) + 1.0;
    let predictor = ByRow { ttft_ms: Box::new(in_flight), longest: Arc::default() };
    let config = SchedulerConfig { policy: Policy::PredictedLatency, ..SchedulerConfig::default() };
    let mut world = World::with(config, 1, Box::new(predictor));
    let ids: Vec<_> = (0..5).map(|_| world.arrive(|_| {})).collect();
    for id in &ids {
        world.send(Event::FirstToken(*id));
    }
    for id in ids {
        world.end(id, EndKind::Complete);
    }
    let stated: Vec<f32> = world.samples.iter().map(|one| one.predicted.ttft_ms.p50).collect();
    assert_eq!(stated, [1.0, 1001.0, 2001.0, 3001.0, 4001.0], "each behind those before it");
    let logged: Vec<f32> = world.samples.iter().map(|one| in_flight(&Features(one.row))).collect();
    assert_eq!(logged, stated, "as it was at the decision, not at the end");
}

/// llm-d, contextTTL: "requests longer than 5 min are dropped from bookkeeping and never train".
#[test]
fn a_stream_of_ten_minutes_is_booked_to_its_end_and_is_a_sample() {
    let mut world = World::new(SchedulerConfig::default(), 1);
    let id = world.arrive(|_| {});
    world.send(Event::FirstToken(id));
    world.now = world.now.plus(Duration::from_secs(600));
    world.send(Event::Tick);
    assert_eq!(world.scheduler.snapshot(world.now).pods[0].residents, 1);
    world.end(id, EndKind::Complete);
    assert_eq!(world.scheduler.snapshot(world.now).pods[0].residents, 0);
    assert!(world.samples[0].tpot_ms.is_some_and(|ms| ms > 6000.0), "{:?}", world.samples);
}

/// Both policies of a pool, with every part, in the snapshot.
#[test]
fn the_snapshot_has_the_policies_in_force_and_not_only_a_name() {
    let mut rules = Policy::PredictedLatency.rules();
    rules.seed = 7;
    let config = SchedulerConfig {
        policy: Policy::PredictedLatency,
        rules: Some(rules.clone()),
        rules_by_header: Some(Policy::FlowControl.rules()),
        ..SchedulerConfig::default()
    };
    let shown = World::new(config, 1).scheduler.snapshot(weir_core::Time::ZERO);
    assert_eq!((shown.policy, &shown.rules), (Policy::PredictedLatency, &rules));
    assert_eq!(shown.rules_by_header, Some(Policy::FlowControl.rules()));
    let config = SchedulerConfig { policy: Policy::Random, ..SchedulerConfig::default() };
    let shown = World::new(config, 1).scheduler.snapshot(weir_core::Time::ZERO);
    assert_eq!((shown.rules, shown.rules_by_header), (Policy::Random.rules(), None));
}

/// Llumnix compares what a request has waited and what it will take with a threshold, whoever promised what.
#[test]
fn who_is_promised_no_first_token_does_not_wait_in_vain_because_it_has_waited() {
    let config = SchedulerConfig { policy: Policy::LlumnixSlo, ..SchedulerConfig::default() };
    let mut world = World::new(config, 0);
    let waited = world.arrive(|request| request.slo = Slo::default());
    world.pass(Duration::from_secs(8));
    world.send(Event::PodUp(PodSpec { id: PodId(0), name: "pod-0".into(), class: 0, group: None }));
    assert_eq!(world.pod_of(waited), Some(PodId(0)));
}
