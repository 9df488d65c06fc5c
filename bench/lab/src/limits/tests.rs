use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_core::{Band, PromptSize, Request, RequestId, Role, Slo, Time};
use weir_engine::hardware;

use super::*;
use crate::{
    contender::Contender,
    prompt::Segment,
    sim::{Oracle, drive},
    study::{Knowledge, Setting, at_load, max_load},
    trace::Arrival,
    workload::Replay,
};

pub(super) const GPU: &str = "h100-qwen3-32b-tp2";

/// Pods without noise.
pub(super) fn pool(gpus: &[&str], chunk_tokens: u32) -> Pool {
    let mut pool = Pool::of(gpus[0], 0, None).unwrap();
    pool.classes.clear();
    for gpu in gpus {
        let mut engine = EngineConfig::for_hardware(hardware(gpu).unwrap());
        engine.noise_sigma = 0.0;
        engine.max_num_batched_tokens = chunk_tokens;
        pool.add(&engine, 1, Role::Both);
    }
    pool
}

fn noisy(mut pool: Pool) -> Pool {
    pool.pods.iter_mut().for_each(|pod| pod.engine.noise_sigma = 0.02);
    pool
}

pub(super) fn request(place: usize, at_ms: u64, input: u32, output: u32, slo: Slo) -> SimRequest {
    SimRequest {
        request: Request {
            slo,
            band: Band(1),
            body_bytes: 4 * input,
            ..Request::new(
                RequestId(place as u64),
                Time::from_millis(at_ms),
                PromptSize::Tokens(input),
            )
        },
        class: 0,
        input_tokens: input,
        output_tokens: output,
        blocks_with_answer: None,
        after: None,
    }
}

pub(super) fn slo(ttft_ms: u64, tpot_ms: u64) -> Slo {
    let ms = |ms| Some(Duration::from_millis(ms));
    Slo { ttft: ms(ttft_ms), tpot: ms(tpot_ms) }
}

/// Requests of many sizes, some with the same beginning, at once or over some seconds.
fn workload(rng: &mut SmallRng) -> Vec<SimRequest> {
    let count = rng.random_range(2..40);
    let span_ms = *[1, 500, 5000, 60_000].get(rng.random_range(0..4)).unwrap();
    let largest = *[200, 3000, 20_000].get(rng.random_range(0..3)).unwrap();
    let families = rng.random_range(1..5_u64);
    let mut at: Vec<u64> = (0..count).map(|_| rng.random_range(0..span_ms)).collect();
    at.sort_unstable();
    let promised = [slo(300, 25), slo(2000, 50), slo(1000, 18), Slo::default()];
    let one = |(place, at_ms): (usize, &u64)| {
        let (input, output) = (rng.random_range(1..largest), rng.random_range(1..120));
        let slo = promised[rng.random_range(0..promised.len())];
        let mut one = request(place, *at_ms, input, output, slo);
        let shared = u64::from(rng.random_range(0..=input / 16));
        let family = rng.random_range(0..families);
        one.request.blocks = (0..shared).map(|block| 1 + block * families + family).collect();
        one
    };
    at.iter().enumerate().map(one).collect()
}

fn run(pool: &Pool, policy: &str, requests: &[SimRequest], seed: u64) -> Run {
    let predictor = Box::new(Oracle::new(pool, 0.05, seed));
    let dispatcher = Contender::named(policy).unwrap().build(pool, predictor, seed);
    drive(&pool.seeded(seed), pool.scrape_every, dispatcher, requests)
}

/// Nothing that a run did is beyond the limits of what it was asked.
fn holds(pool: &Pool, requests: &[SimRequest], run: &Run, luck: f64, who: &str) {
    let objectives = Objectives::default();
    let limits = limits_of(pool, requests, &objectives, run, 0);
    let regret = regret(run, requests, &limits);
    let said = format!("{who}: {limits:?} {regret:?}");
    assert!(regret.in_time <= limits.all.in_time, "{said}");
    assert!(limits.all.in_time <= limits.all.feasible, "{said}");
    assert!(regret.ttft_over_limit.is_none_or(|ratio| ratio >= 1.0 - luck), "{said}");
    assert!(regret.e2e_over_limit.is_none_or(|ratio| ratio >= 1.0 - luck), "{said}");
    assert!(regret.prefix_hit <= limits.all.prefix_hit + 1e-9, "{said}");
    if run.served().count() == requests.len() {
        let planned = super::limits(pool, requests, &objectives);
        assert!(regret.in_time <= planned.all.in_time, "{said}");
    }
}

