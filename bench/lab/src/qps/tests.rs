//! The benchmark as small as it goes.

use super::{
    compare::{Ratio, Verdict, judge, ntpot, throughput},
    measure::{Compared, Effort, Measured, Step, compare, contender},
    published::{BASE, COLUMNS, POLICIES, PRODUCTION, Says},
    set_up::{Asks, KV_BLOCKS, Reading, SET_UPS},
    table,
};

fn effort(most: usize) -> Effort {
    Effort { reading: Reading::Kept, kv_blocks: KV_BLOCKS, seeds: 2, most, threads: 2 }
}

fn policies(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn run(name: &str, names: &[&str], most: usize) -> Compared {
    let set_up = SET_UPS.into_iter().find(|one| one.name == name).unwrap();
    compare(set_up, &policies(names), &effort(most)).unwrap()
}

fn step(rate_rps: f64, ntpot_ms: f64, tokens_per_s: f64) -> Step {
    Step {
        rate_rps,
        requests: 1,
        failed: 0,
        ntpot_ms,
        tokens_per_s,
        prefix_hit: 0.0,
        calls: Vec::new(),
    }
}

fn measured(policy: &str, ntpot_ms: [f64; 2]) -> Measured {
    let steps = ntpot_ms.map(|ms| step(1.0, ms, 1000.0 / ms)).to_vec();
    Measured { policy: policy.to_owned(), seeds: vec![steps] }
}

#[test]
fn those_that_were_published_are_compared_and_an_unknown_one_is_told_who_is_known() {
    let compared: Vec<&str> = POLICIES.split(',').collect();
    assert!(compared.iter().all(|name| contender(name).is_ok()), "{compared:?}");
    assert!(COLUMNS.iter().all(|name| compared.contains(name)), "{compared:?}");
    let error = contender("foo").unwrap_err().to_string();
    assert!(error.contains("--policy \"foo\"") && error.contains("known are weir,"), "{error}");
}

#[test]
fn pods_that_hold_no_request_are_refused() {
    let set_up = SET_UPS.into_iter().find(|one| one.name == "A").unwrap();
    let few = Effort { kv_blocks: 10, ..effort(10) };
    let error = format!("{:#}", compare(set_up, &policies(&[BASE]), &few).unwrap_err());
    assert!(error.contains("holds 144 tokens"), "{error}");
}

#[test]
fn ratios_are_over_all_rates_alike_and_the_highest_throughput_counts() {
    let (own, other) = (measured("own", [10.0, 200.0]), measured("other", [20.0, 100.0]));
    let ratio = ntpot(&own, &other).unwrap();
    assert!((ratio.value - 1.0).abs() < 1e-9, "half and twice: {ratio:?}");
    assert_eq!(throughput(&own, &other).unwrap().value, 2.0);
}

#[test]
fn a_claim_holds_is_even_or_fails_by_the_ratio() {
    let ratio = |value| Ratio { value, least: value, most: value };
    for (says, value, verdict) in [
        (Says::Better, 0.9, Verdict::Holds),
        (Says::Better, 0.99, Verdict::Even),
        (Says::Better, 1.1, Verdict::Fails),
        (Says::Alike, 1.04, Verdict::Holds),
        (Says::Alike, 0.9, Verdict::Fails),
    ] {
        assert_eq!(judge(says, ratio(value)), verdict, "{says:?} {value}");
    }
}

#[test]
fn the_published_ratios_are_those_of_the_published_text() {
    let of = |name: &str| PRODUCTION.iter().find(|one| one.name == name).unwrap().values;
    let [none, _, tuned, predicted] = of("E2E p50");
    assert!((1.0 - predicted / none - 0.43).abs() < 0.005, "43 % below no gateway");
    assert!((predicted / tuned - 0.675).abs() < 0.005);
    let [_, _, tuned, predicted] = of("TTFT p50");
    assert!((1.0 - predicted / tuned - 0.7).abs() < 0.02, "70 % below the best heuristic");
}

#[test]
fn every_set_up_runs_with_its_pods_rates_and_blocks() {
    for set_up in SET_UPS {
        let courses = set_up.courses(Reading::Kept, KV_BLOCKS, usize::MAX).unwrap();
        let rates: Vec<f64> = courses.iter().flat_map(|one| &one.stages).map(|one| one.0).collect();
        let course = &courses[0];
        let pods = &course.setting.pool.pods;
        match (set_up.name, set_up.asks) {
            ("sharegpt", _) => {
                assert_eq!((pods.len(), courses.len()), (8, 6));
                let rate = course.load * course.setting.capacity_rps();
                assert!((rate - rates[0]).abs() < 1e-9);
            }
            (_, Asks::Production) => assert_eq!((pods.len(), course.setting.requests), (13, 4800)),
            (_, Asks::Ladder(_)) => {
                assert_eq!((pods.len(), pods[0].engine.num_blocks), (10, 32_000));
                assert_eq!(course.setting.pool.classes[0].kv_blocks, 32_000);
            }
        }
        assert!(rates.iter().any(|rate| *rate > 0.0), "{}", set_up.name);
    }
}

#[test]
fn every_request_is_in_the_step_of_its_stage() {
    // The first stage of D has 200 requests.
    let set_up = SET_UPS.into_iter().find(|one| one.name == "D").unwrap();
    let alone = Effort { seeds: 1, ..effort(220) };
    let compared = compare(set_up, &policies(&["round-robin"]), &alone).unwrap();
    let own = &compared.measured[0];
    let sent: Vec<usize> = own.seeds[0].iter().map(|step| step.requests).collect();
    assert_eq!((sent, own.rates(), own.failed()), (vec![200, 20], vec![2.0, 4.0], 0));
    let first = &own.seeds[0][0];
    assert!(first.ntpot_ms > 14.0 && first.ntpot_ms < 200.0, "{first:?}");
    assert!(first.tokens_per_s > 500.0 && first.tokens_per_s < 2500.0, "{first:?}");
}

#[test]
fn a_small_run_is_told_in_full_and_is_the_same_on_one_thread() {
    let names = ["round-robin", "load-prefix", "predicted-latency", "weir"];
    let compared = run("D", &names, 20);
    assert_eq!(compared.judged().len(), 2);
    let alone = Effort { threads: 1, ..effort(20) };
    let again = compare(compared.set_up, &policies(&names[..1]), &alone).unwrap();
    assert_eq!(again.measured[0], compared.measured[0]);
    let text = table::report(&[compared], &effort(20));
    assert!(text.contains("| D        | alike") && text.contains("weir"), "{text}");
}

#[test]
fn the_production_ladder_is_told_over_the_tuned_heuristic() {
    let compared = run("ladder", &["round-robin", BASE], 60);
    let text = table::report(&[compared], &effort(60));
    assert!(text.contains("TTFT p50, stages of 5 rps") && text.contains("0.68"), "{text}");
}

#[test]
fn every_ladder_has_two_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let compared = run("sharegpt", &["round-robin", "weir"], 40);
    table::plot(&[compared], folder.path()).unwrap();
    for file in ["qps-sharegpt-ntpot.svg", "qps-sharegpt-tokens.svg"] {
        let svg = std::fs::read_to_string(folder.path().join(file)).unwrap();
        let parsed = roxmltree::Document::parse(&svg).unwrap();
        assert!(
            parsed.descendants().any(|node| node.text().map(str::trim) == Some("weir")),
            "{file}"
        );
    }
}
