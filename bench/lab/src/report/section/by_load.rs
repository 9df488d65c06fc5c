//! Attainment and goodput against the load: curves with the band of the seeds.

use anyhow::Result;

use super::{Part, Section, with_interval};
use crate::{
    report::{
        cast::{Cast, SUBJECT_NAME, is_variant},
        group::{Group, groups},
        html::Table,
        input::Runs,
        plot::{Axis, Guide, Line, Lines, Look, Marked, Unit},
        words::{number, percent, times},
    },
    study::Row,
};

pub(super) fn section(runs: &Runs, cast: &Cast) -> Result<Option<Section>> {
    let groups =
        groups(runs, |row| row.load.is_some() && row.mix != "none" && !is_variant(&row.policy));
    let parts: Vec<Part> =
        groups.iter().map(|group| part(group, runs, cast)).collect::<Result<_>>()?;
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "by-load",
        title: "Attainment and goodput against the load",
        lead: format!(
            "{} settings, each at several loads with the same arrivals for every policy.",
            parts.len()
        ),
        how: "Attainment is the share of all requests sent that met both objectives; a refused one has missed them. Goodput counts those requests per second, over all classes. Bands are 95 % intervals over the seeds.",
        parts,
    }))
}

fn part(group: &Group<'_>, runs: &Runs, cast: &Cast) -> Result<Part> {
    let loads = loads(group);
    let (run, lead) = (group.what_was_run(runs), shows(group, &loads));
    let attained = curves(group, cast, Kind::Attainment).draw()?;
    let goodput = curves(group, cast, Kind::Goodput).draw()?;
    let pictures = if loads.len() > 1 { vec![attained, goodput] } else { Vec::new() };
    let open = pictures.is_empty();
    Ok(Part { heading: group.heading.clone(), run, lead, pictures, table: table(group), open })
}

/// Loads at which at least half of the policies were run: a search leaves others of its own.
fn loads(group: &Group<'_>) -> Vec<f64> {
    let mut loads: Vec<f64> = group.of_class().filter_map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    let all = loads.clone();
    loads.dedup();
    let policies = group.policies().len();
    loads.retain(|load| 2 * all.iter().filter(|other| *other == load).count() >= policies);
    loads
}

/// Weir and the best rival, at the load nearest to 1 and at the highest one.
fn shows(group: &Group<'_>, loads: &[f64]) -> String {
    let near_one = loads.iter().copied().min_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
    let highest = loads.last().copied().filter(|load| Some(*load) != near_one);
    let said = near_one.into_iter().chain(highest).filter_map(|load| shows_at(group, load));
    said.collect()
}

fn shows_at(group: &Group<'_>, load: f64) -> Option<String> {
    let rows = || group.of_class().filter(|row| row.load == Some(load));
    let attained =
        |row: &Row| with_interval(percent(row.attainment), row.attainment_ci.map(percent));
    let rivals = rows().filter(|row| row.policy != SUBJECT_NAME);
    let rival = rivals.max_by(|a, b| a.attainment.total_cmp(&b.attainment));
    let weir = rows().find(|row| row.policy == SUBJECT_NAME);
    let class = &group.class;
    let load_words = number(load);
    Some(match (weir, rival) {
        (Some(weir), Some(rival)) => {
            format!(
                " At load {load_words}, {} of {class} attained with `weir`, {} with the best rival, `{}`{}.",
                attained(weir),
                attained(rival),
                rival.policy,
                goodput_words(group, load),
            )
        }
        (Some(only), None) | (None, Some(only)) => {
            format!(
                " At load {load_words}, the best is `{}` with {} of {class}.",
                only.policy,
                attained(only)
            )
        }
        (None, None) => return None,
    })
}

