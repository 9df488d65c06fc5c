//! Several engines that step together.

use super::*;

fn two_ranks(change: impl Fn(&mut EngineConfig)) -> Engine {
    engine(|cfg| {
        cfg.ranks = 2;
        change(cfg);
    })
}

/// A step takes 10 ms and 1 ms per token.
fn a_millisecond_per_token(cfg: &mut EngineConfig) {
    cfg.hardware = Hardware { b_us: 1000.0, c_us: 1000.0, ..cfg.hardware };
    cfg.prefill_factor = 1.0;
}

fn named(prompt_tokens: u32) -> Job {
    Job { blocks: (0..u64::from(prompt_tokens) / 16).collect(), ..job(prompt_tokens, 1) }
}

#[test]
fn a_long_prompt_of_one_rank_stalls_the_stream_of_another() {
    let mut engine = two_ranks(a_millisecond_per_token);
    let stream = engine.submit_to(0.0, 0, job(10, 5)).unwrap();
    let long = engine.submit_to(25.0, 1, job(100, 1)).unwrap();
    let out = run(&mut engine, 1e3);
    assert_eq!(token_times(&out, stream), [20.0, 31.0, 141.0, 152.0, 163.0]);
    assert_eq!(token_times(&out, long), [141.0]);
    let (m, other) = (engine.metrics_of(0), engine.metrics_of(1));
    assert_eq!((m.steps, m.busy_ms), (5, 163.0));
    assert_eq!((other.steps, other.busy_ms), (5, 163.0), "steps are common");
    assert_eq!((m.iteration_tokens, other.iteration_tokens), (14, 100), "tokens are its own");
}

#[test]
fn the_prompts_of_a_step_take_as_long_as_the_longest_of_them() {
    let mut engine = two_ranks(a_millisecond_per_token);
    let ids = [(0, 30), (1, 50)].map(|(rank, n)| engine.submit_to(0.0, rank, job(n, 1)).unwrap());
    let out = run(&mut engine, 1e3);
    assert_eq!(ids.map(|id| token_times(&out, id)), [[60.0], [60.0]], "not 90");
}

#[test]
fn a_rank_does_not_find_a_prompt_in_the_cache_of_another() {
    let mut engine = two_ranks(|_| {});
    for (at_ms, rank) in [(0.0, 0), (100.0, 1), (200.0, 1), (300.0, 0)] {
        engine.submit_to(at_ms, rank, named(64)).unwrap();
    }
    let cached = |output: &Output| match output {
        Output::Finished { id, cached_tokens, .. } => Some((id.rank(), *cached_tokens)),
        Output::Token { .. } => None,
    };
    let found: Vec<(u16, u32)> = run(&mut engine, 1e3).iter().filter_map(cached).collect();
    assert_eq!(found, [(0, 0), (1, 0), (1, 48), (0, 48)]);
    assert_eq!(engine.metrics_of(1).prefix_hits, 48);
}

#[test]
fn memory_and_sequence_slots_are_of_each_rank() {
    let mut engine = two_ranks(|cfg| cfg.max_num_seqs = 1);
    let first = engine.submit_to(0.0, 0, job(320, 9)).unwrap();
    let behind = engine.submit_to(0.0, 0, job(320, 1)).unwrap();
    let beside = engine.submit_to(0.0, 1, job(160, 9)).unwrap();
    let mut out = run(&mut engine, 5.0);
    let usage = [0, 1, 2].map(|rank| engine.metrics_of(rank).kv_usage);
    assert_eq!(usage, [20.0 / 32.0, 10.0 / 32.0, 0.0]);
    assert_eq!(engine.metrics().kv_usage, 15.0 / 32.0, "the mean");
    out.extend(run(&mut engine, 1e3));
    let firsts = [first, beside, behind].map(|id| token_times(&out, id)[0]);
    assert_eq!(firsts, [10.0, 10.0, 100.0]);
}

#[test]
fn the_admission_valves_are_of_each_rank() {
    let mut engine = two_ranks(|cfg| cfg.max_num_queued_reqs = Some(1));
    engine.submit_to(0.0, 1, job(10, 1)).unwrap();
    let refused = engine.submit_to(0.0, 1, job(10, 1));
    assert_eq!(refused, Err(Rejected::QueuedRequests { jobs: 1, limit: 1 }));
    assert!(engine.submit_to(0.0, 0, job(10, 1)).is_ok());
    let rejections = [0, 1].map(|rank| engine.metrics_of(rank).rejections);
    assert_eq!((rejections, engine.metrics().rejections), ([0, 1], 1));
}

