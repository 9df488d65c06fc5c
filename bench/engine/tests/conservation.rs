//! Whatever is submitted and aborted, the engine loses nothing: blocks, jobs and tokens are all accounted for.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says what broke by panicking")]

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use weir_engine::{Engine, EngineConfig, Job, Output, SeqId, hardware};

#[derive(Debug, Clone)]
struct Call {
    gap_ms: f64,
    prompt_tokens: u32,
    output_tokens: u32,
    family: u64,
    shared_blocks: u64,
    priority: i32,
    brought_tokens: u32,
    adapter: Option<u32>,
    /// Aborts this job so long after its submission.
    abort_after_ms: Option<f64>,
    /// Keeps its blocks, and so long after its end at least.
    keeps_for_ms: Option<f64>,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let abort = prop_oneof![3 => Just(None), 1 => (0.0..400.0).prop_map(Some)];
    let keep = prop_oneof![3 => Just(None), 1 => (0.0..400.0).prop_map(Some)];
    let brought = prop_oneof![2 => Just(0), 1 => 0..320u32];
    let adapter = prop_oneof![1 => Just(None), 2 => (0..4u32).prop_map(Some)];
    let sizes = (1..300u32, 1..80u32, 0..3u64, 0..12u64, brought, adapter);
    let call = (0.0..60.0, sizes, -2..3i32, abort, keep).prop_map(
        |(gap_ms, sizes, priority, abort_after_ms, keeps_for_ms)| {
            let (prompt_tokens, output_tokens, family, shared_blocks, brought_tokens, adapter) =
                sizes;
            Call {
                gap_ms,
                prompt_tokens,
                output_tokens,
                family,
                shared_blocks,
                priority,
                brought_tokens,
                adapter,
                abort_after_ms,
                keeps_for_ms,
            }
        },
    );
    prop::collection::vec(call, 1..60)
}

fn config() -> impl Strategy<Value = EngineConfig> {
    let loras = (0..4u32, 0.0..50.0);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = (26..80u32, 20..500u32, 1..12u32, 0..2u32, 0.0..0.3);
    (flags, sizes, loras, any::<u64>()).prop_map(|(flags, sizes, loras, seed)| {
        let mut cfg = EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap());
        (cfg.async_scheduling, cfg.priority_policy, cfg.prefix_caching, _, _) = flags;
        (_, _, _, cfg.reserve_full_isl, cfg.chunked_prefill) = flags;
        (cfg.num_blocks, cfg.max_num_batched_tokens, cfg.max_num_seqs, _, cfg.watermark) = sizes;
        cfg.long_prefill_token_threshold = sizes.3 * 32;
        (cfg.max_loras, cfg.lora_load_ms) = loras;
        cfg.seed = seed;
        cfg
    })
}

/// What the caller knows about its jobs.
#[derive(Default)]
struct Books {
    open: HashMap<SeqId, (u32, u32)>,
    /// Jobs that keep their blocks, and how long.
    keeping: HashMap<SeqId, f64>,
    /// Those of them that finished, and until when.
    kept: Vec<(f64, SeqId)>,
    finished: HashSet<SeqId>,
    aborted: u64,
    tokens: u64,
    last_ms: f64,
}

impl Books {
    /// Whether the job was kept; it is not any more.
    fn forget(&mut self, id: SeqId) -> bool {
        let before = self.kept.len();
        self.kept.retain(|(_, kept)| *kept != id);
        self.kept.len() < before
    }

    fn read(&mut self, outputs: &mut Vec<Output>) {
        for output in outputs.drain(..) {
            assert!(output.at_ms() >= self.last_ms, "outputs come in order of time");
            self.last_ms = output.at_ms();
            match output {
                Output::Token { id, index, .. } => {
                    let (seen, _) = self.open.get_mut(&id).expect("a token of an open job");
                    *seen += 1;
                    assert_eq!(*seen, index, "tokens come one by one");
                    self.tokens += 1;
                }
                Output::Finished { id, at_ms, output_tokens, .. } => {
                    self.kept.extend(self.keeping.remove(&id).map(|ms| (at_ms + ms, id)));
                    let (seen, want) = self.open.remove(&id).expect("a job ends once");
                    assert_eq!((seen, output_tokens), (want, want));
                    assert!(self.finished.insert(id));
                }
            }
        }
    }
}

