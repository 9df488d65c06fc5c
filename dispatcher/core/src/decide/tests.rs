//! The formulas of the policies, each against what its source says.

mod vectors;

use std::collections::BTreeMap;

use crate::{
    Band, PodClass, PodId, PodSpec, Scrape, Time,
    decide::{
        affinity::{Cached, sticks},
        margins::Margins,
        picker,
        saturation::{Full, ceiling, let_through, queue_depth, rank, saturation},
        scorer::{latency_scores, load_prefix_scores},
        sift::{below, fresh},
    },
    fleet::{PodState, Pods},
    policy::{Detector, Dice, Strategy, UsageLimit},
};

fn room(ttft_ms: f64, tpot_ms: f64) -> Option<Margins> {
    Some(Margins { ttft_ms, tpot_ms })
}

/// llm-d's bug: "A pod without prediction has headroom 0, counts as positive and wins under least".
#[test]
fn a_pod_without_a_prediction_is_unknown_and_never_best() {
    for strategy in [Strategy::Least, Strategy::Most] {
        for known in [room(100.0, 10.0), room(-100.0, -10.0)] {
            let scores = latency_scores(&[None, known], &[true, false], [0.8, 0.2], strategy);
            assert!(scores[1] > scores[0] && scores[0] == 0.0, "{scores:?}");
        }
    }
}

/// Seed 000: "For negative headroom, least is always used regardless of this setting".
#[test]
fn most_spreads_positive_headroom_and_negative_headroom_is_always_least() {
    let scores = |rooms: &[_], strategy| {
        latency_scores(rooms, &vec![false; rooms.len()], [0.8, 0.2], strategy)
    };
    let positive = [room(100.0, 10.0), room(500.0, 20.0)];
    assert_eq!(scores(&positive, Strategy::Least), [1.01, 0.01]);
    assert_eq!(scores(&positive, Strategy::Most), [0.01, 1.01]);
    let negative = [room(-100.0, -10.0), room(-500.0, -20.0)];
    assert_eq!(scores(&negative, Strategy::Least), [1.01, 0.01]);
    assert_eq!(scores(&negative, Strategy::Most), [1.01, 0.01]);
}

/// llm-d, latency-scorer: ttftWeight .8, tpotWeight .2.
#[test]
fn the_weights_are_those_of_the_two_headrooms() {
    let rooms = [room(0.0, 10.0), room(50.0, 0.0), room(100.0, 5.0)];
    let scores = latency_scores(&rooms, &[false; 3], [0.8, 0.2], Strategy::Most);
    assert_eq!(scores, [0.21, 0.41, 0.91]);
    let scores = latency_scores(&rooms, &[false; 3], [0.2, 0.8], Strategy::Most);
    assert_eq!(scores, [0.81, 0.11, 0.61]);
}

/// llm-d, composite fallback: (wkv(1-kv) + wq relQ + wp prefix) / sum, relQ = (maxQ-q)/maxQ, 1 if maxQ is 0.
#[test]
fn the_composite_weighs_memory_queue_and_prefix() {
    let loads = [[0.5, 4.0, 0.0], [0.9, 0.0, 1.0], [0.1, 2.0, 0.5]];
    assert_eq!(load_prefix_scores(&loads, [1.0, 1.0, 1.0]), [0.17, 0.7, 0.63]);
    assert_eq!(load_prefix_scores(&loads, [2.0, 2.0, 3.0]), [0.14, 0.74, 0.61]);
    assert_eq!(
        load_prefix_scores(&[[0.0, 0.0, 0.0]], [1.0, 1.0, 1.0]),
        [0.67],
        "no queue anywhere"
    );
}

const WARM: Cached = Cached { share: 0.9, ttft_ms: 100.0 };
const COLD: Cached = Cached { share: 0.1, ttft_ms: 50.0 };

/// Seed 000: "exceeds the affinity threshold (default 0.80). If no endpoint clears the threshold, the
/// filter is a no-op"; llm-d: score >= threshold, <=1 endpoint or threshold <= 0 is a no-op.
#[test]
fn the_affinity_gate_narrows_to_warm_pods_and_is_open_while_all_are_cold() {
    assert!(sticks(&[WARM, COLD], 0.8, 18_000.0));
    assert!(sticks(&[Cached { share: 0.8, ..WARM }, COLD], 0.8, 18_000.0), "at the threshold");
    assert!(!sticks(&[Cached { share: 0.79, ..WARM }, COLD], 0.8, 18_000.0), "all cold");
    assert!(!sticks(&[WARM], 0.8, 18_000.0), "one pod");
    assert!(!sticks(&[WARM, COLD], 0.0, 18_000.0), "turned off");
    assert!(!sticks(&[], 0.8, 18_000.0));
}

/// Seed 000: "if the best cache-warm pod's predicted TTFT is materially worse than the best overall
/// pod's (by more than a configurable penalty), the filter breaks affinity"; llm-d: maxTTFTPenaltyMs 18000.
#[test]
fn the_load_gate_breaks_affinity_above_the_maximum_penalty() {
    let late = |ttft_ms| [Cached { ttft_ms, ..WARM }, COLD];
    assert!(sticks(&late(18_050.0), 0.8, 18_000.0), "at the penalty");
    assert!(!sticks(&late(18_050.1), 0.8, 18_000.0));
    let two = [Cached { ttft_ms: 90_000.0, ..WARM }, Cached { ttft_ms: 60.0, ..WARM }, COLD];
    assert!(sticks(&two, 0.8, 18_000.0), "the best warm pod counts");
}