#[test]
fn a_job_for_an_idle_rank_starts_at_the_next_common_boundary() {
    for (async_scheduling, first_token_ms) in [(false, 30.0), (true, 40.0)] {
        let mut engine = two_ranks(|cfg| cfg.async_scheduling = async_scheduling);
        let busy = engine.submit_to(0.0, 0, job(10, 9)).unwrap();
        let late = engine.submit_to(13.0, 1, job(10, 2)).unwrap();
        let out = run(&mut engine, 1e3);
        assert_eq!(token_times(&out, late), [first_token_ms, first_token_ms + 10.0]);
        assert_eq!(token_times(&out, busy).last(), Some(&90.0), "nobody is slowed down");
    }
}

#[test]
fn where_all_ranks_are_idle_a_job_starts_at_once() {
    let mut engine = two_ranks(|cfg| cfg.api_cost_ms = 5.0);
    engine.submit_to(0.0, 0, job(10, 1)).unwrap();
    assert_eq!(engine.next_event_ms(), Some(5.0));
    run(&mut engine, 100.0);
    assert_eq!(engine.next_event_ms(), None);
    let first = engine.submit_to(102.0, 1, job(10, 1)).unwrap();
    let next = engine.submit_to(103.0, 0, job(10, 1)).unwrap();
    assert_eq!(engine.next_event_ms(), Some(107.0), "whichever rank's is ready first");
    let out = run(&mut engine, 1e3);
    assert_eq!((token_times(&out, first), token_times(&out, next)), (vec![117.0], vec![127.0]));
}

#[test]
fn metrics_are_the_sum_of_those_of_the_ranks() {
    let mut engine = two_ranks(|cfg| cfg.max_num_seqs = 1);
    for rank in [0, 1, 1, 1] {
        engine.submit_to(0.0, rank, named(64)).unwrap();
    }
    let gone = engine.submit_to(0.0, 1, job(10, 50)).unwrap();
    assert!(engine.submit_to(0.0, 0, job(600, 1)).is_err());
    assert!(engine.abort(0.0, gone));
    run(&mut engine, 15.0);
    let want = EngineMetrics {
        prompt_tokens: 64,
        generation_tokens: 1,
        prefix_queries: 64,
        success: 1,
        rejections: 1,
        steps: 1,
        iteration_tokens: 64,
        busy_ms: 10.0,
        ..EngineMetrics::default()
    };
    assert_eq!(engine.metrics_of(0), want);
    let other = EngineMetrics {
        running: 1,
        waiting: 1,
        waiting_tokens: 64,
        kv_usage: 4.0 / 32.0,
        prefix_queries: 128,
        prefix_hits: 48,
        aborted: 1,
        rejections: 0,
        iteration_tokens: 64,
        ..want
    };
    assert_eq!(engine.metrics_of(1), other);
    let mut sum = EngineMetrics { kv_usage: 2.0 / 32.0, generation_tokens: 2, ..other };
    (sum.prompt_tokens, sum.prefix_queries, sum.iteration_tokens) = (128, 192, 128);
    (sum.success, sum.rejections) = (2, 1);
    assert_eq!((engine.metrics(), engine.generation_tokens()), (sum, 2));
    assert_eq!(engine.metrics_of(2), EngineMetrics::default());
}

#[test]
fn a_job_for_a_rank_that_does_not_exist_is_refused() {
    let mut both = two_ranks(|_| {});
    let refused = both.submit_to(0.0, 2, job(10, 1)).unwrap_err();
    assert_eq!(refused, Rejected::NoSuchRank { rank: 2, ranks: 2 });
    assert!(refused.to_string().contains("rank 2 among 2"), "{refused}");
    assert_eq!((both.metrics(), both.next_event_ms()), (EngineMetrics::default(), None));
    for (ranks, known) in [(0, 1), (1, 1), (u16::MAX, SeqId::MOST_RANKS)] {
        let mut engine = engine(|cfg| (cfg.ranks, cfg.num_blocks) = (ranks, 3));
        assert_eq!(engine.config().ranks, known);
        let refused = engine.submit_to(0.0, known, job(10, 1));
        assert_eq!(refused, Err(Rejected::NoSuchRank { rank: known, ranks: known }));
        assert_eq!(engine.submit_to(0.0, known - 1, job(10, 1)).map(SeqId::rank), Ok(known - 1));
    }
}

#[test]
fn the_least_loaded_of_some_ranks_is_one_of_them() {
    let mut engine = engine(|cfg| cfg.ranks = 4);
    assert_eq!([0..4, 2..4, 3..4].map(|ranks| engine.least_loaded_of(ranks)), [0, 2, 3]);
    engine.submit_to(0.0, 2, job(10, 1)).unwrap();
    assert_eq!([0..4, 2..4, 2..3].map(|ranks| engine.least_loaded_of(ranks)), [0, 3, 2]);
}