#[test]
fn a_request_alone_takes_what_the_floor_says() {
    let pool = pool(&[GPU], 8192);
    // 13.8043 + 368 * .0255522 + 632 * 1.15 * .05254 + 1000^2 / 2 * 1.5053e-6, and 5 in the API server.
    let ttft_ms = 5.0 + 13.8043 + 9.403_21 + 38.186_07 + 0.752_65;
    let requests = [request(0, 100, 1000, 3, slo(2000, 50))];
    let limits = limits(&pool, &requests, &Objectives::default());
    let run = run(&pool, "round-robin", &requests, 1);
    let limit = limits.all;
    assert!((limit.ttft_ms_mean.unwrap() - ttft_ms).abs() < 1e-3, "{limit:?}");
    // Two decodes over 1001 and 1002 tokens.
    let e2e_ms = ttft_ms + 2.0 * (13.8043 + 0.025_552_2) + 2003.0 * 43.3709e-6;
    assert!((limit.e2e_ms_mean.unwrap() - e2e_ms).abs() < 1e-3, "{limit:?}");
    let regret = regret(&run, &requests, &limits);
    assert!((regret.ttft_over_limit.unwrap() - 1.0).abs() < 1e-3, "{regret:?}");
    assert!((regret.e2e_over_limit.unwrap() - 1.0).abs() < 1e-3, "{regret:?}");
    assert_eq!((limit.requests, limit.feasible, limit.in_time, regret.in_time), (1, 1, 1, 1));
}

#[test]
fn a_chunked_prompt_takes_its_chunks() {
    let pool = pool(&[GPU], 512);
    let requests = [request(0, 0, 5000, 1, Slo::default())];
    let limits = limits(&pool, &requests, &Objectives::default());
    let regret = regret(&run(&pool, "round-robin", &requests, 1), &requests, &limits);
    let ratio = regret.ttft_over_limit.unwrap();
    assert!((1.0..1.02).contains(&ratio), "{ratio}: the last chunk is below the hinge");
}

#[test]
fn who_is_late_alone_is_not_feasible() {
    let pool = pool(&[GPU], 8192);
    let late = request(0, 0, 8000, 5, slo(300, 50));
    let slow = request(1, 0, 100, 5, slo(300, 13));
    let fine = request(2, 0, 100, 5, slo(300, 15));
    let one_token = request(3, 0, 100, 1, slo(300, 13));
    let limit = limits(&pool, &[late, slow, fine, one_token], &Objectives::default()).all;
    assert_eq!((limit.requests, limit.feasible, limit.in_time), (4, 2, 2));
}

#[test]
fn more_than_the_pods_can_do_in_time_is_not_in_time() {
    // Ten prompts of half a second each at once, on two pods, due in a second: four, by hand.
    let pool = pool(&[GPU, GPU], 8192);
    let requests: Vec<SimRequest> =
        (0..10).map(|place| request(place, 0, 7600, 1, slo(1000, 50))).collect();
    let limit = limits(&pool, &requests, &Objectives::default()).all;
    let prompt_ms = 0.0605 * 7600.0 + 7600.0 * 3800.0 * 1.5053e-6;
    assert_eq!(limit.in_time, (2.0 * 995.0 / prompt_ms) as usize);
    assert_eq!((limit.in_time, limit.feasible), (3, 10));
    // Half of each prompt behind the mean moment of its work: by hand, from the smallest bound of ten equal jobs.
    let mean_ms = (1..=10).map(|n| (f64::from(n) - 0.5) * prompt_ms / 2.0).sum::<f64>() / 10.0;
    let least_ms = 5.0 + mean_ms + prompt_ms / 2.0;
    assert!((limit.ttft_ms_mean.unwrap() / least_ms - 1.0).abs() < 0.01, "{limit:?} {least_ms}");
}

