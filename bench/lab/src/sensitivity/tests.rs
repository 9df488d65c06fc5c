use clap::Parser;

use super::{
    change::{ALL, Change},
    line::{AtLoad, Line},
    *,
};
use crate::study::Knowledge;

#[derive(Parser)]
struct Asked {
    #[command(flatten)]
    args: SensitivityArgs,
}

/// The arguments, with a trace of requests that come evenly.
fn asked(dir: &tempfile::TempDir, more: &[&str]) -> SensitivityArgs {
    let path = dir.path().join("own.csv");
    let rows: String =
        (0..600).map(|n| format!("{n},{},{}\n", 100 + n * 97 % 900, 20 + n % 60)).collect();
    std::fs::write(&path, "arrival_s,input_tokens,output_tokens\n".to_owned() + &rows).unwrap();
    let trace = path.to_str().unwrap();
    let words = ["sensitivity", "--trace", trace, "--pods", "2"];
    let words = words.iter().chain(more);
    Asked::parse_from(words).args
}

#[test]
fn each_change_makes_one_thing_otherwise_and_the_first_line_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let setting = asked(&dir, &[]).setting().unwrap();
    let of = |change: Change| change.of(&setting);
    assert_eq!(of(Change::Nothing).pool, setting.pool);
    assert_eq!(of(Change::Scraped { every_ms: 2000 }).pool.scrape_every.as_millis(), 2000);
    let error = of(Change::Error(0.3));
    assert!(matches!(error.knowledge, Knowledge::Oracle { error: 0.3 }));
    assert_eq!(error.pool, setting.pool);
    let slow = of(Change::Prefill(1.3));
    let factor = |setting: &crate::study::Setting| setting.pool.pods[1].engine.prefill_factor;
    assert!((factor(&slow) / factor(&setting) - 1.3).abs() < 1e-9);
    assert!(matches!(slow.knowledge, Knowledge::Fitted), "nobody tells that prefills are slow");
    let held = of(Change::Unlearned(1.3));
    assert_eq!(held.pool, slow.pool);
    let Knowledge::Custom(make) = &held.knowledge else { panic!("{:?}", held.knowledge) };
    let told = |pool| make(pool, 1).step_time(0).per_prefill_ms;
    assert_eq!(told(&held.pool), told(&setting.pool), "what the calibration says, whatever is run");
    assert!(slow.capacity_rps() < setting.capacity_rps());
    let half = of(Change::HalfMemory);
    let blocks = half.pool.pods[0].engine.num_blocks;
    assert_eq!(blocks, setting.pool.pods[0].engine.num_blocks / 2);
    assert_eq!(half.pool.classes[0].kv_blocks, blocks, "and the dispatcher is told");
    let names: std::collections::HashSet<_> = ALL.iter().map(|change| change.name()).collect();
    assert_eq!(names.len(), ALL.len());
}

#[test]
fn loads_are_of_the_unchanged_pool_so_slower_engines_hold_less_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--requests", "200", "--seeds", "1", "--rivals", "least-request"];
    let args = asked(&dir, &more);
    let (setting, question) = (args.setting().unwrap(), args.question().unwrap());
    let line = |change| Line::of(&setting, change, &question).unwrap();
    let (as_it_is, slow) = (line(Change::Nothing), line(Change::Prefill(3.0)));
    assert!(slow.max_load < 0.8 * as_it_is.max_load, "{slow:?} {as_it_is:?}");
    let ratio = slow.ratio.unwrap();
    assert!((ratio - slow.max_load / slow.rival_max_load).abs() < 1e-9);
    assert!(slow.loads[1].attainment <= slow.loads[0].attainment + 0.02);
    let loads: Vec<f64> = slow.loads.iter().map(|at| at.load).collect();
    assert_eq!(loads, [0.7, 0.9]);
}

#[test]
fn the_best_rival_of_each_line_is_the_one_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--requests", "200", "--seeds", "1", "--load", "1.2", "--rivals"];
    let rivals = |names: &str| {
        let args = asked(&dir, &[more.as_slice(), &[names]].concat());
        let (setting, question) = (args.setting().unwrap(), args.question().unwrap());
        Line::of(&setting, Change::Nothing, &question).unwrap()
    };
    let (both, random) = (rivals("random,least-request"), rivals("random"));
    let least = rivals("least-request");
    let best = if least.rival_max_load >= random.rival_max_load { &least } else { &random };
    assert_eq!((both.rival_max_load, &both.rival), (best.rival_max_load, &best.rival));
    let most = least.loads[0].rival_attainment.max(random.loads[0].rival_attainment);
    assert_eq!(both.loads[0].rival_attainment, most);
}

