//! What is paid for what: the largest prompts against all requests, and end to end against the first token.

use anyhow::Result;

use super::{Part, Section};
use crate::{
    report::{
        cast::{Cast, SUBJECT_NAME},
        group::{Group, groups},
        html::Table,
        input::Runs,
        plot::{Axis, Cloud, Points, Unit},
        words::{change, counted, load as at_words, ms, number, percent, slug},
    },
    study::Row,
};

/// A trade between two figures of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trade {
    /// Attainment of the largest 5 % of the prompts against attainment of all: more is better.
    Largest,
    /// Mean end to end against mean TTFT: less is better.
    Latency,
}

impl Trade {
    fn of(self, row: &Row) -> Option<(f64, f64)> {
        match self {
            Self::Largest => Some((row.attainment, row.attainment_large5?)),
            Self::Latency => Some((row.ttft_ms_mean?, row.e2e_ms_mean?)),
        }
    }

    /// Whether `a` is at least as good in both and better in one.
    fn beats(self, a: (f64, f64), b: (f64, f64)) -> bool {
        let sign = if self == Self::Largest { 1.0 } else { -1.0 };
        let (x, y) = (sign * (a.0 - b.0), sign * (a.1 - b.1));
        x >= 0.0 && y >= 0.0 && x + y > 0.0
    }
}

/// Fewer policies than this make no frontier.
const FEWEST: usize = 3;

pub(super) fn section(runs: &Runs, cast: &Cast) -> Result<Option<Section>> {
    let mut parts = Vec::new();
    for group in groups(runs, |row| row.max_load.is_none()) {
        let is_latency = group.rows.first().is_some_and(|(row, _)| row.mix == "none");
        let trade = if is_latency { Trade::Latency } else { Trade::Largest };
        parts.extend(part(&group, trade, runs, cast)?);
    }
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "frontier",
        title: "What is paid for what",
        lead: format!(
            "{}: what a policy gives to some requests, others pay for.",
            counted(parts.len(), "frontier", "frontiers")
        ),
        how: "Each point is a policy, over all classes. The line joins those that no other beats in both figures. With objectives: attainment of the largest 5 % of the prompts against attainment of all, up and to the right is better. Without: mean end-to-end time against mean TTFT, down and to the left is better.",
        parts,
    }))
}

/// Loads that are looked at: where the pool begins to be full and where it is, as near as there are rows. `None` is traffic
/// with rates of its own.
fn loads(group: &Group<'_>, trade: Trade) -> Vec<Option<f64>> {
    let usable = || group.of_all().filter(|row| trade.of(row).is_some()).map(|row| row.load);
    let nearest = |wanted: f64| {
        let off = |load: &f64| (load - wanted).abs();
        usable().flatten().min_by(|a, b| off(a).total_cmp(&off(b)))
    };
    let wanted: &[f64] = if trade == Trade::Largest { &[0.7, 1.0] } else { &[0.9] };
    let mut loads: Vec<Option<f64>> =
        wanted.iter().filter_map(|wanted| nearest(*wanted)).map(Some).collect();
    loads.dedup();
    loads.extend(usable().find(Option::is_none));
    loads
}

fn part(group: &Group<'_>, trade: Trade, runs: &Runs, cast: &Cast) -> Result<Option<Part>> {
    let mut part =
        Part { heading: group.heading.clone(), run: group.what_was_run(runs), ..Part::default() };
    part.table = table(trade);
    for load in loads(group, trade) {
        let Some(rows) = rows(group, load, trade) else { continue };
        let frontier = unbeaten(&rows, trade);
        part.lead += &shows(&rows, trade, load);
        part.pictures.push(points(group, &rows, frontier.clone(), (trade, load), cast).draw()?);
        rows.iter().for_each(|(row, point)| part.table.row(cells(row, *point, trade, &frontier)));
    }
    Ok((!part.pictures.is_empty()).then_some(part))
}

/// The policies at a load, the best in the second figure first, where they are enough to compare.
fn rows<'a>(
    group: &Group<'a>,
    load: Option<f64>,
    trade: Trade,
) -> Option<Vec<(&'a Row, (f64, f64))>> {
    let rows = group.of_all().filter(|row| row.load == load);
    let mut rows: Vec<(&Row, (f64, f64))> =
        rows.filter_map(|row| Some((row, trade.of(row)?))).collect();
    // Where nobody misses anything there is nothing to pay.
    let all_attain =
        trade == Trade::Largest && rows.iter().all(|(_, (_, largest))| *largest >= 0.995);
    let sign = if trade == Trade::Largest { -1.0 } else { 1.0 };
    rows.sort_by(|a, b| (sign * a.1.1).total_cmp(&(sign * b.1.1)));
    (rows.len() >= FEWEST && !all_attain).then_some(rows)
}

