//! The highest load that keeps the promise, per setting: bars.

use anyhow::Result;

use super::{Part, Section, with_interval};
use crate::{
    report::{
        cast::{Cast, SUBJECT_NAME, is_variant},
        group::{Group, caveat, groups},
        html::Table,
        input::Runs,
        plot::{Bar, Bars, Look, Unit},
        words::{asked, number, percent, slug, times},
    },
    study::{Row, told},
};

/// Bars in one picture.
const MOST: usize = 12;

pub(super) fn section(runs: &Runs, cast: &Cast) -> Result<Option<Section>> {
    let groups = groups(runs, |row| row.max_load.is_some() && !is_variant(&row.policy));
    let parts: Vec<Part> =
        groups.iter().map(|group| part(group, runs, cast)).collect::<Result<_>>()?;
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "highest-load",
        title: "Highest load that keeps the promise",
        lead: lead(&groups),
        how: "A bar is the highest load at which the stated share of the requests of the highest band got their first token in time, counted from arrival, and their tokens at the promised pace. Load 1.0 is what the pool holds by formula if every request were the mean one.",
        parts,
    }))
}

/// Weir's ratios to the best rival over all settings.
fn lead(groups: &[Group<'_>]) -> String {
    let compared = groups.iter().flat_map(|group| {
        levels(group).into_iter().map(|at| ranked(group, at)).collect::<Vec<_>>()
    });
    let compared: Vec<(f64, Vec<&Row>)> =
        compared.filter_map(|rows| Some((ratio(&rows)?, rows))).collect();
    let mut ratios: Vec<f64> = compared.iter().map(|(ratio, _)| *ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let caveat = caveat(compared.iter().flat_map(|(_, rows)| rows.iter().copied()));
    match (ratios.as_slice(), ratios.get(ratios.len() / 2)) {
        ([], _) | (_, None) => {
            "The settings below have no comparison of `weir` with a rival.".to_owned()
        }
        ([only], _) => format!(
            "Against the best rival, `{SUBJECT_NAME}` holds {} of the load.{caveat}",
            times(*only)
        ),
        ([low, .., high], _) if times(*low) == times(*high) => format!(
            "Against the best rival of each setting, `{SUBJECT_NAME}` holds {} of the load in {} comparisons.{caveat}",
            times(*low),
            ratios.len(),
        ),
        ([low, .., high], Some(middle)) => format!(
            "Against the best rival of each setting, `{SUBJECT_NAME}` holds {} to {} of the load, {} in the median of {} comparisons.{caveat}",
            times(*low),
            times(*high),
            times(*middle),
            ratios.len(),
        ),
    }
}

/// The shares that were asked for, the highest first.
fn levels(group: &Group<'_>) -> Vec<f64> {
    let mut levels: Vec<f64> = group.of_class().filter_map(|row| row.at).collect();
    levels.sort_by(|a, b| b.total_cmp(a));
    levels.dedup();
    levels
}

/// Policies at a level, the best first.
fn ranked<'a>(group: &Group<'a>, at: f64) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = group.of_class().filter(|row| row.at == Some(at)).collect();
    rows.sort_by(|a, b| b.max_load.unwrap_or(0.0).total_cmp(&a.max_load.unwrap_or(0.0)));
    rows
}

/// Weir over the best rival.
fn ratio(ranked: &[&Row]) -> Option<f64> {
    let of =
        |subject: bool| ranked.iter().find(|row| (row.policy == SUBJECT_NAME) == subject)?.max_load;
    let (weir, rival) = (of(true)?, of(false)?);
    (rival > 0.0).then(|| weir / rival)
}

fn part(group: &Group<'_>, runs: &Runs, cast: &Cast) -> Result<Part> {
    let mut part =
        Part { heading: group.heading.clone(), run: group.what_was_run(runs), ..Part::default() };
    part.table = Table::new([
        "share asked for",
        "policy",
        "highest load",
        "attained there",
        "goodput rps",
        "TTFT p50 / p99 ms",
        "TPOT p50 / p99 ms",
    ]);
    for at in levels(group) {
        let rows = ranked(group, at);
        part.lead += &shows(&rows, at);
        part.pictures.push(bars(group, &rows, at, cast).draw()?);
        rows.iter().for_each(|row| part.table.row(cells(row, at)));
    }
    Ok(part)
}

fn shows(rows: &[&Row], at: f64) -> String {
    let share = asked(at);
    let best = |subject: bool| rows.iter().find(|row| (row.policy == SUBJECT_NAME) == subject);
    match (best(true), best(false)) {
        (Some(weir), Some(rival)) => {
            let ratio = ratio(rows).map(|ratio| format!(": {}", times(ratio))).unwrap_or_default();
            format!(
                " At {share}, `weir` holds load {}, the best rival, `{}`, {}{ratio}.",
                held(weir),
                rival.policy,
                held(rival)
            )
        }
        (Some(only), None) | (None, Some(only)) => {
            format!(" At {share}, `{}` holds load {}.", only.policy, held(only))
        }
        (None, None) => String::new(),
    }
}

/// A highest load with what it is not: found, where nothing that fails was tried above it, or sure, where the run was too short.
fn held(row: &Row) -> String {
    let load = row.max_load.unwrap_or(0.0);
    let load = if row.bounded { number(load) } else { told(load, false) };
    let short = if row.too_short { " (run too short)" } else { "" };
    format!("{load}{short}")
}

fn bars(group: &Group<'_>, rows: &[&Row], at: f64, cast: &Cast) -> Bars {
    let bar = |row: &&Row| Bar {
        name: row.policy.clone(),
        look: if row.policy == SUBJECT_NAME { cast.look(SUBJECT_NAME) } else { Look::OTHER },
        value: row.max_load.unwrap_or(0.0),
        interval: None,
    };
    // Weir is in the picture wherever it stands.
    let weir = rows.iter().skip(MOST).filter(|row| row.policy == SUBJECT_NAME);
    Bars {
        name: format!("highest-load-{}-{}", group.slug(), slug(&asked(at))),
        title: format!("Highest load with {} of {} attained", asked(at), group.class),
        about: format!("Highest load per policy, {}, {} attained", group.heading, asked(at)),
        unit: Unit::Number,
        signed: false,
        bars: rows.iter().take(MOST).chain(weir).map(bar).collect(),
    }
}

fn cells(row: &Row, at: f64) -> [String; 7] {
    let pair = |a: Option<f64>, b: Option<f64>| {
        let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        format!("{} / {}", text(a), text(b))
    };
    [
        asked(at),
        format!("`{}`", row.policy),
        held(row),
        with_interval(percent(row.attainment), row.attainment_ci.map(percent)),
        number(row.goodput_rps),
        pair(row.ttft_ms_p50, row.ttft_ms_p99),
        pair(row.tpot_ms_p50, row.tpot_ms_p99),
    ]
}
