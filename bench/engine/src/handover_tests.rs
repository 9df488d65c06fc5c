//! KV that another engine computed, and KV that is kept for another engine.

use super::*;

/// A job whose whole prompt was computed elsewhere.
fn brought(prompt_tokens: u32, output_tokens: u32) -> Job {
    Job { brought_tokens: prompt_tokens, ..job(prompt_tokens, output_tokens) }
}

fn keeping(prompt_tokens: u32, output_tokens: u32) -> Job {
    Job { keeps: true, ..job(prompt_tokens, output_tokens) }
}

fn named(job: Job) -> Job {
    Job { blocks: (0..u64::from(job.prompt_tokens) / 16).collect(), ..job }
}

/// Tokens found in the cache at first admission.
fn cached(out: &[Output], of: SeqId) -> u32 {
    let found = out.iter().find_map(|output| match output {
        Output::Finished { id, cached_tokens, .. } if *id == of => Some(*cached_tokens),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn brought_kv_is_seen_once_it_is_loaded() {
    let mut engine = engine(|cfg| {
        cfg.api_cost_ms = 5.0;
        cfg.transfer_us_per_token = 20.0;
    });
    let id = engine.submit(0.0, brought(400, 2)).unwrap();
    assert_eq!((engine.metrics().waiting, engine.metrics().waiting_tokens), (1, 400));
    assert_eq!(engine.next_event_ms(), Some(13.0), "5 in the API server, 8 for 400 tokens");
    let out = run(&mut engine, 1e3);
    assert_eq!(token_times(&out, id), [23.0, 33.0]);
    assert!(matches!(out[2], Output::Finished { queue_ms: 0.0, cached_tokens: 0, .. }));
}

#[test]
fn more_than_the_prompt_cannot_be_brought() {
    let mut engine = engine(|cfg| cfg.transfer_us_per_token = 20.0);
    let id = engine.submit(0.0, Job { brought_tokens: u32::MAX, ..job(100, 1) }).unwrap();
    assert_eq!(token_times(&run(&mut engine, 1e3), id), [12.0]);
    assert_eq!(engine.metrics().iteration_tokens, 1);
}

#[test]
fn a_brought_prompt_costs_the_step_of_one_token_that_sees_all_of_it() {
    let hw = hardware("h100-qwen3-32b-tp2").unwrap();
    let mut cfg = EngineConfig::for_hardware(hw);
    cfg.noise_sigma = 0.0;
    let mut engine = Engine::new(cfg);
    let id = engine.submit(0.0, brought(8000, 1)).unwrap();
    let ms = token_times(&run(&mut engine, 1e4), id)[0];
    let step_ms = 13.8043 + 25.5522e-3 + 7999.5 * 1.5053e-6;
    assert!((ms - (5.0 + 8.0 * 6.0 + step_ms)).abs() < 1e-9, "{ms}");
    let m = engine.metrics();
    assert_eq!((m.steps, m.iteration_tokens, m.prompt_tokens), (1, 1, 8000));
}

#[test]
fn beside_others_a_brought_prompt_waits_for_the_pipeline_alone() {
    let mut engine = engine(|cfg| {
        cfg.async_scheduling = true;
        cfg.api_cost_ms = 5.0;
        cfg.transfer_us_per_token = 20.0;
    });
    engine.submit(0.0, job(10, 50)).unwrap();
    run(&mut engine, 20.0);
    let id = engine.submit(20.0, brought(400, 1)).unwrap();
    let out = run(&mut engine, 1e3);
    assert_eq!(token_times(&out, id), [55.0], "33: loaded, 35: seen, 45: own step, 55: it ends");
}

#[test]
fn part_of_a_prompt_may_be_brought() {
    let mut engine = engine(|_| {});
    engine.submit(0.0, Job { brought_tokens: 100, ..job(150, 1) }).unwrap();
    run(&mut engine, 1e3);
    assert_eq!(engine.metrics().iteration_tokens, 50);
}

#[test]
fn brought_blocks_are_memory_in_use_and_hit_by_a_later_turn() {
    let mut engine = engine(|cfg| cfg.transfer_us_per_token = 0.0);
    let first = engine.submit(0.0, named(brought(64, 2))).unwrap();
    let mut out = run(&mut engine, 5.0);
    assert_eq!(engine.metrics().kv_usage, 4.0 / 32.0);
    out.extend(run(&mut engine, 99.0));
    assert_eq!((engine.metrics().kv_usage, cached(&out, first)), (0.0, 0));
    let turn = engine.submit(100.0, named(job(80, 1))).unwrap();
    assert_eq!(cached(&run(&mut engine, 200.0), turn), 64);
    let m = engine.metrics();
    assert_eq!((m.prefix_queries, m.prefix_hits), (144, 64), "local hits only");
    assert_eq!(m.iteration_tokens, 1 + 1 + 16);
}

#[test]
fn what_the_cache_has_beyond_what_was_brought_counts() {
    let mut engine = engine(|_| {});
    engine.submit(0.0, named(job(64, 1))).unwrap();
    run(&mut engine, 99.0);
    let job = Job { brought_tokens: 20, ..named(job(80, 1)) };
    let less = engine.submit(100.0, job).unwrap();
    assert_eq!(cached(&run(&mut engine, 200.0), less), 64);
    assert_eq!(engine.metrics().iteration_tokens, 64 + 16);
    let whole = engine.submit(200.0, named(brought(80, 1))).unwrap();
    assert_eq!(cached(&run(&mut engine, 300.0), whole), 64);
    assert_eq!(engine.metrics().iteration_tokens, 64 + 16 + 1);
}

#[test]
fn whoever_is_loaded_first_is_seen_first() {
    let mut engine = engine(|cfg| {
        cfg.transfer_us_per_token = 100.0;
        cfg.max_num_seqs = 1;
    });
    let late = engine.submit(0.0, brought(200, 1)).unwrap();
    let ids = [0, 1].map(|_| engine.submit(0.0, brought(100, 1)).unwrap());
    let soon = engine.submit(1.0, job(10, 1)).unwrap();
    let out = run(&mut engine, 1e3);
    let order: Vec<SeqId> = out.iter().map(Output::id).step_by(2).collect();
    assert_eq!(order, [soon, ids[0], late, ids[1]], "loaded, the first to come is before others");
    assert_eq!(token_times(&out, soon), [11.0]);
}

#[test]
fn a_job_can_be_aborted_while_its_kv_is_loaded() {
    let mut engine = engine(|cfg| cfg.transfer_us_per_token = 100.0);
    let gone = engine.submit(0.0, brought(300, 1)).unwrap();
    let stays = engine.submit(0.0, brought(100, 1)).unwrap();
    assert!(engine.abort(1.0, gone));
    assert_eq!((engine.metrics().waiting, engine.metrics().waiting_tokens), (1, 100));
    let out = run(&mut engine, 1e3);
    assert!(out.iter().all(|output| output.id() == stays), "{out:?}");
}

#[test]
fn the_valves_see_a_brought_prompt_as_any_other() {
    let mut engine = engine(|cfg| cfg.max_num_queued_tokens = Some(100));
    let refused = engine.submit(0.0, brought(101, 1));
    assert_eq!(refused, Err(Rejected::QueuedTokens { waiting_tokens: 101, limit: 100 }));
    let refused = engine.submit(0.0, brought(512, 1));
    assert_eq!(refused, Err(Rejected::TooLongForCache { tokens: 513, kv_tokens: 512 }));
}

#[test]
fn kept_blocks_are_held_until_released_and_can_then_be_hit() {
    let mut engine = engine(|_| {});
    let id = engine.submit(0.0, named(keeping(64, 1))).unwrap();
    assert!(!engine.release(0.0, id), "it has not finished");
    let out = run(&mut engine, 99.0);
    assert!(matches!(out[..], [Output::Token { index: 1, .. }, Output::Finished { .. }]));
    let m = engine.metrics();
    assert_eq!((m.running, m.waiting, m.success), (0, 0, 1));
    assert_eq!((m.kv_usage, engine.generated(id)), (4.0 / 32.0, Some(1)));
    assert!(engine.release(100.0, id));
    assert!(!engine.release(100.0, id), "only once");
    assert_eq!((engine.metrics().kv_usage, engine.generated(id)), (0.0, None));
    assert_eq!(engine.next_event_ms(), None);
    let turn = engine.submit(100.0, named(job(80, 1))).unwrap();
    assert_eq!(cached(&run(&mut engine, 200.0), turn), 64);
}

#[test]
fn only_a_job_that_keeps_its_blocks_can_be_released() {
    let mut engine = engine(|_| {});
    let id = engine.submit(0.0, job(64, 1)).unwrap();
    run(&mut engine, 99.0);
    assert!(!engine.release(99.0, id));
    assert_eq!(engine.metrics().kv_usage, 0.0);
}

#[test]
fn an_abort_of_a_finished_job_releases_what_it_keeps_and_of_a_running_one_keeps_nothing() {
    let mut engine = engine(|_| {});
    let finished = engine.submit(0.0, keeping(64, 1)).unwrap();
    let running = engine.submit(0.0, keeping(64, 50)).unwrap();
    run(&mut engine, 55.0);
    assert!(engine.abort(55.0, finished));
    assert!(!engine.abort(55.0, finished));
    assert_eq!((engine.metrics().aborted, engine.metrics().success), (0, 1));
    assert!(engine.abort(55.0, running));
    assert!(!engine.release(55.0, running));
    assert_eq!((engine.metrics().aborted, engine.metrics().kv_usage), (1, 0.0));
}

#[test]
fn a_job_that_waits_for_kept_blocks_runs_when_they_are_released() {
    let mut engine = engine(|_| {});
    let kept = engine.submit(0.0, keeping(400, 1)).unwrap();
    run(&mut engine, 20.0);
    let head = engine.submit(20.0, job(300, 1)).unwrap();
    let next = engine.submit(20.0, job(200, 1)).unwrap();
    let behind = engine.submit(20.0, job(50, 1)).unwrap();
    assert_eq!(run(&mut engine, 40.0), [], "7 blocks are free and the head needs 19");
    assert_eq!((engine.metrics().waiting, engine.next_event_ms()), (3, None));
    assert!(engine.abort(50.0, head));
    assert_eq!(engine.next_event_ms(), Some(50.0));
    assert_eq!(run(&mut engine, 60.0), [], "the next one needs 13");
    assert!(engine.release(70.0, kept));
    let out = run(&mut engine, 1e3);
    assert_eq!((token_times(&out, next), token_times(&out, behind)), (vec![80.0], vec![80.0]));
}

#[test]
fn a_preempted_job_has_lost_what_it_brought() {
    let mut engine = engine(|cfg| {
        cfg.num_blocks = 7;
        cfg.prefix_caching = false;
        cfg.transfer_us_per_token = 0.0;
    });
    let first = engine.submit(0.0, job(48, 2)).unwrap();
    let preempted = engine.submit(0.0, brought(40, 3)).unwrap();
    let out = run(&mut engine, 1e3);
    assert_eq!(token_times(&out, first), [10.0, 20.0]);
    assert_eq!(token_times(&out, preempted), [10.0, 30.0, 40.0]);
    let m = engine.metrics();
    assert_eq!(m.preemptions, 1, "the first one's fourth block was the second one's third");
    assert_eq!(m.iteration_tokens, (48 + 1) + 1 + 41 + 1, "the prompt and one token anew");
}

#[test]
fn one_seed_gives_one_history_with_jobs_that_bring_and_keep() {
    let play = || {
        let mut engine = engine(|cfg| {
            cfg.noise_sigma = 0.05;
            cfg.transfer_us_per_token = 50.0;
        });
        let (mut kept, mut out) = (Vec::new(), Vec::new());
        for i in 0..40 {
            let at_ms = f64::from(i) * 9.0;
            let of = if i % 3 == 0 { keeping(50, 1) } else { brought(40 + i * 7 % 60, 9) };
            let id = engine.submit(at_ms, named(of)).unwrap();
            kept.extend((i % 3 == 0).then_some(id));
            kept.retain(|id| i % 5 != 0 || !engine.release(at_ms, *id));
            engine.advance(at_ms, &mut out);
        }
        for id in kept {
            run(&mut engine, 1e6);
            assert!(engine.release(1e6, id));
        }
        out.extend(run(&mut engine, 2e6));
        assert_eq!((engine.metrics().success, engine.metrics().kv_usage), (40, 0.0));
        out
    };
    assert_eq!(play(), play());
}
