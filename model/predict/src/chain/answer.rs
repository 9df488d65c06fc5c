//! From the evaluators' medians to predictions.

use weir_schema::{PredictError, Prediction, Quantiles, Row, Source};

use super::calibration::Factors;
use crate::prior;
use crate::target::{Both, Target};

/// What the bundle answered for a batch; every median has been checked.
pub(super) struct Model<'a> {
    /// TTFT and TPOT per row, in milliseconds.
    pub(super) medians: &'a [[f32; 2]],
    pub(super) version: u64,
    /// The evaluator chosen for each target.
    pub(super) source: Both<Source>,
}

/// Writes a prediction for each row.
///
/// # Errors
/// When a row has neither a model's median nor a prior for a target. `out` is then partly written.
pub(super) fn fill(
    rows: &[Row],
    model: Option<&Model<'_>>,
    factors: &Both<Factors>,
    out: &mut [Prediction],
) -> Result<(), PredictError> {
    let mut medians = model.map(|model| model.medians.iter());
    for (index, (row, place)) in rows.iter().zip(out).enumerate() {
        let median = medians.as_mut().and_then(Iterator::next);
        let model_ms =
            Both { ttft: median.map(|[ttft, _]| *ttft), tpot: median.map(|[_, tpot]| *tpot) };
        let prior_ms = prior::medians(row);
        let choose = |target: Target| {
            let preferred = model.map_or(Source::Prior, |model| *model.source.get(target));
            choose(preferred, *model_ms.get(target), *prior_ms.get(target), factors.get(target))
                .ok_or_else(|| no_prior(index, target, row))
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

/// The preferred evaluator's quantiles, or the other's when the preferred one has no value.
fn choose(
    preferred: Source,
    model_ms: Option<f32>,
    prior_ms: Option<f32>,
    factors: &Factors,
) -> Option<(Quantiles, Source)> {
    let model = model_ms.map(|p50| (p50, factors.model, Source::Onnx));
    let prior = prior_ms.map(|p50| (p50, factors.prior, Source::Prior));
    let chosen = if preferred == Source::Prior { prior.or(model) } else { model.or(prior) };
    chosen.map(|(p50, factor, source)| (Quantiles { p50, p90: p50 * factor }, source))
}

fn no_prior(row: usize, target: Target, values: &Row) -> PredictError {
    let features = weir_schema::Features(*values);
    let value = match target {
        Target::Ttft => features.get(weir_schema::Feature::PriorTtftMs),
        Target::Tpot => features.get(weir_schema::Feature::PriorTpotMs),
    };
    PredictError::NotANumber { row, target: target.name(), value: value.to_string() }
}
