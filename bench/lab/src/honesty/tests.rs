use clap::{Args as _, FromArgMatches as _};

use super::{compare::Comparison, figures::Figures, slice::*, *};
use crate::{load::body, sim::Pool};

fn pool() -> Pool {
    Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap()
}

#[test]
fn the_simulation_gets_the_lengths_and_prefixes_that_the_pods_count() {
    let slice = Slice::of_mix(&pool(), 20.0, 0.5, 1).unwrap();
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
    let slice = Slice::of_mix(&pool(), 20.0, 0.5, 1).unwrap();
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
    let slice = Slice::of_trace(&path, &pool(), (100.0, 30.0), 0.5, 1).unwrap();
    assert_eq!(slice.name, "own", "as everywhere");
    let load = &slice.requests[PROBES..];
    let span_s = (load.last().unwrap().at - load[0].at).as_secs_f64();
    assert!(
        (span_s - 30.0).abs() < 1e-6 && (load.len() as f64 / 30.0 / slice.rps - 1.0).abs() < 0.02
    );
    assert_eq!(load[0].input_tokens, 200, "from second 100 on");
    let error = Slice::of_trace(&path, &pool(), (1900.0, 300.0), 0.9, 1).unwrap_err().to_string();
    assert!(error.contains("only 100 rows"), "{error}");
}

#[test]
fn what_lone_requests_take_longer_in_reality_is_added_to_the_simulation() {
    let slice = Slice::of_mix(&pool(), 20.0, 0.5, 1).unwrap();
    let run = |ttft_ms: f64| {
        let got = Got { class: 0, ttft_ms: Some(ttft_ms), tpot_ms: Some(20.0) };
        vec![got; slice.requests.len()]
    };
    let network_ms = slice.network_ms(&run(43.0), &[run(40.0), run(41.0), run(41.0)]);
    assert_eq!(network_ms, 2.0);
    assert_eq!(slice.network_ms(&run(39.0), &[run(40.0)]), 0.0, "never faster than no network");
    assert_eq!(Figures::of(&slice, &run(41.0), network_ms).ttft.p50, Some(43.0));
}

/// Figures with this TTFT and attainment.
fn figures(slice: &Slice, ttft_ms: f64, tpot_ms: f64, missed: usize) -> Figures {
    let got = |place: usize| {
        let miss = slice.compared().start + missed > place;
        let ttft_ms = (!miss).then_some(ttft_ms);
        Got { class: 0, ttft_ms, tpot_ms: ttft_ms.map(|_| tpot_ms) }
    };
    let run: Vec<Got> = (0..slice.requests.len()).map(got).collect();
    Figures::of(slice, &run, 0.0)
}

#[test]
fn ten_percent_and_two_points_hold_and_more_does_not() {
    let mut slice = Slice::of_mix(&pool(), 60.0, 0.5, 1).unwrap();
    slice.classes.truncate(1);
    let real = figures(&slice, 100.0, 20.0, 0);
    let holds = |simulated: Figures| Comparison::new(&slice, &real, &[simulated], (1.0, 0.1)).holds;
    assert!(holds(figures(&slice, 109.0, 21.9, 0)));
    assert!(!holds(figures(&slice, 111.0, 20.0, 0)));
    assert!(!holds(figures(&slice, 100.0, 17.9, 0)));
    let points = |points: usize| slice.compared().len() * points / 100;
    assert!(holds(figures(&slice, 100.0, 20.0, points(2))));
    assert!(!holds(figures(&slice, 100.0, 20.0, points(3) + 1)));
    let text =
        Comparison::new(&slice, &real, &[figures(&slice, 111.0, 20.0, 0)], (1.0, 0.1)).for_people();
    assert!(text.contains("+11.0 %") && text.contains("does not hold"), "{text}");
}

#[test]
fn a_machine_that_was_too_busy_to_tell_is_named() {
    let slice = Slice::of_mix(&pool(), 20.0, 0.5, 1).unwrap();
    let real = figures(&slice, 100.0, 20.0, 0);
    let says = |ttft_ms: f64, lag_ms: f64| {
        let simulated = [figures(&slice, ttft_ms, 20.0, 0)];
        Comparison::new(&slice, &real, &simulated, (1.0, lag_ms)).for_people()
    };
    assert!(says(150.0, 5.0).ends_with("does not hold."));
    assert!(says(150.0, 36.0).contains("too busy"));
    assert!(says(100.0, 36.0).ends_with("The simulation holds."));
}

#[test]
fn a_simulation_of_the_slice_serves_every_request() {
    let slice = Slice::of_mix(&pool(), 15.0, 0.5, 1).unwrap();
    let runs = simulated::run(&slice, &pool(), Prediction::Fitted, &[1, 2]).unwrap();
    assert_eq!((runs.len(), runs[0].len()), (2, slice.requests.len()));
    assert!(runs.iter().flatten().all(|got| got.ttft_ms.is_some_and(|ms| ms > 15.0)));
    assert_ne!(runs[0], runs[1], "each has noise of its own");
}

#[test]
fn engines_that_compute_their_answers_are_told_how_long_these_are() {
    let slice = Slice::of_mix(&pool(), 20.0, 0.5, 1).unwrap().exact();
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
        let line = ["honesty"].iter().chain(more).copied();
        HonestyArgs::augment_args(clap::Command::new("honesty")).try_get_matches_from(line)
    };
    let own = asked(&["--engines", "127.0.0.1:8001,127.0.0.1:8002", "--model", "mine"]).unwrap();
    let own = HonestyArgs::from_arg_matches(&own).unwrap();
    let pods = own.real_pods(&own.pool().unwrap()).unwrap();
    assert_eq!((pods.model.as_str(), pods.group.pods.len(), pods.run_already), ("mine", 2, true));
    assert_eq!(own.pool().unwrap().pods.len(), 2);
    assert!(asked(&["--model", "mine"]).is_err(), "only theirs has a name of its own");
    assert!(asked(&["--engines", "127.0.0.1:8001", "--pods", "2"]).is_err());
    assert!(asked(&["--engines", "vllm"]).is_err());
}
