//! Numbers of the first tests: AIBrix's RFC on load-aware pattern-based routing (issue 642).

use std::time::Duration;

use weir_schema::profile::{Percentile, Profile};

use super::*;
use crate::Band;

fn profiles(text: &str) -> Profiles {
    let mut profile = Profile::default();
    profile.add(text, Percentile::P50).unwrap();
    let mut profiles = Profiles::default();
    profiles.insert(3, profile.patterns.unwrap());
    profiles
}

/// The RFC's two patterns, and two between them.
fn rfc() -> Profiles {
    profiles(
        r#"{"indexes": [[16, 32], [256, 4096]], "tputs": [[4.0, 2.0], [3.0, 1.0]],
            "e2e": [[0.5, 2.0], [1.0, 5.0]], "slos": {"e2e": 20.0}}"#,
    )
}

#[track_caller]
fn cost(profiles: &Profiles, input: u32, output: u32) -> Cost {
    profiles.cost(3, input, output).unwrap().unwrap()
}

fn quantiles(p50: f32, p90: f32) -> Quantiles {
    Quantiles { p50, p90 }
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-3
}

// "256/16: 4RPS, 0.5s = 2 Pending requests".
#[test]
fn a_pattern_of_4_rps_and_half_a_second_has_a_capacity_of_2() {
    let cost = cost(&rfc(), 256, 16);
    assert_eq!((cost.capacity, cost.load, cost.inside), (2.0, 0.5, true));
}

// "4096/32: 1RPS, 5s = 5 Pending requests".
#[test]
fn a_pattern_of_1_rps_and_5_seconds_has_a_capacity_of_5() {
    let cost = cost(&rfc(), 4096, 32);
    assert_eq!((cost.capacity, cost.load), (5.0, 0.2));
}

// "Load(P) = 1 / Capacity(P) = 1 / (RPS(P) * E2E(P)".
#[test]
fn the_load_is_one_over_the_capacity_and_without_a_capacity_infinite() {
    assert_eq!((load(capacity(4.0, 0.5)), load(capacity(1.0, 5.0))), (0.5, 0.2));
    assert_eq!((load(0.0), load(f64::NAN)), (f64::INFINITY, f64::INFINITY));
}

#[test]
fn a_pod_takes_as_many_requests_of_a_pattern_as_its_capacity() {
    for (input, output, most) in [(256, 16, 2), (4096, 32, 5)] {
        let load = cost(&rfc(), input, output).load;
        let (mut used, mut taken) = (0.0, 0);
        while has_room(used, load) {
            used += load;
            taken += 1;
        }
        assert_eq!(taken, most, "{input}/{output}");
    }
    // One of each: 0.5 + 0.2 + 0.2 fits, and a further small one does not.
    assert!(has_room(0.7, 0.2) && !has_room(0.9, 0.5));
}

#[test]
fn an_empty_pod_has_room_for_a_request_that_needs_more_than_one() {
    assert!(has_room(0.0, 1.5) && has_room(0.0, f64::INFINITY) && !has_room(0.1, 1.5));
}

