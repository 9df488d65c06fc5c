//! What an operator is told: by the words of an explanation, of a decision, of a supposition; and how
//! much is done for it at once, with a hundred thousand requests waiting and five hundred pods.
//!
//! `WEIR_SEAT_PRINT` prints how long each step took.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use weir_core::{
    Band, Control, End, EndKind, Event, Gate, Phase, PodId, PromptSize, Reason, RefusalReason,
    RequestId, SchedulerConfig,
    inspect::{Against, Census, Filter, Out, State, Supposition, Would},
};
use world::{World, slo, steps_are_shared};

fn world(pods: u32) -> World {
    World::new(steps_are_shared(), pods)
}

/// Fills every pod with prompts of requests without objectives, and leaves one more waiting.
fn full(pods: u32) -> (World, RequestId) {
    let mut world = world(pods);
    loop {
        let id = world.arrive(|request| {
            request.slo = weir_core::Slo::default();
            request.prompt = PromptSize::Tokens(4000);
        });
        if world.pod_of(id).is_none() {
            return (world, id);
        }
    }
}

#[test]
fn a_waiting_request_is_explained_on_every_pod() {
    let (mut world, id) = full(3);
    world.send(Event::PodPhase(PodId(2), Phase::Cordoned));
    let seen = world.scheduler.inspect(world.now, id).unwrap();
    assert_eq!(seen.state, State::Waiting);
    let waiting = seen.waiting.unwrap();
    assert_eq!(waiting.reason, Reason::PendingFull);
    assert_eq!(&*waiting.lane, "b0/i4096/o256");
    let verdicts: Vec<_> = seen.pods.iter().map(|look| look.verdict).collect();
    let full = Some(Against::Reason(Reason::PendingFull));
    assert_eq!(verdicts, [full, full, Some(Against::Out(Out::PodCordoned))]);
    assert!(seen.pods.iter().all(|look| !look.fits && look.ttft_ms > 0.0), "{:?}", seen.pods);
    assert!(seen.explanation.contains("None of 3 pods would take it now"), "{}", seen.explanation);
    assert_eq!(seen.history.len(), 1, "it arrived");
}

#[test]
fn a_request_behind_its_lane_is_told_what_the_head_waits_for() {
    let (mut world, _) = full(1);
    let head = world.arrive(|request| request.name = "head".into());
    let behind = world.arrive(|_| {});
    assert!(world.pod_of(head).is_none());
    let text = world.scheduler.inspect(world.now, behind).unwrap().explanation;
    assert!(text.contains("Before it, request head waits: "), "{text}");
}

#[test]
fn a_decision_names_the_pods_that_lost_best_first() {
    let (mut world, _) = full(2);
    world.send(Event::PodUp(weir_core::PodSpec {
        id: PodId(7),
        name: "seven".into(),
        class: 0,
        group: None,
    }));
    let decision = &world.scheduler.decisions(world.now, 0, 1, |_| true)[0];
    assert_eq!((decision.kind, decision.pod.as_deref()), ("dispatch", Some("seven")));
    assert_eq!(decision.waited_for, Some(Reason::PendingFull));
    let lost: Vec<_> = decision.alternatives.iter().map(|one| (&*one.pod, one.verdict)).collect();
    assert_eq!(lost.len(), 2);
    assert!(lost.iter().all(|(_, verdict)| *verdict == Some(Reason::PendingFull)), "{lost:?}");
}

#[test]
fn pods_that_fitted_and_lost_stand_without_a_verdict() {
    let mut world = world(6);
    world.arrive(|_| {});
    let decision = &world.scheduler.decisions(world.now, 0, 1, |_| true)[0];
    assert_eq!(decision.alternatives.len(), 4, "of five, the best four");
    assert!(decision.alternatives.iter().all(|one| one.verdict.is_none()));
}

