use clap::Parser;
use weir_schema::{
    Feature, Features, Prediction, Sample, SampleOutcome, schema_hash, spool::segment_name,
};

use std::sync::Arc;

use super::{chunk::Sweep, pods::fewest, traffic::Traffic, *};
use crate::{
    contender::Contender,
    study::Setting,
    trace::Arrival,
    workload::{Replay, Source as _},
};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    advise: AdviseArgs,
}

fn parse(words: &[&str]) -> AdviseArgs {
    Line::try_parse_from(std::iter::once("advise").chain(words.iter().copied())).unwrap().advise
}

/// Traffic of rows at these times, with prompts of as many tokens and answers of a hundred.
fn replay(times_s: impl Iterator<Item = f64>, input_tokens: u32) -> Arc<Replay> {
    let row =
        |at_s| Arrival { at_s, input_tokens, output_tokens: 100, class: None, prefix: Vec::new() };
    Arc::new(Replay::new("own".to_owned(), times_s.map(row).collect()).unwrap())
}

/// The trace below at 16 requests per second.
fn four_times_as_fast(setting: &Setting) -> Traffic {
    let row = |number: u32| Arrival {
        at_s: f64::from(number) / 16.0,
        input_tokens: 300 + (number * 37) % 4000,
        output_tokens: 20 + (number * 53) % 100,
        class: None,
        prefix: Vec::new(),
    };
    let replay = Replay::new("own".to_owned(), (0..300).map(row).collect()).unwrap();
    Traffic::of(Arc::new(replay), setting, 1)
}

/// The fewest pods of that traffic, where a run is asked to have so many requests.
fn needed(replay: Arc<Replay>, requests: usize) -> pods::Needed {
    let (setting, _) = setting(&["--pods", "1", "--chunks", "2048"]);
    let setting = Setting { source: replay.clone(), requests, ..setting };
    let traffic = Traffic::of(replay, &setting, 1);
    let weir = Contender::named("weir").unwrap();
    fewest(&setting, &weir, &traffic, setting.capacity_rps(), 0.99).unwrap()
}

