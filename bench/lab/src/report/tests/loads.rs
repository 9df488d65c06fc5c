//! Which loads a page tells of, and what it tells of runs without one.

use serde_json::json;

use super::{Row, highest, pair, row, text_of};

/// A row without a load.
fn own_rates(policy: &str, mix: &str, attainment: f64) -> Row {
    Row {
        load: None,
        mix: mix.to_owned(),
        attainment_ci: None,
        ttft_ms_p99: Some(777.0),
        tpot_ms_mean: Some(31.25),
        e2e_ms_p50: Some(4321.0),
        ..row(policy, "all", 1.0, attainment)
    }
}

#[test]
fn a_run_of_many_policies_at_one_load_takes_no_curves_from_one_at_several() {
    let at_one = ["a", "b", "c", "d", "e", "f"].map(|policy| row(policy, "interactive", 1.0, 0.7));
    let text = text_of(&[("a.json", pair(|row| row, 0.901)), ("b.json", json!({"rows": at_one}))]);
    assert!(text.contains("Attainment of interactive"), "{text}");
    assert!(text.contains("1 setting, at several loads, with the same arrivals"), "{text}");
    assert!(text.contains("At load 1.3, 90.1 % ± 1.2 % of interactive"), "{text}");
}

#[test]
fn a_setting_at_one_load_is_not_said_to_be_at_several() {
    let at_one = json!({"rows": [row("weir", "all", 1.0, 0.9), row("push-it", "all", 1.0, 0.8)]});
    let text = text_of(&[("a.json", at_one.clone())]);
    assert!(text.contains("1 setting, at one load, with the same arrivals"), "{text}");
    assert!(text.contains("This page was made of 1 run file with 2 rows."), "{text}");
    let other = pair(|row| Row { workload: "other".to_owned(), ..row }, 0.9);
    let text = text_of(&[("a.json", at_one), ("b.json", other)]);
    assert!(text.contains("2 settings, 1 of them at several loads"), "{text}");
}

#[test]
fn rows_of_traffic_with_rates_of_its_own_are_in_a_table() {
    let rows = [own_rates("weir", "none", 1.0), own_rates("push-it", "none", 0.5)];
    let text = text_of(&[("a.json", json!({"rows": rows}))]);
    for said in [
        "1 setting, of traffic with rates of its own",
        "At its own rates, weir takes least end to end of 2 policies, 8 s in the mean.",
        "300 / - / 777",
        "31.2 / - / -",
        "8000 / 4321 / -",
        "350 / - / 777",
    ] {
        assert!(text.contains(said), "{said:?} is not in: {text}");
    }
    let rows = [own_rates("weir", "one", 0.876), own_rates("push-it", "one", 0.5)];
    let text = text_of(&[("a.json", json!({"rows": rows}))]);
    let said = "At its own rates, weir attains most of 2 policies, 87.6 % of all.";
    assert!(text.contains(said), "{text}");
}

#[test]
fn rows_at_a_load_without_objectives_are_in_a_table() {
    let free = Row { mix: "none".to_owned(), ..row("weir", "all", 0.9, 1.0) };
    let text = text_of(&[("a.json", json!({"rows": [free]}))]);
    assert!(text.contains("At load 0.9, weir takes least end to end of 1 policy, 8 s"), "{text}");
    let asked = text_of(&[("a.json", json!({"rows": [highest("weir", 0.8)]}))]);
    assert!(!asked.contains("Without a load"), "{asked}");
}

#[test]
fn a_variant_at_rates_of_the_traffic_s_own_is_not_said_to_be_at_load_zero() {
    let rows = [own_rates("weir", "one", 0.9), own_rates("weir-strict", "one", 0.8)];
    let text = text_of(&[("a.json", json!({"rows": rows}))]);
    assert!(text.contains("Attainment at its own rates falls most with weir-strict"), "{text}");
    assert!(text.contains("1 variant; the dearest") && !text.contains("load 0"), "{text}");
}

#[test]
fn highest_loads_of_which_two_comparisons_read_alike_have_one_figure() {
    let of = |workload: &str| {
        [highest("weir", 0.88), highest("push-it", 0.4)]
            .map(|row| Row { workload: workload.to_owned(), ..row })
    };
    let rows = [of("one"), of("two")].concat();
    let text = text_of(&[("a.json", json!({"rows": rows}))]);
    assert!(text.contains("weir holds 2.20x of the load in 2 comparisons."), "{text}");
}
