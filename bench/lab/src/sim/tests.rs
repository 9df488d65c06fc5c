use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use weir_core::{Action, Event, PodClass, SchedulerConfig};
use weir_engine::{EngineConfig, hardware};
use weir_predict::Chain;

use super::*;
use crate::load::{DemoMix, parse_classes};

/// Two pods of Qwen3-32B on two H100 each.
pub(super) fn pool() -> SimConfig {
    let hardware = hardware("h100-qwen3-32b-tp2").unwrap();
    let engine = |seed| EngineConfig { seed, ..EngineConfig::for_hardware(hardware) };
    let class = PodClass { kv_blocks: hardware.num_blocks, ..PodClass::default() };
    SimConfig {
        scheduler: SchedulerConfig { classes: vec![class], ..SchedulerConfig::default() },
        pods: (1..=2).map(|seed| SimPod::of(engine(seed), 0)).collect(),
        scrape_every: Duration::from_millis(100),
    }
}

/// Stretches of the demo's mix at so many requests per second.
pub(super) fn requests(rates: &[f64], for_s: f64, streamed: f64, seed: u64) -> Vec<SimRequest> {
    let shares = ["interactive:0.5", "standard:0.2", "batch:0.3"].map(str::to_owned);
    let classes = parse_classes(&shares, &[]).unwrap();
    let stretches = rates.iter().map(|rate| (*rate, for_s)).collect();
    Mix { demo: DemoMix { stretches, classes, seed }, streamed }.requests().unwrap()
}

pub(super) fn simulate(requests: &[SimRequest]) -> Run {
    run(pool(), Box::new(Chain::new()), requests)
}

/// Errors of the predicted TTFT, as fractions, once the step times are fitted.
fn ttft_errors(run: &Run) -> Vec<f64> {
    let settled = run.served().skip(300);
    let error = |one: &Served| f64::from(one.predicted.ttft_ms.p50) / one.ttft_ms - 1.0;
    settled.map(|one| error(one).abs()).collect()
}

#[test]
fn with_half_of_the_responses_not_streamed_the_ttft_error_stays_within_a_point() {
    // Up to three quarters of what the engines could do at the tightest objective.
    let rates = [10.0, 13.0, 16.0];
    let mape = |streamed| {
        let errors: Vec<f64> = (1..=3)
            .flat_map(|seed| ttft_errors(&simulate(&requests(&rates, 60.0, streamed, seed))))
            .collect();
        assert!(errors.len() > 5000, "{} requests", errors.len());
        errors.iter().sum::<f64>() / errors.len() as f64
    };
    let (streams, mixed) = (mape(1.0), mape(0.5));
    assert!((0.05..0.2).contains(&streams), "{streams:.4} when all are streamed");
    assert!(mixed < streams + 0.01, "{mixed:.4} mixed, {streams:.4} when all are streamed");
}

#[test]
fn every_request_has_one_outcome_and_the_ledger_is_empty_at_the_end() {
    // Twice what the pods can serve: sheddable requests are refused.
    let requests = requests(&[40.0], 30.0, 0.5, 5);
    let run = simulate(&requests);
    assert_eq!(run.outcomes.len(), requests.len());
    let refused = run.outcomes.iter().filter(|one| matches!(one, Outcome::Refused(_))).count();
    assert_eq!(run.served().count() + refused, requests.len());
    assert!(refused > 50, "{refused} refused");
    let end = run.end.as_ref().unwrap();
    assert_eq!((end.waiting, end.in_flight, end.counters.ignored), (0, 0, 0));
    assert!(end.pods.iter().all(|pod| (pod.residents, pod.pending, pod.kv_tokens) == (0, 0, 0)));
    assert_eq!(run.samples.len(), run.served().count());
}

#[test]
fn what_a_client_of_a_stream_saw_is_what_the_sample_says() {
    let run = simulate(&requests(&[4.0], 20.0, 1.0, 6));
    let mut seen: Vec<f32> = run.served().map(|one| one.ttft_ms as f32).collect();
    let mut sampled: Vec<f32> = run.samples.iter().filter_map(|sample| sample.ttft_ms).collect();
    seen.sort_by(f32::total_cmp);
    sampled.sort_by(f32::total_cmp);
    assert_eq!(seen, sampled);
    assert!(run.served().all(|one| one.ttft_ms > 30.0 && one.tpot_ms.is_none_or(|ms| ms > 13.0)));
}

#[test]
fn a_simulation_is_the_same_every_time() {
    let requests = requests(&[20.0], 20.0, 0.5, 7);
    assert_eq!(simulate(&requests).outcomes, simulate(&requests).outcomes);
}

#[test]
fn a_prompt_that_no_engine_takes_is_rejected_and_holds_nobody_up() {
    let mut requests = requests(&[5.0], 10.0, 1.0, 8);
    requests[3].input_tokens = 1_000_000;
    let run = simulate(&requests);
    assert_eq!(run.outcomes[3], Outcome::Rejected);
    assert_eq!(run.served().count(), requests.len() - 1);
}

