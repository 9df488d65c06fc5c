//! The pull loop, seen through the scheduler's door: who goes, who waits, and the recorded reason.

mod world;

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use weir_core::{
    Band, EndKind, Event, PodId, Policy, Progress, PromptSize, Pulse, Reason, RefusalReason,
    Request, SchedulerConfig, Scrape, Time,
};
use world::{World, slo, steps_are_shared};

fn world(pods: u32) -> World {
    World::new(steps_are_shared(), pods)
}

#[test]
fn an_idle_pod_gets_a_request_at_once() {
    let mut world = world(1);
    let id = world.arrive(|_| {});
    assert_eq!(world.pod_of(id), Some(PodId(0)));
    assert_eq!(world.scheduler.snapshot(world.now).pods[0].pending, 1);
}

#[test]
fn a_pod_with_enough_prompts_pending_gets_no_more_until_a_first_token() {
    let mut world = world(1);
    let ids: Vec<_> = (0..4).map(|_| world.arrive(|_| {})).collect();
    assert_eq!(world.dispatched.len(), 2, "one decoding slot and one behind it");
    assert_eq!(world.scheduler.reason(ids[2]), Some(Reason::PendingFull));
    world.pass(Duration::from_millis(100));
    world.send(Event::FirstToken(ids[0]));
    assert_eq!(world.dispatched.len(), 3);
}

#[test]
fn a_higher_band_goes_first_and_a_lower_one_does_not_pass_it() {
    let mut world = world(1);
    world.arrive(|_| {});
    world.arrive(|_| {});
    let low = world.arrive(|request| request.band = Band(-1));
    let high = world.arrive(|request| request.band = Band(1));
    world.send(Event::Tick);
    assert!(
        matches!(world.scheduler.reason(low), Some(Reason::BehindHead { head }) if head == high)
    );
    let first = world.dispatched[0].id;
    world.send(Event::FirstToken(first));
    assert_eq!(world.dispatched[2].id, high);
}

#[test]
fn residents_that_would_be_stalled_too_long_hold_a_big_prompt_back() {
    let mut world = world(1);
    let resident = world.arrive(|request| request.prompt = PromptSize::Tokens(100));
    world.pass(Duration::from_millis(50));
    world.send(Event::FirstToken(resident));
    let big = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(20_000);
        request.slo = slo(60_000, 50);
    });
    assert!(matches!(world.scheduler.reason(big), Some(Reason::StallOverBudget { .. })));
    world.end(resident, EndKind::Complete);
    assert_eq!(world.pod_of(big), Some(PodId(0)), "an empty pod always fits");
}

#[test]
fn a_request_that_can_no_longer_make_it_goes_last_and_a_sheddable_one_is_refused() {
    let mut world = world(1);
    world.arrive(|_| {});
    world.arrive(|_| {});
    let late = world.arrive(|request| request.slo = slo(300, 50));
    let shed = world.arrive(|request| {
        request.band = Band(-1);
        request.slo = slo(300, 50);
    });
    world.pass(Duration::from_millis(400));
    assert_eq!(world.scheduler.reason(late), Some(Reason::Late));
    assert!(
        world.refused.iter().any(|one| one.id == shed && one.reason == RefusalReason::Hopeless)
    );
    let fresh = world.arrive(|_| {});
    let first = world.dispatched[0].id;
    world.send(Event::FirstToken(first));
    assert_eq!(world.dispatched[2].id, fresh, "the late one goes after the one that can make it");
}

#[test]
fn who_is_late_waits_for_less_long_than_who_is_not() {
    let mut config = steps_are_shared();
    config.bounds.max_wait_late = Duration::from_secs(5);
    let mut world = World::new(config, 1);
    world.arrive(|request| request.slo.ttft = None);
    world.arrive(|request| request.slo.ttft = None);
    let [first, second] = [300, 1000].map(|ttft| world.arrive(|of| of.slo = slo(ttft, 50)));
    let others = [None, Some(Duration::from_secs(60))];
    for ttft in others {
        world.arrive(|request| request.slo.ttft = ttft);
    }
    world.pass(Duration::from_millis(4990));
    assert_eq!(world.scheduler.reason(second), Some(Reason::Late));
    assert!(world.refused.is_empty());
    world.pass(Duration::from_millis(10));
    let refused: Vec<_> = world.refused.iter().map(|one| (one.id, one.reason)).collect();
    assert_eq!(refused, [first, second].map(|id| (id, RefusalReason::MaxWait)));
    assert_eq!(world.scheduler.waiting(), 2);
}