fn job(call: &Call) -> Job {
    let named = call.family * 100 + u64::from(call.adapter.map_or(0, |adapter| 1 + adapter)) * 1000;
    let shared = call.shared_blocks.min(u64::from(call.prompt_tokens) / 16);
    Job {
        prompt_tokens: call.prompt_tokens,
        blocks: (0..shared).map(|i| named + i).collect(),
        output_tokens: call.output_tokens,
        priority: call.priority,
        brought_tokens: call.brought_tokens,
        keeps: call.keeps_for_ms.is_some(),
        adapter: call.adapter,
    }
}

fn play(engine: &mut Engine, calls: &[Call], books: &mut Books) -> u64 {
    let (mut now_ms, mut accepted, mut out) = (0.0, 0, Vec::new());
    let mut aborts: Vec<(f64, SeqId)> = Vec::new();
    for call in calls {
        now_ms += call.gap_ms;
        while let Some(at) = aborts.iter().position(|(at_ms, _)| *at_ms <= now_ms) {
            let (at_ms, id) = aborts.remove(at);
            engine.advance(at_ms, &mut out);
            books.read(&mut out);
            let was_open = books.open.remove(&id).is_some();
            let was_kept = books.forget(id);
            let ended = was_open || was_kept;
            assert_eq!(engine.abort(at_ms, id), ended, "true exactly for open and kept jobs");
            books.aborted += u64::from(was_open);
        }
        release(engine, now_ms, books);
        engine.advance(now_ms, &mut out);
        books.read(&mut out);
        let usage = engine.metrics().kv_usage;
        assert!((0.0..=1.0).contains(&usage));
        let Ok(id) = engine.submit(now_ms, job(call)) else { continue };
        accepted += 1;
        books.open.insert(id, (0, call.output_tokens));
        books.keeping.extend(call.keeps_for_ms.map(|ms| (id, ms)));
        aborts.extend(call.abort_after_ms.map(|after_ms| (now_ms + after_ms, id)));
    }
    loop {
        while let Some(at_ms) = engine.next_event_ms() {
            engine.advance(at_ms, &mut out);
            books.read(&mut out);
            // Where kept blocks leave too little for the last one that runs, it is preempted and recomputed until they go.
            release(engine, at_ms, books);
        }
        if books.kept.is_empty() {
            return accepted;
        }
        release(engine, f64::INFINITY, books);
    }
}

/// Releases what was kept until this moment.
fn release(engine: &mut Engine, until_ms: f64, books: &mut Books) {
    let due = |(ms, _): &(f64, SeqId)| *ms <= until_ms;
    for (ms, id) in books.kept.iter().copied().filter(due) {
        assert!(engine.release(ms.max(books.last_ms), id), "a kept job can be released");
        assert!(!engine.release(ms, id), "once");
    }
    books.kept.retain(|kept| !due(kept));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_job_ends_once_with_all_its_tokens_and_leaves_no_block(cfg in config(), calls in calls()) {
        let mut engine = Engine::new(cfg);
        let mut books = Books::default();
        let accepted = play(&mut engine, &calls, &mut books);
        prop_assert!(books.open.is_empty(), "left over: {:?}", books.open);
        let m = engine.metrics();
        prop_assert_eq!(m.success + m.aborted, accepted);
        prop_assert_eq!(m.aborted, books.aborted);
        prop_assert_eq!(m.success, books.finished.len() as u64);
        prop_assert_eq!(m.generation_tokens, books.tokens);
        prop_assert_eq!(m.rejections, calls.len() as u64 - accepted);
        prop_assert_eq!((m.running, m.waiting, m.waiting_tokens), (0, 0, 0));
        prop_assert_eq!(m.kv_usage, 0.0);
    }
}
