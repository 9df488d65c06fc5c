//! Whether a stated 90 % is 90 %, and what the status says of it.

use std::collections::VecDeque;

use weir_schema::Rollback;

use super::*;
use crate::noise::Noise;

/// Outcomes that are under way while a prediction is made.
const IN_FLIGHT: usize = 40;

/// Traffic as a pool has it: prompts of all sizes, outcomes skewed and correlated as those of a queue,
/// one stall in a hundred, an error of the prior that slides with the hour, and an engine that may
/// become slower.
struct Traffic {
    noise: Noise,
    step: u32,
    slower: f64,
}

impl Traffic {
    fn new() -> Self {
        Self { noise: Noise::new(11), step: 0, slower: 1.0 }
    }

    fn row(&mut self) -> Row {
        let share = self.noise.share() as f32;
        let mut row = Features(row(60.0 + 400.0 * share, 15.0 + 10.0 * share, 4000.0 * share));
        row.set(Feature::ExpectedOutputTokens, 200.0);
        row.0
    }

    /// TTFT and TPOT of the next outcome of `row`.
    fn outcome(&mut self, row: &Row) -> (f32, f32) {
        self.step += 1;
        let hour = (f64::from(self.step) * std::f64::consts::TAU / 5000.0).sin();
        let stall = if self.noise.share() < 0.01 { 3.0 } else { 1.0 };
        let both = self.noise.correlated(0.5);
        let ttft = self.slower * stall * (0.15 * hour + 0.35 * both).exp();
        let tpot = self.slower * (0.03 * hour + 0.05 * both + 0.03 * self.noise.normal()).exp();
        let features = Features(*row);
        let scaled = |feature, factor: f64| (f64::from(features.get(feature)) * factor) as f32;
        (scaled(Feature::PriorTtftMs, ttft), scaled(Feature::PriorTpotMs, tpot))
    }
}

/// Shares of outcomes at or below the stated 90th percentiles of TTFT and TPOT, over `count` outcomes.
fn covered(chain: &mut Chain, traffic: &mut Traffic, count: u32) -> [f64; 2] {
    let mut flights = VecDeque::new();
    let mut covered = [0_u32; 2];
    for _ in 0..count {
        let row = traffic.row();
        let predicted = predict(chain, row).unwrap();
        let (ttft_ms, tpot_ms) = traffic.outcome(&row);
        covered[0] += u32::from(ttft_ms <= predicted.ttft_ms.p90);
        covered[1] += u32::from(tpot_ms <= predicted.tpot_ms.p90);
        flights.push_back(sample(row, predicted, ttft_ms, tpot_ms));
        if flights.len() > IN_FLIGHT {
            chain.observe_sample(&flights.pop_front().unwrap());
        }
    }
    flights.into_iter().for_each(|sample| chain.observe_sample(&sample));
    covered.map(|covered| f64::from(covered) / f64::from(count))
}

#[test]
fn a_stated_90_percent_covers_88_to_92_percent_while_the_traffic_drifts() {
    let (mut chain, mut traffic) = (Chain::new(), Traffic::new());
    covered(&mut chain, &mut traffic, 1000);
    let mut sums = [0.0; 2];
    for stretch in 0..8 {
        // What is in flight when an engine changes cannot be known: those are the two points.
        let changed = stretch == 4;
        traffic.slower = if stretch < 4 { 1.0 } else { 1.25 };
        let least = if changed { 0.86 } else { 0.88 };
        let shares = covered(&mut chain, &mut traffic, 2000);
        assert!(shares.iter().all(|share| (least..=0.92).contains(share)), "{stretch}: {shares:?}");
        sums = [sums[0] + shares[0], sums[1] + shares[1]];
    }
    let means = sums.map(|sum| sum / 8.0);
    assert!(means.iter().all(|share| (0.89..=0.91).contains(share)), "{means:?}");
}