#[test]
fn the_capacity_depends_on_pod_class_and_pattern() {
    let mut profiles = rfc();
    let slower = self::profiles(r#"{"indexes": [[16], [256]], "tputs": [[2.0]], "e2e": [[0.5]]}"#);
    profiles.insert(4, slower.0[&3].clone());
    let edges = BucketEdges { input: vec![256, 4096], output: vec![16, 32] };
    let capacity = |class, input, output| {
        let pattern = Pattern::of(&edges, Band(0), input, output, None);
        profiles.cost_of(class, &pattern, &edges).map(|cost| cost.unwrap().capacity)
    };
    // A lane costs what its largest request does.
    assert_eq!(capacity(3, 200, 9), Some(2.0));
    assert_eq!(capacity(3, 257, 17), Some(5.0));
    assert_eq!(capacity(4, 200, 9), Some(1.0));
    assert_eq!(capacity(5, 200, 9), None);
    // Past the last edge: the edge of the profile.
    assert_eq!(capacity(3, 100_000, 100_000), Some(5.0));
    let pattern = Pattern::of(&edges, Band(0), 100_000, 1, None);
    assert!(!profiles.cost_of(3, &pattern, &edges).unwrap().unwrap().inside);
    assert!(Profiles::default().is_empty() && !profiles.is_empty());
}

// AIBrix answers 503 for such a pattern from wherever it meets it.
#[test]
fn an_infeasible_pattern_has_no_cost_but_a_reason() {
    let profiles =
        profiles(r#"{"indexes": [[16], [256, 4096]], "tputs": [[4.0, 0.0]], "e2e": [[0.5, NaN]]}"#);
    let infeasible = profiles.cost(3, 4096, 16).unwrap().unwrap_err().to_string();
    assert_eq!(
        infeasible,
        "tputs[0][1] (4096 in, 16 out): infeasible, no rate met the profile's objective"
    );
}

/// TTFT 0.2 and 0.4 s, end 2 and 3 s, for a prompt of 900 and 100 output tokens.
fn expected() -> Expected {
    Expected {
        ttft_ms: Some(quantiles(200.0, 400.0)),
        e2e_ms: Some(quantiles(2000.0, 3000.0)),
        input_tokens: 900,
        output_tokens: 100,
    }
}

// rank = waited + expected - target.
#[test]
fn each_objective_has_its_slack() {
    let none = Targets::default();
    let slack = |targets: &Targets, waited_ms| {
        Violation::of(targets, &expected(), waited_ms).map(|violation| violation.slack_ms)
    };
    let ttft = Targets { ttft_ms: Some(1000.0), ..none };
    assert_eq!(slack(&ttft, 100.0), Some(700.0));
    assert_eq!(slack(&ttft, 900.0), Some(-100.0));
    // TPOT: expected = E2E, target = TPOT * out + TTFT.
    let tpot = Targets { tpot_ms: Some(30.0), ..none };
    assert_eq!(slack(&tpot, 100.0), Some(3000.0 - 100.0 - 2000.0));
    // TPAT: expected = E2E, target = TPAT * (prompt + out).
    let tpat = Targets { tpat_ms: Some(4.0), ..none };
    assert_eq!(slack(&tpat, 100.0), Some(4000.0 - 100.0 - 2000.0));
    let e2e = Targets { e2e_ms: Some(5000.0), ..none };
    assert_eq!(slack(&e2e, 100.0), Some(5000.0 - 100.0 - 2000.0));
    assert_eq!(slack(&none, 100.0), None);
}

// AIBrix takes the first that is set, in the order TPOT, TTFT, TPAT, E2E.
#[test]
fn the_worst_of_all_objectives_that_are_set_counts() {
    let targets = Targets { ttft_ms: Some(250.0), tpot_ms: Some(60.0), ..Targets::default() };
    let both = Violation::of(&targets, &expected(), 0.0).unwrap();
    // 6000 + 250 - 2000 by pace, 50 by the first token.
    assert_eq!(both.slack_ms, 50.0);
    let alone = Targets { tpot_ms: None, ..targets };
    assert_eq!(both, Violation::of(&alone, &expected(), 0.0).unwrap());
    let tight = Targets { e2e_ms: Some(1900.0), ..targets };
    let tight = Violation::of(&tight, &expected(), 0.0).unwrap();
    assert_eq!(tight.slack_ms, -100.0);
    assert!(tight.probability > both.probability);
}

// AIBrix ranks by the mean: of two with the same slack the less certain one is as urgent there.
#[test]
fn the_probability_tells_a_certain_latency_from_an_uncertain_one() {
    let targets = Targets { ttft_ms: Some(300.0), ..Targets::default() };
    let of = |p90| {
        let expected = Expected { ttft_ms: Some(quantiles(200.0, p90)), ..expected() };
        Violation::of(&targets, &expected, 0.0).unwrap()
    };
    let (certain, uncertain) = (of(220.0), of(600.0));
    assert_eq!(certain.slack_ms, uncertain.slack_ms);
    assert!(certain.probability < 0.001, "{certain:?}");
    assert!((0.3..0.4).contains(&uncertain.probability), "{uncertain:?}");
}

#[test]
fn the_probability_agrees_with_the_quantiles_it_is_made_of() {
    let latency = quantiles(200.0, 400.0);
    assert!(close(exceeds(latency, 200.0), 0.5) && close(exceeds(latency, 400.0), 0.1));
    // As far below the median as the 90th percentile is above it.
    assert!(close(exceeds(latency, 100.0), 0.9));
    assert_eq!((exceeds(latency, 0.0), exceeds(latency, -5.0)), (1.0, 1.0));
    assert!(exceeds(latency, 1e6) < 1e-6);
    let exact = quantiles(200.0, 200.0);
    assert_eq!((exceeds(exact, 199.0), exceeds(exact, 200.0)), (1.0, 0.0));
}

#[test]
fn a_request_that_has_waited_past_its_objective_is_certain_to_miss_it() {
    let targets = Targets { ttft_ms: Some(300.0), ..Targets::default() };
    let late = Violation::of(&targets, &expected(), 300.0).unwrap();
    assert_eq!((late.probability, late.slack_ms), (1.0, -200.0));
}

#[test]
fn a_requests_own_objectives_come_before_those_of_the_profile() {
    let slo = Slo { ttft: Some(Duration::from_millis(500)), tpot: None };
    let profile = Objectives { ttft_s: Some(9.0), e2e_s: Some(5.0), ..Objectives::default() };
    let targets = Targets::from(&slo).or(Targets::from(&profile));
    let want = Targets { ttft_ms: Some(500.0), e2e_ms: Some(5000.0), ..Targets::default() };
    assert_eq!(targets, want);
}

#[test]
fn what_is_expected_comes_from_a_prediction_or_from_a_profile() {
    let prediction = Prediction {
        ttft_ms: quantiles(200.0, 300.0),
        tpot_ms: quantiles(10.0, 12.0),
        ..Prediction::default()
    };
    let expected = Expected::of_prediction(&prediction, 900, 101);
    assert_eq!(expected.e2e_ms, Some(quantiles(1200.0, 1500.0)));
    let cell = Cell { rps: 1.0, e2e_s: 2.0, ttft_s: None, tpot_s: None };
    let expected = Expected::of_cell(&cell, 1.5, 900, 100);
    assert_eq!((expected.ttft_ms, expected.e2e_ms), (None, Some(quantiles(2000.0, 3000.0))));
    // An objective for something that is not known ranks nothing.
    let targets = Targets { ttft_ms: Some(1.0), ..Targets::default() };
    assert_eq!(Violation::of(&targets, &expected, 0.0), None);
}
