mod probation;
mod quality;

use weir_schema::{Feature, Features, Holdout, SampleOutcome, TargetError, schema_hash};

use super::*;
use crate::evaluator::Evaluators;
use crate::fixture::{Fixture, row};
use crate::runtime::tests::loaded;

fn bundle(fixture: &Fixture) -> Bundle {
    let root = tempfile::tempdir().unwrap();
    Bundle::load(&loaded(), &fixture.write(root.path())).unwrap()
}

/// A bundle that answers the priors (100 ms and 20 ms in these tests) times the factors.
pub(super) fn scaled(version: u64, ttft: f32, tpot: f32) -> Bundle {
    bundle(&Fixture::scaled(version, ttft, tpot))
}

pub(super) fn predict(chain: &mut Chain, row: Row) -> Result<Prediction, PredictError> {
    let mut out = [Prediction::default()];
    chain.predict(&[row], &mut out).map(|()| out[0])
}

pub(super) fn sample(row: Row, predicted: Prediction, ttft_ms: f32, tpot_ms: f32) -> Sample {
    Sample {
        schema: schema_hash().into(),
        at_unix_ms: 1,
        model: "m".into(),
        pod_class: "c".into(),
        row,
        predicted,
        streamed: true,
        outcome: SampleOutcome::Complete,
        ttft_ms: Some(ttft_ms),
        tpot_ms: Some(tpot_ms),
        e2e_ms: ttft_ms + 99.0 * tpot_ms,
        wait_ms: 0.0,
        output_tokens: 100,
    }
}

/// Serves `count` requests that take `ttft_ms` and `tpot_ms`, and returns the last prediction.
fn serve(chain: &mut Chain, ttft_ms: f32, tpot_ms: f32, count: usize) -> Prediction {
    serve_row(chain, row(100.0, 20.0, 500.0), (ttft_ms, tpot_ms), count)
}

/// [`serve`] for any row.
pub(super) fn serve_row(
    chain: &mut Chain,
    row: Row,
    (ttft_ms, tpot_ms): (f32, f32),
    count: usize,
) -> Prediction {
    let mut last = Prediction::default();
    for _ in 0..count {
        last = predict(chain, row).unwrap();
        chain.observe_sample(&sample(row, last, ttft_ms, tpot_ms));
    }
    last
}

/// Errors of what was stated.
fn mapes(chain: &Chain) -> (Option<f32>, Option<f32>) {
    let status = chain.status();
    (status.ttft.stated.map(|grade| grade.mape), status.tpot.stated.map(|grade| grade.mape))
}

pub(super) fn reason(chain: &Chain) -> String {
    chain.status().fallback_reason.unwrap_or_default()
}

#[test]
fn without_a_bundle_the_prior_answers_and_says_why() {
    let mut chain = Chain::new();
    let got = predict(&mut chain, row(100.0, 20.0, 500.0)).unwrap();
    assert_eq!((got.ttft_ms.p50, got.ttft_ms.p90), (100.0, 150.0));
    assert_eq!((got.tpot_ms.p50, got.tpot_ms.p90), (20.0, 24.0));
    assert_eq!((got.ttft_source, got.tpot_source), (Source::Prior, Source::Prior));
    assert_eq!((got.model_ttft_ms, got.model_version), (None, 0));
    assert_eq!(reason(&chain), "no bundle yet");
    chain.set_fallback_reason("no library");
    assert_eq!(reason(&chain), "no library");
    assert_eq!(chain.status().ttft.stated, None);
}

#[test]
fn a_row_without_a_prior_fails_its_batch_and_a_short_output_is_refused() {
    let mut chain = Chain::new();
    let rows = [row(100.0, 20.0, 1.0), row(100.0, f32::NAN, 1.0)];
    let error = chain.predict(&rows, &mut [Prediction::default(); 2]).unwrap_err();
    let expected = PredictError::NotANumber { row: 1, target: "tpot", value: f32::NAN.to_string() };
    assert_eq!(error, expected);
    let error = chain.predict(&rows, &mut [Prediction::default(); 1]).unwrap_err();
    assert_eq!(error, PredictError::Room { rows: 2, room: 1 });
    chain.predict(&[], &mut []).unwrap();
}