#[test]
fn without_a_pod_a_request_waits_a_while_and_is_refused() {
    let mut world = world(0);
    let id = world.arrive(|request| request.slo.ttft = None);
    assert_eq!(world.scheduler.reason(id), Some(Reason::NoPodReady));
    world.pass(Duration::from_secs(15));
    assert_eq!(world.refused[0].reason, RefusalReason::NoPods);
}

#[test]
fn a_full_queue_makes_room_for_a_request_that_matters_more() {
    let mut config = SchedulerConfig::default();
    config.bounds.max_requests = 2;
    let mut world = World::new(config, 0);
    let batch = world.arrive(|request| request.band = Band(-1));
    world.arrive(|_| {});
    world.arrive(|_| {});
    assert_eq!((world.refused[0].id, world.refused[0].reason), (batch, RefusalReason::QueueFull));
    let last = world.arrive(|_| {});
    assert_eq!(world.refused[1].id, last, "nobody expendable is left");
}

#[test]
fn as_many_make_room_as_it_takes() {
    let mut config = SchedulerConfig::default();
    config.bounds.max_bytes = 1000;
    let mut world = World::new(config, 0);
    let of = |bytes: u32, band: i8| {
        move |request: &mut Request| (request.body_bytes, request.band) = (bytes, Band(band))
    };
    world.arrive(of(300, 0));
    let batch = [-1, -1, -2].map(|band| world.arrive(of(200, band)));
    world.arrive(of(600, -1));
    assert_eq!(world.refused.len(), 1, "nobody makes room for one that is sheddable itself");
    let large = world.arrive(of(450, 0));
    let refused: Vec<_> = world.refused[1..].iter().map(|one| (one.id, one.reason)).collect();
    let bytes = RefusalReason::QueueBytes;
    assert_eq!(
        refused,
        [(batch[2], bytes), (batch[1], bytes)],
        "the least worth keeping, and no more"
    );
    let larger = world.arrive(of(800, 0));
    assert_eq!(
        world.refused[3].id, larger,
        "all together are not enough, and nobody goes for nothing"
    );
    assert!(world.scheduler.reason(large).is_some() && world.scheduler.reason(batch[0]).is_some());
}

#[test]
fn a_sheddable_request_that_would_wait_too_long_is_refused_on_arrival() {
    let mut config = SchedulerConfig::default();
    config.bounds.max_predicted_wait = Duration::from_secs(1);
    let mut world = World::new(config, 1);
    let batch = |request: &mut Request| {
        request.band = Band(-1);
        request.slo = slo(60_000, 100);
    };
    for _ in 0..3 {
        world.arrive(batch);
    }
    world.pass(Duration::from_millis(1100));
    let id = world.arrive(batch);
    assert_eq!((world.refused[0].id, world.refused[0].reason), (id, RefusalReason::PredictedWait));
    assert!(world.refused[0].retry_after >= Duration::from_secs(1));
}

#[test]
fn a_response_that_is_not_streamed_frees_the_buffer_when_its_first_token_is_due() {
    let mut world = world(1);
    for _ in 0..3 {
        world.arrive(|request| request.streamed = false);
    }
    assert_eq!(world.dispatched.len(), 2);
    world.pass(Duration::from_millis(400));
    assert_eq!(world.dispatched.len(), 3);
}

#[test]
fn an_arrival_is_not_judged_by_prompts_that_must_have_begun_though_no_tick_came() {
    let mut world = world(1);
    world.arrive(|request| request.streamed = false);
    // Nothing waits, so the dispatcher sends no ticks.
    world.now = world.now.plus(Duration::from_secs(1));
    world.arrive(|_| {});
    let ttft_ms = |at: usize| world.dispatched[at].prediction.ttft_ms.p50;
    assert!(ttft_ms(1) < ttft_ms(0) + 5.0, "{} after {}", ttft_ms(1), ttft_ms(0));
    let pod = &world.scheduler.snapshot(world.now).pods[0];
    assert_eq!((pod.pending, pod.residents), (1, 1));
    assert!(pod.kv_tokens > 1020, "its tokens count too: {}", pod.kv_tokens);
}