#[test]
fn a_shared_block_is_computed_once() {
    let pool = pool(&[GPU, GPU], 8192);
    let blocks: Arc<[u64]> = (1..=62).collect();
    let mut requests: Vec<SimRequest> =
        (0..4).map(|place| request(place, 10, 1000, 1, Slo::default())).collect();
    requests.iter_mut().for_each(|one| one.request.blocks = blocks.clone());
    // 62 of 62.5 blocks, for three of four.
    let limit = limits(&pool, &requests, &Objectives::default()).all;
    assert!((limit.prefix_hit - 3.0 * 992.0 / 4000.0).abs() < 1e-9, "{limit:?}");
    let mut cold = pool.clone();
    cold.pods.iter_mut().for_each(|pod| pod.engine.prefix_caching = false);
    assert_eq!(limits(&cold, &requests, &Objectives::default()).all.prefix_hit, 0.0);
}

#[test]
fn the_last_block_of_a_prompt_and_an_answer_are_nobodys_gift() {
    let pool = pool(&[GPU], 8192);
    let mut first = request(0, 0, 64, 40, Slo::default());
    first.request.blocks = Arc::from([1, 2, 3, 4]);
    first.blocks_with_answer = Some(Arc::from([1, 2, 3, 4, 5, 6]));
    let mut next = request(1, 9000, 120, 4, Slo::default());
    next.request.blocks = Arc::from([1, 2, 3, 4, 5, 6, 7]);
    let same = SimRequest {
        request: Request { id: RequestId(2), ..first.request.clone() },
        ..first.clone()
    };
    // The first pays for 64, the second for 24 behind its six known blocks, the third for its last block.
    let limit = limits(&pool, &[first, next, same], &Objectives::default()).all;
    assert!((limit.prefix_hit - (1.0 - (64.0 + 24.0 + 16.0) / 248.0)).abs() < 1e-9, "{limit:?}");
}

#[test]
fn no_policy_is_beyond_the_limits() {
    let pools = [
        pool(&[GPU], 8192),
        pool(&[GPU, GPU], 512),
        pool(&[GPU, "h100-llama-3.1-8b-tp1", "a100-llama-3.1-70b-tp4"], 2048),
    ];
    let mut rng = SmallRng::seed_from_u64(11);
    for round in 0..36 {
        let (pool, requests) = (&pools[round % 3], workload(&mut rng));
        for policy in ["weir", "least-request", "round-robin"] {
            let run = run(pool, policy, &requests, 1);
            holds(pool, &requests, &run, 0.0, &format!("{policy}, round {round}"));
        }
        if round < 6 {
            let run = clairvoyant(pool, &requests, Sight::default(), 1);
            holds(pool, &requests, &run, 0.0, &format!("clairvoyant, round {round}"));
        }
    }
}

#[test]
fn noise_beats_the_limits_of_means_by_no_more_than_itself() {
    let pool = noisy(pool(&[GPU, GPU], 2048));
    let mut rng = SmallRng::seed_from_u64(12);
    for round in 0..20 {
        let requests = workload(&mut rng);
        // Two percent a step, and a request alone may be one step.
        let luck = 3.0 * 0.02 / (requests.len() as f64).sqrt();
        for policy in ["weir", "least-request"] {
            let run = run(&pool, policy, &requests, round);
            holds(&pool, &requests, &run, luck, &format!("{policy}, round {round}"));
        }
    }
}

#[test]
fn turns_that_wait_for_each_other_are_bounded_by_when_they_came() {
    let pool = pool(&[GPU, GPU], 8192);
    let mut requests: Vec<SimRequest> =
        (0..40).map(|place| request(place, 20 * place as u64, 3000, 30, slo(600, 40))).collect();
    requests.iter_mut().skip(20).zip(0..).for_each(|(one, before)| one.after = Some(before));
    for policy in ["weir", "round-robin"] {
        let run = run(&pool, policy, &requests, 3);
        holds(&pool, &requests, &run, 0.0, policy);
        let came = limits_of(&pool, &requests, &Objectives::default(), &run, 0).all;
        let open = limits(&pool, &requests, &Objectives::default()).all;
        assert!(came.ttft_ms_mean >= open.ttft_ms_mean, "{came:?} {open:?}");
    }
}

