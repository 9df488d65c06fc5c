use std::time::Duration;

use weir_core::{PromptSize, Role, Slo};
use weir_engine::{EngineConfig, hardware};

use super::*;
use crate::{
    contender::Contender,
    sim::{Outcome, Pool, Run, SimRequest, drive},
    study::Knowledge,
};

const INPUT_TOKENS: u32 = 4000;
const OUTPUT_TOKENS: u32 = 50;

/// One pod that prefills, number 0, and two that answer.
fn pool() -> Pool {
    let mut engine = EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap());
    engine.noise_sigma = 0.0;
    let mut pool = Pool::empty(Pool::SCRAPE_EVERY);
    pool.add(&engine, 1, Role::Prefill);
    pool.add(&engine, 2, Role::Decode);
    pool
}

/// So many requests, 400 ms apart, each with a prompt of its own.
fn requests(count: u64, change: impl Fn(&mut SimRequest)) -> Vec<SimRequest> {
    let request = |place: u64| {
        let arrived = Time::from_millis(400 * place);
        let mut request = Request::new(RequestId(place), arrived, PromptSize::Tokens(INPUT_TOKENS));
        let (ttft, tpot) = (Duration::from_secs(2), Duration::from_millis(50));
        request.slo = Slo { ttft: Some(ttft), tpot: Some(tpot) };
        request.blocks = (0..125).map(|block| place * 1000 + block).collect();
        let mut one = SimRequest {
            request,
            class: 0,
            input_tokens: INPUT_TOKENS,
            output_tokens: OUTPUT_TOKENS,
            blocks_with_answer: None,
            after: None,
        };
        change(&mut one);
        one
    };
    (0..count).map(request).collect()
}

fn serve(policy: &str, local_tokens: u32, requests: &[SimRequest]) -> Run {
    serve_in(policy, &Pool { local_tokens, ..pool() }, requests)
}

fn serve_in(policy: &str, pool: &Pool, requests: &[SimRequest]) -> Run {
    let contender = Contender::named(policy).unwrap();
    let of = |half| Knowledge::Fitted.dispatcher(&contender, &pool.half(half), 1).unwrap();
    let halves = Halves::new(of(true), of(false), pool);
    drive(&pool.seeded(1), pool.scrape_every, Box::new(halves), requests)
}

#[test]
fn prompts_are_computed_by_one_pod_and_answers_by_the_others() {
    for policy in ["weir", "round-robin", "llumnix-slo", "dynamo-kv", "cap-16"] {
        let requests = requests(40, |_| {});
        let run = serve(policy, 256, &requests);
        assert_eq!(run.served().count(), 40, "{policy}");
        assert!(run.served().all(|one| one.pod != PodId(0)), "{policy}");
        let [first, rest @ ..] = run.engines.as_slice() else { unreachable!() };
        assert_eq!((first.success, first.generation_tokens), (40, 40), "{policy}");
        // What those that answer compute of each is its last token and its answer.
        let tokens: u64 = rest.iter().map(|engine| engine.iteration_tokens).sum();
        assert_eq!(tokens, 40 * u64::from(OUTPUT_TOKENS), "{policy}");
        // Nobody keeps a prompt for ever.
        assert!(run.engines.iter().all(|engine| engine.kv_usage == 0.0), "{policy}");
    }
}

#[test]
fn a_short_prompt_is_computed_where_it_is_answered() {
    let run = serve("weir", INPUT_TOKENS + 1, &requests(10, |_| {}));
    assert_eq!((run.served().count(), run.engines[0].success), (10, 0));
}

#[test]
fn a_prompt_that_a_pod_that_answers_has_goes_there_at_once() {
    // The second turn of a conversation, when the first has been answered.
    let requests = requests(2, |one| {
        let names: Vec<u64> = (0..125).collect();
        one.request.blocks = names.into();
        one.request.arrived = Time::from_millis(10_000 * one.request.id.0);
    });
    let run = serve("weir", 256, &requests);
    assert_eq!((run.served().count(), run.engines[0].success), (2, 1));
}

#[test]
fn prompts_that_come_faster_than_one_pod_computes_them_overflow_where_that_is_allowed() {
    let requests =
        requests(60, |one| one.request.arrived = Time::from_millis(60 * one.request.id.0));
    for policy in ["weir", "llumnix-slo", "cap-4", "flow-control"] {
        let [strict, free] = [false, true].map(|overflow| {
            let run = serve_in(policy, &Pool { overflow, ..pool() }, &requests);
            assert_eq!(run.outcomes.len(), 60, "{policy}");
            assert!(run.engines.iter().all(|engine| engine.kv_usage == 0.0), "{policy}");
            let served = run.served().count() as u64;
            (run.engines[0].success, served)
        });
        assert_eq!(strict.0, strict.1, "{policy}");
        if policy != "flow-control" {
            assert!(free.0 < free.1 && free.1 >= strict.1, "{policy}: {strict:?} {free:?}");
        }
    }
}

#[test]
fn a_response_that_is_not_streamed_is_served_and_leaves_nothing() {
    let run = serve("weir", 256, &requests(20, |one| one.request.streamed = false));
    assert_eq!((run.served().count(), run.engines[0].success), (20, 20));
    assert!(run.engines.iter().all(|engine| engine.kv_usage == 0.0));
}

#[test]
fn one_that_no_engine_takes_and_one_that_is_refused_leave_nothing() {
    let requests = requests(60, |one| {
        let id = one.request.id.0;
        one.request.arrived = Time::from_millis(20 * id);
        if id.is_multiple_of(2) {
            one.request.band = weir_core::Band(-1);
        }
        if id == 7 {
            (one.input_tokens, one.request.prompt) = (1_000_000, PromptSize::Tokens(1_000_000));
        }
    });
    let run = serve("weir", 256, &requests);
    assert_eq!(run.outcomes.len(), 60);
    assert_eq!(run.outcomes[7], Outcome::Rejected);
    assert!(run.engines.iter().all(|engine| engine.kv_usage == 0.0));
}