#[test]
fn prompts_of_a_pod_begin_in_the_order_they_were_sent() {
    let mut world = world(1);
    let on_pod = |world: &World| {
        let pod = &world.scheduler.snapshot(world.now).pods[0];
        (pod.pending, pod.residents)
    };
    let stream = world.arrive(|_| {});
    world.arrive(|request| request.streamed = false);
    world.pass(Duration::from_secs(1));
    assert_eq!(on_pod(&world), (2, 0), "what was sent before has not begun");
    world.send(Event::FirstToken(stream));
    world.send(Event::Tick);
    assert_eq!(on_pod(&world), (0, 2));

    let mut world = self::world(1);
    world.arrive(|request| request.streamed = false);
    let stream = world.arrive(|_| {});
    world.send(Event::FirstToken(stream));
    assert_eq!(on_pod(&world), (0, 2), "what was sent after has begun");
}

#[test]
fn a_finished_stream_is_a_sample_with_its_latencies() {
    let mut world = world(1);
    let id = world.arrive(|_| {});
    world.pass(Duration::from_millis(100));
    world.send(Event::FirstToken(id));
    world.pass(Duration::from_millis(990));
    world.send(Event::Progress(Progress { events: vec![(id, 100)], pulses: vec![] }));
    world.end(id, EndKind::Complete);
    let sample = &world.samples[0];
    assert_eq!(sample.ttft_ms, Some(100.0));
    assert_eq!(sample.tpot_ms, Some(10.0));
    let snapshot = world.scheduler.snapshot(world.now);
    assert_eq!((snapshot.in_flight, snapshot.pods[0].residents), (0, 0));
}

