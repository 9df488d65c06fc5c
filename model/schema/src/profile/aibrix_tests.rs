//! The format is that of AIBrix's `gen_profile.py`; the numbers of the first tests are the RFC's
//! (AIBrix issue 642), those of the awkward ones are shortened from a file in AIBrix issue 1567.

use super::{
    super::{Percentile, Profile},
    *,
};

fn read(text: &str) -> Result<Profile, ProfileError> {
    let mut profile = Profile::default();
    profile.add(text, Percentile::P50).map(|_| profile)
}

fn patterns(text: &str) -> std::sync::Arc<PatternProfile> {
    read(text).unwrap().patterns.unwrap()
}

fn refused(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

/// Two output lengths by two input lengths, with the RFC's 256/16 and 4096/32.
const RFC: &str = r#"{
    "gpu": "a100", "cost": 1.5, "created": 1748888478.25,
    "indexes": [[16, 32], [256, 4096]],
    "tputs": [[4.0, 2.0], [3.0, 1.0]],
    "e2e": [[0.5, 2.0], [1.0, 5.0]],
    "slos": {"percentile": 99, "e2e": 5.0}
}"#;

#[test]
fn aibrix_profiles_are_read_unchanged() {
    let profile = patterns(RFC);
    assert_eq!((profile.gpu.as_str(), profile.cost), ("a100", 1.5));
    assert_eq!(profile.created_unix_s, 1_748_888_478.25);
    assert_eq!(profile.objectives, Objectives { e2e_s: Some(5.0), ..Objectives::default() });
    let small = profile.at(256.0, 16.0).unwrap();
    let want = Cell { rps: 4.0, e2e_s: 0.5, ttft_s: None, tpot_s: None };
    assert_eq!(small, Reading { value: want, inside: true });
    let large = profile.at(4096.0, 32.0).unwrap().value;
    assert!((large.rps - 1.0).abs() < 1e-12 && (large.e2e_s - 5.0).abs() < 1e-12);
    assert!(read(RFC).unwrap().notes().is_empty());
}

#[test]
fn between_cells_rate_and_latency_are_interpolated_along_logarithms() {
    let profile = patterns(RFC);
    // 1024 is halfway from 256 to 4096 in log2.
    let cell = profile.at(1024.0, 16.0).unwrap().value;
    assert!((cell.rps - 8.0_f64.sqrt()).abs() < 1e-9, "{cell:?}");
    assert!((cell.e2e_s - 1.0).abs() < 1e-9, "{cell:?}");
    let middle = profile.at(1024.0, 512.0_f64.sqrt()).unwrap().value;
    assert!((middle.rps - 24.0_f64.powf(0.25)).abs() < 1e-9, "{middle:?}");
    // Rate x latency is the same before and after: the geometric mean of 2, 4, 3 and 5.
    let capacity = middle.rps * middle.e2e_s;
    assert!((capacity - (2.0_f64 * 4.0 * 3.0 * 5.0).powf(0.25)).abs() < 1e-9, "{capacity}");
}

#[test]
fn outside_the_grid_the_edge_cell_is_read_and_said_to_be_the_edge() {
    let profile = patterns(RFC);
    for (input, output, rps) in [(1.0, 1.0, 4.0), (1e9, 16.0, 2.0), (256.0, 1e6, 3.0)] {
        let reading = profile.at(input, output).unwrap();
        assert!(!reading.inside && (reading.value.rps - rps).abs() < 1e-9, "{reading:?}");
    }
}

// AIBrix: without e2e GetConsumption returns 0 and no error, so admission has no bound.
#[test]
fn a_profile_without_e2e_is_refused_by_name() {
    let text = RFC.replace("\"e2e\": [[", "\"e2e_\": [[");
    assert_eq!(refused(&text), "e2e: is missing; without it no capacity RPS x E2E is known");
    let text = text.replace("\"e2e_\": [[0.5, 2.0], [1.0, 5.0]]", "\"e2e\": null");
    assert!(refused(&text).starts_with("e2e: is missing"));
}