/// A bundle whose holdout says of TPOT that the prior did better, by so many rows.
fn doubted(version: u64, rows: usize) -> Bundle {
    let mut bundle = scaled(version, 1.0, 2.0);
    let tpot = TargetError { rows, mape: 0.4, prior_mape: 0.1, ratio_p90: 1.2, rmse_log: 0.3 };
    bundle.manifest.holdout = Holdout { tpot, ..Holdout::default() };
    bundle
}

#[test]
fn a_bundle_that_the_prior_beat_on_its_own_holdout_has_to_earn_that_latency() {
    let mut chain = Chain::new();
    chain.set_bundle(doubted(1, 100));
    let got = serve(&mut chain, 100.0, 20.0, 20);
    assert_eq!((got.ttft_source, got.tpot_source), (Source::Onnx, Source::Prior));
    assert!(
        reason(&chain).starts_with("tpot: live error 0.000 of the prior"),
        "{}",
        reason(&chain)
    );
    // The next one is doubted too, whatever the first one's outcomes said; few rows say nothing.
    for (version, rows, source) in [(2, 100, Source::Prior), (3, 19, Source::Onnx)] {
        let mut chain = Chain::new();
        chain.set_bundle(scaled(1, 1.0, 2.0));
        serve(&mut chain, 100.0, 40.0, 40);
        chain.set_bundle(doubted(version, rows));
        assert_eq!(predict(&mut chain, row(100.0, 20.0, 500.0)).unwrap().tpot_source, source);
        if source == Source::Prior {
            assert_eq!(reason(&chain), "tpot: the holdout of v2 is against it");
            assert_eq!(serve(&mut chain, 100.0, 40.0, 30).tpot_source, Source::Prior);
            assert_eq!(serve(&mut chain, 100.0, 40.0, 1).tpot_source, Source::Onnx, "earned");
        }
    }
}

#[test]
fn a_published_bundle_is_taken_up_though_nobody_asks() {
    let slot = Slot::new();
    let mut chain = Chain::with_slot(slot.clone());
    slot.publish(Offer::Bundle(Box::new(scaled(7, 1.5, 2.0))));
    assert_eq!(chain.status().model_version, 0);
    chain.take_up();
    assert_eq!(chain.status().model_version, 7);
}

#[test]
fn a_published_bundle_serves_from_the_next_batch_and_can_be_withdrawn() {
    let slot = Slot::new();
    let mut chain = Chain::with_slot(slot.clone());
    slot.publish(Offer::Bundle(Box::new(scaled(7, 1.5, 2.0))));
    let got = predict(&mut chain, row(100.0, 20.0, 500.0)).unwrap();
    assert_eq!((got.ttft_ms.p50, got.tpot_ms.p50), (150.0, 40.0));
    assert_eq!((got.ttft_source, got.tpot_source), (Source::Onnx, Source::Onnx));
    assert_eq!((got.model_ttft_ms, got.model_tpot_ms), (Some(150.0), Some(40.0)));
    assert_eq!((got.model_version, chain.status().model_version), (7, 7));
    assert_eq!(chain.status().fallback_reason, None);

    slot.publish(Offer::Withdraw { reason: "operator said so".into() });
    let got = predict(&mut chain, row(100.0, 20.0, 500.0)).unwrap();
    assert_eq!((got.ttft_source, got.model_version), (Source::Prior, 0));
    assert_eq!(reason(&chain), "operator said so");
    assert_eq!(slot.retire(), 1);
}

