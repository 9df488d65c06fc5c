use weir_schema::{Predict as _, Prediction};

use super::super::Chain;
use super::super::tests::{predict, reason, scaled, serve_row};
use super::*;
use crate::fixture;
use crate::profile::tests::flat;

/// A row of a class: the prior says 100 ms and 20 ms, and the profile has all it asks for.
fn row(class: u16) -> Row {
    let mut features = Features(fixture::row(100.0, 20.0, 500.0));
    features.set(Feature::UncachedTokens, 500.0);
    features.set(Feature::PrefillTokensInFlight, 0.0);
    features.set(Feature::RunningRequests, 0.0);
    features.set(Feature::DecodeTokensInFlight, 500.0);
    features.set(Feature::PodClass, f32::from(class));
    features.0
}

/// A chain whose class 1 has a profile that says 150 ms and 30 ms.
fn chain() -> Chain {
    let mut chain = Chain::new();
    chain.set_profile(1, flat(150.0, 30.0));
    chain
}

fn said(prediction: &Prediction) -> (f32, Source, f32, Source) {
    let Prediction { ttft_ms, tpot_ms, ttft_source, tpot_source, .. } = prediction;
    (ttft_ms.p50, *ttft_source, tpot_ms.p50, *tpot_source)
}

#[test]
fn without_a_bundle_the_profile_serves_its_class_and_the_prior_the_others() {
    let mut chain = chain();
    let got = predict(&mut chain, row(1)).unwrap();
    assert_eq!(said(&got), (150.0, Source::Profile, 30.0, Source::Profile));
    assert_eq!((got.ttft_ms.p90, got.model_version), (225.0, 0));
    let got = predict(&mut chain, row(0)).unwrap();
    assert_eq!(said(&got), (100.0, Source::Prior, 20.0, Source::Prior));
    let status = chain.status();
    assert_eq!((status.ttft_source, status.tpot_source), (Source::Profile, Source::Profile));
    assert_eq!(reason(&chain), "no bundle yet");
}

#[test]
fn a_bundle_comes_before_the_profile_and_a_failed_call_falls_to_it() {
    let mut chain = chain();
    chain.set_bundle(scaled(7, 1.5, 2.0));
    let got = predict(&mut chain, row(1)).unwrap();
    assert_eq!(said(&got), (150.0, Source::Onnx, 40.0, Source::Onnx));
    // More than an hour: no latency.
    chain.set_bundle(scaled(8, 1e6, 1.0));
    let got = predict(&mut chain, row(1)).unwrap();
    assert_eq!(said(&got), (150.0, Source::Profile, 30.0, Source::Profile));
    assert_eq!(chain.status().failures, 1);
}

#[test]
fn the_profile_takes_a_target_from_a_bundle_with_a_higher_live_error() {
    let mut chain = chain();
    chain.set_bundle(scaled(7, 1.0, 1.0));
    // TTFT: the profile is exact. TPOT: the bundle is.
    let last = serve_row(&mut chain, row(1), (150.0, 20.0), 31);
    assert_eq!(said(&last), (150.0, Source::Profile, 20.0, Source::Onnx));
    assert_eq!(reason(&chain), "ttft: live error 0.000 of the profile, 0.333 of v7");
    let last = serve_row(&mut chain, row(1), (100.0, 20.0), 500);
    assert_eq!(last.ttft_source, Source::Onnx);
}

#[test]
fn the_prior_takes_a_target_from_a_profile_with_a_higher_live_error() {
    let mut chain = chain();
    let last = serve_row(&mut chain, row(1), (150.0, 20.0), 30);
    assert_eq!(last.tpot_source, Source::Profile, "still trusted");
    let last = serve_row(&mut chain, row(1), (150.0, 20.0), 1);
    assert_eq!(said(&last), (150.0, Source::Profile, 20.0, Source::Prior));
    let status = chain.status();
    assert_eq!((status.ttft_source, status.tpot_source), (Source::Profile, Source::Prior));
    let [profile] = status.profiles.as_slice() else { panic!("{status:?}") };
    assert_eq!((profile.preferred_ttft, profile.preferred_tpot), (true, false));
    assert_eq!((profile.live_mape_ttft, profile.live_mape_tpot), (Some(0.0), Some(0.5)));
    assert!(chain.profiled.lost_to_prior().unwrap().contains("of the profile of h100"));
    // What the pods do changes, and the profile is right again.
    let last = serve_row(&mut chain, row(1), (150.0, 30.0), 500);
    assert_eq!(last.tpot_source, Source::Profile);
    assert_eq!(chain.profiled.lost_to_prior(), None);
}

#[test]
fn outcomes_on_one_class_say_nothing_about_the_profile_of_another() {
    let mut chain = chain();
    chain.set_profile(2, flat(150.0, 30.0));
    serve_row(&mut chain, row(1), (100.0, 20.0), 100);
    assert_eq!(predict(&mut chain, row(1)).unwrap().ttft_source, Source::Prior);
    assert_eq!(predict(&mut chain, row(2)).unwrap().ttft_source, Source::Profile);
}

#[test]
fn a_row_without_a_prior_is_served_by_the_profile() {
    let mut chain = chain();
    let mut blind = Features(row(1));
    blind.set(Feature::PriorTtftMs, f32::NAN);
    blind.set(Feature::PriorTpotMs, f32::NAN);
    let got = predict(&mut chain, blind.0).unwrap();
    assert_eq!(said(&got), (150.0, Source::Profile, 30.0, Source::Profile));
}

#[test]
fn the_90th_percentile_of_a_profile_is_learned_from_outcomes() {
    let mut chain = chain();
    let last = serve_row(&mut chain, row(1), (165.0, 33.0), 40);
    assert_eq!(last.ttft_source, Source::Profile);
    assert!((last.ttft_ms.p90 - 165.0).abs() < 0.1, "{last:?}");
    assert!((chain.status().tpot.p90_factor - 1.1).abs() < 0.001);
}

#[test]
fn readings_outside_the_grid_are_counted() {
    let mut chain = chain();
    // The grid is one point of 1000 tokens and a batch of one.
    predict(&mut chain, row(1)).unwrap();
    let mut on_grid = Features(row(1));
    on_grid.set(Feature::UncachedTokens, 1000.0);
    predict(&mut chain, on_grid.0).unwrap();
    let status = chain.status();
    let outside = (status.profiles[0].outside_ttft, status.profiles[0].outside_tpot);
    assert_eq!(outside, (1, 0));
}
