//! How queue and headroom went over the time of a run.

use anyhow::Result;

use super::{Part, Section};
use crate::report::{
    Moment, Series,
    cast::{Cast, SUBJECT_NAME},
    html::Table,
    input::Runs,
    plot::{Axis, Guide, Line, Lines, Look, Marked, Unit},
    scene::{Scene, scenes},
    words::{counted, number, percent},
};

/// Headroom outside of this is drawn at the edge.
const HEADROOM: (f64, f64) = (-0.5, 1.0);

/// What goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tide {
    Waiting,
    Running,
    Ttft,
    Tpot,
}

impl Tide {
    fn of(self, moment: &Moment) -> Option<f64> {
        match self {
            Self::Waiting => Some(f64::from(moment.waiting)),
            Self::Running => Some(f64::from(moment.running)),
            Self::Ttft => moment.ttft_headroom.map(f64::from),
            Self::Tpot => moment.tpot_headroom.map(f64::from),
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Waiting => "Requests that wait for a pod",
            Self::Running => "Requests on pods",
            Self::Ttft => "Headroom of TTFT at dispatch",
            Self::Tpot => "Headroom of TPOT at dispatch",
        }
    }

    const fn file(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ttft => "headroom-ttft",
            Self::Tpot => "headroom-tpot",
        }
    }

    fn axis(self) -> Axis {
        match self {
            Self::Waiting | Self::Running => Axis::new("requests", Unit::Number),
            Self::Ttft | Self::Tpot => {
                Axis { range: Some(HEADROOM), ..Axis::new("left of the objective", Unit::Share) }
            }
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
        id: "timeline",
        title: "How a run went",
        lead: format!(
            "{}, second by second; all classes together.",
            counted(parts.len(), "setting", "settings")
        ),
        how: "A policy that pushes has no queue of its own: its requests wait inside the pods. Headroom is what the prediction at dispatch leaves of the objective, the median of the requests that were dispatched then: at 0 % the objective is just met, below it is missed.",
        parts,
    }))
}

fn part(scene: &Scene<'_>, cast: &Cast) -> Result<Part> {
    let mut part =
        Part { heading: scene.heading.clone(), run: scene.what_was_run(), ..Part::default() };
    let promised = scene.objective().is_some_and(|class| class.ttft_ms.is_some());
    let tides: &[Tide] = if promised {
        &[Tide::Waiting, Tide::Running, Tide::Ttft, Tide::Tpot]
    } else {
        &[Tide::Waiting, Tide::Running]
    };
    for tide in tides {
        part.pictures.push(lines(scene, *tide, cast).draw()?);
    }
    part.table = Table::new([
        "policy",
        "most waiting",
        "mean waiting",
        "most on pods",
        "time with TTFT headroom below 0",
    ]);
    for series in &scene.series {
        let figures = Figures::of(series);
        part.table.row([
            format!("`{}`", series.policy),
            number(figures.most_waiting),
            number(figures.mean_waiting),
            number(figures.most_running),
            figures.late_share.map_or_else(|| "-".to_owned(), percent),
        ]);
    }
    let named = scene.series.iter().find(|series| series.policy == SUBJECT_NAME);
    if let Some(series) = named.or_else(|| scene.series.first()) {
        let figures = Figures::of(series);
        part.lead += &format!(
            " With `{}` at most {} waited at once, {} in the mean, and at most {} ran on pods.",
            series.policy,
            counted(figures.most_waiting.round() as usize, "request", "requests"),
            number(figures.mean_waiting),
            number(figures.most_running.round()),
        );
    }
    Ok(part)
}

struct Figures {
    most_waiting: f64,
    mean_waiting: f64,
    most_running: f64,
    /// Of the moments with a dispatch, those whose median was too late already.
    late_share: Option<f64>,
}

impl Figures {
    fn of(series: &Series) -> Self {
        let values = |tide: Tide| series.moments.iter().filter_map(move |moment| tide.of(moment));
        let most = |tide| values(tide).fold(0.0, f64::max);
        let count = series.moments.len().max(1) as f64;
        let known = values(Tide::Ttft).count();
        let late = values(Tide::Ttft).filter(|left| *left < 0.0).count();
        Self {
            most_waiting: most(Tide::Waiting),
            mean_waiting: values(Tide::Waiting).sum::<f64>() / count,
            most_running: most(Tide::Running),
            late_share: (known > 0).then(|| late as f64 / known as f64),
        }
    }
}

fn lines(scene: &Scene<'_>, tide: Tide, cast: &Cast) -> Lines {
    let names: Vec<&str> = scene.series.iter().map(|series| series.policy.as_str()).collect();
    let line = |(name, look): (&str, Look)| {
        let series = scene.series.iter().find(|series| series.policy == name);
        let moments = series.map(|series| series.moments.as_slice()).unwrap_or_default();
        let point = |moment: &Moment| Some((f64::from(moment.at_s), tide.of(moment)?));
        let points = moments.iter().filter_map(point).collect();
        Line { name: name.to_owned(), look, points, band: Vec::new(), marked: Marked::Few }
    };
    let is_headroom = matches!(tide, Tide::Ttft | Tide::Tpot);
    Lines {
        name: format!("{}-{}", tide.file(), scene.slug()),
        title: tide.title().to_owned(),
        about: format!("{} over time per policy, {}", tide.title(), scene.heading),
        x: Axis::new("seconds from the start", Unit::Seconds),
        y: tide.axis(),
        lines: cast.looks(&names).into_iter().map(line).collect(),
        guides: if is_headroom { vec![Guide::Level(0.0)] } else { Vec::new() },
    }
}