#[test]
fn a_request_is_followed_from_its_arrival_to_a_moment_after_its_end() {
    let mut world = world(1);
    let id = world.arrive(|request| request.name = "mine".into());
    assert_eq!(world.scheduler.find("mine"), Some(id));
    world.pass(Duration::from_millis(100));
    world.send(Event::FirstToken(id));
    let seen = world.scheduler.inspect(world.now, id).unwrap();
    assert_eq!((seen.state, seen.pod.as_deref()), (State::Running, Some("pod-0")));
    assert!(seen.explanation.contains("(2.0 s promised)"), "{}", seen.explanation);
    world.pass(Duration::from_secs(2));
    world.end(id, EndKind::Complete);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.scheduler.find("mine"), Some(id));
    let seen = world.scheduler.inspect(world.now, id).unwrap();
    let told: Vec<&str> = seen.history.iter().map(|moment| &*moment.what).collect();
    assert_eq!(told, ["arrived", "sent to pod-0", "first token", "ended: complete"]);
    let ended = seen.ended.unwrap();
    assert_eq!((ended.outcome, ended.attained, ended.ttft_ms), ("complete", true, Some(100.0)));
    assert!((ended.at_ms - 1000.0).abs() < 1.0);
    let tallies: Vec<_> = world.scheduler.tallies().collect();
    assert_eq!((tallies[0].0, tallies[0].1.sent, tallies[0].1.attained), (Band(0), 1, 1));
}

#[test]
fn what_missed_an_objective_or_was_refused_is_sent_and_not_attained() {
    let mut world = world(1);
    let slow = world.arrive(|_| {});
    world.pass(Duration::from_millis(2100));
    world.send(Event::FirstToken(slow));
    world.end(slow, EndKind::Complete);
    world.send(Event::Control(Control::Pause(Gate::Pool)));
    let cancelled = world.arrive(|_| {});
    world.send(Event::Control(Control::Cancel(vec![cancelled, RequestId(99)])));
    assert_eq!(world.refused[0].reason, RefusalReason::Cancelled);
    let (_, tally) = world.scheduler.tallies().next().unwrap();
    assert_eq!((tally.sent, tally.attained, tally.refused), (2, 0, 1));
    let seen = world.scheduler.inspect(world.now, cancelled).unwrap();
    assert!(seen.explanation.ends_with("an operator cancelled it."), "{}", seen.explanation);
}

#[test]
fn what_the_pod_says_is_wrong_counts_for_nothing_in_what_the_pool_attains() {
    let mut world = world(1);
    let kinds = [EndKind::BadRequest, EndKind::ClientGone, EndKind::PodError, EndKind::PodFailed];
    for kind in kinds {
        let id = world.arrive(|_| {});
        world.end(id, kind);
    }
    let (_, tally) = world.scheduler.tallies().next().unwrap();
    assert_eq!((tally.sent, tally.attained), (2, 0), "what the pods did badly");
}

#[test]
fn a_whole_answer_of_one_token_has_kept_its_ttft_where_no_pace_was_promised() {
    let mut world = world(1);
    for output_tokens in [Some(1), None] {
        let whole = world.arrive(|request| {
            request.streamed = false;
            request.slo.tpot = None;
        });
        world.pass(Duration::from_millis(50));
        let (id, kind) = (whole, EndKind::Complete);
        world.send(Event::End(End {
            id,
            kind,
            output_tokens,
            events: 0,
            prompt_tokens: None,
            last_token_at: None,
        }));
    }
    let (_, tally) = world.scheduler.tallies().next().unwrap();
    assert_eq!((tally.sent, tally.attained), (2, 2));
}

