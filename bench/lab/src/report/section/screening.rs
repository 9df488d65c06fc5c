//! Who was looked at briefly, to choose whom to run in full.

use anyhow::Result;

use super::{Part, Section};
use crate::{
    report::{
        cast::worth,
        group::{Group, screenings},
        html::Table,
        input::Runs,
        plot::{Bar, Bars, Look, Unit},
        words::{asked, counted, ms, number, percent},
    },
    study::Row,
};

pub(super) fn section(runs: &Runs) -> Result<Option<Section>> {
    let groups = screenings(runs);
    let parts: Vec<Part> = groups.iter().map(|group| part(group, runs)).collect::<Result<_>>()?;
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "screening",
        title: "Who else was looked at",
        lead: format!("{}, briefly: this chose whom to run in full.", looked_at(&groups)),
        how: "With few seeds and requests these figures scatter widely, and short runs end before queues grow: compare them with one another, not with those above.",
        parts,
    }))
}

/// How many rivals in how many settings.
fn looked_at(groups: &[Group<'_>]) -> String {
    let most = groups.iter().map(|group| group.policies().len()).max().unwrap_or_default();
    let rivals = counted(most, "rival", "rivals");
    match groups.len() {
        1 => format!("{rivals} in 1 setting"),
        settings => format!("Up to {rivals} in each of {settings} settings"),
    }
}

fn part(group: &Group<'_>, runs: &Runs) -> Result<Part> {
    let mut rows: Vec<&Row> = group.of_class().collect();
    let question = |row: &Row| (row.at.is_none(), -row.at.unwrap_or(0.0), row.load.unwrap_or(0.0));
    rows.sort_by(|a, b| {
        let by_question =
            question(a).partial_cmp(&question(b)).unwrap_or(std::cmp::Ordering::Equal);
        by_question.then(worth(b).total_cmp(&worth(a)))
    });
    let mut part =
        Part { heading: group.heading.clone(), run: group.what_was_run(runs), ..Part::default() };
    part.table = Table::new([
        "question",
        "policy",
        "highest load",
        "attained",
        "largest 5 %",
        "mean TTFT",
        "mean end to end",
    ]);
    for row in &rows {
        part.table.row(cells(row));
    }
    if let Some(first) = rows.first() {
        part.lead = format!(
            "First of {}: `{}` for {}.",
            group.policies().len(),
            first.policy,
            words(first)
        );
        let same = rows.iter().filter(|row| (row.at, row.load) == (first.at, first.load));
        part.pictures.push(bars(group, first, same).draw()?);
    }
    Ok(part)
}

/// The question that a row answers.
fn words(row: &Row) -> String {
    match (row.at, row.load) {
        (Some(at), _) => format!("the highest load at {}", asked(at)),
        (None, Some(load)) => format!("load {}", number(load)),
        (None, None) => "-".to_owned(),
    }
}

fn cells(row: &Row) -> [String; 7] {
    let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    [
        words(row),
        format!("`{}`", row.policy),
        optional(row.max_load.map(number)),
        percent(row.attainment),
        optional(row.attainment_large5.map(percent)),
        optional(row.ttft_ms_mean.map(ms)),
        optional(row.e2e_ms_mean.map(ms)),
    ]
}

fn bars<'a>(group: &Group<'_>, first: &Row, rows: impl Iterator<Item = &'a &'a Row>) -> Bars {
    let is_free = first.mix == "none";
    let (unit, title) = match first.max_load {
        Some(_) => (Unit::Number, format!("Highest load at {}", asked(first.at.unwrap_or(0.0)))),
        None if is_free => (Unit::Millis, format!("Mean end to end, {}", words(first))),
        None => (Unit::Share, format!("Attained, {}", words(first))),
    };
    let value = |row: &Row| match row.max_load {
        Some(load) => load,
        None if is_free => row.e2e_ms_mean.unwrap_or(0.0),
        None => row.attainment,
    };
    let bar = |row: &&Row| Bar {
        name: row.policy.clone(),
        look: Look::OTHER,
        value: value(row),
        interval: None,
    };
    Bars {
        name: format!("screening-{}", group.slug()),
        about: format!("{title} per rival in the screening, {}", group.heading),
        title,
        unit,
        signed: false,
        bars: rows.map(bar).collect(),
    }
}