#[test]
fn the_warm_up_is_not_counted_and_classes_are_told_apart() {
    let pool = pool(&[GPU, GPU], 8192);
    let mut requests: Vec<SimRequest> =
        (0..40).map(|place| request(place, 50 * place as u64, 500, 20, slo(600, 40))).collect();
    requests.iter_mut().skip(30).for_each(|one| one.class = 1);
    let run = run(&pool, "round-robin", &requests, 3);
    let limits = limits_of(&pool, &requests, &Objectives::two_classes(), &run, 10);
    let counts: Vec<usize> = limits.classes.iter().map(|(_, limit)| limit.requests).collect();
    assert_eq!((limits.all.requests, counts), (30, vec![20, 10]));
    assert_eq!(limits.classes[1].0, "batch");
    assert!(regret(&run, &requests, &limits).in_time <= 30);
}

#[test]
fn what_a_lower_band_has_left_in_the_caches_costs_the_highest_nothing() {
    let pool = pool(&[GPU], 8192);
    let blocks: Arc<[u64]> = (1..=1875).collect();
    let objectives = Objectives::two_classes();
    let mut requests: Vec<SimRequest> = (0..2)
        .map(|place| request(place, 60_000 * place as u64, 30_000, 2, slo(1000, 40)))
        .collect();
    requests.iter_mut().for_each(|one| one.request.blocks = blocks.clone());
    requests[0].class = 1;
    let top = limits_of_top_band(&pool, &requests, &objectives, 0);
    assert_eq!((top.requests, top.feasible), (1, 1), "30,000 tokens alone take two seconds");
}

#[test]
fn the_oracle_knows_what_will_happen() {
    let pool = noisy(pool(&[GPU, GPU], 2048));
    let mut rng = SmallRng::seed_from_u64(21);
    let requests: Vec<SimRequest> = (0..60)
        .map(|place| {
            let (input, output) = (rng.random_range(1..4000), rng.random_range(2..60));
            request(place, 40 * place as u64, input, output, slo(2000, 50))
        })
        .collect();
    let run = clairvoyant(&pool, &requests, Sight::default(), 4);
    assert_eq!(run.served().count(), requests.len());
    // Nobody came after the last one.
    let last = run.outcomes.last().unwrap();
    let Outcome::Served(last) = last else { panic!("{last:?}") };
    assert!((f64::from(last.predicted.ttft_ms.p50) - last.ttft_ms).abs() < 0.01, "{last:?}");
    let tpot_ms = last.tpot_ms.unwrap();
    assert!((f64::from(last.predicted.tpot_ms.p50) - tpot_ms).abs() < 0.01, "{last:?}");
}

#[test]
fn the_oracle_serves_more_in_time_than_who_cannot_see() {
    let pool = noisy(pool(&[GPU, GPU], 2048));
    let mut rng = SmallRng::seed_from_u64(22);
    let requests: Vec<SimRequest> = (0..150)
        .map(|place| {
            let large = rng.random::<f64>() < 0.2;
            let input = if large { 9000 } else { 600 };
            request(place, 90 * place as u64, input, rng.random_range(2..80), slo(800, 40))
        })
        .collect();
    let in_time = |run: &Run| {
        let limits = limits_of(&pool, &requests, &Objectives::default(), run, 0);
        let regret = regret(run, &requests, &limits);
        assert!(regret.in_time <= limits.all.in_time, "{regret:?} {limits:?}");
        regret.in_time
    };
    let oracle = in_time(&clairvoyant(&pool, &requests, Sight::default(), 4));
    let blind = in_time(&run(&pool, "least-request", &requests, 4));
    let glance = in_time(&clairvoyant(&pool, &requests, Sight { pods: 1, ..Sight::default() }, 4));
    assert!(oracle > blind + 10 && oracle >= glance, "{oracle} {glance} {blind}");
}