#[test]
fn a_supposed_request_goes_waits_or_is_refused_as_a_real_one_would() {
    let small = Supposition { input_tokens: 100, slo: slo(2000, 50), ..Supposition::default() };
    let mut idle = world(2);
    let goes = idle.scheduler.suppose(idle.now, &small);
    assert_eq!((goes.would, goes.pod.as_deref()), (Would::Dispatch, Some("pod-0")));
    assert_eq!((goes.reason, goes.pods.len()), ("fits", 2));

    let (mut busy, _) = full(2);
    let waits = busy.scheduler.suppose(busy.now, &small);
    assert_eq!((waits.would, waits.queue_ahead), (Would::Wait, 1), "{}", waits.explanation);
    let same = busy.arrive(|request| request.prompt = PromptSize::Tokens(100));
    assert_eq!(busy.scheduler.reason(same).map(|reason| reason.name()), Some(waits.reason));

    assert!(waits.predicted_wait_ms.is_some(), "one waits, and a pod is ready: {waits:?}");

    let late = Supposition { slo: slo(1, 50), band: Band(-1), ..small.clone() };
    let refused = busy.scheduler.suppose(busy.now, &late);
    assert_eq!((refused.would, refused.reason), (Would::Refuse, "hopeless"));
    busy.send(Event::Control(Control::Pause(Gate::Band(Band(0)))));
    assert_eq!(busy.scheduler.suppose(busy.now, &small).reason, "paused");
    busy.send(Event::Close);
    assert_eq!(busy.scheduler.suppose(busy.now, &small).reason, "closing");
}

#[test]
fn how_long_a_newcomer_waits_is_said_only_where_the_queue_tells() {
    let small = Supposition { input_tokens: 100, slo: slo(2000, 50), ..Supposition::default() };
    let (mut world, _) = full(1);
    let other_band = Supposition { band: Band(1), ..small.clone() };
    let first = world.scheduler.suppose(world.now, &other_band);
    assert_eq!((first.would, first.predicted_wait_ms), (Would::Wait, None));
    assert!(first.explanation.contains("Nothing waits in its band and above."), "{first:?}");

    world.send(Event::Control(Control::Pause(Gate::Pool)));
    let held = world.scheduler.suppose(world.now, &small);
    assert_eq!(held.predicted_wait_ms, None);
    assert!(held.explanation.contains("it would wait until that is resumed."), "{held:?}");
    world.send(Event::Control(Control::Resume(Gate::Pool)));

    world.send(Event::PodPhase(PodId(0), Phase::Draining));
    let homeless = world.scheduler.suppose(world.now, &small);
    assert_eq!((homeless.reason, homeless.predicted_wait_ms), ("no_pod_ready", None));
    let want = "it would wait until a pod is ready, and be refused after 15.0 s.";
    assert!(homeless.explanation.contains(want), "{homeless:?}");
    assert_eq!(drains(&world), [None; 2]);
}

/// The pool's drain as the admin side has it, and as the metrics have it.
fn drains(world: &World) -> [Option<f64>; 2] {
    [world.scheduler.summary(world.now).drain_ms, world.scheduler.snapshot(world.now).drain_ms]
}

#[test]
fn a_drain_is_said_alike_everywhere_and_only_where_something_can_leave() {
    let idle = world(1);
    assert_eq!(drains(&idle), [Some(0.0); 2]);
    let (mut world, _) = full(1);
    let [admin, metrics] = drains(&world);
    assert!(admin.is_some() && admin == metrics, "{admin:?} {metrics:?}");
    // Lane by lane, and as a whole.
    let key = world.scheduler.lane_called("b0/i4096/o256").unwrap();
    for gate in [Gate::Lane(key), Gate::Band(Band(0)), Gate::Pool] {
        world.send(Event::Control(Control::Pause(gate)));
        assert_eq!(drains(&world), [None; 2], "{gate:?}");
        world.send(Event::Control(Control::Resume(Gate::Pool)));
    }
    world.send(Event::PodPhase(PodId(0), Phase::Draining));
    assert_eq!(drains(&world), [None; 2]);
}

#[test]
fn no_drain_is_said_to_take_longer_than_anything_may_wait() {
    let (mut world, _) = full(1);
    (0..50).for_each(|_| {
        world.arrive(|request| request.slo = weir_core::Slo::default());
    });
    let running = world.dispatched[0].id;
    world.pass(Duration::from_secs(1));
    world.end(running, EndKind::Complete);
    world.pass(Duration::from_secs(30));
    assert_eq!(drains(&world), [Some(120e3); 2]);
}

