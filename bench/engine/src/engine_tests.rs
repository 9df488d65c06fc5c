use super::*;
use crate::hardware::hardware;

#[path = "handover_tests.rs"]
mod handover;

#[path = "ranks_tests.rs"]
mod ranks;

/// Every step takes exactly 10 ms; no API cost, no noise, synchronous unless changed.
fn engine(change: impl Fn(&mut EngineConfig)) -> Engine {
    let mut cfg = EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap());
    let hw = cfg.hardware;
    cfg.hardware = Hardware { a_ms: 10.0, b_us: 0.0, c_us: 0.0, d_ns: 0.0, e_ns: 0.0, ..hw };
    cfg.num_blocks = 33;
    cfg.async_scheduling = false;
    cfg.noise_sigma = 0.0;
    cfg.api_cost_ms = 0.0;
    change(&mut cfg);
    Engine::new(cfg)
}

fn job(prompt_tokens: u32, output_tokens: u32) -> Job {
    let (blocks, priority) = (vec![], 0);
    let (brought_tokens, keeps, adapter) = (0, false, None);
    Job { prompt_tokens, blocks, output_tokens, priority, brought_tokens, keeps, adapter }
}

fn run(engine: &mut Engine, to_ms: f64) -> Vec<Output> {
    let mut out = Vec::new();
    engine.advance(to_ms, &mut out);
    out
}

fn token_times(out: &[Output], of: SeqId) -> Vec<f64> {
    let tokens = out.iter().filter(|o| matches!(o, Output::Token { id, .. } if *id == of));
    tokens.map(Output::at_ms).collect()
}

#[test]
fn an_idle_engine_has_no_events() {
    let mut engine = engine(|_| {});
    assert_eq!(engine.next_event_ms(), None);
    let id = engine.submit(5.0, job(10, 2)).unwrap();
    assert_eq!(engine.next_event_ms(), Some(5.0));
    let out = run(&mut engine, 1e9);
    assert_eq!(token_times(&out, id), [15.0, 25.0]);
    assert_eq!(engine.next_event_ms(), None);
}

#[test]
fn the_first_token_comes_when_the_step_of_the_last_prompt_chunk_ends() {
    let mut engine = engine(|cfg| cfg.max_num_batched_tokens = 100);
    let id = engine.submit(0.0, job(250, 2)).unwrap();
    let out = run(&mut engine, 1e3);
    assert_eq!(token_times(&out, id), [30.0, 40.0]);
    let Some(Output::Finished { queue_ms, prefill_ms, decode_ms, output_tokens, .. }) = out.last()
    else {
        panic!("{out:?}")
    };
    assert_eq!((*queue_ms, *prefill_ms, *decode_ms, *output_tokens), (0.0, 30.0, 10.0, 2));
}

#[test]
fn a_job_that_arrives_during_a_step_waits_for_its_end() {
    let mut engine = engine(|_| {});
    engine.submit(0.0, job(10, 9)).unwrap();
    run(&mut engine, 12.0);
    let late = engine.submit(13.0, job(10, 1)).unwrap();
    assert_eq!(token_times(&run(&mut engine, 1e3), late), [30.0]);
}

#[test]
fn async_scheduling_sees_an_arrival_one_step_later() {
    let mut engine = engine(|cfg| cfg.async_scheduling = true);
    let first = engine.submit(0.0, job(10, 9)).unwrap();
    let mut out = run(&mut engine, 12.0);
    let late = engine.submit(13.0, job(10, 1)).unwrap();
    out.extend(run(&mut engine, 1e3));
    assert_eq!(token_times(&out, late), [40.0], "20: seen, 30: own step starts, 40: it ends");
    assert_eq!(token_times(&out, first)[..3], [10.0, 20.0, 30.0], "its own pace is the same");
}

#[test]
fn async_scheduling_uses_freed_capacity_one_step_later() {
    for (async_scheduling, first_token_ms) in [(false, 30.0), (true, 40.0)] {
        let mut engine = engine(|cfg| {
            cfg.max_num_seqs = 2;
            cfg.async_scheduling = async_scheduling;
        });
        engine.submit(0.0, job(10, 2)).unwrap();
        engine.submit(0.0, job(10, 9)).unwrap();
        let next = engine.submit(0.0, job(10, 1)).unwrap();
        assert_eq!(token_times(&run(&mut engine, 1e3), next), [first_token_ms]);
    }
}

