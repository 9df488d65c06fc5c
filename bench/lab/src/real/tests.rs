use clap::{Args as _, FromArgMatches as _};

use super::{slice::*, *};
use crate::{
    load::{body, parse_classes},
    sim::Pool,
};

pub(crate) fn pool() -> Pool {
    Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap()
}

/// The demo's mix at half the load.
pub(crate) fn slice(for_s: f64) -> Slice {
    let shares = ["interactive:0.5", "standard:0.2", "batch:0.3"].map(str::to_owned);
    Slice::of_mix(&pool(), for_s, Rate::Load(0.5), &parse_classes(&shares, &[]).unwrap(), 1)
        .unwrap()
}

#[test]
fn the_simulation_gets_the_lengths_and_prefixes_that_the_pods_count() {
    let slice = slice(20.0);
    let requests = slice.sim_requests("m").unwrap();
    assert_eq!(requests.len(), slice.requests.len());
    for (planned, one) in slice.requests.iter().zip(&requests) {
        assert_eq!(one.input_tokens, planned.input_tokens);
        assert_eq!(one.request.arrived.as_micros(), planned.at.as_micros() as u64);
        // The dispatcher's blocks are twice as long, and begin with the few bytes of JSON around the text.
        let engine = one.blocks_with_answer.as_ref().unwrap().len();
        assert!(one.request.blocks.len() - engine / 2 <= 1, "{engine}");
    }
    // A system prompt of 256 tokens is 16 blocks of an engine that two requests of a class share.
    let first: Vec<u64> =
        requests.iter().map(|one| one.blocks_with_answer.as_ref().unwrap()[0]).collect();
    let shared =
        first.iter().filter(|block| first.iter().filter(|other| other == block).count() > 1);
    assert!(shared.count() > requests.len() / 4);
}

#[test]
fn lone_requests_go_first_and_neither_they_nor_the_warm_up_are_compared() {
    let slice = slice(20.0);
    let gap = slice.requests[1].at - slice.requests[0].at;
    assert!(slice.requests[..PROBES].windows(2).all(|two| two[1].at - two[0].at == gap));
    assert!(slice.requests[PROBES].at >= gap * PROBES as u32);
    let load = slice.requests.len() - PROBES;
    assert_eq!(slice.compared(), PROBES + load / 10..slice.requests.len());
}

#[test]
fn a_trace_is_compressed_to_the_load() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.dev.csv");
    let rows: String = (0..2000).map(|n| format!("{},{},40\n", n, 100 + n % 900)).collect();
    std::fs::write(&path, "arrival_s,input_tokens,output_tokens\n".to_owned() + &rows).unwrap();
    let classes = parse_classes(&["interactive".to_owned()], &[]).unwrap();
    let of_trace = |from_s, for_s, load| {
        let stretch = Stretch { from_s, for_s, number: 0 };
        Slice::of_trace(&path, &pool(), stretch, Rate::Load(load), &classes, 1)
    };
    let slice = of_trace(100.0, 30.0, 0.5).unwrap();
    assert_eq!(slice.name, "own", "as everywhere");
    let load = &slice.requests[PROBES..];
    let span_s = (load.last().unwrap().at - load[0].at).as_secs_f64();
    assert!(
        (span_s - 30.0).abs() < 1e-6 && (load.len() as f64 / 30.0 / slice.rps - 1.0).abs() < 0.02
    );
    assert_eq!(load[0].input_tokens, 200, "from second 100 on");
    let error = of_trace(1900.0, 300.0, 0.9).unwrap_err().to_string();
    assert!(error.contains("only 100 rows"), "{error}");
}

#[test]
fn what_lone_requests_take_longer_in_reality_is_added_to_the_simulation() {
    let slice = slice(20.0);
    let run = |ttft_ms: f64| {
        let got = Got { class: 0, ttft_ms: Some(ttft_ms), tpot_ms: Some(20.0) };
        vec![got; slice.requests.len()]
    };
    let network_ms = slice.network_ms(&run(43.0), &[run(40.0), run(41.0), run(41.0)]);
    assert_eq!(network_ms, 2.0);
    assert_eq!(slice.network_ms(&run(39.0), &[run(40.0)]), 0.0, "never faster than no network");
    assert_eq!(Figures::of(&slice, &run(41.0), network_ms).ttft.p50, Some(43.0));
}

#[test]
fn engines_that_compute_their_answers_are_told_how_long_these_are() {
    let slice = slice(20.0).exact();
    let plan = slice.plan("127.0.0.1:1".parse().unwrap(), "m");
    let asked = slice.sim_requests("m").unwrap();
    for (place, (planned, simulated)) in slice.requests.iter().zip(&asked).enumerate() {
        let body = body(&plan, planned, place);
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["max_tokens"], planned.output_tokens);
        assert_eq!(body["ignore_eos"], true);
        assert_eq!(
            simulated.request.max_output_tokens,
            Some(planned.output_tokens),
            "both know it"
        );
    }
}

#[test]
fn engines_of_ones_own_are_the_pods_and_none_is_started() {
    let asked = |more: &[&str]| {
        let line = ["real"].iter().chain(more).copied();
        RealArgs::augment_args(clap::Command::new("real")).try_get_matches_from(line)
    };
    let own = asked(&["--engines", "127.0.0.1:8001,127.0.0.1:8002", "--model", "mine"]).unwrap();
    let own = RealArgs::from_arg_matches(&own).unwrap();
    let pods = own.pods(&own.pool().unwrap()).unwrap();
    assert_eq!((pods.model.as_str(), pods.group.pods.len(), pods.run_already), ("mine", 2, true));
    assert_eq!(own.pool().unwrap().pods.len(), 2);
    assert!(asked(&["--model", "mine"]).is_err(), "only theirs has a name of its own");
    assert!(asked(&["--engines", "127.0.0.1:8001", "--pods", "2"]).is_err());
    assert!(asked(&["--engines", "vllm"]).is_err());
    // What an earlier call sent them may still be in their caches.
    let words = own.first_words();
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_ne!(own.first_words(), words);
    assert!(asked(&["--rps", "2", "--load", "1"]).is_err());
    let paced =
        RealArgs::from_arg_matches(&asked(&["--rps", "2", "--for", "50"]).unwrap()).unwrap();
    let pool = paced.pool().unwrap();
    let slice = paced.slice(&pool, &paced.usual_classes().unwrap(), 0).unwrap();
    assert_eq!(slice.rps, 2.0);
    assert_eq!(paced.first_words(), paced.seed, "pods that are started have nothing in theirs");
    assert!(paced.words(&pool, &slice).unwrap().contains(" 2.00 per second;"));
}
