//! What people are told.

use super::*;
use crate::{
    advise::{chunk::Tried, tests::setting},
    workload::Objective,
};

#[test]
fn a_slow_rate_is_not_told_as_none() {
    assert_eq!(
        [5.5612, 0.25, 0.0312, 0.000_047_1].map(rate),
        ["5.56", "0.25", "0.031", "0.000047"]
    );
    assert_eq!(rate(0.0), "0.00");
}

fn looked() -> Looked {
    Looked {
        requests: 610_000,
        requests_per_run: 642_105,
        runs: 1,
        share: 1.0,
        least_requests: 100,
        busiest_s: HOUR_S,
        busiest_rps: 30.0,
    }
}

#[test]
fn what_was_looked_at_is_told_with_how_busy_it_gets() {
    let said = looked_at(&looked(), 7.0);
    assert!(said.contains("all of its 610000 requests, in a run of 642105"), "{said}");
    assert!(said.contains("busiest hour has 30.00 requests/s, 4.29 times the mean"), "{said}");
    let some = Looked { share: 0.5, runs: 251, busiest_s: 180.0, ..looked() };
    let said = looked_at(&some, 7.0);
    assert!(said.contains("50 % of its 610000 requests, in 251 stretches"), "{said}");
    assert!(said.contains("busiest tenth, 180 s, has"), "{said}");
}

#[test]
fn of_a_few_requests_and_of_a_moment_no_part_is_told_as_the_busiest() {
    for chance in [
        Looked { requests: 2, ..looked() },
        Looked { busiest_s: 0.1, busiest_rps: 9.0, ..looked() },
    ] {
        let said = looked_at(&chance, 7.0);
        assert!(said.ends_with("with the warm-up."), "{said}");
    }
}

#[test]
fn a_rate_that_the_search_did_not_bound_is_told_as_such_in_table_and_sentence() {
    let (setting, _) = setting(&["--pods", "1"]);
    let told = |bounded| {
        let row = Row { bounded, ..Row::default() };
        let tried = Tried {
            chunk_tokens: 512,
            full_step_ms: 37.0,
            max_load: 15.99,
            rps: 581.14,
            least_requests: 1,
            top_row: row.clone(),
            row,
        };
        let sweep = Sweep { tried: vec![tried], by_rule: None };
        let advice = Advice::new(&setting, "weir", (None, 0.99), sweep, None, &[]);
        assert_eq!(advice.bounded, bounded);
        advice.for_people()
    };
    let said = told(false);
    for words in [
        "to 512: at least 581.14 requests/s at 99 %, at least 581.14 per pod",
        "| at least 581.14 |",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert!(!told(true).contains("at least"), "{}", told(true));
}

#[test]
fn latencies_are_of_the_class_of_the_highest_band_and_it_is_said_of_whom_they_are() {
    let row = |class: &str, ttft_ms| Row {
        class: class.to_owned(),
        requests: 1,
        ttft_ms_p95: Some(ttft_ms),
        ..Row::default()
    };
    let mut objectives = Objectives::two_classes();
    let [chat, batch] = [0, 1].map(|place| objectives.classes[place].name.clone());
    let rows = [row("all", 9.0), row(&batch, 30.0), row(&chat, 3.0)];
    let ttft_ms = |objectives: &Objectives| beside_top_band(&rows, objectives).ttft_ms_p95;
    assert_eq!(ttft_ms(&objectives), Some(3.0));
    let said = whose_figures(&objectives).unwrap();
    assert!(said.starts_with(&format!("Attained, TTFT and TPOT are of {chat}, ")), "{said}");

    let third = Objective { band: -1, ..objectives.classes[1].clone() };
    objectives.classes[1].band = objectives.classes[0].band;
    assert_eq!((ttft_ms(&objectives), whose_figures(&objectives)), (Some(9.0), None));
    objectives.classes.push(Objective { name: "last".to_owned(), ..third });
    let said = whose_figures(&objectives).unwrap();
    assert!(said.contains(&format!("which is {chat}, {batch};")), "{said}");
}

#[test]
fn traffic_that_is_too_short_or_too_fast_for_a_run_is_warned_of() {
    let (setting, _) = setting(&["--pods", "1"]);
    let held =
        |too_short| Held { pods: 1, attainment: 1.0, row: Row { too_short, ..Row::default() } };
    let needed = |looked, too_short| Needed { pods: Some(1), tried: vec![held(too_short)], looked };
    assert_eq!(of_needed(&setting, &needed(looked(), false)), None);
    let short = Looked { least_requests: 700_000, ..looked() };
    let said = of_needed(&setting, &needed(short.clone(), false)).unwrap();
    assert!(said.contains("again and again"), "{said}");
    let said = of_needed(&setting, &needed(short, true)).unwrap();
    assert!(
        said.contains("642105 requests per seed are too few for the traffic's own rate"),
        "{said}"
    );
    assert!(said.ends_with("--requests 700000"), "{said}");
}