#[test]
fn at_low_load_ttft_is_that_of_real_runs() {
    // 15 real runs of vLLM on H100, prompts almost fully cached: TTFT_p50 = 3.35 ms + 2.855 x TPOT, MAPE 1.5 %.
    for (name, sequences) in [
        ("h100-llama-3.1-8b-tp1", 64),
        ("h100-qwen3-32b-tp2", 1),
        ("h100-qwen3-32b-tp2", 32),
        ("h100-llama-3.1-70b-tp4", 64),
    ] {
        let mut engine = Engine::new(EngineConfig::for_hardware(hardware(name).unwrap()));
        let (ttft, tpot) = low_load(&mut engine, sequences);
        let real = 3.35 + 2.855 * tpot;
        let error = ttft / real - 1.0;
        println!("{name} beside {sequences}: tpot {tpot:.1}, ttft {ttft:.1}, real {real:.1} ms");
        assert!(error.abs() < 0.15, "{name}: ttft {ttft:.1} ms, real runs {real:.1} ms");
    }
}

/// Median TTFT of probes with a cached 1024-token prompt beside residents that decode, and the residents' TPOT.
fn low_load(engine: &mut Engine, residents: u32) -> (f64, f64) {
    let cached = |output_tokens| Job { blocks: (0..64).collect(), ..job(1030, output_tokens) };
    let ids: Vec<SeqId> =
        (0..residents).map(|_| engine.submit(0.0, cached(3000)).unwrap()).collect();
    let (mut out, mut probes) = (Vec::new(), Vec::new());
    for i in 0..200 {
        let at_ms = 3000.0 + f64::from(i) * 137.7;
        engine.advance(at_ms, &mut out);
        probes.push((at_ms, engine.submit(at_ms, cached(2)).unwrap()));
    }
    engine.advance(31_000.0, &mut out);
    let mut ttfts: Vec<f64> =
        probes.iter().map(|(at_ms, id)| token_times(&out, *id)[0] - at_ms).collect();
    ttfts.sort_by(f64::total_cmp);
    let decode = token_times(&out, ids[0]);
    let tail = &decode[decode.len() / 10..];
    let tpot = (tail[tail.len() - 1] - tail[0]) / (tail.len() - 1) as f64;
    (ttfts[100], tpot)
}

#[test]
fn the_api_cost_delays_what_the_client_sees_once() {
    let mut engine = engine(|cfg| cfg.api_cost_ms = 5.0);
    let id = engine.submit(0.0, job(10, 2)).unwrap();
    assert_eq!(engine.metrics().waiting, 1);
    assert_eq!(token_times(&run(&mut engine, 1e3), id), [15.0, 25.0]);
}

#[test]
fn the_admission_valves_reject_at_their_limits() {
    let mut engine = engine(|cfg| {
        cfg.max_num_seqs = 1;
        cfg.max_num_queued_reqs = Some(3);
        cfg.max_num_queued_tokens = Some(100);
    });
    engine.submit(0.0, job(10, 9)).unwrap();
    run(&mut engine, 1.0);
    engine.submit(1.0, job(60, 9)).unwrap();
    let refused = engine.submit(1.0, job(41, 9));
    assert_eq!(refused, Err(Rejected::QueuedTokens { waiting_tokens: 101, limit: 100 }));
    engine.submit(1.0, job(40, 9)).unwrap();
    let refused = engine.submit(1.0, job(1, 9));
    assert_eq!(refused, Err(Rejected::QueuedRequests { jobs: 3, limit: 3 }));
    assert_eq!((engine.metrics().rejections, engine.metrics().waiting_tokens), (2, 100));
}

#[test]
fn a_job_that_can_never_run_is_rejected() {
    let mut small = engine(|_| {});
    let refused = small.submit(0.0, job(500, 13));
    assert_eq!(refused, Err(Rejected::TooLongForCache { tokens: 513, kv_tokens: 512 }));
    assert!(small.submit(0.0, job(500, 12)).is_ok());
    let mut whole = engine(|cfg| {
        cfg.chunked_prefill = false;
        cfg.max_num_batched_tokens = 100;
    });
    let refused = whole.submit(0.0, job(90, 11));
    assert_eq!(refused, Err(Rejected::TooLongForStep { tokens: 101, budget: 100 }));
}