#[test]
fn who_cannot_be_served_as_promised_is_served_all_the_same() {
    let pool = pool(&[GPU], 8192);
    // A pace that no engine has, with and without a deadline; and a prompt that none takes.
    let pace = Slo { ttft: None, ..slo(1, 5) };
    let mut requests = vec![
        request(0, 0, 500, 9, pace),
        request(1, 0, 500, 9, slo(900, 5)),
        request(2, 5, 500, 9, slo(900, 50)),
    ];
    requests.push(request(3, 5, 9_000_000, 9, slo(900, 50)));
    let run = clairvoyant(&pool, &requests, Sight::default(), 4);
    assert_eq!(run.served().count(), 3);
    assert!(matches!(run.outcomes[3], Outcome::Refused(_)), "{:?}", run.outcomes);
}

#[test]
fn the_oracle_gives_an_answer_of_one_token_without_a_pace_at_once() {
    let pool = pool(&[GPU], 2048);
    let prompt_only = Slo { tpot: None, ..slo(2000, 50) };
    let requests: Vec<SimRequest> = [prompt_only, Slo::default()]
        .into_iter()
        .enumerate()
        .map(|(place, slo)| request(place, 500 * place as u64, 600, 1, slo))
        .collect();
    let run = clairvoyant(&pool, &requests, Sight::default(), 4);
    assert_eq!(run.served().count(), requests.len());
    for served in run.served() {
        assert!(served.wait_ms < 1.0, "{served:?}");
    }
}

#[test]
fn an_oracle_is_the_same_every_time() {
    let pool = noisy(pool(&[GPU, GPU], 2048));
    let requests = workload(&mut SmallRng::seed_from_u64(23));
    let once = || clairvoyant(&pool, &requests, Sight { pods: 1, ..Sight::default() }, 4).outcomes;
    assert_eq!(once(), once());
}

/// Two pods and requests of two classes, some with the same beginning.
fn setting() -> Setting {
    let row = |number: u32| Arrival {
        at_s: f64::from(number),
        input_tokens: 500 + 90 * (number % 11),
        output_tokens: 5 + number % 7 * 6,
        class: None,
        prefix: vec![Segment { id: u64::from(number % 3), tokens: 256 }],
    };
    Setting {
        pool: noisy(pool(&[GPU, GPU], 2048)),
        gpu: GPU.to_owned(),
        source: Arc::new(Replay::new("rows".to_owned(), (0..200).map(row).collect()).unwrap()),
        objectives: Objectives::two_classes(),
        mix: "two".to_owned(),
        requests: 200,
        knowledge: Knowledge::default(),
        dispatchers: 1,
    }
}

#[test]
fn the_lines_say_what_a_study_says() {
    let setting = setting();
    let contenders = [Contender::named("weir").unwrap(), Contender::named("round-robin").unwrap()];
    let (seeds, sight) = ([1, 2], Sight::default());
    let lines = compare(&setting, &contenders, &[0.8, 1.5], &seeds, Some(sight), 2).unwrap();
    let named: Vec<(f64, &str)> =
        lines.iter().map(|line| (line.load, line.policy.as_str())).collect();
    let [weir, blind] = ["weir", "round-robin"];
    let want = [0.8, 1.5].map(|load| [(load, weir), (load, blind), (load, ORACLE)]).concat();
    assert_eq!(named, want);
    for line in &lines {
        assert!(line.attainment <= line.attainment_limit && line.of_limit <= 1.0, "{line:?}");
        assert!(line.ttft_over_limit().unwrap() > 0.99, "{line:?}");
        assert!(line.e2e_over_limit().unwrap() > 0.99, "{line:?}");
    }
    let row = &at_load(&setting, &contenders[1], 1.5, &seeds).unwrap()[0];
    let line = &lines[4];
    assert_eq!(line.requests, row.requests);
    assert!((line.attainment - row.attainment).abs() < 1e-9, "{line:?} {row:?}");
    assert!((line.ttft_ms_mean.unwrap() / row.ttft_ms_mean.unwrap() - 1.0).abs() < 1e-9);
    assert!((line.e2e_ms_mean.unwrap() / row.e2e_ms_mean.unwrap() - 1.0).abs() < 1e-9);
}