/// A trace of a request every 250 ms with long prompts, in a file.
fn trace(dir: &std::path::Path) -> String {
    let mut text = "arrival_s,input_tokens,output_tokens\n".to_owned();
    for number in 0..300 {
        let at_s = f64::from(number) / 4.0;
        text += &format!("{at_s},{},{}\n", 300 + (number * 37) % 4000, 20 + (number * 53) % 100);
    }
    let path = dir.join("own.csv");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

pub(super) fn setting(words: &[&str]) -> (Setting, Arc<Replay>) {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(dir.path());
    parse(&[&["--trace", &trace, "--requests", "160", "--seeds", "1"], words].concat())
        .setting()
        .unwrap()
}

#[test]
fn a_model_is_one_of_samples_and_not_of_a_trace() {
    let words = ["advise", "--trace", "x.csv", "--model", "m"];
    assert!(Line::try_parse_from(words).is_err());
    assert!(Line::try_parse_from(["advise", "--spool", "x", "--model", "m"]).is_ok());
}

#[test]
fn the_chunks_that_are_tried_are_told_as_they_are_written() {
    let help = <Line as clap::CommandFactory>::command().render_long_help().to_string();
    assert!(help.contains("[default: 512,1024,2048,4096,8192]"), "{help}");
    assert_eq!(setting(&["--chunks", "512,1024,2048,4096,8192"]).0.requests, 160);
}

#[test]
fn the_rate_of_a_trace_is_its_own() {
    let (setting, replay) = setting(&[]);
    let own_rps = replay.own_rps();
    assert!((own_rps - 4.0).abs() < 1e-9, "{own_rps}");
    assert_eq!((setting.pool.pods.len(), setting.mix.as_str()), (4, "one"));
}

#[test]
fn the_rule_takes_the_largest_chunk_whose_full_step_leaves_the_pace_room() {
    let (setting, _) = setting(&["--pods", "1"]);
    let weir = Contender::named("weir").unwrap();
    let sweep = Sweep::of(&setting, &weir, &[8192, 256, 512], 0.9, &[1], 2).unwrap();
    let chunks: Vec<u32> = sweep.tried.iter().map(|one| one.chunk_tokens).collect();
    assert_eq!(chunks, [256, 512, 8192], "upwards");
    let steps: Vec<f64> = sweep.tried.iter().map(|one| one.full_step_ms).collect();
    assert!(steps[0] < steps[1] && steps[1] <= 42.5 && steps[2] > 42.5, "{steps:?}");
    assert_eq!(sweep.by_rule, Some(512));
    assert!(sweep.tried.iter().all(|one| one.rps <= sweep.best().unwrap().rps * 1.02));
    assert!(sweep.best().unwrap().rps > 0.0);
}

#[test]
fn the_fewest_pods_keep_the_promise_and_one_fewer_does_not() {
    let (setting, _) = setting(&["--pods", "2"]);
    let weir = Contender::named("weir").unwrap();
    // Four times the trace's own rate, and a guess that is far too low.
    let needed = fewest(&setting, &weir, &four_times_as_fast(&setting), 40.0, 0.99).unwrap();
    let pods = needed.pods.unwrap();
    assert!(pods > 1, "{needed:?}");
    for held in &needed.tried {
        assert_eq!(held.attainment >= 0.99, held.pods >= pods, "{} pods", held.pods);
    }
    assert!(needed.tried.iter().any(|held| held.pods + 1 == pods), "one fewer was tried");
}

#[test]
fn the_fewest_pods_are_found_from_a_guess_that_is_far_off_on_either_side() {
    let (setting, _) = setting(&["--pods", "1"]);
    let traffic = four_times_as_fast(&setting);
    let weir = Contender::named("weir").unwrap();
    let found = |pool_rps| fewest(&setting, &weir, &traffic, pool_rps, 0.99).unwrap();
    // Guesses of 1, 32 and 256 pods.
    let needed = [16.0, 0.5, 0.0625].map(found);
    let pods = needed[0].pods.unwrap();
    for needed in &needed {
        assert_eq!(needed.pods, Some(pods), "{needed:?}");
        let fewer = needed.tried.iter().find(|held| held.pods + 1 == pods);
        assert!(pods == 1 || fewer.is_some_and(|held| held.attainment < 0.99), "{needed:?}");
        assert!(needed.tried.len() <= 16, "{needed:?}");
    }
}

#[test]
fn where_no_number_of_pods_keeps_the_promise_the_search_ends() {
    let (mut setting, replay) = setting(&["--pods", "1"]);
    // Half of the prompts take longer than that on an idle pod.
    setting.objectives.classes[0].ttft_ms = Some(150.0);
    let weir = Contender::named("weir").unwrap();
    let traffic = Traffic::of(replay, &setting, 1);
    let needed = fewest(&setting, &weir, &traffic, 16.0, 0.99).unwrap();
    assert_eq!(needed.pods, None);
    assert!(needed.tried.len() < 8, "{:?}", needed.tried.len());
}

#[test]
fn fast_traffic_is_looked_at_for_as_long_as_a_load_takes_to_show() {
    let needed = needed(replay((0..300).map(|row| f64::from(row) / 60.0), 1000), 100);
    let looked = &needed.looked;
    // Of 60 a second, for three times two seconds and a hundred tokens.
    assert_eq!((looked.least_requests, looked.requests_per_run, looked.runs), (1260, 1260, 1));
    assert!(needed.tried.iter().all(|held| !held.row.too_short), "{needed:?}");
    // A pod holds about ten a second of these, and in the second and a half of a hundred requests any number.
    assert!(needed.pods.unwrap() >= 4, "{needed:?}");
}

#[test]
fn pods_are_enough_for_the_busiest_part_of_the_traffic() {
    // A request every two seconds, and in an hour's tenth of one 20 a second.
    let quiet = (0..1000).map(|row| f64::from(row) * 2.0);
    let peak = (0..3000).map(|row| 1000.0 + f64::from(row) / 20.0);
    let mut times: Vec<f64> = quiet.chain(peak).collect();
    times.sort_by(f64::total_cmp);
    let mean = needed(replay((0..4000).map(|row| f64::from(row) / 2.0), 3000), 200);
    let peaked = needed(replay(times.into_iter(), 3000), 200);
    assert_eq!((mean.looked.share, peaked.looked.share), (1.0, 1.0));
    assert!(peaked.pods > mean.pods, "{:?} and {:?}", peaked.pods, mean.pods);
    let times_the_mean = peaked.looked.busiest_rps * 2000.0 / 4000.0;
    assert!((6.0..8.0).contains(&times_the_mean), "{times_the_mean}");
}

#[test]
fn of_traffic_that_is_too_long_stretches_are_seen_and_the_busiest_among_them() {
    // Two seconds of ten a second, in 4000 of one a second.
    let quiet = (0..4000).map(f64::from);
    let mut times: Vec<f64> =
        quiet.chain((0..200).map(|row| 2250.0 + f64::from(row) / 100.0)).collect();
    times.sort_by(f64::total_cmp);
    let replay = replay(times.into_iter(), 100);
    let (setting, _) = setting(&["--pods", "1"]);
    let setting = Setting { source: replay.clone(), requests: 100, ..setting };
    let traffic = Traffic::within(replay, &setting, 3, 1000);
    assert_eq!((traffic.looked.runs, traffic.looked.requests_per_run), (11, 100));
    assert!((0.2..0.3).contains(&traffic.looked.share), "{:?}", traffic.looked);
    let lasts_s = |seed: u64| {
        let objectives = &setting.objectives;
        let sent = traffic.requests(traffic.own_rps(), 100, objectives, seed).unwrap();
        sent[99].request.arrived.as_micros() as f64 / 1e6
    };
    let lasts: Vec<f64> = traffic.seeds().into_iter().map(lasts_s).collect();
    assert!(lasts[..10].iter().all(|one_s| *one_s > 50.0) && lasts[10] < 10.0, "{lasts:?}");
}

#[test]
fn all_of_the_traffic_is_counted_once_where_it_can_be() {
    let (setting, replay) = setting(&["--pods", "1"]);
    let traffic = Traffic::within(replay, &setting, 3, 700);
    // 300 rows and their warm-up, twice in 700 requests.
    assert_eq!((traffic.looked.requests_per_run, traffic.looked.runs), (315, 2));
    let sent = traffic.requests(4.0, 315, &setting.objectives, 1).unwrap();
    assert_eq!(sent[15].input_tokens, 300, "the first row is the first that counts");
    assert_eq!((traffic.looked.share, traffic.looked.requests), (1.0, 300));
}

fn sample(model: &str, at_unix_ms: u64, matched: f32) -> Sample {
    let mut row = Features::default();
    row.set(Feature::InputTokens, 1000.0);
    row.set(Feature::PrefixMatch, matched);
    Sample {
        schema: schema_hash().into(),
        at_unix_ms,
        model: model.into(),
        pod_class: "c".into(),
        row: row.0,
        predicted: Prediction::default(),
        streamed: true,
        outcome: SampleOutcome::Complete,
        ttft_ms: Some(100.0),
        tpot_ms: Some(20.0),
        e2e_ms: 1500.0,
        wait_ms: 500.0,
        output_tokens: 71,
    }
}

#[test]
fn samples_are_a_trace_of_when_their_requests_came() {
    let dir = tempfile::tempdir().unwrap();
    let text = |samples: &[Sample]| {
        let lines = samples.iter().map(|sample| serde_json::to_string(sample).unwrap() + "\n");
        lines.collect::<String>()
    };
    let first: Vec<Sample> = (0..40).map(|n| sample("m", 50_000 + 500 * n, 0.512)).collect();
    std::fs::write(dir.path().join(segment_name(1)), text(&first) + "{\"torn").unwrap();
    let replay = spool::read(dir.path(), None).unwrap();
    assert!((replay.own_rps() - 2.0).abs() < 1e-6, "{}", replay.own_rps());
    let means = replay.means();
    assert_eq!((replay.name(), means.input_tokens, means.output_tokens), ("m", 1000.0, 71.0));
    assert!((0.45..0.52).contains(&means.hit), "{means:?}");

    let other = Sample { schema: "older".into(), ..sample("m", 80_000, 0.0) };
    std::fs::write(dir.path().join(segment_name(2)), text(std::slice::from_ref(&other))).unwrap();
    let again = spool::read(dir.path(), None).unwrap();
    assert_eq!(again.own_rps(), replay.own_rps(), "of another schema");
    let old = tempfile::tempdir().unwrap();
    std::fs::write(old.path().join(segment_name(1)), text(&[other])).unwrap();
    let error = spool::read(old.path(), None).unwrap_err().to_string();
    assert!(error.contains("1 of another schema"), "{error}");

    std::fs::write(dir.path().join(segment_name(2)), text(&[sample("n", 60_000, 0.0)])).unwrap();
    let error = spool::read(dir.path(), None).unwrap_err().to_string();
    assert!(error.contains("m, n") && error.contains("--model"), "{error}");
    let error = spool::read(dir.path(), Some("x")).unwrap_err().to_string();
    assert!(error.contains("no samples of \"x\""), "{error}");
    assert!(spool::read(dir.path(), Some("m")).is_ok());
}

#[test]
fn what_is_wrong_with_the_question_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(dir.path());
    for (words, said) in [
        (["--slo", "none"], "without an objective"),
        (["--at", "1.5"], "--at"),
        (["--at", "-1"], "--at is a share between 0 and 1, not -1"),
        (["--chunks", "4"], "--chunks"),
        (["--gpu", "abacus"], "abacus"),
    ] {
        let error =
            parse(&[&["--trace", trace.as_str()], &words[..]].concat()).setting().err().unwrap();
        assert!(format!("{error:#}").contains(said), "{error:#}");
    }
}

