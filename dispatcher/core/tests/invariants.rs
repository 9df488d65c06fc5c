//! The invariants of DESIGN.md as properties: random interleavings of everything that can happen,
//! held against a naive model after every step. Below them, a test for each bug they found.
//!
//! `WEIR_PROPTEST_CASES` sets how many cases run over all properties; 10,000 when it is not set.

mod naive;

use std::time::Duration;

use naive::{
    moody::Mood,
    steps::{self, Case},
    toy::{Load, Pool},
    watched::Watched,
};
use proptest::prelude::*;
use weir_core::{
    Band, Control, EndKind, Event, Gate, HeadRule, Phase, PodId, Policy, Progress, PromptSize,
    Reason, RefusalReason, Request, SchedulerConfig,
};

/// Steps of the longest interleaving.
const LENGTH: usize = 60;

const EVERY_RULE: &[(Policy, HeadRule)] = &[
    (Policy::Weir, HeadRule::Auto),
    (Policy::Weir, HeadRule::Strict),
    (Policy::Weir, HeadRule::Claims),
    (Policy::RoundRobin, HeadRule::Auto),
    (Policy::LeastRequest, HeadRule::Auto),
];

const HOLDING: &[(Policy, HeadRule)] = &[
    (Policy::Weir, HeadRule::Auto),
    (Policy::Weir, HeadRule::Strict),
    (Policy::Weir, HeadRule::Claims),
];