#[test]
fn the_oracle_holds_more_than_who_cannot_see_and_nobody_more_than_the_limit() {
    let setting = Setting { requests: 60, ..setting() };
    let contenders = [Contender::named("weir").unwrap(), Contender::named("round-robin").unwrap()];
    let (seeds, sight) = ([1], Sight::default());
    let rows = highest(&setting, &contenders, 0.95, &seeds, Some(sight), 2).unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.policy.as_str()).collect();
    assert_eq!(names, ["weir", "round-robin", LIMIT, ORACLE]);
    let [weir, blind, limit, oracle] = &rows[..] else { panic!("{rows:?}") };
    let held = max_load(&setting, &contenders[0], 0.95, &seeds).unwrap();
    assert_eq!(Some(weir.max_load), held.first().and_then(|row| row.max_load));
    assert!(blind.max_load < oracle.max_load && weir.max_load < limit.max_load, "{rows:?}");
    assert!(oracle.max_load <= limit.max_load && limit.max_load > 0.0, "{rows:?}");
    assert_eq!((limit.of_limit, oracle.of_oracle), (Some(1.0), Some(1.0)));
    assert_eq!(weir.of_oracle, Some(weir.max_load / oracle.max_load));
    let attains = |load| oracle_attains(&setting, load, &seeds, sight, 1).unwrap();
    assert!(attains(oracle.max_load) >= 0.95 && attains(oracle.max_load + 0.01) < 0.95);
    let alone = highest(&setting, &contenders[..1], 0.95, &seeds, None, 1).unwrap();
    let names: Vec<&str> = alone.iter().map(|row| row.policy.as_str()).collect();
    assert_eq!((names, alone[0].of_oracle), (vec!["weir", LIMIT], None));
}

#[test]
fn who_counts_the_highest_band_first_lets_lower_ones_wait() {
    let pool = noisy(pool(&[GPU], 2048));
    let mut rng = SmallRng::seed_from_u64(24);
    let mut requests: Vec<SimRequest> = (0..80)
        .map(|place| {
            let (input, output) = (rng.random_range(500..3000), rng.random_range(2..60));
            request(place, 60 * place as u64, input, output, slo(900, 40))
        })
        .collect();
    requests.iter_mut().step_by(2).for_each(|asked| asked.request.band = Band(0));
    let above_in_time = |sight| {
        let run = clairvoyant(&pool, &requests, sight, 4);
        let above = requests.iter().zip(&run.outcomes).skip(1).step_by(2);
        above.filter(|(_, outcome)| matches!(outcome, Outcome::Served(one) if one.ttft_from_arrival_ms() <= 900.0)).count()
    };
    let (any, first) =
        (above_in_time(Sight::default()), above_in_time(Sight::default().promised()));
    assert!(first > any, "{first} {any}");
}

#[test]
fn a_highest_load_of_a_short_run_is_warned_of_and_the_bound_is_not() {
    let setting = setting();
    let row = |policy: &str, max_load| Highest {
        policy: policy.to_owned(),
        max_load,
        bounded: true,
        ..Highest::default()
    };
    let notes = args::notes(&setting, &[row("weir", 9.0), row(LIMIT, 15.0)]);
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("too few for the highest load of weir:"), "{note}");
    assert!(args::notes(&setting, &[row("weir", 0.001), row(LIMIT, 15.0)]).is_empty());
}

#[test]
fn of_traffic_with_rates_of_its_own_there_are_no_limits_and_no_way_is_told_to_have_them() {
    let asked = asked("--scenario ladder --policy random").unwrap();
    let error = asked.run().unwrap_err().to_string();
    assert!(error.contains("ladder has rates of its own") && !error.contains("give"), "{error}");
}

#[test]
fn what_limits_never_have_is_not_in_their_help() {
    let help = <Line as clap::CommandFactory>::command().render_long_help().to_string();
    assert!(help.contains("--json") && !help.contains("--series"), "{help}");
    let series = asked("--scenario A --load 1 --series x").unwrap().run().unwrap_err();
    assert!(series.to_string().contains("`weir-bench sim` writes it"), "{series}");
}

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    limits: LimitsArgs,
}

fn asked(words: &str) -> Result<LimitsArgs, clap::Error> {
    let words = std::iter::once("limits").chain(words.split_whitespace());
    <Line as clap::Parser>::try_parse_from(words).map(|line| line.limits)
}