#[test]
fn a_table_shows_attainment_and_the_ratio_and_a_dash_where_the_rival_holds_nothing() {
    let at =
        AtLoad { load: 0.7, attainment: 0.991, rival: "jspt".to_owned(), rival_attainment: 0.874 };
    let line = Line {
        change: "half the KV blocks".to_owned(),
        loads: vec![at],
        max_load: 0.66,
        bounded: true,
        rival: "jspt".to_owned(),
        rival_max_load: 0.5,
        rival_bounded: true,
        ratio: Some(1.32),
    };
    let nothing = Line { rival_max_load: 0.0, ratio: None, ..line.clone() };
    let text = table::of(&[line, nothing], 0.99).to_string();
    assert!(text.contains("99.1, 87.4 (jspt)") && text.contains("1.32x"), "{text}");
    assert!(text.contains("none (jspt)") && text.contains("load at 99 %: weir"), "{text}");
}

#[test]
fn where_the_search_ended_is_told_as_the_least_and_no_ratio_is_made_of_a_rival_s() {
    let line = Line {
        change: String::new(),
        loads: Vec::new(),
        max_load: 19.85,
        bounded: false,
        rival: "jspt".to_owned(),
        rival_max_load: 5.0,
        rival_bounded: true,
        ratio: Some(3.97),
    };
    let text = table::of(std::slice::from_ref(&line), 0.99).to_string();
    for said in ["at least 19.85 |", "| 5.00 (jspt)", "| at least 3.97x"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let objectives = dir.path().join("slo.yaml");
    std::fs::write(&objectives, "classes: [{ name: any, ttft_ms: 1e9, tpot_ms: 1e9 }]").unwrap();
    let slo = ["--slo", objectives.to_str().unwrap(), "--requests", "50", "--seeds", "1"];
    let args = asked(&dir, &[&slo[..], &["--rivals", "least-request", "--load", "1"]].concat());
    let (setting, question) = (args.setting().unwrap(), args.question().unwrap());
    let line = Line::of(&setting, Change::Nothing, &question).unwrap();
    assert!(!line.bounded && !line.rival_bounded && line.ratio.is_none(), "{line:?}");
}

#[test]
fn without_an_objective_there_is_no_highest_load_to_compare() {
    let dir = tempfile::tempdir().unwrap();
    let error = format!("{:#}", asked(&dir, &["--slo", "none"]).setting().err().unwrap());
    assert!(error.contains("--slo none: without an objective"), "{error}");
}

#[test]
fn what_makes_no_study_is_said_before_anything_is_simulated() {
    let dir = tempfile::tempdir().unwrap();
    for (more, says) in [
        (
            ["--rivals", "nobody"],
            "--rivals \"nobody\": there is no policy \"nobody\"; known are weir, round-robin",
        ),
        (["--rivals", "jspt,weir"], "--rivals \"weir\": that is who they are compared with"),
        (["--load", "0"], "--load"),
        (["--load", "-1"], "every --load must be above zero"),
        (["--at", "1.5"], "--at"),
        (["--at", "-1"], "--at"),
    ] {
        let error = format!("{:#}", asked(&dir, &more).question().unwrap_err());
        assert!(error.contains(says), "{error}");
    }
    for more in [["--requests", "0"], ["--seeds", "0"], ["--pods", "0"]] {
        let error = Asked::try_parse_from(["sensitivity", "--trace", "x"].iter().chain(&more));
        assert!(error.is_err_and(|error| error.to_string().contains(more[0])), "{more:?}");
    }
}

#[test]
fn a_run_that_is_too_short_for_a_load_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let line = Line {
        change: String::new(),
        loads: Vec::new(),
        max_load: 1.0,
        bounded: true,
        rival: String::new(),
        rival_max_load: 0.01,
        rival_bounded: true,
        ratio: None,
    };
    let notes_of = |line: &Line, requests| {
        let args = asked(&dir, &["--load", "0.9", "--requests", requests]);
        args.notes(&args.setting().unwrap(), std::slice::from_ref(line)).join("\n")
    };
    let notes = |requests| notes_of(&line, requests);
    let few = notes("100");
    assert!(few.contains("too few for the highest load of weir:"), "{few}");
    assert!(few.contains("too few for load 0.9:"), "{few}");
    assert_eq!(notes("100000"), "");
    let unbounded = Line { rival_bounded: false, ..line.clone() };
    assert!(notes_of(&unbounded, "100000").contains("not bounded by this run"));
}