#[test]
fn metrics_follow_a_job_through_the_engine() {
    let mut engine = engine(|_| {});
    engine.submit(0.0, Job { blocks: (0..4).collect(), ..job(64, 2) }).unwrap();
    assert_eq!((engine.metrics().waiting, engine.metrics().running), (1, 0));
    run(&mut engine, 5.0);
    let m = engine.metrics();
    assert_eq!((m.waiting, m.running, m.prompt_tokens), (0, 1, 0));
    assert_eq!(m.kv_usage, 4.0 / 32.0);
    run(&mut engine, 100.0);
    engine.submit(100.0, Job { blocks: (0..4).collect(), ..job(64, 1) }).unwrap();
    run(&mut engine, 200.0);
    let want = EngineMetrics {
        prompt_tokens: 128,
        prompt_tokens_cached: 48,
        generation_tokens: 3,
        prefix_queries: 128,
        prefix_hits: 48,
        success: 2,
        steps: 3,
        iteration_tokens: 64 + 1 + 16,
        busy_ms: 30.0,
        ..EngineMetrics::default()
    };
    assert_eq!(engine.metrics(), want);
}

#[test]
fn an_abort_frees_memory_in_every_phase() {
    let mut engine = engine(|cfg| {
        cfg.max_num_seqs = 1;
        cfg.async_scheduling = true;
        cfg.api_cost_ms = 5.0;
    });
    let running = engine.submit(0.0, job(100, 50)).unwrap();
    let waiting = engine.submit(0.0, job(100, 50)).unwrap();
    run(&mut engine, 17.0);
    let incoming = engine.submit(17.0, job(100, 50)).unwrap();
    for id in [incoming, waiting, running] {
        assert!(engine.abort(17.0, id));
        assert!(!engine.abort(17.0, id), "only once");
    }
    assert_eq!(run(&mut engine, 1e3), [], "nothing comes of what was in flight");
    let m = engine.metrics();
    assert_eq!((m.running, m.waiting, m.waiting_tokens, m.kv_usage), (0, 0, 0, 0.0));
    assert_eq!((m.aborted, m.success), (3, 0));
}

#[test]
fn outputs_of_time_passed_in_a_submit_come_with_the_next_advance() {
    let mut engine = engine(|_| {});
    let id = engine.submit(0.0, job(10, 3)).unwrap();
    engine.submit(25.0, job(10, 3)).unwrap();
    assert_eq!(engine.next_event_ms(), Some(10.0));
    assert_eq!(token_times(&run(&mut engine, 25.0), id), [10.0, 20.0]);
}

#[test]
fn jobs_submitted_at_one_moment_are_scheduled_together() {
    let mut engine = engine(|_| {});
    let ids = [0, 1, 2].map(|_| engine.submit(7.0, job(10, 1)).unwrap());
    let out = run(&mut engine, 1e3);
    assert!(ids.iter().all(|id| token_times(&out, *id) == [17.0]));
}

#[test]
fn a_plan_that_only_preempted_does_not_stall_an_idle_engine() {
    let mut engine = engine(|cfg| {
        cfg.priority_policy = true;
        cfg.num_blocks = 4;
    });
    engine.submit(0.0, Job { priority: 5, ..job(16, 20) }).unwrap();
    run(&mut engine, 5.0);
    engine.submit(5.0, job(15, 20)).unwrap();
    engine.submit(5.0, job(1, 4)).unwrap();
    // At 20 ms the first job leads the list, needs a block, finds none, and is itself the least important.
    run(&mut engine, 1e4);
    assert_eq!(engine.metrics().success, 3);
    assert!(engine.metrics().preemptions > 0);
}

#[test]
fn with_every_token_off_only_the_first_and_the_end_are_told() {
    let mut engine = engine(|cfg| cfg.every_token = false);
    engine.submit(0.0, job(10, 30)).unwrap();
    let out = run(&mut engine, 1e3);
    assert!(matches!(out[..], [Output::Token { index: 1, .. }, Output::Finished { .. }]));
    assert_eq!(out[1].at_ms(), 300.0);
}

#[test]
fn how_far_a_job_has_come_can_be_read_at_any_time() {
    let mut engine = engine(|cfg| cfg.every_token = false);
    let first = engine.submit(0.0, job(10, 30)).unwrap();
    let second = engine.submit(0.0, job(10, 5)).unwrap();
    assert_eq!((engine.generated(first), engine.generation_tokens()), (Some(0), 0));
    run(&mut engine, 45.0);
    assert_eq!((engine.generated(first), engine.generated(second)), (Some(4), Some(4)));
    run(&mut engine, 65.0);
    assert_eq!((engine.generated(first), engine.generated(second)), (Some(6), None));
    assert_eq!(engine.generation_tokens(), 11);
    assert_eq!(engine.generation_tokens(), engine.metrics().generation_tokens);
}