#[test]
fn round_robin_takes_the_pods_in_turn_and_never_waits() {
    let config = SchedulerConfig { policy: Policy::RoundRobin, ..SchedulerConfig::default() };
    let mut world = World::new(config, 3);
    let ids: Vec<_> = (0..7).map(|_| world.arrive(|_| {})).collect();
    let pods: Vec<_> = ids.iter().map(|id| world.pod_of(*id).unwrap().0).collect();
    assert_eq!(pods, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn least_request_takes_the_pod_with_the_fewest_in_flight() {
    let config = SchedulerConfig { policy: Policy::LeastRequest, ..SchedulerConfig::default() };
    let mut world = World::new(config, 2);
    let a = world.arrive(|_| {});
    world.arrive(|_| {});
    world.end(a, EndKind::Complete);
    let next = world.arrive(|_| {});
    assert_eq!(world.pod_of(next), world.pod_of(a));
}

#[test]
fn closing_refuses_what_waits_and_what_arrives() {
    let mut world = world(0);
    world.arrive(|_| {});
    world.send(Event::Close);
    world.arrive(|_| {});
    assert!(world.refused.iter().all(|one| one.reason == RefusalReason::Closing));
    assert_eq!(world.refused.len(), 2);
}

#[test]
fn a_request_that_is_not_to_wait_goes_at_once_or_is_refused_at_once() {
    let mut world = world(1);
    let at_once = |request: &mut Request| request.immediate = true;
    let first = world.arrive(at_once);
    assert_eq!(world.pod_of(first), Some(PodId(0)));
    let second = world.arrive(at_once);
    assert_eq!(world.pod_of(second), Some(PodId(0)));
    let third = world.arrive(at_once);
    assert_eq!((world.pod_of(third), world.scheduler.waiting()), (None, 0));
    assert_eq!((world.refused[0].id, world.refused[0].reason), (third, RefusalReason::Immediate));
}

#[test]
fn without_a_pod_what_is_not_to_wait_is_told_that_there_is_none() {
    let mut world = world(0);
    world.arrive(|request| request.immediate = true);
    assert_eq!(world.refused[0].reason, RefusalReason::NoPods);
}

#[test]
fn a_clients_bound_on_the_wait_shortens_it_and_never_lengthens_it() {
    let mut config = steps_are_shared();
    config.bounds.max_wait = Duration::from_secs(3);
    let mut world = World::new(config, 1);
    let bounded = |ttl: Option<Duration>| {
        move |request: &mut Request| {
            request.slo.ttft = None;
            request.expires = ttl.map_or(Time::NEVER, |ttl| request.arrived.plus(ttl));
        }
    };
    let long = |ms| Some(Duration::from_millis(ms));
    world.arrive(bounded(None));
    world.arrive(bounded(None));
    let [short, never, longer] =
        [long(300), None, long(60_000)].map(|ttl| world.arrive(bounded(ttl)));
    assert_eq!(world.scheduler.waiting(), 3);
    world.pass(Duration::from_millis(290));
    assert!(world.refused.is_empty());
    world.pass(Duration::from_millis(10));
    assert_eq!((world.refused[0].id, world.refused[0].reason), (short, RefusalReason::Ttl));
    world.pass(Duration::from_millis(2700));
    let rest: Vec<_> = world.refused[1..].iter().map(|one| (one.id, one.reason)).collect();
    assert_eq!(rest, [never, longer].map(|id| (id, RefusalReason::MaxWait)));
}

#[test]
fn a_wait_that_its_client_bounded_and_that_ends_without_a_pod_ends_for_that_reason() {
    let mut world = world(0);
    world.arrive(|request| request.expires = request.arrived.plus(Duration::from_millis(50)));
    world.pass(Duration::from_millis(50));
    assert_eq!(world.refused[0].reason, RefusalReason::NoPods);
}

fn scraped(running: u32, kv_usage: f32, shared: bool) -> Event {
    let scrape = Scrape { running, kv_usage, engines: 1, shared, ..Scrape::default() };
    Event::Scraped(PodId(0), scrape)
}

#[test]
fn what_another_pool_runs_on_a_shared_pod_counts_against_the_pace_there() {
    for (shared, goes) in [(false, true), (true, false)] {
        let mut world = world(1);
        let tight = |request: &mut Request| {
            request.prompt = PromptSize::Tokens(100);
            request.slo = slo(60_000, 25);
        };
        let first = world.arrive(tight);
        world.send(Event::FirstToken(first));
        world.send(scraped(400, 0.5, shared));
        let second = world.arrive(tight);
        assert_eq!(world.pod_of(second).is_some(), goes, "shared: {shared}");
        if shared {
            let waits = world.scheduler.reason(second);
            assert!(matches!(waits, Some(Reason::TpotOverSlo { .. })), "{waits:?}");
            assert_eq!(world.scheduler.snapshot(world.now).pods[0].elsewhere, 399);
            world.pass(Duration::from_millis(2010));
            assert!(world.pod_of(second).is_some(), "a stale scrape says nothing of the others");
        }
    }
}

#[test]
fn a_pool_always_has_one_request_on_a_shared_pod_whatever_others_have_there() {
    let mut world = world(1);
    world.send(scraped(1000, 1.0, true));
    let id = world.arrive(|request| request.slo = slo(60_000, 10));
    assert_eq!(world.pod_of(id), Some(PodId(0)));
}

#[test]
fn steps_that_others_shared_teach_nothing() {
    for (shared, strides) in [(false, 1), (true, 0)] {
        let mut world = world(1);
        let id = world.arrive(|_| {});
        world.send(Event::FirstToken(id));
        world.send(scraped(40, 0.5, shared));
        for steps in [0, 1, 9] {
            world.pass(Duration::from_millis(100));
            let pulse = Pulse { steps, last_step_at: world.now };
            let events = vec![(id, steps as u32)];
            world.send(Event::Progress(Progress { events, pulses: vec![(PodId(0), pulse)] }));
        }
        assert_eq!(world.strides.load(Relaxed), strides, "shared: {shared}");
    }
}

/// A head that no busy pod would serve in time would only keep the others from going.
#[test]
fn a_head_that_every_pod_would_serve_too_late_is_late_before_an_idle_pod_would_be_too() {
    let mut world = world(1);
    let first = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(8000);
        request.slo = slo(60_000, 50);
    });
    let lost = world.arrive(|request| request.slo = slo(300, 50));
    assert_eq!(world.pod_of(lost), None, "an idle pod would take 75 ms, this one half a second");
    world.send(Event::Tick);
    assert_eq!(world.scheduler.reason(lost), Some(Reason::Late));
    let made = world.arrive(|request| request.slo = slo(10_000, 50));
    world.send(Event::FirstToken(first));
    assert_eq!(world.dispatched[1].id, made, "it was not kept waiting");
}