#[test]
fn a_simulation_that_is_told_to_stop_has_no_result_and_one_that_is_not_has_the_same() {
    let requests = requests(&[10.0], 20.0, 1.0, 9);
    let config = pool();
    let go = |most: usize| {
        let mut seen = 0;
        let scheduler = Scheduler::new(config.scheduler.clone(), Box::new(Chain::new()));
        let run = drive_while(
            &config.pods,
            config.scrape_every,
            Box::new(scheduler),
            &requests,
            |_, _| {
                seen += 1;
                seen <= most
            },
        );
        (run, seen)
    };
    let (stopped, seen) = go(10);
    assert!(stopped.is_none());
    assert_eq!(seen, 11);
    assert_eq!(go(usize::MAX).0.unwrap().outcomes, simulate(&requests).outcomes);
}

/// The same with two engines that step together behind each of the ports: apart four pods, else two.
fn servers(apart: bool) -> SimConfig {
    let mut config = pool();
    let engine = config.pods[0].engine.clone();
    let mut pool = Pool::empty(config.scrape_every);
    if apart {
        pool.add_apart(&engine, 2, [2, 2]);
    } else {
        pool.add(&EngineConfig { ranks: 2, ..engine }, 2, weir_core::Role::Both);
    }
    (config.scheduler.classes, config.pods) = (pool.classes.clone(), pool.seeded(1));
    config
}

#[test]
fn engines_that_step_together_serve_as_pods_of_their_own_or_as_one() {
    let requests = requests(&[20.0], 30.0, 0.5, 4);
    for (apart, pods) in [(true, 4), (false, 2)] {
        let run = run(servers(apart), Box::new(Chain::new()), &requests);
        assert_eq!(run.served().count(), requests.len(), "apart {apart}");
        let used: std::collections::BTreeSet<u32> = run.served().map(|one| one.pod.0).collect();
        assert_eq!(used, (0..pods).collect(), "apart {apart}");
        assert_eq!(run.engines.len(), 2, "two servers");
        let end = run.end.unwrap();
        assert!(end.pods.iter().all(|pod| pod.residents + pod.pending == 0));
        let capacity = 19_000 * 16 * if apart { 1 } else { 2 };
        assert!(end.pods.iter().all(|pod| pod.kv_capacity_tokens == capacity));
    }
}

/// Takes what comes and does nothing.
struct Hole;

impl Dispatcher for Hole {
    fn handle(&mut self, _now: Time, _event: Event, _actions: &mut Vec<Action>) {}

    fn waiting(&self) -> usize {
        0
    }

    fn snapshot(&self, _now: Time) -> Option<Snapshot> {
        None
    }
}

#[test]
fn what_a_dispatcher_never_sends_has_an_outcome_all_the_same() {
    let (config, requests) = (pool(), requests(&[5.0], 10.0, 1.0, 8));
    let mut seen = 0;
    let run = drive_while(&config.pods, config.scrape_every, Box::new(Hole), &requests, |_, _| {
        seen += 1;
        true
    });
    assert_eq!(run.unwrap().outcomes, vec![Outcome::Rejected; requests.len()]);
    assert_eq!(seen, requests.len());
}

/// Counts the scrapes that the scheduler is told of.
struct Counting(Scheduler, Arc<AtomicU64>);

impl Dispatcher for Counting {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.1.fetch_add(u64::from(matches!(event, Event::Scraped(..))), Ordering::Relaxed);
        Dispatcher::handle(&mut self.0, now, event, actions);
    }

    fn waiting(&self) -> usize {
        Dispatcher::waiting(&self.0)
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        Dispatcher::snapshot(&self.0, now)
    }
}

#[test]
fn a_day_without_requests_is_not_scraped_through_and_changes_nothing() {
    let after = |gap: Duration| {
        let mut requests = requests(&[5.0], 20.0, 0.5, 3);
        let half = requests.len() / 2;
        for one in requests.iter_mut().skip(half) {
            one.request.arrived = one.request.arrived.plus(gap);
        }
        let (pool, scrapes) = (pool(), Arc::new(AtomicU64::new(0)));
        let scheduler = Scheduler::new(pool.scheduler, Box::new(Chain::new()));
        let counting = Box::new(Counting(scheduler, scrapes.clone()));
        let run = drive(&pool.pods, pool.scrape_every, counting, &requests);
        let got =
            |one: &Served| (one.pod, one.ttft_ms, one.tpot_ms, one.wait_ms, one.cached_tokens);
        (run.served().map(got).collect::<Vec<_>>(), scrapes.load(Ordering::Relaxed))
    };
    // Multiples of the time between two scrapes, so that they fall alike; the shorter one is scraped through.
    let (short, long) = (after(Duration::from_secs(55)), after(Duration::from_secs(86_400)));
    assert_eq!(short.0.len(), long.0.len());
    let near = |one: f64, other: f64| (one - other).abs() < 1e-3;
    for (one, other) in short.0.iter().zip(&long.0) {
        assert!(
            one.0 == other.0 && near(one.1, other.1) && near(one.3, other.3),
            "{one:?} {other:?}"
        );
    }
    assert!(long.1 < short.1, "{} and {} scrapes", long.1, short.1);
}
