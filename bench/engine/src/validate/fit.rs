//! Step coefficients of a card, found by replaying the start of its log.

use crate::config::EngineConfig;
use crate::job::Rejected;

use super::{Times, median, replay};

/// Coefficients that make the model's service times (TPOT and prefill time, never the queue) match a log's.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The configuration given, with the coefficients found.
    pub cfg: EngineConfig,
    /// Mean of |ln(model / log)| over both service times of the requests fitted on.
    pub loss: f64,
}

/// Relative changes tried, from coarse to fine.
const STRIDES: [f64; 5] = [0.3, 0.15, 0.07, 0.03, 0.015];

impl Fit {
    /// Coordinate search from `start` on the measured times of `log[..observed]`. Arrivals and lengths of the whole log
    /// are inputs, since later requests run beside the observed ones; measured times of the rest are not looked at.
    pub fn new(start: &EngineConfig, log: &[Times], observed: usize) -> Result<Self, Rejected> {
        let mut best = Self { loss: loss(start, log, observed)?, cfg: start.clone() };
        for stride in STRIDES {
            for _ in 0..3 {
                let before = best.loss;
                for coefficient in 0..6 {
                    best.descend(coefficient, stride, log, observed)?;
                }
                if best.loss > before * 0.99 {
                    break;
                }
            }
        }
        Ok(best)
    }

    /// Leaves the coefficients' proportions as they are and finds one factor for all of them, from the TPOT of
    /// `log[..observed]`: what a card and model of another speed need at least.
    pub fn one_factor(
        start: &EngineConfig,
        log: &[Times],
        observed: usize,
    ) -> Result<Self, Rejected> {
        let mut cfg = start.clone();
        // Each round corrects what the last one's changed concurrency did to the step time; four settle it.
        for _ in 0..4 {
            let model = replay(&cfg, log, f64::INFINITY)?;
            let tpots = log.iter().zip(&model).take(observed);
            let ratios = tpots.filter_map(|(l, m)| Some(l.tpot_ms()? / m.tpot_ms()?));
            let factor = median(ratios.collect());
            (0..5).for_each(|coefficient| cfg = scaled(&cfg, coefficient, factor));
        }
        Ok(Self { loss: loss(&cfg, log, observed)?, cfg })
    }

    /// Walks along one coefficient while it gets better.
    fn descend(
        &mut self,
        coefficient: usize,
        stride: f64,
        log: &[Times],
        observed: usize,
    ) -> Result<(), Rejected> {
        for factor in [1.0 + stride, 1.0 / (1.0 + stride)] {
            let before = self.loss;
            for _ in 0..4 {
                let cfg = scaled(&self.cfg, coefficient, factor);
                let loss = loss(&cfg, log, observed)?;
                if loss >= self.loss {
                    break;
                }
                *self = Self { cfg, loss };
            }
            if self.loss < before {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn scaled(cfg: &EngineConfig, coefficient: usize, factor: f64) -> EngineConfig {
    let mut cfg = cfg.clone();
    let hw = &mut cfg.hardware;
    match coefficient {
        0 => hw.a_ms *= factor,
        1 => hw.b_us *= factor,
        2 => hw.c_us *= factor,
        3 => hw.d_ns *= factor,
        4 => hw.e_ns *= factor,
        _ => hw.m0 = (f64::from(hw.m0) * factor).round() as u32,
    }
    cfg
}

fn loss(cfg: &EngineConfig, log: &[Times], observed: usize) -> Result<f64, Rejected> {
    let log_end_ms = log.iter().take(observed).map(|r| r.last_ms).fold(0.0, f64::max);
    let model = replay(cfg, log, log_end_ms * 1.5)?;
    // A request that the model did not finish gives NaN, which `min` turns into 2 as well.
    let far = |model: f64, log: f64| (model / log).ln().abs().min(2.0);
    let per_request = log.iter().zip(&model).take(observed).map(|(log, model)| {
        let tpot = log.tpot_ms().zip(model.tpot_ms()).map_or(0.0, |(l, m)| far(m, l));
        let prefill = far(model.prefill_ms(), log.prefill_ms());
        tpot + prefill
    });
    Ok(per_request.sum::<f64>() / observed.max(1) as f64)
}
