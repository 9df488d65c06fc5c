//! How long a new bundle is on probation where one of the latencies is seldom heard of.

use super::*;

/// Serves outcomes of which one in `share` has the tokens that a TPOT needs, each answered in its time but for the bundle's TPOT.
fn serve_few_long(chain: &mut Chain, share: usize, count: usize) {
    let row = row(100.0, 20.0, 500.0);
    for outcome in 0..count {
        let predicted = predict(chain, row).unwrap();
        let output_tokens = if outcome.is_multiple_of(share) { 100 } else { 1 };
        chain.observe_sample(&Sample { output_tokens, ..sample(row, predicted, 150.0, 20.0) });
    }
}

#[test]
fn a_bundle_is_judged_by_a_latency_that_few_outcomes_have() {
    for share in [1, 3, 5, 8, 90] {
        let mut chain = Chain::new();
        chain.set_bundle(scaled(6, 1.5, 1.0));
        serve_few_long(&mut chain, share, 600);
        chain.set_bundle(scaled(7, 1.5, 2.0));
        serve_few_long(&mut chain, share, 99 * share);
        assert_eq!(chain.status().rollbacks, 0, "of every {share}th");
        serve_few_long(&mut chain, share, share + 1);
        let status = chain.status();
        assert_eq!((status.model_version, status.rollbacks), (6, 1), "of every {share}th");
    }
}

#[test]
fn bundles_that_come_before_a_latency_was_heard_of_are_judged_together() {
    for (share, every) in [(1, 150), (2, 150), (2, 190), (2, 300), (20, 500)] {
        let mut chain = Chain::new();
        chain.set_bundle(scaled(1, 1.5, 1.0));
        serve_few_long(&mut chain, share, 600);
        for version in 2..12 {
            chain.set_bundle(scaled(version, 1.5, 2.0));
            serve_few_long(&mut chain, share, every);
        }
        let last = chain.status().last_rollback;
        assert_eq!(last.map(|last| last.to), Some(1), "of every {share}th, {every} each");
    }
}

#[test]
fn a_probation_ends_where_a_latency_is_hardly_ever_heard_of() {
    let mut chain = Chain::new();
    chain.set_bundle(scaled(6, 1.5, 1.0));
    serve_few_long(&mut chain, 1, 200);
    chain.set_bundle(scaled(7, 1.5, 2.0));
    serve_few_long(&mut chain, 1_000, 9_999);
    assert_eq!(chain.slot.retire(), 0);
    serve_few_long(&mut chain, 1_000, 1);
    assert_eq!((chain.slot.retire(), chain.status().model_version), (1, 7));
    // Where it never was there is nothing to wait for.
    let mut chain = Chain::new();
    chain.set_bundle(scaled(6, 1.5, 1.0));
    chain.set_bundle(scaled(7, 1.5, 2.0));
    let row = row(100.0, 20.0, 500.0);
    for _ in 0..400 {
        let predicted = predict(&mut chain, row).unwrap();
        chain.observe_sample(&Sample { output_tokens: 1, ..sample(row, predicted, 150.0, 20.0) });
    }
    assert_eq!((chain.slot.retire(), chain.status().model_version), (1, 7));
}