/// Goodput over all classes against the best rival's.
fn goodput_words(group: &Group<'_>, load: f64) -> String {
    let rows = || group.of_all().filter(|row| row.load == Some(load));
    let weir = rows().find(|row| row.policy == SUBJECT_NAME);
    let rivals = rows().filter(|row| row.policy != SUBJECT_NAME);
    let rival = rivals.max_by(|a, b| a.goodput_rps.total_cmp(&b.goodput_rps));
    match weir.zip(rival).filter(|(_, rival)| rival.goodput_rps > 0.0) {
        Some((weir, rival)) => format!(
            "; goodput {} against {} requests per second of `{}`, {}",
            number(weir.goodput_rps),
            number(rival.goodput_rps),
            rival.policy,
            times(weir.goodput_rps / rival.goodput_rps),
        ),
        None => String::new(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Attainment,
    Goodput,
}

impl Kind {
    fn value(self, row: &Row) -> f64 {
        match self {
            Self::Attainment => row.attainment,
            Self::Goodput => row.goodput_rps,
        }
    }

    fn rows<'a>(self, group: &Group<'a>) -> Vec<&'a Row> {
        match self {
            Self::Attainment => group.of_class().collect(),
            Self::Goodput => group.of_all().collect(),
        }
    }
}

fn curves(group: &Group<'_>, cast: &Cast, kind: Kind) -> Lines {
    let rows = kind.rows(group);
    let mut best_first = group.policies();
    let total = |policy: &str| -> f64 {
        rows.iter().filter(|row| row.policy == policy).map(|row| kind.value(row)).sum()
    };
    best_first.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let line = |(policy, look): (&str, Look)| line(&rows, policy, look, kind);
    let class = &group.class;
    let (title, y, guides, file) = match kind {
        Kind::Attainment => {
            let y = Axis::share("attained, of all sent");
            (format!("Attainment of {class}"), y, vec![Guide::Level(0.99)], "attainment")
        }
        Kind::Goodput => {
            let y = Axis::new("requests per second", Unit::Number);
            ("Goodput, all classes".to_owned(), y, Vec::new(), "goodput")
        }
    };
    Lines {
        name: format!("{file}-{}", group.slug()),
        about: format!("{title} against the load, {}", group.heading),
        title,
        x: Axis::new("load (1.0 = what the pool holds by formula)", Unit::Number),
        y,
        lines: cast.looks(&best_first).into_iter().map(line).collect(),
        guides,
    }
}

fn line(rows: &[&Row], policy: &str, look: Look, kind: Kind) -> Line {
    let mut rows: Vec<&&Row> = rows.iter().filter(|row| row.policy == policy).collect();
    rows.sort_by(|a, b| a.load.unwrap_or(0.0).total_cmp(&b.load.unwrap_or(0.0)));
    let known = kind == Kind::Attainment && rows.iter().all(|row| row.attainment_ci.is_some());
    let band = rows.iter().filter_map(|row| row.attainment_ci.filter(|_| known)).collect();
    Line {
        name: policy.to_owned(),
        look,
        points: rows.iter().map(|row| (row.load.unwrap_or(0.0), kind.value(row))).collect(),
        band,
        marked: Marked::Each,
    }
}

fn table(group: &Group<'_>) -> Table {
    let mut table = Table::new([
        "load",
        "policy",
        "class",
        "attained",
        "from 16 tokens",
        "goodput rps",
        "TTFT p50 / p99 ms",
        "TPOT p50 / p99 ms",
        "refused",
        "prefix hit",
    ]);
    let mut rows: Vec<&Row> = group.rows.iter().map(|(row, _)| *row).collect();
    rows.sort_by(|a, b| {
        let load = |row: &Row| row.load.unwrap_or(0.0);
        load(a).total_cmp(&load(b)).then(a.policy.cmp(&b.policy))
    });
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    for row in rows {
        table.row([
            text(row.load),
            format!("`{}`", row.policy),
            row.class.clone(),
            with_interval(percent(row.attainment), row.attainment_ci.map(percent)),
            percent(row.attainment_from_16),
            number(row.goodput_rps),
            format!("{} / {}", text(row.ttft_ms_p50), text(row.ttft_ms_p99)),
            format!("{} / {}", text(row.tpot_ms_p50), text(row.tpot_ms_p99)),
            row.refused.to_string(),
            percent(row.prefix_hit),
        ]);
    }
    table
}