#[test]
fn without_a_pod_a_waiting_request_is_told_when_it_is_refused() {
    let mut world = world(0);
    let id = world.arrive(|_| {});
    world.pass(Duration::from_secs(5));
    let seen = world.scheduler.inspect(world.now, id).unwrap();
    assert!(seen.explanation.ends_with("It is refused if no pod is ready in 10.0 s."), "{seen:?}");
    world.pass(Duration::from_millis(9_900));
    assert!(world.refused.is_empty());
    world.pass(Duration::from_millis(200));
    assert_eq!(world.refused[0].reason, RefusalReason::NoPods);
}

#[test]
fn a_pod_is_known_by_its_errors_and_by_when_it_will_be_empty() {
    let mut world = world(1);
    let first = world.arrive(|_| {});
    let second = world.arrive(|_| {});
    world.pass(Duration::from_millis(50));
    world.send(Event::FirstToken(first));
    world.send(Event::FirstToken(second));
    world.end(first, EndKind::Complete);
    let pod = world.scheduler.pod(world.now, PodId(0), 10).unwrap();
    assert!(pod.errors.ttft.is_some() && pod.errors.count == 1, "{:?}", pod.errors);
    assert_eq!((pod.empty_in_ms, pod.view.requests.len()), (None, 1));
    world.send(Event::PodPhase(PodId(0), Phase::Draining));
    let pod = world.scheduler.pod(world.now, PodId(0), 10).unwrap();
    assert!(pod.empty_in_ms.is_some_and(|ms| ms > 100.0), "{:?}", pod.empty_in_ms);
    world.end(second, EndKind::Complete);
    let pod = world.scheduler.pod(world.now, PodId(0), 10).unwrap();
    assert_eq!(pod.empty_in_ms, Some(0.0));
}

#[test]
fn paused_lanes_are_named_and_do_not_hold_a_pod() {
    let (mut world, head) = full(1);
    let key = world.scheduler.lane_called("b0/i4096/o256").unwrap();
    world.send(Event::Control(Control::Pause(Gate::Lane(key))));
    assert_eq!(world.scheduler.summary(world.now).paused, ["b0/i4096/o256"]);
    assert_eq!(world.scheduler.reason(head), Some(Reason::Paused));
    let lane = &world.scheduler.queue_views(world.now, &[key])[0];
    assert!(lane.paused && lane.drain_ms.is_none() && lane.reason == Reason::Paused, "{lane:?}");
    let busy: Vec<RequestId> = world.dispatched.iter().map(|one| one.id).collect();
    busy.into_iter().for_each(|id| world.end(id, EndKind::Complete));
    assert_eq!(world.pod_of(head), None, "its pod is empty, and it is held");
    let other = world.arrive(|request| request.prompt = PromptSize::Tokens(10_000));
    assert!(world.pod_of(other).is_some(), "a lane behind it goes");
    world.send(Event::Control(Control::Resume(Gate::Pool)));
    assert!(world.scheduler.summary(world.now).paused.is_empty());
}

#[test]
fn a_paused_lane_stays_paused_under_its_name_when_the_buckets_change() {
    let (mut world, head) = full(1);
    let key = world.scheduler.lane_called("b0/i4096/o256").unwrap();
    world.send(Event::Control(Control::Pause(Gate::Lane(key))));
    let mut config = SchedulerConfig::default();
    config.buckets.input = vec![1024, 4096];
    world.send(Event::Reconfigure(Box::new(config)));
    assert_eq!(world.scheduler.summary(world.now).paused, ["b0/i4096/o256"]);
    assert_eq!(world.scheduler.reason(head), Some(Reason::Paused));
}

/// How long each of some steps took.
struct Times(&'static str, Vec<Duration>);

impl Times {
    fn take<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = step();
        self.1.push(began.elapsed());
        done
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        self.1.sort_unstable();
        let Some(most) = self.1.last().filter(|_| std::env::var_os("WEIR_SEAT_PRINT").is_some())
        else {
            return;
        };
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let at = |percent| self.1.get(self.1.len() * percent / 100).map_or(0.0, |time| us(*time));
        let (p50, p99, most) = (at(50), at(99), us(*most));
        println!(
            "{:<32} {:>6} x  p50 {p50:>8.0} us  p99 {p99:>8.0} us  most {most:>8.0} us",
            self.0,
            self.1.len()
        );
    }
}

