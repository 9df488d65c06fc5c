use std::path::Path;

use clap::Parser;

use super::{admin, checks::Check, summary::*, *};
use crate::{
    cli::Cli,
    load::{ClassReport, LoadReport, MixMeans, Outcome, Record, parse_classes},
};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    demo: DemoArgs,
}

fn args(more: &[&str]) -> DemoArgs {
    Line::parse_from(["demo"].iter().chain(more)).demo
}

const SNAPSHOT: &str = r#"{"pools":[{"snapshot":{"model":"m","waiting":0,"waiting_bytes":0,"in_flight":0,"late":0,
    "pods":[{"name":"p","residents":0,"pending":0,"pending_tokens":0,"kv_tokens":0}],
    "counters":{"arrived":9,"dispatched":7,"requeued":0,"completed":6,"failed":0,"client_gone":1,"cancelled":0,
      "demoted":0,"refused":[["hopeless",1],["predicted_wait",1]],"ignored":0},
    "predictor":{"model_version":3,
      "ttft":{"p90_factor":1.3,"stated":{"outcomes":900,"mape":0.09,"coverage":0.895},"drift":{"slower":0,"faster":0,"evidence":0.1}},
      "tpot":{"p90_factor":1.1,"stated":{"outcomes":880,"mape":0.04,"coverage":0.91},"drift":{"slower":0,"faster":0,"evidence":0.1}},
      "classes":[{"pod_class":"a100","grades":{"ttft":{"outcomes":300,"mape":0.08,"coverage":0.9},"tpot":null}},
        {"pod_class":"h100","grades":{"ttft":{"outcomes":600,"mape":0.21,"coverage":0.88},
          "tpot":{"outcomes":580,"mape":0.05,"coverage":0.91}}}]}},
    "model":{"loaded":3,"versions":[
      {"version":2,"served":500,"mape_ttft":0.12,"rows_ttft":480,"mape_tpot":0.05},
      {"version":3,"served":400,"mape_ttft":0.08,"rows_ttft":390,"mape_tpot":0.03},
      {"version":4,"served":2,"mape_ttft":0.5,"rows_ttft":2,"mape_tpot":null}]}}]}"#;

fn pool() -> admin::PoolView {
    admin::PoolView::parse(SNAPSHOT).unwrap()
}

/// The same with pods of one class only.
fn one_class() -> admin::PoolView {
    let mut pool = pool();
    pool.snapshot.predictor.classes.truncate(1);
    pool
}

fn record(index: usize, class: usize, at_s: f64, outcome: Outcome) -> Record {
    Record {
        index,
        class,
        at_s,
        lag_ms: 0.0,
        attained: outcome == Outcome::Ok && at_s < 10.0,
        outcome,
        ttft_ms: Some(10.0),
        tpot_ms: Some(5.0),
        e2e_ms: 20.0,
        input_tokens: 10,
        output_tokens: 3,
    }
}

fn report() -> LoadReport {
    let shed = Outcome::Refused { reason: "rejected-saturated".to_owned() };
    let records = vec![
        record(0, 0, 1.0, Outcome::Ok),
        record(1, 0, 9.0, Outcome::Ok),
        record(2, 0, 11.0, Outcome::Ok),
        record(3, 1, 12.0, shed),
    ];
    LoadReport {
        window_s: 20.0,
        elapsed_s: 20.0,
        without_outcome: 0,
        lag_p99_ms: 0.0,
        classes: vec![],
        total: ClassReport::of("all", records.iter(), 20.0),
        records,
    }
}

fn summary(policy: args::Policy, pool: admin::PoolView) -> Summary {
    let classes =
        parse_classes(&["interactive:0.7".to_owned(), "batch:0.3".to_owned()], &[]).unwrap();
    let plan =
        Plan { capacity_rps: 10.0, tpot_ms: 50.0, stretch_s: 10.0, low_rps: 7.0, high_rps: 12.0 };
    Summary::new(
        policy,
        plan,
        &classes,
        &Evidence {
            report: report(),
            loaded: pool.clone(),
            pool,
            samples: 6,
            double_starts: 0,
            stolen_share: Some(0.0),
        },
    )
}

fn failing(summary: &Summary) -> Vec<&str> {
    summary
        .checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check: &Check| check.what.as_str())
        .collect()
}

#[test]
fn the_command_line_is_sound() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn attainment_is_counted_over_all_sent_in_each_stretch() {
    let summary = summary(args::Policy::Weir, pool());
    let interactive = summary.class("interactive").unwrap();
    assert_eq!((interactive.attainment_low, interactive.attainment_high), (1.0, 0.0));
    let batch = summary.class("batch").unwrap();
    assert_eq!((batch.sent, batch.shed, batch.attainment_high), (1, 1, 0.0));
}

#[test]
fn the_error_is_that_of_the_newest_version_with_enough_measurements() {
    let summary = summary(args::Policy::Weir, pool());
    assert_eq!(
        (summary.mape_version, summary.mape_ttft, summary.mape_tpot),
        (Some(3), Some(0.08), Some(0.03))
    );
    assert_eq!(summary.versions_served, [2, 3, 4]);
}

#[test]
fn weir_must_keep_its_promises_and_others_only_the_invariants() {
    let weir = summary(args::Policy::Weir, one_class());
    assert_eq!(failing(&weir), ["interactive attained, overload"]);
    let other = summary(args::Policy::RoundRobin, pool());
    assert!(other.passed && other.checks.len() == 3);
}

