use clap::Parser;
use weir_schema::{
    Feature, Features, Prediction, Sample, SampleOutcome, schema_hash, spool::segment_name,
};

use super::{chunk::Sweep, pods::fewest, *};
use crate::{contender::Contender, study::Setting, workload::Source as _};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    advise: AdviseArgs,
}

fn parse(words: &[&str]) -> AdviseArgs {
    Line::try_parse_from(std::iter::once("advise").chain(words.iter().copied())).unwrap().advise
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

fn setting(words: &[&str]) -> (Setting, f64) {
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
fn the_rate_of_a_trace_is_its_own() {
    let (setting, own_rps) = setting(&[]);
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
    let needed = fewest(&setting, &weir, 16.0, 40.0, 0.99, &[1]).unwrap();
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
    let weir = Contender::named("weir").unwrap();
    let found = |pool_rps| fewest(&setting, &weir, 16.0, pool_rps, 0.99, &[1]).unwrap();
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
    let (mut setting, _) = setting(&["--pods", "1"]);
    // Half of the prompts take longer than that on an idle pod.
    setting.objectives.classes[0].ttft_ms = Some(150.0);
    let weir = Contender::named("weir").unwrap();
    let needed = fewest(&setting, &weir, 1.0, 4.0, 0.99, &[1]).unwrap();
    assert_eq!(needed.pods, None);
    assert!(needed.tried.len() < 8, "{:?}", needed.tried.len());
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
    assert_eq!(advice["curve"].as_array().unwrap().len(), report::CURVE.len());
}