#[test]
fn a_bundle_by_its_flattened_trees_is_graded_and_calibrated_as_any_other() {
    let root = tempfile::tempdir().unwrap();
    let dir = Fixture::scaled(7, 1.5, 1.5).write(root.path());
    let mut chain = Chain::new();
    chain.set_bundle(Bundle::load_by(&Evaluators::default(), &dir).unwrap());
    let by = chain.status().model_evaluator.unwrap();
    assert_eq!((by.source, by.reason.as_str()), (Source::Forest, ""));
    let got = serve(&mut chain, 180.0, 30.0, 100);
    assert_eq!((got.ttft_source, got.tpot_source), (Source::Forest, Source::Forest));
    assert_eq!((got.ttft_ms.p50, got.model_version), (150.0, 7));
    assert!((got.ttft_ms.p90 - 180.0).abs() < 4.0, "its own outcomes teach its factor: {got:?}");
    let quality = chain.status().ttft;
    assert!(quality.model_mape.is_some_and(|mape| (mape - 1.0 / 6.0).abs() < 1e-3), "{quality:?}");
}

#[test]
fn a_bundle_that_answers_nan_falls_to_the_prior_and_is_withdrawn_the_third_time() {
    let mut chain = Chain::new();
    chain.set_bundle(bundle(&Fixture::by_kv_usage(7)));
    let sound = row(100.0, 20.0, 500.0);
    let mut poison = Features(sound);
    poison.set(Feature::KvUsage, f32::NAN);
    // One bad row costs the whole batch its model.
    let mut out = [Prediction::default(); 2];
    chain.predict(&[sound, poison.0], &mut out).unwrap();
    for got in out {
        assert_eq!((got.ttft_ms.p50, got.ttft_source), (100.0, Source::Prior));
        assert_eq!((got.model_ttft_ms, got.model_version), (None, 0));
    }
    let status = chain.status();
    assert_eq!((status.failures, status.ttft_source), (1, Source::Prior));
    assert!(reason(&chain).contains("v7 failed") && reason(&chain).contains("NaN"));

    // A sound call in between clears the count.
    assert_eq!(predict(&mut chain, sound).unwrap().ttft_source, Source::Onnx);
    assert_eq!(chain.status().fallback_reason, None);
    for _ in 0..3 {
        assert_eq!(predict(&mut chain, poison.0).unwrap().ttft_source, Source::Prior);
    }
    assert_eq!((chain.status().failures, chain.status().model_version), (4, 0));
    assert!(reason(&chain).contains("3 calls in a row"), "{}", reason(&chain));
    assert_eq!(predict(&mut chain, sound).unwrap().ttft_source, Source::Prior);

    chain.set_bundle(bundle(&Fixture::by_kv_usage(8)));
    assert_eq!(predict(&mut chain, sound).unwrap().model_version, 8);
}

#[test]
fn latencies_of_more_than_an_hour_or_less_than_nothing_are_failures() {
    for (ttft, tpot) in [(1e6, 1.0), (1.0, 1e-4)] {
        let mut chain = Chain::new();
        chain.set_bundle(scaled(7, ttft, tpot));
        let got = predict(&mut chain, row(100.0, 20.0, 1.0)).unwrap();
        assert_eq!((got.ttft_source, chain.status().failures), (Source::Prior, 1));
    }
}

#[test]
fn a_prompt_that_takes_longer_than_anything_that_is_true_is_not_the_bundles_fault() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(7, 1.5, 1.0));
    let endless = row(4e6, 20.0, 5e6);
    for _ in 0..5 {
        let got = predict(&mut chain, endless).unwrap();
        assert_eq!((got.ttft_ms.p50, got.ttft_source), (4e6, Source::Prior));
    }
    assert_eq!((chain.status().failures, chain.status().model_version), (0, 7));
    assert_eq!(predict(&mut chain, row(100.0, 20.0, 500.0)).unwrap().ttft_source, Source::Onnx);
}

#[test]
fn what_is_known_of_a_bundle_stands_until_the_next_has_outcomes_of_its_own() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(1, 0.5, 1.0));
    assert_eq!(serve(&mut chain, 100.0, 20.0, 60).ttft_source, Source::Prior);
    // Each of these would be trusted anew for longer than it serves.
    for version in 2..6 {
        chain.set_bundle(scaled(version, 0.5, 1.0));
        assert_eq!(serve(&mut chain, 100.0, 20.0, 20).ttft_source, Source::Prior, "{version}");
    }
    chain.set_bundle(scaled(6, 2.0, 1.0));
    assert_eq!(serve(&mut chain, 200.0, 20.0, 100).ttft_source, Source::Onnx, "it is better");
}