#[test]
fn what_was_stated_decides_and_no_single_version() {
    let judged = |from: &str, to: &str| {
        let mut pool = admin::PoolView::parse(&SNAPSHOT.replace(from, to)).unwrap();
        pool.snapshot.predictor.classes.truncate(1);
        summary(args::Policy::Weir, pool)
    };
    let version = judged("\"mape_tpot\":0.03", "\"mape_tpot\":0.3");
    assert_eq!(failing(&version), ["interactive attained, overload"]);
    let stated = judged("\"mape\":0.04", "\"mape\":0.07");
    assert_eq!(failing(&stated), ["TPOT prediction error", "interactive attained, overload"]);
}

#[test]
fn a_ledger_that_is_not_zero_or_a_lost_request_fails_the_demo() {
    let text = SNAPSHOT
        .replace("\"kv_tokens\":0", "\"kv_tokens\":17")
        .replace("\"arrived\":9", "\"arrived\":11");
    let summary = summary(args::Policy::RoundRobin, admin::PoolView::parse(&text).unwrap());
    assert_eq!(
        failing(&summary),
        ["requests without exactly one outcome", "queue and ledger at the end"]
    );
    assert_eq!(summary.requests_without_outcome, 2);
}

#[test]
fn the_summary_names_its_classes() {
    let json = serde_json::to_value(summary(args::Policy::Weir, pool())).unwrap();
    assert_eq!(json["classes"]["batch"]["shed"], 1);
    assert_eq!(json["policy"], "weir");
    assert_eq!(json["capacity_rps"], 10.0);
    assert_eq!(json["ledger_idle"], true);
}

#[test]
fn the_table_says_what_holds_and_what_fails() {
    let text = summary(args::Policy::Weir, pool()).for_people();
    assert!(text.contains("FAILS  interactive attained, overload: 0.00 %"), "{text}");
    assert!(text.contains("holds  requests started twice: 0"), "{text}");
    assert!(text.contains("model v3"), "{text}");
}

#[test]
fn a_failure_beside_a_busy_host_says_so_and_is_a_failure() {
    let mut summary = summary(args::Policy::Weir, pool());
    let said = "The host took 21.00 % of the processors' time";
    assert!(!summary.for_people().contains("host"));
    summary.stolen_share = Some(0.21);
    assert!(summary.for_people().contains(said) && !summary.passed);
    summary.passed = true;
    assert!(!summary.for_people().contains(said), "nothing to explain");
}

#[test]
fn in_a_pool_of_two_gpu_types_each_has_its_errors_and_must_be_predicted_well() {
    let summary = summary(args::Policy::Weir, pool());
    assert_eq!(
        failing(&summary),
        ["interactive attained, overload", "TPOT error on a100", "TTFT error on h100"]
    );
    let text = summary.for_people();
    for part in [
        "FAILS  TTFT error on h100: 21.00 % (required: at most 15.00 %)",
        "holds  TTFT error on a100: 8.00 %",
        "TTFT off 21.00 %, p90 covers 88.00 %",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn the_coverage_of_the_stated_percentile_is_in_the_table_and_in_the_summary() {
    let summary = summary(args::Policy::Weir, one_class());
    let text = summary.for_people();
    assert!(text.contains("TPOT off 4.00 %, p90 covers 91.00 %"), "{text}");
    assert!(!text.contains("on a100"), "one class is the pool: {text}");
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["stated_ttft"]["outcomes"], 900);
    assert_eq!(json["pod_classes"][0]["pod_class"], "a100");
}

#[test]
fn the_configuration_names_every_pod_and_the_policy() {
    let args = args(&["--policy", "least-request", "--pod-port", "20001"]);
    let text = config::yaml(&args, &args.groups().unwrap(), Path::new("/somewhere"));
    for part in [
        "policy: least-request",
        "127.0.0.1:20003",
        "dir: \"/somewhere/spool\"",
        "run: false",
        "chunk_tokens: 8192",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn a_mixed_pool_has_two_classes_with_their_own_limits_and_one_model() {
    let args = args(&["--pool", "mixed", "--pod-port", "20001"]);
    let groups = args.groups().unwrap();
    let text = config::yaml(&args, &groups, Path::new("/somewhere"));
    for part in [
        "name: h100-llama-3.1-70b-tp4\n    chunk_tokens: 8192",
        "name: a100-llama-3.1-70b-tp4\n    chunk_tokens: 2048\n    max_sequences: 256",
        "model: llama-3.1-70b\n",
        "name: pod-1, url: \"http://127.0.0.1:20002\", class: h100-llama-3.1-70b-tp4",
        "name: pod-3, url: \"http://127.0.0.1:20004\", class: a100-llama-3.1-70b-tp4",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let means = MixMeans { input_tokens: 1000.0, output_tokens: 200.0, shared: 0.0 };
    let each: Vec<f64> =
        groups.iter().map(|group| group.capacity_rps(&means, 50.0).unwrap()).collect();
    assert!(each[0] > 2.0 * each[1] && each[1] > 1.0, "{each:?}");
}

#[test]
fn a_series_is_found_by_its_whole_name() {
    let text = "# HELP a x\nab 7\na 3\na_total{x=\"y\"} 4\n";
    assert_eq!(admin::series(text, "a"), Some(3.0));
    assert_eq!(admin::series(text, "a_total"), None);
}