/// The points that no other beats, from left to right.
fn unbeaten(rows: &[(&Row, (f64, f64))], trade: Trade) -> Vec<(f64, f64)> {
    let best = |point: &(f64, f64)| !rows.iter().any(|(_, other)| trade.beats(*other, *point));
    let mut points: Vec<(f64, f64)> = rows.iter().map(|(_, point)| *point).filter(best).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup();
    points
}

fn shows(rows: &[(&Row, (f64, f64))], trade: Trade, load: Option<f64>) -> String {
    let weir = rows.iter().find(|(row, _)| row.policy == SUBJECT_NAME);
    let Some(((rival, point), (weir, own))) =
        rows.iter().find(|(row, _)| !row.policy.starts_with(SUBJECT_NAME)).zip(weir)
    else {
        return String::new();
    };
    let at = at_words(load);
    match trade {
        Trade::Largest => {
            let worst = |row: &Row| row.worst_wait_ms.map_or_else(|| "none".to_owned(), ms);
            format!(
                " At {at}, `weir` attains {} of the largest 5 % and {} of all; the rival that attains most of the largest, `{}`, {} and {}. Their longest wait for a first token is {} against {}.",
                percent(own.1),
                percent(own.0),
                rival.policy,
                percent(point.1),
                percent(point.0),
                worst(weir),
                worst(rival),
            )
        }
        Trade::Latency => format!(
            " At {at}, `weir` takes {} end to end in the mean and {} to the first token; the rival with the shortest end to end, `{}`, {} and {}: {} and {}.",
            ms(own.1),
            ms(own.0),
            rival.policy,
            ms(point.1),
            ms(point.0),
            change(own.1 / point.1),
            change(own.0 / point.0),
        ),
    }
}

fn points(
    group: &Group<'_>,
    rows: &[(&Row, (f64, f64))],
    frontier: Vec<(f64, f64)>,
    (trade, load): (Trade, Option<f64>),
    cast: &Cast,
) -> Points {
    // Those on the frontier are named first.
    let mut names: Vec<(&str, bool)> =
        rows.iter().map(|(row, point)| (row.policy.as_str(), !frontier.contains(point))).collect();
    names.sort_by_key(|(_, beaten)| *beaten);
    let names: Vec<&str> = names.into_iter().map(|(name, _)| name).collect();
    let cloud = |(name, look): (&str, _)| Cloud {
        name: name.to_owned(),
        look,
        points: rows
            .iter()
            .filter(|(row, _)| row.policy == name)
            .map(|(_, point)| *point)
            .collect(),
    };
    let (title, x, y) = match trade {
        Trade::Largest => (
            "Largest 5 % of prompts against all",
            Axis::new("attained, all requests", Unit::Share),
            Axis::new("attained, largest 5 %", Unit::Share),
        ),
        Trade::Latency => (
            "End to end against first token",
            Axis::new("mean TTFT", Unit::Millis),
            Axis::new("mean end to end", Unit::Millis),
        ),
    };
    Points {
        name: format!("frontier-{}-{}", group.slug(), slug(&at_words(load))),
        title: format!("{title}, {}", at_words(load)),
        about: format!("{title} per policy, {}, {}", group.heading, at_words(load)),
        x,
        y,
        clouds: cast.looks(&names).into_iter().map(cloud).collect(),
        guides: Vec::new(),
        frontier,
        size: 10,
        labelled: true,
    }
}

fn table(trade: Trade) -> Table {
    match trade {
        Trade::Largest => Table::new([
            "load",
            "policy",
            "attained, all",
            "attained, largest 5 %",
            "longest wait for a first token",
            "unbeaten",
        ]),
        Trade::Latency => {
            Table::new(["load", "policy", "mean TTFT", "mean end to end", "TTFT p99", "unbeaten"])
        }
    }
}

fn cells(row: &Row, point: (f64, f64), trade: Trade, frontier: &[(f64, f64)]) -> [String; 6] {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), ms);
    let (x, y, third) = match trade {
        Trade::Largest => (percent(point.0), percent(point.1), optional(row.worst_wait_ms)),
        Trade::Latency => (ms(point.0), ms(point.1), optional(row.ttft_ms_p99)),
    };
    let unbeaten = if frontier.contains(&point) { "yes" } else { "" };
    let load = row.load.map_or_else(|| "-".to_owned(), number);
    [load, format!("`{}`", row.policy), x, y, third, unbeaten.to_owned()]
}