#[test]
fn one_seed_gives_one_history_and_a_clone_the_same_future() {
    let play = |engine: &mut Engine| {
        for i in 0..20 {
            engine.submit(f64::from(i) * 9.0, job(50, 20)).unwrap();
        }
        run(engine, 1e6)
    };
    let noisy = |seed| {
        engine(|cfg| {
            cfg.noise_sigma = 0.05;
            cfg.seed = seed;
        })
    };
    assert_eq!(play(&mut noisy(1)), play(&mut noisy(1)));
    assert_ne!(play(&mut noisy(1)), play(&mut noisy(2)));
    let mut original = noisy(3);
    run(&mut original, 5.0);
    assert_eq!(play(&mut original.clone()), play(&mut original));
}

#[test]
fn steps_slow_down_by_the_formula_with_the_prefill_factor() {
    let mut engine = engine(|cfg| {
        cfg.hardware = *hardware("h100-qwen3-32b-tp2").unwrap();
        cfg.num_blocks = 1000;
    });
    let id = engine.submit(0.0, job(1000, 1)).unwrap();
    let ms = token_times(&run(&mut engine, 1e4), id)[0];
    let want = 13.8043 + 632.0 * 52.54e-3 * 1.15 + 368.0 * 25.5522e-3 + 0.5 * 1.5053;
    assert!((ms - want).abs() < 1e-9, "{ms} {want}");
}

fn job_for(adapter: u32, prompt_tokens: u32, output_tokens: u32) -> Job {
    Job { adapter: Some(adapter), ..job(prompt_tokens, output_tokens) }
}

#[test]
fn the_whole_engine_stands_still_while_an_adapter_is_brought() {
    let mut engine = engine(|cfg| (cfg.max_loras, cfg.lora_load_ms) = (1, 25.0));
    let other = engine.submit(0.0, job(10, 4)).unwrap();
    let first = engine.submit(5.0, job_for(1, 10, 1)).unwrap();
    let second = engine.submit(5.0, job_for(1, 10, 1)).unwrap();
    let third = engine.submit(46.0, job_for(1, 10, 1)).unwrap();
    let out = run(&mut engine, 1e9);
    assert_eq!(token_times(&out, other), [10.0, 45.0, 55.0, 65.0]);
    assert_eq!((token_times(&out, first), token_times(&out, second)), (vec![45.0], vec![45.0]));
    assert_eq!(token_times(&out, third), [65.0], "it has its slot");
}

#[test]
fn adapters_in_the_api_server_wait_and_ranks_have_their_own() {
    let mut engine = engine(|cfg| (cfg.ranks, cfg.api_cost_ms, cfg.max_loras) = (2, 5.0, 1));
    engine.submit_to(0.0, 0, job(10, 1)).unwrap();
    assert_eq!((engine.adapters(), engine.adapters_of(7)), (None, None));
    engine.submit_to(0.0, 0, job_for(3, 10, 2)).unwrap();
    engine.submit_to(0.0, 1, job_for(1, 10, 2)).unwrap();
    engine.submit_to(0.0, 1, job_for(3, 10, 2)).unwrap();
    let all = engine.adapters().unwrap();
    assert_eq!((all.running, all.waiting), (vec![], vec![1, 3]));
    run(&mut engine, 6.0);
    let of = |rank| engine.adapters_of(rank).map(|found| (found.running, found.waiting)).unwrap();
    assert_eq!((of(0), of(1)), ((vec![3], vec![]), (vec![1], vec![3])));
    let all = engine.adapters().unwrap();
    assert_eq!((all.running, all.waiting), (vec![1, 3], vec![3]));
}

#[test]
fn without_a_bound_adapters_change_nothing_but_what_bringing_them_takes() {
    let history = |adapters: bool, lora_load_ms| {
        let mut engine = engine(|cfg| {
            (cfg.lora_load_ms, cfg.noise_sigma, cfg.async_scheduling) = (lora_load_ms, 0.1, true);
        });
        for number in 0..40 {
            let adapter = adapters.then_some(number % 7);
            let job = Job { adapter, ..job(20 + 7 * (number % 11), 1 + number % 13) };
            engine.submit(f64::from(number) * 8.0, job).unwrap();
        }
        (run(&mut engine, 1e9), engine.metrics())
    };
    let plain = history(false, 20.0);
    assert_eq!(plain, history(true, 0.0));
    assert!(plain.1.busy_ms < history(true, 20.0).1.busy_ms);
}