#[test]
fn a_rate_beside_a_latency_that_is_none_is_refused_with_its_cell() {
    for (latency, said) in [("NaN", "NaN"), ("Infinity", "NaN"), ("0.0", "0"), ("-1.0", "-1")] {
        let text = RFC.replace("[1.0, 5.0]]", &format!("[1.0, {latency}]]"));
        let want = format!(
            "e2e[1][1] (4096 in, 32 out): {said} is no latency, though the rate is above 0"
        );
        assert_eq!(refused(&text), want);
    }
    let text = RFC.replace("[4.0, 2.0]", "[4.0, -2.0]");
    assert_eq!(refused(&text), "tputs[0][1] (4096 in, 16 out): must not be negative");
}

#[test]
fn a_cell_whose_rate_is_zero_or_no_number_is_infeasible_by_name() {
    // Where the rate is zero the latency does not matter, not even NaN.
    let text = RFC.replace("[3.0, 1.0]", "[NaN, 0.0]").replace("[1.0, 5.0]", "[1.0, NaN]");
    let profile = patterns(&text);
    let infeasible = profile.at(4096.0, 32.0).unwrap_err();
    assert_eq!(infeasible.why, WhyInfeasible::ZeroRate);
    assert_eq!(
        read(&text).unwrap().notes(),
        [
            "tputs[1][0] (256 in, 32 out): infeasible, the rate is not a number",
            "tputs[1][1] (4096 in, 32 out): infeasible, no rate met the profile's objective",
        ]
    );
    assert_eq!((profile.infeasible().count(), profile.len()), (2, 4));
}

#[test]
fn a_rate_above_that_of_a_smaller_pattern_is_infeasible_by_name() {
    let profile = patterns(&RFC.replace("[4.0, 2.0]", "[4.0, 5.0]"));
    let infeasible = profile.at(4096.0, 16.0).unwrap_err();
    assert_eq!(
        infeasible.to_string(),
        "tputs[0][1] (4096 in, 16 out): infeasible, 5.000/s but 4.000/s for a smaller pattern"
    );
    // What is not believed is no measure for what lies beyond it.
    assert!(profile.at(256.0, 32.0).is_ok() && profile.at(4096.0, 32.0).is_ok());
}

#[test]
fn beyond_a_pattern_whose_rate_is_zero_every_larger_one_is_infeasible() {
    let profile = patterns(&RFC.replace("[4.0, 2.0]", "[4.0, 0.0]"));
    let beyond = profile.at(4096.0, 32.0).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "tputs[1][1] (4096 in, 32 out): infeasible, a smaller pattern is infeasible"
    );
    assert!(profile.at(256.0, 32.0).is_ok());
}

// More output tokens spread the same prompts over more steps, so the mean pace is kept more easily.
#[test]
fn under_an_objective_per_output_token_a_longer_output_may_have_a_higher_rate() {
    let rising = RFC.replace("[[4.0, 2.0], [3.0, 1.0]]", "[[4.0, 0.0], [6.0, 1.0]]");
    assert_eq!(patterns(&rising).infeasible().count(), 3);
    let paced = patterns(&rising.replace("\"e2e\": 5.0}", "\"tpot\": 0.05}"));
    assert_eq!(paced.infeasible().count(), 1);
    assert!(paced.at(256.0, 32.0).is_ok() && paced.at(4096.0, 32.0).is_ok());
    // A longer prompt is harder all the same.
    let rising =
        RFC.replace("[4.0, 2.0]", "[4.0, 5.0]").replace("\"e2e\": 5.0}", "\"tpot\": 0.05}");
    assert!(patterns(&rising).at(4096.0, 16.0).is_err());
}

// A shipped simulator profile has 31.3902 before 31.4408 in one row.
#[test]
fn a_rate_within_the_profilers_own_tolerance_of_a_smaller_pattern_is_believed() {
    let profile = patterns(&RFC.replace("[4.0, 2.0]", "[4.0, 4.4]"));
    assert!(profile.at(4096.0, 16.0).is_ok());
}