#[test]
fn an_abort_on_one_rank_leaves_the_jobs_of_another_alone() {
    let mut engine = two_ranks(|_| {});
    let ids = [0, 1].map(|rank| engine.submit_to(0.0, rank, job(100, 20)).unwrap());
    assert_eq!(ids.map(SeqId::rank), [0, 1]);
    run(&mut engine, 25.0);
    assert!(engine.abort(25.0, ids[1]));
    assert!(!engine.abort(25.0, ids[1]), "only once");
    assert_eq!(ids.map(|id| engine.generated(id)), [Some(2), None]);
    assert_eq!([0, 1].map(|rank| engine.metrics_of(rank).aborted), [0, 1]);
    let out = run(&mut engine, 1e3);
    assert_eq!(token_times(&out, ids[0]).len(), 18);
    assert_eq!(token_times(&out, ids[1]), [], "nothing comes of what was in flight");
}

#[test]
fn kept_blocks_are_of_their_rank_and_released_there() {
    let mut engine = two_ranks(|_| {});
    let keeping = Job { keeps: true, ..job(400, 1) };
    let kept = [0, 1].map(|rank| engine.submit_to(0.0, rank, keeping.clone()).unwrap());
    run(&mut engine, 20.0);
    let waits = [0, 1].map(|rank| engine.submit_to(20.0, rank, job(300, 1)).unwrap());
    assert_eq!(run(&mut engine, 40.0), []);
    assert!(engine.release(50.0, kept[1]));
    assert!(!engine.release(50.0, kept[1]), "once");
    let mut out = run(&mut engine, 100.0);
    assert_eq!(token_times(&out, waits[1]), [60.0]);
    assert_eq!([0, 1].map(|rank| engine.metrics_of(rank).waiting), [1, 0]);
    // While another rank is busy, what a release makes room for waits for the boundary.
    engine.submit_to(100.0, 1, job(10, 9)).unwrap();
    out.extend(run(&mut engine, 115.0));
    assert!(engine.abort(115.0, kept[0]));
    out.extend(run(&mut engine, 1e3));
    assert_eq!(token_times(&out, waits[0]), [130.0]);
}

#[test]
fn a_rank_whose_plan_only_preempted_makes_a_dummy_pass_beside_one_that_computes() {
    let last_ms = |beside: bool| {
        let mut engine = two_ranks(|cfg| (cfg.priority_policy, cfg.num_blocks) = (true, 4));
        engine.submit(0.0, Job { priority: 5, ..job(15, 20) }).unwrap();
        if beside {
            engine.submit_to(0.0, 1, job(1, 40)).unwrap();
        }
        run(&mut engine, 5.0);
        // At 20 ms the first job leads the list, needs a block, finds none, and is itself the least important.
        engine.submit(5.0, job(15, 20)).unwrap();
        engine.submit(5.0, job(1, 4)).unwrap();
        let out = run(&mut engine, 1e4);
        assert_eq!(engine.metrics_of(0).success, 3);
        let ends =
            out.iter().filter(|o| o.id().rank() == 0 && matches!(o, Output::Finished { .. }));
        ends.map(Output::at_ms).collect::<Vec<f64>>()
    };
    let (alone, beside) = (last_ms(false), last_ms(true));
    let later: Vec<f64> = beside.iter().zip(&alone).map(|(b, a)| b - a).collect();
    assert_eq!(later, [10.0, 10.0, 10.0], "{alone:?} {beside:?}");
}

/// What a caller does to a rank, drawn from a seed: too much for its memory, with jobs that bring, keep and are aborted.
struct Caller {
    draw: SmallRng,
    now_ms: f64,
    kept: Vec<SeqId>,
}

impl Caller {
    fn new(seed: u64) -> Self {
        Self { draw: SmallRng::seed_from_u64(seed), now_ms: 0.0, kept: Vec::new() }
    }

    fn next_job(&mut self) -> Job {
        self.now_ms += self.draw.random_range(0.0..40.0);
        let prompt_tokens = self.draw.random_range(1..200);
        Job {
            blocks: (0..self.draw.random_range(0..=u64::from(prompt_tokens) / 16)).collect(),
            priority: self.draw.random_range(-2..3),
            brought_tokens: self.draw.random_range(0..3) / 2 * prompt_tokens,
            keeps: self.draw.random_range(0..4) == 0,
            ..job(prompt_tokens, self.draw.random_range(1..60))
        }
    }
}

