//! The table of targets, as the lab judged them.

use super::{Part, Section};
use crate::report::{
    Target,
    html::Table,
    input::Runs,
    target::{Judged, Keep},
    words::{clock, counted, number, percent, times},
};

pub(super) fn section(runs: &Runs) -> Option<Section> {
    let summary = runs.summary.as_ref()?;
    let count = |verdict| summary.targets.iter().filter(|target| target.passed == verdict).count();
    let (kept, missed, not_run) = (count(Some(true)), count(Some(false)), count(None));
    let was = |count: usize| if count == 1 { "was" } else { "were" };
    let lead = format!(
        "`{}` took {} and simulated {} requests per second. Of {} {kept} {} reached and {missed} missed; {not_run} {} not run.",
        summary.command,
        clock(summary.seconds),
        number(summary.requests_per_s.round()),
        counted(summary.targets.len(), "target", "targets"),
        was(kept),
        was(not_run),
    );
    let mut table = Table::new([
        "",
        "what",
        "weir",
        "best rival",
        "ratio",
        "target",
        "at most",
        "lower classes in time there: weir / rival",
        "start",
        "seeds",
    ]);
    for target in &summary.targets {
        table.row(cells(target));
    }
    let notes = summary.notes.join(" ");
    Some(Section {
        id: "targets",
        title: "Targets",
        lead,
        how: "A ratio is Weir's figure over that of the best rival in the same run, with the half width of its 95 % interval over the seeds where one could be computed. A load is in units of what the pool holds by formula, 1.0. At most: the ratio that no scheduler exceeds, where a bound is known. Lower classes in time there: a load is held for the requests of the highest band, and this is the share of the others that was in time at it, for each at the load of its own.",
        parts: vec![Part { run: notes, table, open: true, ..Part::default() }],
    })
}

fn cells(target: &Target) -> [String; 10] {
    let verdict = match target.passed {
        Some(true) => "reached",
        Some(false) => "missed",
        None => "not run",
    };
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let rival = match (&target.best_rival, target.rival) {
        (Some(name), Some(value)) => format!("{} `{name}`", number(value)),
        _ => "-".to_owned(),
    };
    let ratio = target.ratio.map_or_else(|| "-".to_owned(), times);
    let about =
        |ratio: f64| if target.judged == Judged::Ratio { times(ratio) } else { number(ratio) };
    let interval = target.interval.map(|half| format!(" ± {}", number(half)));
    let (measured, ratio) = match (target.judged, interval) {
        (Judged::Ratio, Some(half)) => (optional(target.measured), ratio + &half),
        (Judged::Measured, Some(half)) => (optional(target.measured) + &half, ratio),
        (_, None) => (optional(target.measured), ratio),
    };
    let lower = match (target.lower_in_time, target.rival_lower_in_time) {
        (Some(own), Some(others)) => format!("{} / {}", percent(own), percent(others)),
        _ => "-".to_owned(),
    };
    let side = if target.keep == Keep::AtLeast { "≥" } else { "≤" };
    let note = target.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    [
        verdict.to_owned(),
        format!("{}{note}", target.what),
        measured,
        rival,
        ratio,
        format!("{side} {}", about(target.target)),
        target.most().map_or_else(|| "-".to_owned(), times),
        lower,
        target.start.clone().unwrap_or_else(|| "-".to_owned()),
        format!("{} x {}", target.seeds, target.requests),
    ]
}
