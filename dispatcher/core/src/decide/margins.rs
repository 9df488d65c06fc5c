//! What is left of the objectives after a prediction: the quantity that llm-d's policies rank by.
//!
//! TTFT counts from arrival, so the wait so far is spent already. The TPOT objective is the smallest
//! among newcomer and residents, for a pod that breaks a resident's promise has no room, whatever
//! the newcomer tolerates.

use crate::{
    Slo, Time,
    decide::pick::Fit,
    fleet::Pods,
    headroom::judge::{tightest_tpot_ms, tpot_slo_ms, ttft_slo_ms},
};

/// Objectives less predictions, in milliseconds; negative is a violation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// For the first token.
    pub ttft_ms: f64,
    /// For each token after it.
    pub tpot_ms: f64,
}

impl Margins {
    /// The margins of a request. One without any objective has the negated predictions, so that the
    /// lowest latency is the least negative. An objective that nobody has is met exactly.
    pub fn of(
        slo: &Slo,
        waited_ms: f64,
        resident_tpot_ms: Option<f64>,
        (ttft_ms, tpot_ms): (f64, f64),
        buffer: f64,
    ) -> Self {
        if slo.is_empty() {
            return Self { ttft_ms: -ttft_ms, tpot_ms: -tpot_ms };
        }
        let limit_ms = tpot_slo_ms(slo).into_iter().chain(resident_tpot_ms).reduce(f64::min);
        Self {
            ttft_ms: ttft_slo_ms(slo).map_or(0.0, |slo_ms| slo_ms - waited_ms - ttft_ms),
            tpot_ms: limit_ms.map_or(0.0, |limit_ms| buffer * limit_ms - tpot_ms),
        }
    }

    /// Whether both objectives are met.
    pub fn met(&self) -> bool {
        self.ttft_ms >= 0.0 && self.tpot_ms >= 0.0
    }
}

/// The margins of a request on a pod; `None` while the predictor knows nothing of it.
pub fn margins(
    pods: &Pods,
    slo: &Slo,
    arrived: Time,
    now: Time,
    fit: &Fit,
    buffer: f64,
) -> Option<Margins> {
    let pod = pods.get(&fit.outlook.pod).filter(|_| fit.known)?;
    let prediction = &fit.prediction;
    let times = (f64::from(prediction.ttft_ms.p50), f64::from(prediction.tpot_ms.p50));
    let residents = tightest_tpot_ms(&pod.ledger);
    Some(Margins::of(slo, now.ms_since(arrived), residents, times, buffer))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn slo(ttft_ms: u64, tpot_ms: u64) -> Slo {
        let ms = |value| (value > 0).then(|| Duration::from_millis(value));
        Slo { ttft: ms(ttft_ms), tpot: ms(tpot_ms) }
    }

    /// Seed 001: "pod-1 has a running request with 50ms TPOT SLO, ... 60ms TPOT, scorer would then
    /// consider this pod to have -10ms of headroom, not 20ms".
    #[test]
    fn headroom_is_against_the_smallest_objective_among_residents_and_newcomer() {
        let margins = Margins::of(&slo(0, 80), 0.0, Some(50.0), (100.0, 60.0), 1.0);
        assert_eq!(margins.tpot_ms, -10.0);
        let alone = Margins::of(&slo(0, 80), 0.0, None, (100.0, 60.0), 1.0);
        assert_eq!(alone.tpot_ms, 20.0);
        let stricter = Margins::of(&slo(0, 40), 0.0, Some(50.0), (100.0, 60.0), 1.0);
        assert_eq!(stricter.tpot_ms, -20.0);
    }

    /// llm-d starts the clock after its queue: a request that waited 50 s of a 1 s objective counts
    /// as healthy there.
    #[test]
    fn the_wait_so_far_is_spent_already() {
        let margins = Margins::of(&slo(1000, 50), 50_000.0, None, (100.0, 10.0), 1.0);
        assert_eq!(margins.ttft_ms, -49_100.0);
    }

    /// llm-d: sloBufferFactor applies to TPOT only.
    #[test]
    fn the_buffer_factor_applies_to_the_pace_only() {
        let margins = Margins::of(&slo(1000, 50), 0.0, None, (100.0, 10.0), 0.5);
        assert_eq!((margins.ttft_ms, margins.tpot_ms), (900.0, 15.0));
    }

    /// llm-d: "No-header case: headroom = -pred"; seed 000: the lowest predicted latency wins.
    #[test]
    fn without_objectives_the_headroom_is_the_negated_prediction() {
        let margins = Margins::of(&slo(0, 0), 0.0, Some(50.0), (100.0, 10.0), 1.0);
        assert_eq!((margins.ttft_ms, margins.tpot_ms), (-100.0, -10.0));
        assert!(!margins.met());
    }

    #[test]
    fn an_objective_that_nobody_has_is_met() {
        let margins = Margins::of(&slo(1000, 0), 0.0, None, (100.0, 10.0), 1.0);
        assert!(margins.met() && margins.tpot_ms == 0.0);
    }
}
