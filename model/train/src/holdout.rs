//! Errors on the newest slice, and whether a candidate may replace the bundle being served.

use weir_schema::{Holdout, Target, TargetError, relative_error};

use crate::example::{Example, prior_ms};

/// Fewer rows than this decide nothing: their mean error is mostly chance.
pub(crate) const MIN_ROWS: usize = 20;
/// How much worse a candidate may look: a twentieth of the serving error and 0.2 points. Two
/// trainings on nearly the same rows differ by about that much, and without the allowance a model
/// that was lucky once would never be replaced by one that has seen more.
const RELATIVE_TOLERANCE: f64 = 0.05;
const ABSOLUTE_TOLERANCE: f64 = 0.002;

/// Errors of both targets for what was answered, in milliseconds, for the rows of a slice.
pub(crate) fn errors(slice: &[Example], answers: &[[f32; 2]]) -> Holdout {
    let of = |target: Target, column: usize| {
        let rows = slice.iter().zip(answers).filter_map(|(example, answer)| {
            Some(Judged {
                measured: example.measured_ms(target)?,
                prior: prior_ms(&example.row, target)?,
                predicted: *answer.get(column)?,
            })
        });
        target_error(&rows.collect::<Vec<_>>())
    };
    Holdout { ttft: of(Target::Ttft, 0), tpot: of(Target::Tpot, 1) }
}

/// One row of one target; all in milliseconds.
struct Judged {
    measured: f32,
    prior: f32,
    predicted: f32,
}

impl Judged {
    fn ratio(&self) -> f64 {
        f64::from(self.measured) / f64::from(self.predicted)
    }
}

fn target_error(rows: &[Judged]) -> TargetError {
    if rows.is_empty() {
        return TargetError::default();
    }
    let mean = |each: fn(&Judged) -> f64| rows.iter().map(each).sum::<f64>() / rows.len() as f64;
    let mut ratios: Vec<f64> = rows.iter().map(Judged::ratio).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    // The rank that covers the next one with 90 %, as the dispatcher takes it of what comes in.
    let p90 = ((rows.len() + 1) * 9).div_ceil(10).min(rows.len()).saturating_sub(1);
    TargetError {
        rows: rows.len(),
        mape: mean(|row| relative_error(row.predicted, row.measured)),
        rmse_log: mean(|row| row.ratio().ln().powi(2)).sqrt(),
        prior_mape: mean(|row| relative_error(row.prior, row.measured)),
        ratio_p90: ratios.get(p90).copied().unwrap_or_default(),
    }
}

/// Whether a candidate is not worse than the serving bundle, on the same rows, in either target.
pub(crate) fn not_worse(candidate: &Holdout, serving: &Holdout) -> bool {
    target_not_worse(&candidate.ttft, &serving.ttft)
        && target_not_worse(&candidate.tpot, &serving.tpot)
}

fn target_not_worse(candidate: &TargetError, serving: &TargetError) -> bool {
    // A serving bundle that answers NaN or worse can only be improved upon.
    candidate.rows < MIN_ROWS
        || !serving.mape.is_finite()
        || candidate.mape <= serving.mape * (1.0 + RELATIVE_TOLERANCE) + ABSOLUTE_TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(measured: f32, prior: f32, predicted: f32) -> Judged {
        Judged { measured, prior, predicted }
    }

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        let error = target_error(&[judged(100.0, 50.0, 110.0), judged(200.0, 200.0, 180.0)]);
        assert_eq!((error.rows, error.prior_mape), (2, 0.25));
        assert!((error.mape - 0.1).abs() < 1e-12);
        let expected = ((1.1_f64.ln().powi(2) + 0.9_f64.ln().powi(2)) / 2.0).sqrt();
        assert!((error.rmse_log - expected).abs() < 1e-12);
        assert!((error.ratio_p90 - 200.0 / 180.0).abs() < 1e-12);
        let ten: Vec<Judged> = (1..=10_u8).map(|n| judged(f32::from(n), 1.0, 1.0)).collect();
        assert_eq!(target_error(&ten).ratio_p90, 10.0);
        let twenty: Vec<Judged> = (1..=20_u8).map(|n| judged(f32::from(n), 1.0, 1.0)).collect();
        assert_eq!(target_error(&twenty).ratio_p90, 19.0);
    }

    #[test]
    fn a_few_answers_that_came_at_once_do_not_decide() {
        let of = |usual: f32, at_once: f32| {
            let rows = (0..200).map(|row| match row {
                0 => judged(0.03, 20.0, at_once),
                _ => judged(20.0, 20.0, usual),
            });
            let tpot = target_error(&rows.collect::<Vec<_>>());
            Holdout { tpot, ..Holdout::default() }
        };
        assert!(not_worse(&of(20.5, 40.0), &of(21.0, 20.0)));
        assert!(!not_worse(&of(22.0, 20.0), &of(21.0, 20.0)), "the others do");
    }

    #[test]
    fn the_gate_lets_equals_pass_and_refuses_a_worse_target() {
        let error = |mape| TargetError { rows: 100, mape, ..TargetError::default() };
        let both = |ttft, tpot| Holdout { ttft: error(ttft), tpot: error(tpot) };
        let serving = both(0.10, 0.05);
        for (candidate, passes) in [
            (serving, true),
            (both(0.106, 0.054), true),
            (both(0.108, 0.05), false),
            (both(0.01, 0.06), false),
            (both(f64::NAN, 0.05), false),
        ] {
            assert_eq!(not_worse(&candidate, &serving), passes, "{candidate:?}");
        }
        assert!(not_worse(&both(0.3, 0.3), &both(f64::NAN, f64::INFINITY)));
        let few = TargetError { rows: 19, mape: 9.0, ..TargetError::default() };
        assert!(not_worse(&Holdout { ttft: few, ..serving }, &serving));
    }
}
