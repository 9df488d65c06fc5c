use super::*;
use crate::policy::check::problems;

#[test]
fn every_preset_has_a_name_of_its_own_and_sound_rules() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
        assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        assert_eq!(problems(&policy.rules()), [], "{policy:?}");
    }
    assert!("wier".parse::<Policy>().is_err());
}

#[test]
fn rules_survive_being_written_and_read() {
    for policy in Policy::ALL {
        let text = serde_json::to_string(&policy.rules()).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), policy.rules(), "{text}");
    }
}

#[test]
fn a_part_needs_only_what_differs_from_the_defaults_of_its_source() {
    let gate: Affinity = serde_json::from_str(r#"{"kind":"prefix-cache"}"#).unwrap();
    assert_eq!(gate, Policy::PredictedLatency.rules().affinity);
    let scorer: Scorer = serde_json::from_str(r#"{"kind":"headroom"}"#).unwrap();
    assert_eq!(scorer, Policy::PredictedLatency.rules().scorer);
    let latency: Filter = serde_json::from_str(r#"{"kind":"latency"}"#).unwrap();
    assert!(Policy::LlumnixSlo.rules().filters.contains(&latency));
    let wrong = serde_json::from_str::<Scorer>(r#"{"kind":"headroom","weight":1}"#);
    assert!(wrong.unwrap_err().to_string().contains("unknown field `weight`"));
}

#[test]
fn numbers_that_make_no_sense_are_named() {
    let mut rules = Policy::PredictedLatency.rules();
    rules.slo_buffer = 0.0;
    rules.admission = Admission::LatencySlo { cold_kv: 2.0 };
    rules.filters = vec![Filter::HeadroomTier { explore_negative: -0.1 }];
    rules.picker = Picker::TopRandom { k: 0 };
    rules.scorer = Scorer::LoadPrefix { kv_weight: 0.0, queue_weight: 0.0, prefix_weight: 0.0 };
    let keys: Vec<_> = problems(&rules).into_iter().map(|(key, _)| key).collect();
    let want =
        ["slo_buffer", "admission.cold_kv", "filters[0].explore_negative", "scorer", "picker.k"];
    assert_eq!(keys, want);
    let mut rules = Policy::Weir.rules();
    rules.dispatch = Mode::Push;
    rules.filters = vec![Filter::Capacity { most: f64::NAN }, Filter::Headroom];
    let keys: Vec<_> = problems(&rules).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["filters[0].most", "filters", "affinity"]);
}

#[test]
fn the_same_seed_draws_the_same_and_another_does_not() {
    let draw = |seed| {
        let mut dice = Dice::new(seed);
        [dice.uniform(), dice.uniform(), dice.uniform()]
    };
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7), draw(8));
    let mut dice = Dice::new(1);
    let mean = (0..10_000).map(|_| dice.uniform()).sum::<f64>() / 1e4;
    assert!((0.49..0.51).contains(&mean), "{mean}");
    assert!((0..1000).all(|_| dice.below(3) < 3));
    assert!(!dice.happens(0.0) && dice.happens(1.0));
}
