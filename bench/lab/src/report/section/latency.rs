//! Distributions of TTFT, TPOT and end-to-end time.

use anyhow::Result;

use super::{Part, Section};
use crate::{
    report::{
        Call, Series,
        cast::{Cast, SUBJECT_NAME},
        html::Table,
        input::Runs,
        plot::{Axis, Guide, Line, Lines, Look, Marked, Unit},
        scene::{Scene, scenes},
        words::{counted, ms, percent},
    },
    workload::Objective,
};

/// Points of a curve.
const POINTS: usize = 120;

/// A latency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latency {
    Ttft,
    Tpot,
    E2e,
}

impl Latency {
    const ALL: [Self; 3] = [Self::Ttft, Self::Tpot, Self::E2e];

    const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
            Self::E2e => "end to end",
        }
    }

    fn of(self, call: &Call) -> Option<f64> {
        match self {
            Self::Ttft => Some(f64::from(call.ttft_ms)),
            Self::Tpot => call.tpot_ms.map(f64::from),
            Self::E2e => Some(f64::from(call.e2e_ms)),
        }
    }

    fn promised(self, class: &Objective) -> Option<f64> {
        match self {
            Self::Ttft => class.ttft_ms.filter(|_| class.ttft_ms_per_input_token == 0.0),
            Self::Tpot => class.tpot_ms,
            Self::E2e => None,
        }
    }
}

pub(super) fn section(runs: &Runs, cast: &Cast) -> Result<Option<Section>> {
    let scenes = scenes(runs);
    let parts: Vec<Part> = scenes.iter().map(|scene| part(scene, cast)).collect::<Result<_>>()?;
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "latency",
        title: "How long requests took",
        lead: format!(
            "Distributions over single requests, in {} of one seed each.",
            counted(runs.series.len(), "run", "runs")
        ),
        how: "A curve says which share of the served requests took at most so long; further left is faster. TTFT counts from arrival. The upright line is the objective. Refused requests are not in the curves.",
        parts,
    }))
}

fn part(scene: &Scene<'_>, cast: &Cast) -> Result<Part> {
    let mut part =
        Part { heading: scene.heading.clone(), run: scene.what_was_run(), ..Part::default() };
    part.table = Table::new(["policy", "latency", "p50", "p95", "p99", "within the objective"]);
    for latency in Latency::ALL {
        part.pictures.push(curves(scene, latency, cast).draw()?);
        part.lead += &shows(scene, latency);
        for series in &scene.series {
            let values = sorted(scene, series, latency);
            part.table.row([
                format!("`{}`", series.policy),
                latency.name().to_owned(),
                quantile(&values, 0.5).map_or_else(|| "-".to_owned(), ms),
                quantile(&values, 0.95).map_or_else(|| "-".to_owned(), ms),
                quantile(&values, 0.99).map_or_else(|| "-".to_owned(), ms),
                within(scene, &values, latency).map_or_else(|| "-".to_owned(), percent),
            ]);
        }
    }
    Ok(part)
}

fn sorted(scene: &Scene<'_>, series: &Series, latency: Latency) -> Vec<f64> {
    let of_class = series.calls.iter().filter(|call| call.class == scene.class);
    let mut values: Vec<f64> = of_class.filter_map(|call| latency.of(call)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest value that this share of the sorted values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

fn within(scene: &Scene<'_>, sorted: &[f64], latency: Latency) -> Option<f64> {
    let promised = latency.promised(scene.objective()?)?;
    let kept = sorted.partition_point(|value| *value <= promised);
    (!sorted.is_empty()).then(|| kept as f64 / sorted.len() as f64)
}

/// Medians and tails of Weir and the best of the others.
fn shows(scene: &Scene<'_>, latency: Latency) -> String {
    let tail = |series: &&&Series| {
        quantile(&sorted(scene, series, latency), 0.99).unwrap_or(f64::INFINITY)
    };
    let weir = scene.series.iter().find(|series| series.policy == SUBJECT_NAME);
    let others = scene.series.iter().filter(|series| series.policy != SUBJECT_NAME);
    let other = others.min_by(|a, b| tail(a).total_cmp(&tail(b)));
    let said = |series: &&Series| {
        let values = sorted(scene, series, latency);
        let (p50, p99) = (quantile(&values, 0.5)?, quantile(&values, 0.99)?);
        Some(format!("`{}` {} and {}", series.policy, ms(p50), ms(p99)))
    };
    let said: Vec<String> = weir.into_iter().chain(other).filter_map(said).collect();
    if said.is_empty() {
        return String::new();
    }
    format!(" {} p50 and p99: {}.", latency.name(), said.join("; "))
}

fn curves(scene: &Scene<'_>, latency: Latency, cast: &Cast) -> Lines {
    let mut best_first = scene.series.clone();
    let tail =
        |series: &Series| quantile(&sorted(scene, series, latency), 0.9).unwrap_or(f64::INFINITY);
    best_first.sort_by(|a, b| tail(a).total_cmp(&tail(b)));
    let names: Vec<&str> = best_first.iter().map(|series| series.policy.as_str()).collect();
    let line = |(name, look): (&str, Look)| {
        let series = best_first.iter().find(|series| series.policy == name);
        let values = series.map(|series| sorted(scene, series, latency)).unwrap_or_default();
        Line {
            name: name.to_owned(),
            look,
            points: curve(&values),
            band: Vec::new(),
            marked: Marked::Few,
        }
    };
    let promised = scene.objective().and_then(|class| latency.promised(class));
    let name = latency.name();
    let lines: Vec<Line> = cast.looks(&names).into_iter().map(line).collect();
    Lines {
        name: format!("latency-{}-{}", super::super::words::slug(name), scene.slug()),
        title: format!("{name}, {}", scene.class_name()),
        about: format!("Distribution of {name} per policy, {}", scene.heading),
        x: axis(name, &lines),
        y: Axis::share("share of served requests"),
        lines,
        guides: promised.map(Guide::Upright).into_iter().collect(),
    }
}

/// Logarithmic where the values span more than a factor of thirty.
fn axis(name: &str, lines: &[Line]) -> Axis {
    let values = || lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if high > 30.0 * low {
        Axis::new(format!("{name} (logarithmic)"), Unit::Millis).log()
    } else {
        Axis::new(name, Unit::Millis)
    }
}

/// Quantiles, the tail finer than the rest.
fn curve(sorted: &[f64]) -> Vec<(f64, f64)> {
    let share = |place: usize| {
        let part = place as f64 / POINTS as f64;
        1.0 - (1.0 - part).powf(1.5)
    };
    let point = |place: usize| Some((quantile(sorted, share(place))?.max(0.01), share(place)));
    (0..=POINTS).filter_map(point).collect()
}