#[test]
fn outcomes_that_end_after_their_bundle_has_left_service_count() {
    let mut chain = Chain::new();
    let row = row(100.0, 20.0, 500.0);
    for version in 1..40 {
        chain.set_bundle(scaled(version, 0.5, 1.0));
        let predicted = predict(&mut chain, row).unwrap();
        chain.set_bundle(scaled(version + 1, 0.5, 1.0));
        chain.observe_sample(&sample(row, predicted, 100.0, 20.0));
    }
    assert_eq!(predict(&mut chain, row).unwrap().ttft_source, Source::Prior);
}

#[test]
fn bundles_that_follow_one_another_faster_than_outcomes_come_are_judged_together() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(6, 1.5, 1.0));
    serve(&mut chain, 150.0, 20.0, 50);
    for version in 7..12 {
        chain.set_bundle(scaled(version, 1.4, 1.0));
        serve(&mut chain, 150.0, 20.0, 30);
    }
    // 120 outcomes of 7 to 10: the last of these left, and 11 is judged by its own.
    assert_eq!((chain.status().model_version, chain.status().rollbacks), (11, 1));
    assert_eq!(chain.status().last_rollback.map(|last| (last.from, last.to)), Some((10, 6)));
}

#[test]
fn the_evaluator_with_the_lower_live_error_serves_each_target() {
    let mut chain = Chain::new();
    // TTFT: the bundle is exact. TPOT: the prior is.
    chain.set_bundle(scaled(7, 1.5, 1.5));
    let last = serve(&mut chain, 150.0, 20.0, 30);
    assert_eq!((last.ttft_source, last.tpot_source), (Source::Onnx, Source::Onnx), "still trusted");
    let last = serve(&mut chain, 150.0, 20.0, 1);
    assert_eq!((last.ttft_source, last.tpot_source), (Source::Onnx, Source::Prior));
    assert_eq!((last.tpot_ms.p50, last.model_tpot_ms), (20.0, Some(30.0)), "the bundle is kept");
    assert!(reason(&chain).starts_with("tpot: live error 0.000 of the prior, 0.500 of v7"));
    assert_eq!(chain.status().tpot_source, Source::Prior);
    let status = chain.status();
    assert_eq!((status.tpot.next_mape, status.ttft.model_mape), (Some(0.0), Some(0.0)));
}

#[test]
fn a_difference_of_less_than_ten_percent_changes_nothing() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(7, 1.1, 1.0));
    // Errors of bundle and prior: 4.81 and 4.72 %: the prior is better, but not by 10 %.
    assert_eq!(serve(&mut chain, 104.95, 20.0, 500).ttft_source, Source::Onnx);
    // 7.84 and 1.96 %.
    assert_eq!(serve(&mut chain, 102.0, 20.0, 500).ttft_source, Source::Prior);
    // 4.61 and 4.90 %: the bundle is better, but not by 10 %.
    assert_eq!(serve(&mut chain, 105.15, 20.0, 2000).ttft_source, Source::Prior);
    // 1.85 and 7.41 %.
    assert_eq!(serve(&mut chain, 108.0, 20.0, 500).ttft_source, Source::Onnx);
}

