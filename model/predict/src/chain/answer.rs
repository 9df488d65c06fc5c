//! From the evaluators' medians to predictions.

use weir_schema::{PredictError, Prediction, Quantiles, Row, Source, Target};

use super::calibration::Calibration;
use super::profiled::Profiled;
use crate::both::Both;

/// What the bundle answered for a batch; every median has been checked.
pub(super) struct Model<'a> {
    /// TTFT and TPOT per row, in milliseconds.
    pub(super) medians: &'a [[f32; 2]],
    pub(super) version: u64,
    /// What evaluated it.
    pub(super) source: Source,
    /// Whether the bundle is preferred to the next evaluator.
    pub(super) preferred: Both<bool>,
}

/// Writes a prediction for each row.
///
/// # Errors
/// When a row has no median of any evaluator for a target. `out` is then partly written.
pub(super) fn fill(
    rows: &[Row],
    model: Option<&Model<'_>>,
    profiled: &mut Profiled,
    calibration: &Calibration,
    out: &mut [Prediction],
) -> Result<(), PredictError> {
    let mut medians = model.map(|model| model.medians.iter());
    for (index, (row, place)) in rows.iter().zip(out).enumerate() {
        let median = medians.as_mut().and_then(Iterator::next);
        let model_ms =
            Both { ttft: median.map(|[ttft, _]| *ttft), tpot: median.map(|[_, tpot]| *tpot) };
        let factors = calibration.factors(row);
        let next = profiled.decide(row);
        let choose = |target: Target| {
            let preferred = model.is_some_and(|model| *model.preferred.get(target));
            let source = model.map_or(Source::Onnx, |model| model.source);
            let model = model_ms.get(target).map(|ms| (ms, source));
            let next = *next.get(target);
            let (p50, source) = if preferred { model.or(next) } else { next.or(model) }
                .ok_or_else(|| no_prior(index, target, row))?;
            Ok((Quantiles { p50, p90: p50 * factors.get(target).of(source) }, source))
        };
        let (ttft_ms, ttft_source) = choose(Target::Ttft)?;
        let (tpot_ms, tpot_source) = choose(Target::Tpot)?;
        *place = Prediction {
            ttft_ms,
            tpot_ms,
            ttft_source,
            tpot_source,
            model_ttft_ms: model_ms.ttft,
            model_tpot_ms: model_ms.tpot,
            model_version: model.map_or(0, |model| model.version),
        };
    }
    Ok(())
}

fn no_prior(row: usize, target: Target, values: &Row) -> PredictError {
    let features = weir_schema::Features(*values);
    let value = match target {
        Target::Ttft => features.get(weir_schema::Feature::PriorTtftMs),
        Target::Tpot => features.get(weir_schema::Feature::PriorTpotMs),
    };
    PredictError::NotANumber { row, target: target.name(), value: value.to_string() }
}