#[test]
fn the_nearest_cell_decides_feasibility_and_halfway_the_larger_does() {
    let profile =
        patterns(&RFC.replace("[4.0, 2.0]", "[4.0, 0]").replace("[3.0, 1.0]", "[3.0, 0]"));
    assert!(profile.at(1024.0, 16.0).is_err());
    // An infeasible neighbour has no share in the value.
    let near = profile.at(1023.0, 16.0).unwrap().value;
    assert!((near.rps - 4.0).abs() < 1e-9 && (near.e2e_s - 0.5).abs() < 1e-9, "{near:?}");
}

#[test]
fn an_axis_or_a_matrix_of_the_wrong_shape_is_refused_by_name() {
    for (from, to, want) in [
        ("[256, 4096]", "[4096, 256]", "indexes[1]: must ascend from at least 1"),
        ("[256, 4096]", "[256, 256]", "indexes[1]: must ascend from at least 1"),
        ("[[16, 32]", "[[0, 32]", "indexes[0]: must ascend from at least 1"),
        ("[[16, 32]", "[[16, NaN]", "indexes[0]: must ascend from at least 1"),
        ("[[16, 32]", "[[\"16\", 32]", "indexes[0]: must hold numbers"),
        ("[[16, 32]", "[[]", "indexes[0]: must ascend from at least 1"),
        (", [256, 4096]]", "]", "indexes[1]: is missing"),
        (", [3.0, 1.0]]", "]", "tputs: 1 rows for 2 output lengths"),
        ("[3.0, 1.0]", "[3.0]", "tputs[1]: 1 cells for 2 input lengths"),
        ("[3.0, 1.0]", "[3.0, \"1\"]", "tputs[1]: must hold numbers"),
        ("\"tputs\"", "\"rates\"", "tputs: is missing"),
        ("[[4.0, 2.0], [3.0, 1.0]]", "[[0, 0], [0, 0]]", "tputs: no pattern is feasible"),
    ] {
        assert_eq!(refused(&RFC.replace(from, to)), want, "{to}");
    }
}

// Issue 1567: "SLO feature is not working". Latencies in the first column are true, a TTFT of a
// microsecond is not.
#[test]
fn a_generated_profile_with_nan_and_zeros_is_read_and_every_bad_cell_named() {
    let text = r#"{"gpu": "qwen25-7b", "cost": 1.0,
        "tputs": [[64.5, 33.1], [8.56, 16.88], [0.0, 0.0]],
        "indexes": [[4, 8, 32], [4, 8]], "created": 1757501912.271124,
        "e2e": [[0.1, 0.077], [0.096, 0.094], [0.26, NaN]],
        "ttft": [[0.026, 7.9e-07], [1.1e-06, 8.3e-07], [1.0e-06, NaN]]}"#;
    assert_eq!(
        read(text).unwrap().notes(),
        [
            "tputs[1][1] (8 in, 8 out): infeasible, 16.880/s but 8.560/s for a smaller pattern",
            "tputs[2][0] (4 in, 32 out): infeasible, no rate met the profile's objective",
            "tputs[2][1] (8 in, 32 out): infeasible, no rate met the profile's objective",
            "ttft[0][1] (8 in, 4 out): 0.00000079 is no latency; unknown",
            "ttft[1][0] (4 in, 8 out): 0.0000011 is no latency; unknown",
        ]
    );
    let cell = patterns(text).at(4.0, 4.0).unwrap().value;
    assert_eq!(cell.ttft_s, Some(0.026));
    // (e2e - ttft) / (output - 1) where the file has no tpot.
    assert!((cell.tpot_s.unwrap() - 0.074 / 3.0).abs() < 1e-12);
    assert_eq!(patterns(text).at(4.0, 8.0).unwrap().value.tpot_s, None);
}