/// llm-d, weighted-random-picker: A-Res, key = U^(1/w).
#[test]
fn a_weighted_draw_is_proportional_and_the_same_under_the_same_seed() {
    let draw = |seed| {
        let mut dice = Dice::new(seed);
        let picks = (0..20_000).map(|_| picker::weighted(&[1.0, 0.0, 3.0], &mut dice).unwrap());
        picks.collect::<Vec<_>>()
    };
    assert_eq!(draw(3), draw(3));
    let count = |place| draw(3).iter().filter(|pick| **pick == place).count();
    assert_eq!(count(1), 0, "a weight of zero is never drawn");
    let share = count(2) as f64 / 20_000.0;
    assert!((0.74..0.76).contains(&share), "{share}");
}

/// llm-d: "all <= 0 -> random".
#[test]
fn a_draw_without_any_weight_takes_anybody() {
    let mut dice = Dice::new(1);
    let mut seen = BTreeMap::new();
    for _ in 0..3000 {
        *seen.entry(picker::weighted(&[0.0, -1.0, f64::NAN], &mut dice)).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 3);
    assert!(seen.values().all(|count| *count > 900), "{seen:?}");
    assert_eq!(picker::weighted(&[], &mut dice), None);
}

/// Llumnix, metricBasedFilter: "out unless value < threshold, i.e. >= is blocked, NaN/Inf blocked".
#[test]
fn a_latency_at_its_threshold_is_out_and_so_is_what_is_no_number() {
    assert!(below(5099.9, 6000.0 * 0.85));
    assert!(!below(5100.0, 6000.0 * 0.85));
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(!below(odd, 5100.0), "{odd}");
    }
}

/// Llumnix, stalenessFilter: integer (now-ts)/1000 > N, effectively N+1 s; here to the millisecond.
#[test]
fn staleness_is_judged_to_the_millisecond() {
    assert!(fresh(Some(60_000.0), 60_000));
    assert!(!fresh(Some(60_000.001), 60_000));
    assert!(!fresh(Some(60_999.0), 60_000), "fresh there");
    assert!(fresh(None, 60_000), "never scraped: the ledger is all there is");
}

fn pod(id: u32, scrape: Option<Scrape>) -> PodState {
    let spec = PodSpec { id: PodId(id), name: format!("pod-{id}").into(), class: 0, group: None };
    let mut pod = PodState::new(spec, PodClass::default());
    if let Some(scrape) = scrape {
        pod.scraped(Time::ZERO, scrape);
    }
    pod
}

fn scrape(waiting: u32, kv_usage: f32) -> Option<Scrape> {
    Some(Scrape { waiting, kv_usage, ..Scrape::default() })
}

const FULL: Full = Full {
    detector: Detector::Utilization,
    queue_depth: 5.0,
    kv_usage: 0.8,
    max_concurrency: 100.0,
};

/// llm-d, utilization-detector: mean over pods of max(q/5, kv/.8); empty pool = 1.0.
#[test]
fn saturation_is_the_mean_over_pods_of_the_fuller_of_queue_and_memory() {
    let pods: Pods = [pod(0, scrape(5, 0.1)), pod(1, scrape(0, 0.4))].into_iter().collect();
    let full = saturation(&pods, FULL, Time::ZERO, 2000);
    assert!((full - 0.75).abs() < 1e-6, "{full}");
    assert_eq!(saturation(&Pods::new(), FULL, Time::ZERO, 2000), 1.0);
}

/// llm-d counts a stale pod as full: "40 ms direct vs 9.7 s via EPP with one pod" (#2408).
#[test]
fn a_stale_scrape_does_not_fill_the_pool() {
    let pods: Pods = [pod(0, scrape(50, 1.0))].into_iter().collect();
    let later = Time::from_millis(2001);
    assert_eq!(saturation(&pods, FULL, later, 2000), 0.0, "the ledger is empty");
    assert_eq!(queue_depth(pods.get(&PodId(0)).unwrap(), Time::from_millis(2000), 2000), 50.0);
}

/// llm-d, usage limits: static, priority-holdback (linear in rank), soft-reflective.
#[test]
fn lower_bands_leave_some_of_the_pool() {
    let bands = || [Band(-1), Band(0), Band(2)].into_iter();
    assert_eq!(rank(bands(), Band(2)), (0, 3));
    assert_eq!(rank(bands(), Band(-1)), (2, 3));
    let holdback = UsageLimit::PriorityHoldback { min_ceiling: 0.4, max_ceiling: 0.9 };
    assert_eq!(ceiling(holdback, 0, 1, 0.5), 0.9, "alone it is the highest");
    assert_eq!(ceiling(UsageLimit::Static, 2, 3, 0.5), 1.0);
    assert_eq!(let_through(UsageLimit::SoftReflective, 0.9), 1.0 / 9.0);
    assert_eq!(let_through(UsageLimit::SoftReflective, 1.0), 0.0);
    assert_eq!(let_through(holdback, 0.9), 0.0);
}
