use std::sync::Arc;

use super::*;
use crate::{
    prompt::Segment,
    trace::Arrival,
    workload::{Means, Replay},
};

/// Rows a second apart that share half of their prompt, on two pods.
fn setting(requests: usize) -> Setting {
    let row = |number: u32| Arrival {
        at_s: f64::from(number),
        input_tokens: 400 + 37 * (number % 23),
        output_tokens: 20 + 11 * (number % 7),
        class: None,
        prefix: vec![Segment { id: u64::from(number % 3), tokens: 256 }],
    };
    let rows = (0..500).map(row).collect();
    Setting {
        pool: Pool::of("h100-qwen3-32b-tp2", 2, None).unwrap(),
        gpu: "h100-qwen3-32b-tp2".to_owned(),
        source: Arc::new(Replay::new("rows".to_owned(), rows).unwrap()),
        objectives: Objectives::two_classes(),
        mix: "two".to_owned(),
        requests,
        knowledge: Knowledge::default(),
    }
}

fn contender(name: &str) -> Contender {
    Contender::named(name).unwrap()
}

#[test]
fn rows_are_all_classes_first_and_their_sums_agree() {
    let rows = at_load(&setting(400), &contender("weir"), 0.6, &[1, 2]).unwrap();
    let classes: Vec<_> = rows.iter().map(|row| row.class.as_str()).collect();
    assert_eq!(classes, ["all", "interactive", "batch"]);
    assert_eq!(rows[0].requests, 2 * 380, "without the warm-up");
    assert_eq!(rows[1].requests + rows[2].requests, rows[0].requests);
    assert!((rows[1].goodput_rps + rows[2].goodput_rps - rows[0].goodput_rps).abs() < 1e-9);
    assert_eq!((rows[0].load, rows[0].max_load, rows[0].at), (Some(0.6), None, None));
    assert!(rows[0].attainment_ci.is_some() && rows[0].prefix_hit > 0.1);
    assert!(rows[0].ttft_ms_p50 <= rows[0].ttft_ms_p95 && rows[0].ttft_ms_p95 < rows[0].e2e_ms_p95);
}

#[test]
fn goodput_is_the_offered_rate_when_everybody_attains() {
    let mut easy = setting(400);
    easy.objectives = Objectives::default();
    let rows = at_load(&easy, &contender("least-request"), 0.3, &[1]).unwrap();
    let offered_rps = 0.3 * easy.capacity_rps();
    assert_eq!(rows[0].attainment, 1.0);
    assert!((rows[0].goodput_rps / offered_rps - 1.0).abs() < 0.05, "{}", rows[0].goodput_rps);
    assert!((rows[0].throughput_rps / offered_rps - 1.0).abs() < 0.05);
    assert!(rows[0].idle_share > 0.0 && rows[0].idle_share < 0.8, "{}", rows[0].idle_share);
}

#[test]
fn a_study_is_the_same_every_time_on_one_thread_or_two() {
    let setting = setting(200);
    let study = |threads| {
        let job = |name: &'static str| {
            let setting = &setting;
            let job = move || at_load(setting, &contender(name), 0.9, &[1, 2]).unwrap();
            Box::new(job) as Box<dyn FnOnce() -> Vec<Row> + Send>
        };
        in_parallel(["weir", "random", "load-prefix"].map(job).into(), threads)
    };
    let alone = study(1);
    assert_eq!(alone, study(1));
    assert_eq!(alone, study(2));
    assert_ne!(alone[0], alone[1]);
}

#[test]
fn the_highest_load_keeps_the_promise_and_the_next_one_does_not() {
    let mut setting = setting(150);
    setting.objectives = Objectives::default();
    let rows = max_load(&setting, &contender("least-request"), 0.95, &[1]).unwrap();
    let highest = rows[0].max_load.unwrap();
    assert!(highest > 0.1 && rows[0].attainment >= 0.95, "{highest}: {}", rows[0].attainment);
    assert_eq!((rows[0].load, rows[0].at), (None, Some(0.95)));
    let above = at_load(&setting, &contender("least-request"), highest + 0.01, &[1]).unwrap();
    assert!(above[0].attainment < 0.95, "{}", above[0].attainment);
}

#[test]
fn with_no_objectives_whoever_is_served_attains() {
    let mut setting = setting(200);
    setting.objectives = Objectives::none();
    let rows = at_load(&setting, &contender("weir"), 0.9, &[1]).unwrap();
    assert_eq!((rows[0].attainment, rows[0].attainment_large5), (1.0, Some(1.0)));
}

#[test]
fn predictions_without_error_are_graded_better_than_those_with_much() {
    let mape = |error| {
        let setting = Setting { knowledge: Knowledge::Oracle { error }, ..setting(300) };
        at_load(&setting, &contender("weir"), 0.6, &[1]).unwrap()[0].mape_ttft.unwrap()
    };
    let (none, much) = (mape(0.0), mape(0.4));
    assert!(much > none + 0.1, "{none} {much}");
    let fitted = Setting { knowledge: Knowledge::Fitted, ..setting(300) };
    assert!(at_load(&fitted, &contender("weir"), 0.6, &[1]).unwrap()[0].mape_ttft.unwrap() < 0.5);
}

#[test]
fn a_row_survives_its_file_with_what_was_not_measured() {
    let rows = at_load(&setting(60), &contender("round-robin"), 0.4, &[1]).unwrap();
    let json = serde_json::to_string(&rows).unwrap();
    assert!(json.contains("\"attainment_ci\":null"), "{json}");
    assert_eq!(serde_json::from_str::<Vec<Row>>(&json).unwrap(), rows);
}

#[test]
fn a_study_without_a_seed_or_with_a_load_of_nothing_is_an_error() {
    let (setting, weir) = (setting(10), contender("weir"));
    assert!(at_load(&setting, &weir, 0.5, &[]).is_err());
    assert!(at_load(&setting, &weir, 0.0, &[1]).is_err());
    assert!(max_load(&setting, &weir, 1.5, &[1]).is_err());
}

#[test]
fn requests_that_were_simulated_are_counted() {
    let before = simulated();
    once(&setting(50), &contender("random"), 0.5, 1).unwrap();
    assert!(simulated() >= before + 50);
    assert!(setting(1).source.means() != Means::default());
}