#[test]
fn the_status_shows_the_coverage_that_was_had() {
    let mut chain = Chain::new().with_patterns(&[1000, 2000], &[256]);
    let mut traffic = Traffic::new();
    covered(&mut chain, &mut traffic, 6000);
    let status = chain.status();
    for quality in [status.ttft, status.tpot] {
        let grade = quality.stated.unwrap();
        assert_eq!(grade.outcomes, 6000);
        assert!((0.87..=0.93).contains(&grade.coverage), "{grade:?}");
    }
    assert!(status.ttft.p90_factor > 1.3 && status.tpot.p90_factor < 1.2);
    assert!((0.2..0.4).contains(&status.ttft.stated.unwrap().mape));
    let versions: Vec<u64> = status.versions.iter().map(|one| one.version).collect();
    assert_eq!((versions, status.classes.len()), (vec![0], 1));
    assert_eq!(status.classes[0].grades.ttft, status.ttft.stated);
    let sizes: Vec<_> = status.patterns.iter().map(|one| one.input_tokens).collect();
    assert_eq!(sizes, [Some(1000), Some(2000), None]);
    let outcomes = status.patterns.iter().map(|one| one.grades.ttft.unwrap().outcomes);
    assert_eq!(outcomes.sum::<u64>(), 6000);
}

#[test]
fn an_engine_that_becomes_slower_raises_one_alarm_per_target() {
    let (mut chain, mut traffic) = (Chain::new(), Traffic::new());
    covered(&mut chain, &mut traffic, 4000);
    let before = chain.status();
    traffic.slower = 2.0;
    covered(&mut chain, &mut traffic, 500);
    let after = chain.status();
    for (before, after) in
        [(before.ttft.drift, after.ttft.drift), (before.tpot.drift, after.tpot.drift)]
    {
        assert_eq!(after.slower, before.slower + 1, "{before:?} {after:?}");
        assert_eq!(after.faster, before.faster);
    }
}

#[test]
fn a_version_that_an_operator_went_back_to_is_tested_like_any_other() {
    let mut chain = Chain::new();
    let mut traffic = Traffic::new();
    chain.set_bundle(scaled(8, 1.0, 1.0));
    covered(&mut chain, &mut traffic, 1000);
    // The last of version 8 come back while 7 serves.
    let late: Vec<Sample> = (0..IN_FLIGHT)
        .map(|_| {
            let row = traffic.row();
            let predicted = predict(&mut chain, row).unwrap();
            sample(row, predicted, 9000.0, 900.0)
        })
        .collect();
    chain.pin(scaled(7, 1.0, 1.0));
    late.iter().for_each(|sample| chain.observe_sample(sample));
    covered(&mut chain, &mut traffic, 3000);
    let before = chain.status();
    assert_eq!(before.model_version, 7);
    traffic.slower = 2.0;
    covered(&mut chain, &mut traffic, 500);
    let after = chain.status();
    for (before, after) in [(before.ttft, after.ttft), (before.tpot, after.tpot)] {
        assert_eq!(after.drift.slower, before.drift.slower + 1, "{before:?} {after:?}");
    }
}

/// The whole way of a bad bundle: offered, trusted, measured against its predecessor on the same
/// outcomes, taken out, remembered, and shown.
#[test]
fn a_bundle_that_does_worse_in_service_is_rolled_back_and_the_status_says_so() {
    let slot = Slot::new();
    let mut chain = Chain::with_slot(slot.clone());
    slot.publish(Offer::Bundle(Box::new(scaled(6, 1.0, 1.0))));
    let mut traffic = Traffic::new();
    covered(&mut chain, &mut traffic, 1000);
    assert_eq!((chain.status().rollbacks, chain.status().last_rollback), (0, None));

    // States twice what is measured.
    slot.publish(Offer::Bundle(Box::new(scaled(7, 2.0, 2.0))));
    covered(&mut chain, &mut traffic, 1000);
    let status = chain.status();
    assert_eq!((status.model_version, status.rollbacks), (6, 1));
    let Some(Rollback { from: 7, to: 6, reason }) = status.last_rollback else { panic!() };
    assert!(reason.starts_with("ttft error"), "{reason}");
    let mape = |version| {
        let found = status.versions.iter().find(|one| one.version == version);
        found.unwrap().grades.tpot.unwrap().mape
    };
    assert!(mape(7) > 3.0 * mape(6), "{:?}", status.versions);
    let served: Vec<u64> = status.versions.iter().map(|one| one.version).collect();
    assert_eq!(served, [6, 7]);

    // The prior took over meanwhile, so not everything was decided by the bad one; nothing is now.
    let last = predict(&mut chain, row(100.0, 20.0, 500.0)).unwrap();
    assert_eq!(last.model_version, 6);
    let shares = covered(&mut chain, &mut traffic, 2000);
    assert!(shares.iter().all(|share| (0.87..=0.93).contains(share)), "{shares:?}");
}
