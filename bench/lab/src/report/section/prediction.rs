//! What was predicted against what was measured.

use anyhow::Result;

use super::{Part, Section};
use crate::report::{
    Call, Series,
    cast::{Cast, SUBJECT_NAME},
    html::Table,
    input::Runs,
    plot::{Axis, Cloud, Guide, Points, Unit},
    scene::{Scene, scenes},
    words::{counted, percent},
};

/// Points in a picture.
const POINTS: usize = 600;

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Ttft,
    Tpot,
}

/// A prediction with its outcome, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    predicted: f64,
    bound: f64,
    measured: f64,
}

impl Quantity {
    const ALL: [Self; 2] = [Self::Ttft, Self::Tpot];

    const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT from dispatch",
            Self::Tpot => "TPOT",
        }
    }

    /// `None` where nothing was predicted or measured.
    fn of(self, call: &Call) -> Option<Pair> {
        let (predicted, bound, measured) = match self {
            Self::Ttft => {
                (call.predicted_ttft_ms, call.predicted_ttft_p90_ms, call.ttft_ms - call.wait_ms)
            }
            Self::Tpot => (call.predicted_tpot_ms, call.predicted_tpot_p90_ms, call.tpot_ms?),
        };
        let (predicted, bound, measured) =
            (f64::from(predicted), f64::from(bound), f64::from(measured));
        (predicted > 0.0 && measured > 0.0).then_some(Pair { predicted, bound, measured })
    }
}

pub(super) fn section(runs: &Runs, cast: &Cast) -> Result<Option<Section>> {
    let mut parts = Vec::new();
    for scene in scenes(runs) {
        parts.extend(part(&scene, cast)?);
    }
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "prediction",
        title: "What was predicted and what came",
        lead: format!("{}, request by request.", counted(parts.len(), "run", "runs")),
        how: "A point is a request; on the dashed line the prediction was right. Predictions were made at dispatch, of which the wait before is no part. The error is the mean of |predicted - measured| / measured; coverage is how often the measured value was within the bound that was said to hold nine times out of ten.",
        parts,
    }))
}

/// Of Weir, or of the first policy that predicts.
fn part(scene: &Scene<'_>, cast: &Cast) -> Result<Option<Part>> {
    let predicts =
        |series: &&&Series| series.calls.iter().any(|call| Quantity::Ttft.of(call).is_some());
    let weir = scene.series.iter().find(|series| series.policy == SUBJECT_NAME && predicts(series));
    let Some(series) = weir.or_else(|| scene.series.iter().find(predicts)) else { return Ok(None) };
    let mut part =
        Part { heading: scene.heading.clone(), run: scene.what_was_run(), ..Part::default() };
    part.table = Table::new(["quantity", "requests", "mean error", "coverage of 90 %"]);
    for quantity in Quantity::ALL {
        let pairs: Vec<Pair> = series.calls.iter().filter_map(|call| quantity.of(call)).collect();
        if pairs.is_empty() {
            continue;
        }
        let count = pairs.len() as f64;
        let error =
            pairs.iter().map(|pair| (pair.predicted / pair.measured - 1.0).abs()).sum::<f64>()
                / count;
        let covered =
            pairs.iter().filter(|pair| pair.measured <= pair.bound).count() as f64 / count;
        part.lead += &format!(
            " `{}` predicted {} with a mean error of {}; the 90 % bound held for {}.",
            series.policy,
            quantity.name(),
            percent(error),
            percent(covered),
        );
        part.table.row([
            quantity.name().to_owned(),
            pairs.len().to_string(),
            percent(error),
            percent(covered),
        ]);
        part.pictures.push(cloud(scene, series, quantity, &pairs, cast).draw()?);
    }
    Ok(Some(part))
}

fn cloud(
    scene: &Scene<'_>,
    series: &Series,
    quantity: Quantity,
    pairs: &[Pair],
    cast: &Cast,
) -> Points {
    let step = pairs.len().div_ceil(POINTS).max(1);
    let points = pairs.iter().step_by(step).map(|pair| (pair.measured, pair.predicted)).collect();
    let name = quantity.name();
    Points {
        name: format!("prediction-{}-{}", super::super::words::slug(name), scene.slug()),
        title: format!("{name}: predicted against measured"),
        about: format!("Predicted against measured {name} of {}, {}", series.policy, scene.heading),
        x: Axis::new("measured (logarithmic)", Unit::Millis).log(),
        y: Axis::new("predicted", Unit::Millis).log(),
        clouds: vec![Cloud {
            name: series.policy.clone(),
            look: cast.look(&series.policy),
            points,
        }],
        guides: vec![Guide::Diagonal],
        frontier: Vec::new(),
        size: 4,
        labelled: false,
    }
}