#[test]
fn a_version_that_does_worse_than_its_predecessor_is_rolled_back_and_not_taken_again() {
    let slot = Slot::new();
    let mut chain = Chain::with_slot(slot.clone());
    let offer = |version, ttft| slot.publish(Offer::Bundle(Box::new(scaled(version, ttft, 1.0))));
    offer(6, 1.5);
    serve(&mut chain, 140.0, 20.0, 50);
    // Half as wrong again as v6: 10.7 against 7.1 %, and still better than the prior.
    offer(7, 1.55);
    assert_eq!(serve(&mut chain, 140.0, 20.0, 100).model_version, 7);
    assert_eq!(serve(&mut chain, 140.0, 20.0, 1).model_version, 6);
    assert_eq!(reason(&chain), "rolled back from v7: ttft error 0.107 against 0.071 of v6");
    assert_eq!(chain.status().ttft_source, Source::Onnx);
    assert_eq!(slot.retire(), 1);

    offer(7, 1.55);
    assert_eq!(serve(&mut chain, 140.0, 20.0, 1).model_version, 6);
    assert_eq!(reason(&chain), "bundle v7 was rolled back and is not taken again");
    offer(8, 1.4);
    assert_eq!(serve(&mut chain, 140.0, 20.0, 500).model_version, 8);
    assert_eq!(chain.status().fallback_reason, None);
}

#[test]
fn an_operator_may_pin_what_was_rolled_back_and_it_stays() {
    let slot = Slot::new();
    let mut chain = Chain::with_slot(slot.clone());
    slot.publish(Offer::Bundle(Box::new(scaled(6, 1.5, 1.0))));
    serve(&mut chain, 140.0, 20.0, 50);
    slot.publish(Offer::Bundle(Box::new(scaled(7, 1.55, 1.0))));
    serve(&mut chain, 140.0, 20.0, 101);
    assert_eq!(chain.status().model_version, 6, "it was worse");
    slot.publish(Offer::Pin(Box::new(scaled(7, 1.55, 1.0))));
    assert_eq!(serve(&mut chain, 140.0, 20.0, 1000).model_version, 7);
    assert_eq!((chain.status().fallback_reason, chain.status().rollbacks), (None, 1));
    slot.publish(Offer::Pin(Box::new(scaled(6, 1.5, 1.0))));
    assert_eq!(serve(&mut chain, 140.0, 20.0, 1).model_version, 6, "an older one too");
}

#[test]
fn harder_traffic_after_a_swap_does_not_roll_back() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(6, 1.5, 1.0));
    serve(&mut chain, 150.0, 20.0, 200);
    chain.set_bundle(scaled(7, 1.52, 1.0));
    // v6 was exact; now it would be 25 % off, and v7 is 24 %.
    assert_eq!(serve(&mut chain, 200.0, 20.0, 500).model_version, 7);
    // Probation is over: nothing is left to go back to.
    assert_eq!(serve(&mut chain, 150.0, 20.0, 500).model_version, 7);
    assert_eq!(chain.slot.retire(), 1);
}

#[test]
fn a_newcomer_that_fails_in_service_gives_way_to_its_predecessor() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(6, 1.5, 1.0));
    chain.set_bundle(bundle(&Fixture::by_kv_usage(7)));
    let mut poison = Features(row(100.0, 20.0, 500.0));
    poison.set(Feature::KvUsage, f32::NAN);
    for _ in 0..3 {
        assert_eq!(predict(&mut chain, poison.0).unwrap().ttft_source, Source::Prior);
    }
    assert_eq!(predict(&mut chain, poison.0).unwrap().model_version, 6);
    assert!(reason(&chain).starts_with("rolled back from v7: bundle v7 failed 3 calls in a row"));
}

#[test]
fn a_version_too_new_to_be_trusted_is_no_predecessor() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(6, 1.5, 1.0));
    chain.set_bundle(scaled(7, 3.0, 1.0));
    serve(&mut chain, 150.0, 20.0, 50);
    chain.set_bundle(scaled(8, 2.0, 1.0));
    assert_eq!(chain.status().predecessor, Some(6));
    serve(&mut chain, 150.0, 20.0, 101);
    assert_eq!((chain.status().model_version, chain.status().predecessor), (6, None));
    // An older version put back on purpose is not judged against the one it replaces.
    chain.set_bundle(scaled(5, 2.5, 1.0));
    assert_eq!(serve(&mut chain, 150.0, 20.0, 300).model_version, 5);
}