/// A property's share of all cases, in percent.
fn share(percent: u32) -> ProptestConfig {
    let all = std::env::var("WEIR_PROPTEST_CASES").ok().and_then(|all| all.parse().ok());
    let cases = (all.unwrap_or(10_000u32) / 100 * percent).max(1);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn watch(case: &Case) {
    let mut watched = Watched::new(case.config.clone(), case.mood);
    steps::play(case, &mut watched);
}

fn log(case: &Case) -> Vec<String> {
    let mut watched = Watched::new(case.config.clone(), case.mood);
    watched.log = Some(Vec::new());
    steps::play(case, &mut watched);
    watched.log.unwrap_or_default()
}

proptest! {
    #![proptest_config(share(54))]
    #[test]
    fn whatever_happens_in_whatever_order_the_invariants_hold(
        case in steps::cases(EVERY_RULE, Just(Mood::Sound), LENGTH),
    ) {
        watch(&case);
    }
}

proptest! {
    #![proptest_config(share(25))]
    #[test]
    fn a_predictor_that_fails_in_any_way_stops_nothing(
        case in steps::cases(HOLDING, steps::failing(), LENGTH),
    ) {
        watch(&case);
    }
}

proptest! {
    #![proptest_config(share(10))]
    #[test]
    fn the_same_events_give_the_same_actions(
        case in steps::cases(EVERY_RULE, prop_oneof![Just(Mood::Sound), steps::failing()], LENGTH),
    ) {
        prop_assert_eq!(log(&case), log(&case));
    }
}

proptest! {
    #![proptest_config(share(10))]
    #[test]
    fn an_operator_who_looks_at_everything_changes_nothing(
        case in steps::cases(EVERY_RULE, Just(Mood::Sound), LENGTH),
    ) {
        let mut watched = Watched::new(case.config.clone(), case.mood);
        watched.curious = true;
        watched.log = Some(Vec::new());
        steps::play(&case, &mut watched);
        prop_assert_eq!(log(&case), watched.log.unwrap_or_default());
    }
}

proptest! {
    #![proptest_config(share(1))]
    #[test]
    fn at_twice_the_load_the_high_band_keeps_its_objectives_and_batch_work_is_refused(
        pods in 1..=4u32,
        input_tokens in 300..1200u32,
        output_tokens in 20..80u32,
        tpot_slo_ms in 60.0..90.0f64,
        seed in any::<u64>(),
    ) {
        let load = Load {
            pods,
            input_tokens,
            output_tokens,
            ttft_slo_ms: 2000.0,
            tpot_slo_ms,
            times_capacity: 2.0,
            requests: 500,
            seed,
        };
        let [high, batch] = Pool::serve(load, SchedulerConfig::default());
        prop_assert!(high.kept_share() >= 0.95, "I6: {:?} {:?}", high, batch);
        // Pods of short prompts carry more than the pool's reckoned capacity: what is kept in time need not be refused.
        let spared = batch.refused_share() >= 0.1 || batch.kept_share() >= 0.85;
        prop_assert!(spared, "I6: {:?} {:?}", high, batch);
    }
}

fn pods(count: u32) -> Watched {
    let mut watched = Watched::new(SchedulerConfig::default(), Mood::Sound);
    (0..count).for_each(|id| watched.pod_up(id, 0));
    watched
}

/// No pod can serve it in time, and it is not sheddable.
fn hopeless(request: &mut Request) {
    request.slo.ttft = Some(Duration::from_millis(10));
}

#[test]
fn an_answer_that_is_no_number_is_replaced_by_the_prior() {
    let mut watched = Watched::new(SchedulerConfig::default(), Mood::NotANumber);
    watched.pod_up(0, 0);
    let id = watched.arrive(|request| request.streamed = false);
    let assumed = watched.naive.tales[&id].stay().unwrap().assumed;
    assert!(assumed > watched.now, "its first token is expected when the prior says");
}

#[test]
fn a_late_request_that_comes_back_says_that_it_is_late() {
    let mut watched = pods(1);
    let id = watched.arrive(hopeless);
    watched.send(Event::Undelivered(id));
    assert_eq!(watched.scheduler.reason(id), Some(Reason::Late));
}

#[test]
fn a_pool_that_never_had_a_pod_refuses_after_the_wait_for_one() {
    let mut watched = pods(0);
    watched.arrive(|_| {});
    watched.pass(Duration::from_secs(15));
    assert_eq!(watched.refused[0].reason, RefusalReason::NoPods);
}

#[test]
fn a_pod_that_recovers_is_open_to_what_was_in_flight_elsewhere_meanwhile() {
    let mut watched = pods(2);
    let id = watched.arrive(|_| {});
    let first = watched.pod_of(id).unwrap();
    watched.send(Event::Undelivered(id));
    watched.send(Event::PodPhase(first, Phase::Broken));
    watched.send(Event::PodPhase(first, Phase::Ready));
    watched.send(Event::Undelivered(id));
    assert_eq!(watched.pod_of(id), Some(first));
}

#[test]
fn a_count_that_comes_before_its_first_token_is_kept() {
    let mut watched = pods(1);
    let id = watched.arrive(|_| {});
    watched.send(Event::Progress(Progress { events: vec![(id, 57)], pulses: vec![] }));
    assert_eq!(watched.scheduler.snapshot(watched.now).pods[0].kv_tokens, 1057);
}

#[test]
fn the_largest_count_there_is_does_not_overflow() {
    let mut watched = pods(1);
    let id = watched.arrive(|_| {});
    watched.send(Event::FirstToken(id));
    watched.send(Event::Progress(Progress { events: vec![(id, u32::MAX)], pulses: vec![] }));
    watched.send(Event::End(steps::end(id, EndKind::Complete, None, None, watched.now)));
    assert_eq!(watched.scheduler.in_flight(), 0);
}

#[test]
fn a_late_request_does_not_wait_for_a_head_that_has_no_pod_left() {
    let mut watched = pods(1);
    let stuck = watched.arrive(|_| {});
    watched.send(Event::Undelivered(stuck));
    let late = watched.arrive(hopeless);
    assert_eq!(watched.pod_of(late), Some(PodId(0)));
}

#[test]
fn a_late_request_does_not_wait_for_a_late_one_that_has_no_pod_left() {
    let mut watched = pods(1);
    let stuck = watched.arrive(hopeless);
    watched.send(Event::Undelivered(stuck));
    let late = watched.arrive(hopeless);
    assert_eq!(watched.pod_of(late), Some(PodId(0)));
}

#[test]
fn nobody_waits_in_the_lane_of_a_request_that_has_no_pod_left() {
    let mut watched = pods(1);
    let stuck = watched.arrive(|_| {});
    watched.send(Event::Undelivered(stuck));
    let next = watched.arrive(|_| {});
    assert_eq!(watched.pod_of(next), Some(PodId(0)), "the pod is ready and empty");
}

#[test]
fn a_request_that_came_back_holds_nobody_off_the_pods_it_may_not_use() {
    let mut config = SchedulerConfig::default();
    config.pull.head_rule = HeadRule::Strict;
    (config.pull.step_tokens, config.pull.pending_tokens) = (u32::MAX, 1024);
    config.pull.pending_ms = 0.0;
    let mut watched = Watched::new(config, Mood::Sound);
    (0..2).for_each(|id| watched.pod_up(id, 0));
    let back = watched.arrive(|_| {});
    watched.send(Event::PodPhase(PodId(0), Phase::Cordoned));
    let others = [(); 2].map(|()| watched.arrive(|_| {}));
    assert!(others.iter().all(|id| watched.pod_of(*id) == Some(PodId(1))), "its buffer is full");
    watched.send(Event::Undelivered(back));
    watched.send(Event::PodPhase(PodId(0), Phase::Ready));
    let next = watched.arrive(|_| {});
    assert_eq!((watched.pod_of(back), watched.pod_of(next)), (None, Some(PodId(0))));
}

#[test]
fn a_full_queue_does_not_refuse_what_is_not_to_wait_and_nobody_makes_room_for_it() {
    let mut config = SchedulerConfig::default();
    config.bounds.max_requests = 1;
    let mut watched = Watched::new(config, Mood::Sound);
    watched.pod_up(0, 0);
    watched.send(Event::PodPhase(PodId(0), Phase::Cordoned));
    watched.pod_up(1, 0);
    let back = watched.arrive(|request| request.band = Band(-1));
    assert_eq!(watched.pod_of(back), Some(PodId(1)));
    watched.send(Event::Undelivered(back));
    assert_eq!(watched.scheduler.waiting(), 1, "the queue is full");
    let urgent = watched.arrive(|request| request.immediate = true);
    assert_eq!(watched.pod_of(urgent), Some(PodId(1)));
    assert_eq!((watched.refused.len(), watched.scheduler.waiting()), (0, 1));
}

#[test]
fn what_is_not_to_wait_is_refused_when_it_comes_back_and_no_other_pod_takes_it() {
    let mut watched = pods(2);
    let id = watched.arrive(|request| request.immediate = true);
    watched.send(Event::Undelivered(id));
    let second = watched.pod_of(id);
    assert!(second.is_some(), "the other pod takes it in the same step");
    watched.send(Event::Undelivered(id));
    assert_eq!(watched.refused[0].reason, RefusalReason::Immediate);
}

#[test]
fn what_is_paused_waits_and_claims_nothing_and_goes_when_it_is_resumed() {
    let mut watched = pods(1);
    let gate = Gate::Band(Band(1));
    watched.send(Event::Control(Control::Pause(gate)));
    let held = watched.arrive(|request| request.band = Band(1));
    assert_eq!(watched.scheduler.reason(held), Some(Reason::Paused));
    let lower = watched.arrive(|_| {});
    assert_eq!(watched.pod_of(lower), Some(PodId(0)), "nobody waits behind what is paused");
    watched.send(Event::End(steps::end(lower, EndKind::Complete, None, None, watched.now)));
    watched.pass(Duration::from_secs(1));
    assert_eq!(watched.pod_of(held), None);
    watched.send(Event::Control(Control::Resume(gate)));
    assert_eq!(watched.pod_of(held), Some(PodId(0)));
}

#[test]
fn what_is_paused_is_refused_when_its_wait_is_over() {
    let mut watched = pods(1);
    watched.send(Event::Control(Control::Pause(Gate::Pool)));
    watched.arrive(|_| {});
    watched.pass(Duration::from_secs(120));
    assert_eq!(watched.refused[0].reason, RefusalReason::MaxWait);
}

#[test]
fn what_is_paused_does_not_become_late_and_slip_out() {
    let mut watched = pods(1);
    let busy = watched.arrive(|_| {});
    let held = watched.scheduler.lane_called("b0/i1024/o256").map(Gate::Lane).unwrap();
    watched.send(Event::Control(Control::Pause(held)));
    let waits = watched.arrive(|request| request.slo.ttft = Some(Duration::from_millis(500)));
    watched.send(Event::End(steps::end(busy, EndKind::Complete, None, None, watched.now)));
    watched.pass(Duration::from_secs(2));
    assert_eq!(watched.scheduler.reason(waits), Some(Reason::Paused), "its pod is empty");
    watched.send(Event::Control(Control::Resume(held)));
    assert_eq!(watched.pod_of(waits), Some(PodId(0)), "late, but served");
}

#[test]
fn what_was_late_when_it_was_paused_is_late_when_it_is_resumed() {
    let mut watched = pods(1);
    let long = watched.arrive(|request| request.prompt = PromptSize::Tokens(30_000));
    let [first, second] = [400, 1500].map(|ttft_ms| {
        watched.arrive(|request| {
            request.prompt = PromptSize::Tokens(100);
            request.slo.ttft = Some(Duration::from_millis(ttft_ms));
        })
    });
    watched.pass(Duration::from_millis(1000));
    // Behind the long prompt no pod would serve the second one in time either.
    for waits in [first, second] {
        assert_eq!(watched.scheduler.reason(waits), Some(Reason::Late));
    }
    watched.send(Event::Control(Control::Pause(Gate::Pool)));
    watched.send(Event::End(steps::end(long, EndKind::Complete, None, None, watched.now)));
    watched.send(Event::Control(Control::Resume(Gate::Pool)));
    let at = |id| watched.naive.tales[&id].stay().map(|stay| stay.number);
    assert!(at(first).is_some() && at(first) < at(second), "late ones go as they came");
}

#[test]
fn a_pause_does_not_make_the_newcomers_of_others_wait_in_prediction() {
    let mut watched = pods(0);
    watched.pod_up(0, 0);
    watched.send(Event::Control(Control::Pause(Gate::Band(Band(-1)))));
    for _ in 0..50 {
        watched.arrive(|request| request.band = Band(-1));
    }
    watched.pass(Duration::from_secs(11));
    let late = watched.arrive(|request| request.band = Band(-1));
    assert_eq!(watched.refused, [], "what is paused is accepted");
    assert_eq!(watched.scheduler.reason(late), Some(Reason::Paused));
    assert_eq!(watched.scheduler.summary(watched.now).drain_ms, None, "all of it is held");
}

#[test]
fn a_request_that_is_moved_goes_by_its_new_band() {
    let mut watched = pods(1);
    watched.send(Event::Control(Control::Pause(Gate::Pool)));
    let short = |request: &mut Request| request.prompt = PromptSize::Tokens(100);
    let [first, second] = [(); 2].map(|()| watched.arrive(short));
    watched.send(Event::Control(Control::Move(second, Band(2))));
    watched.send(Event::Control(Control::Resume(Gate::Pool)));
    let at = |id| watched.naive.tales[&id].stay().map(|stay| stay.number);
    assert_eq!((at(second), at(first)), (Some(0), Some(1)));
}

#[test]
fn a_request_is_not_kept_back_by_one_that_was_not_to_wait() {
    let mut config = SchedulerConfig::default();
    config.pull.head_rule = HeadRule::Strict;
    (config.pull.step_tokens, config.pull.pending_tokens) = (u32::MAX, 1024);
    config.pull.pending_ms = 0.0;
    let mut watched = Watched::new(config, Mood::Sound);
    watched.pod_up(0, 0);
    let busy = [(); 2].map(|()| watched.arrive(|_| {}));
    assert!(busy.iter().all(|id| watched.pod_of(*id).is_some()), "its buffer is full");
    let waits = watched.arrive(|_| {});
    watched.arrive(|request| {
        request.immediate = true;
        request.band = Band(2);
    });
    assert_eq!(watched.refused[0].reason, RefusalReason::Immediate);
    let reason = watched.scheduler.reason(waits);
    assert_eq!(
        reason,
        Some(Reason::PendingFull),
        "it waits for the pod, not behind the refused one"
    );
}