fn of_rank(out: &[Output], rank: u16) -> Vec<Output> {
    out.iter().filter(|output| output.id().rank() == rank).copied().collect()
}

/// Runs one history on the ranks, the same on each, and returns what each told, in the names of rank 0.
fn history(cfg: &EngineConfig, seed: u64) -> (Engine, Vec<Vec<Output>>) {
    let (mut engine, mut caller, mut out) = (Engine::new(cfg.clone()), Caller::new(seed), vec![]);
    for _ in 0..120 {
        let job = caller.next_job();
        let ids: Vec<SeqId> = (0..cfg.ranks)
            .map(|rank| engine.submit_to(caller.now_ms, rank, job.clone()).unwrap())
            .collect();
        match caller.draw.random_range(0..8) {
            0 => ids.iter().for_each(|id| assert!(engine.abort(caller.now_ms + 20.0, *id))),
            _ if job.keeps => caller.kept.extend(ids),
            _ => {}
        }
        if caller.draw.random_range(0..3) == 0 {
            caller.kept.retain(|id| !engine.release(caller.now_ms, *id));
        }
    }
    for _ in 0..200 {
        engine.advance(engine.next_event_ms().unwrap_or_default() + 100.0, &mut out);
        caller.kept.retain(|id| !engine.release(0.0, *id));
    }
    assert_eq!(engine.next_event_ms(), None);
    let plain = |id: SeqId| SeqId(id.0 & !(u64::from(SeqId::MOST_RANKS - 1) << 22));
    let renamed = |output: Output| match output {
        Output::Token { id, index, at_ms } => Output::Token { id: plain(id), index, at_ms },
        Output::Finished {
            id,
            at_ms,
            cached_tokens,
            preemptions,
            queue_ms,
            prefill_ms,
            decode_ms,
            output_tokens,
        } => Output::Finished {
            id: plain(id),
            at_ms,
            cached_tokens,
            preemptions,
            queue_ms,
            prefill_ms,
            decode_ms,
            output_tokens,
        },
    };
    let told = (0..cfg.ranks).map(|rank| of_rank(&out, rank).into_iter().map(renamed).collect());
    let told = told.collect();
    (engine, told)
}

#[test]
fn ranks_that_are_given_the_same_jobs_each_do_what_one_engine_does() {
    let mut preemptions = 0;
    for seed in 0..16 {
        let alone = engine(|cfg| {
            cfg.hardware = *hardware("h100-qwen3-32b-tp2").unwrap();
            cfg.num_blocks = 33;
            (cfg.async_scheduling, cfg.priority_policy) = (seed & 1 > 0, seed & 2 > 0);
            cfg.noise_sigma = if seed & 4 > 0 { 0.05 } else { 0.0 };
            cfg.every_token = seed & 8 > 0;
            cfg.seed = seed;
        });
        let (one, want) = history(alone.config(), seed);
        let (three, got) = history(&EngineConfig { ranks: 3, ..alone.config().clone() }, seed);
        for (rank, told) in (0..).zip(&got) {
            assert_eq!(told, &want[0], "seed {seed}, rank {rank}");
            assert_eq!(three.metrics_of(rank), one.metrics());
        }
        preemptions += one.metrics().preemptions;
    }
    assert!(preemptions > 100, "{preemptions}");
}

#[test]
fn every_job_of_every_rank_ends_once_and_outputs_come_in_order_of_time_then_rank() {
    for seed in 0..16 {
        let mut engine = engine(|cfg| {
            (cfg.ranks, cfg.noise_sigma, cfg.seed) = (3, 0.05, seed);
            (cfg.async_scheduling, cfg.priority_policy) = (seed & 1 > 0, seed & 2 > 0);
        });
        let (mut caller, mut ids) = (Caller::new(seed), Vec::new());
        for _ in 0..200 {
            let job = Job { keeps: false, ..caller.next_job() };
            let rank = caller.draw.random_range(0..8) % 3;
            ids.push(engine.submit_to(caller.now_ms, rank, job).unwrap());
        }
        let out = run(&mut engine, 1e9);
        let order = |pair: &[Output]| {
            let key = |output: &Output| (output.at_ms(), output.id().rank());
            key(&pair[0]) <= key(&pair[1])
        };
        assert!(out.windows(2).all(order), "seed {seed}");
        let mut ended: Vec<SeqId> =
            out.iter().filter(|o| matches!(o, Output::Finished { .. })).map(Output::id).collect();
        ended.sort();
        ids.sort();
        assert_eq!(ended, ids, "seed {seed}");
        assert_eq!((engine.metrics().kv_usage, engine.next_event_ms()), (0.0, None));
    }
}