#[test]
fn the_same_bundle_offered_again_keeps_its_record() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(7, 1.5, 1.5));
    serve(&mut chain, 100.0, 20.0, 40);
    assert_eq!(chain.status().ttft_source, Source::Prior);
    chain.set_bundle(scaled(7, 1.5, 1.5));
    assert_eq!(chain.status().ttft_source, Source::Prior);
}

#[test]
fn only_streamed_outcomes_teach_and_tpot_needs_eight_tokens() {
    let mut chain = Chain::new();
    let row = row(100.0, 20.0, 500.0);
    let predicted = predict(&mut chain, row).unwrap();
    let unstreamed = Sample { streamed: false, ..sample(row, predicted, 200.0, 40.0) };
    chain.observe_sample(&unstreamed);
    assert_eq!(mapes(&chain), (None, None));
    let short = Sample { output_tokens: 7, ..sample(row, predicted, 200.0, 40.0) };
    chain.observe_sample(&short);
    assert_eq!(mapes(&chain), (Some(0.5), None));
    let gone = Sample { outcome: SampleOutcome::ClientGone, ..sample(row, predicted, 125.0, 40.0) };
    chain.observe_sample(&gone);
    assert_eq!(mapes(&chain), (Some(0.35), Some(0.5)));
}

#[test]
fn each_pod_class_has_a_step_time_of_its_own() {
    let mut chain = Chain::new();
    for _ in 0..200 {
        for (pod_class, step_ms) in [(0, 7.0), (3, 70.0)] {
            chain.observe_stride(&Stride {
                pod_class,
                steps: 10.0,
                busy_ms: 10.0 * step_ms,
                decode_steps: 100.0,
                kv_token_steps: 1e5,
                prefill_tokens: 0.0,
                prefill_pairs: 0.0,
            });
        }
    }
    let step = |class| chain.step_time(class).step_ms(10.0, 1e4, 0.0);
    assert!((step(0) - 7.0).abs() < 0.2 && (step(3) - 70.0).abs() < 2.0);
    // Another chain goes on from what this one has found, under whatever number the class has there.
    let mut next = Chain::new();
    assert_eq!(next.steps_learned(1), None);
    let mut learned = chain.steps_learned(3).unwrap();
    assert!(next.recall_steps(1, &learned));
    assert_eq!(next.step_time(1), chain.step_time(3));
    learned.strides = 7;
    learned.multiples[0] = f64::NAN;
    assert!(!next.recall_steps(1, &learned));
    assert_eq!(next.step_time(1), chain.step_time(3));
    assert_eq!(chain.step_time(1), StepTime::default());
}

#[test]
fn swaps_under_load_cost_no_call() {
    let slot = Slot::new();
    let mut chain = Chain::with_slot(slot.clone());
    let (taken, wait) = std::sync::mpsc::sync_channel(1);
    const LAST: u64 = 30;
    let loader = std::thread::spawn(move || {
        let mut retired = 0;
        for version in 1..=LAST {
            let bundle = scaled(version, 1.0 + version as f32 / 100.0, 1.0);
            slot.publish(Offer::Bundle(Box::new(bundle)));
            while wait.recv().unwrap() < version {}
            retired += slot.retire();
        }
        retired
    });
    let rows = [row(100.0, 20.0, 500.0); 100];
    let mut out = [Prediction::default(); 100];
    let mut version = 0;
    while version < LAST {
        assert!(!loader.is_finished(), "the loader gave up at v{version}");
        chain.predict(&rows, &mut out).unwrap();
        let now = out[0].model_version;
        assert!(now >= version, "v{now} after v{version}");
        assert!(out.iter().all(|one| one.model_version == now), "two versions in one batch");
        if now > version {
            assert!((out[99].ttft_ms.p50 - (100.0 + now as f32)).abs() < 0.01);
            version = now;
            taken.send(now).unwrap();
        }
    }
    // The first version is the established one, the last one serves, the loader freed the others.
    assert_eq!(loader.join().unwrap(), usize::try_from(LAST).unwrap() - 2);
    assert_eq!((chain.status().failures, chain.status().model_version), (0, LAST));
}