const WAITING: usize = 100_000;
const SLICE: usize = 500;

/// Five hundred pods that are full, and what waits for them in a paused pool.
fn crowd() -> World {
    let (mut world, _) = full(500);
    world.send(Event::Control(Control::Pause(Gate::Pool)));
    let mut arrivals = Times("arrival, paused", Vec::new());
    for number in world.scheduler.waiting()..WAITING {
        let place = number as u32;
        world.now = world.now.plus(Duration::from_micros(1));
        arrivals.take(|| {
            world.arrive(|request| {
                request.prompt = PromptSize::Tokens(1 + place * 7919 % 30_000);
                request.band = Band((number % 3) as i8 - 1);
                request.tenant = Some(format!("tenant-{}", number % 2000).into());
                request.name = format!("name-{number}").into();
            })
        });
    }
    world
}

fn pages_of(world: &World) {
    let (scheduler, now) = (&world.scheduler, world.now);
    let (mut seen, mut after) = (BTreeSet::new(), None);
    let mut times = Times("page of 500", Vec::new());
    loop {
        let page =
            times.take(|| scheduler.waiting_page(now, after, &Filter::default(), SLICE, SLICE));
        assert!(page.scanned <= SLICE);
        seen.extend(page.requests.iter().map(|one| one.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), times.1.len()), (WAITING, WAITING / SLICE));
}

fn counts_of(world: &World) {
    let (mut census, mut after) = (Census::default(), None);
    let mut times = Times("count of 500", Vec::new());
    loop {
        after = times.take(|| world.scheduler.count(world.now, after, SLICE, &mut census));
        if after.is_none() {
            break;
        }
    }
    assert_eq!((census.counted, times.1.len()), (WAITING, WAITING / SLICE));
    let apart: usize = census.tenants.values().map(|count| count.depth).sum();
    let others = census.other_tenants.depth + census.no_tenant.depth;
    assert_eq!((census.tenants.len(), apart + others), (1024, WAITING));
}

fn pods_of(world: &World) {
    let mut times = Times("page of 32 pods", Vec::new());
    let (mut pods, mut after) = (0, None);
    loop {
        let some = times.take(|| world.scheduler.pods_page(world.now, after, 32, 0));
        pods += some.len();
        after = some.last().map(|pod| pod.id);
        if some.len() < 32 {
            break;
        }
    }
    assert_eq!(pods, 500);
}

#[test]
fn a_hundred_thousand_are_walked_in_steps_of_bounded_size() {
    let mut world = crowd();
    pages_of(&world);
    counts_of(&world);
    pods_of(&world);
    let now = world.now;
    Times("summary", Vec::new()).take(|| world.scheduler.summary(now));
    Times("snapshot", Vec::new()).take(|| world.scheduler.snapshot(now));
    let middle = world.scheduler.find("name-50000").unwrap();
    let mut times = Times("inspect, 500 pods", Vec::new());
    for _ in 0..20 {
        let seen = times.take(|| world.scheduler.inspect(now, middle)).unwrap();
        assert_eq!(seen.pods.len(), 500);
    }
    world.send(Event::Control(Control::Resume(Gate::Pool)));
    let mut times = Times("suppose, 500 pods", Vec::new());
    let what = Supposition { input_tokens: 700, slo: slo(2000, 50), ..Supposition::default() };
    for _ in 0..20 {
        let would = times.take(|| world.scheduler.suppose(now, &what));
        assert_eq!((would.pods.len(), would.would), (500, Would::Wait));
    }
    let mut times = Times("a tick's pass, 500 pods", Vec::new());
    for _ in 0..20 {
        times.take(|| world.send(Event::Tick));
    }
}