#[test]
fn the_advice_is_printed_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, json) = (trace(dir.path()), dir.path().join("advice.json").display().to_string());
    let few = ["--requests", "200", "--seeds", "1", "--pods", "1", "--chunks", "512,2048"];
    parse(&[&["--trace", &trace, "--at", "0.9", "--json", &json], &few[..]].concat())
        .run()
        .unwrap();
    let advice: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(advice["sweep"]["tried"].as_array().unwrap().len(), 2);
    assert!(advice["sustainable_rps"].as_f64().unwrap() > 0.0);
    assert!(advice["needed"]["pods"].as_u64().unwrap() >= 1);
    assert_eq!(advice["needed"]["looked"]["share"], 1.0);
    assert_eq!(advice["curve"].as_array().unwrap().len(), report::CURVE.len());
}

#[test]
fn of_a_trace_without_times_no_number_of_pods_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lengths.csv");
    let rows: String = (0..300).map(|row| format!("{},20\n", 300 + row)).collect();
    std::fs::write(&path, format!("num_prefill_tokens,num_decode_tokens\n{rows}")).unwrap();
    let (trace, json) = (path.display().to_string(), dir.path().join("advice.json"));
    let few = ["--requests", "200", "--seeds", "1", "--pods", "1", "--chunks", "512"];
    let asked = ["--trace", &trace, "--json", json.to_str().unwrap()];
    parse(&[&asked[..], &few[..]].concat()).run().unwrap();
    let advice: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(advice["own_rps"].is_null() && advice["needed"].is_null(), "{advice}");
    assert!(advice["sustainable_rps"].as_f64().unwrap() > 0.0);
}
