//! Attainment and goodput against the load: curves with the band of the seeds.

use anyhow::Result;

use super::{Part, Section, with_interval};
use crate::{
    report::{
        cast::{Cast, SUBJECT_NAME, is_variant},
        group::{Group, groups},
        html::Table,
        input::Runs,
        plot::{Axis, Guide, Line, Lines, Look, Marked, Picture, Unit},
        words::{counted, number, percent, times},
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
        lead: lead(&groups),
        how: "Attainment is the share of all requests sent that met both objectives; a refused one has missed them. Goodput counts those requests per second, over all classes. Bands are 95 % intervals over the seeds. What ran far from the loads of the curves is in the numbers only.",
        parts,
    }))
}

/// How many settings, and at how many loads they are.
fn lead(groups: &[Group<'_>]) -> String {
    let is_several = |group: &&Group<'_>| loads(group.of_class()).len() > 1;
    let several = groups.iter().filter(is_several).count();
    let loads = match (groups.len(), several) {
        (1, 0) => "at one load".to_owned(),
        (1, _) => "at several loads".to_owned(),
        (_, 0) => "each at one load".to_owned(),
        (all, several) if all == several => "each at several loads".to_owned(),
        _ => format!("{several} of them at several loads"),
    };
    let settings = counted(groups.len(), "setting", "settings");
    format!("{settings}, {loads}, with the same arrivals for every policy.")
}

fn part(group: &Group<'_>, runs: &Runs, cast: &Cast) -> Result<Part> {
    let (run, lead) = (group.what_was_run(runs), shows(group, &compared(group)));
    let curves = [Kind::Attainment, Kind::Goodput].map(|kind| curves(group, cast, kind));
    let drawn = curves.iter().filter(|curves| curves.lines.iter().any(is_curve));
    let pictures: Vec<Picture> = drawn.map(Lines::draw).collect::<Result<_>>()?;
    let open = pictures.is_empty();
    Ok(Part { heading: group.heading.clone(), run, lead, pictures, table: table(group), open })
}

fn is_curve(line: &Line) -> bool {
    line.points.len() > 1
}

/// The loads of rows, each once and in their order.
fn loads<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<f64> {
    let mut loads: Vec<f64> = rows.filter_map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// The loads of which a comparison can be told: those at which two policies ran, or all where there are none.
fn compared(group: &Group<'_>) -> Vec<f64> {
    let all = loads(group.of_class());
    let at = |load: &f64| group.of_class().filter(|row| row.load == Some(*load)).count();
    let several: Vec<f64> = all.iter().copied().filter(|load| at(load) > 1).collect();
    if several.is_empty() { all } else { several }
}

/// The rows that are drawn: those on the axis of the curves, and all of a policy that would have no curve with these alone.
fn drawn<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let of = |policy: &str| loads(rows.iter().copied().filter(|row| row.policy == policy));
    let Some((least, most)) = axis(rows) else { return rows.to_vec() };
    let is_near = |load: &f64| (least..=most).contains(load);
    let is_drawn = |row: &&Row| {
        let own = of(&row.policy);
        let has_none = own.iter().filter(|load| is_near(load)).count() < 2;
        row.load.as_ref().is_some_and(is_near) || own.len() > 1 && has_none
    };
    rows.iter().copied().filter(is_drawn).collect()
}

/// From where to where the curves go: over the loads that two policies share of those that ran at two or more, or over all loads
/// of these where fewer than two are shared. Another load makes it longer if it is no further away than the axis is long: one
/// that is would press the curves together.
fn axis(rows: &[&Row]) -> Option<(f64, f64)> {
    let has_curve =
        |row: &&&Row| rows.iter().any(|other| other.policy == row.policy && other.load != row.load);
    let curved = || rows.iter().filter(has_curve).copied();
    let ran = |load: &f64| curved().filter(|row| row.load == Some(*load)).count();
    let all = loads(curved());
    let shared: Vec<f64> = all.iter().copied().filter(|load| ran(load) > 1).collect();
    let first = if shared.len() > 1 { shared } else { all };
    let (mut least, mut most) = (*first.first()?, *first.last()?);
    let known = loads(rows.iter().copied());
    let next = |least: f64, most: f64| {
        let away = |load: f64| (least - load).max(load - most);
        let near = |load: &f64| away(*load) > 0.0 && away(*load) <= most - least;
        known.iter().copied().find(near)
    };
    while let Some(load) = next(least, most) {
        (least, most) = (least.min(load), most.max(load));
    }
    Some((least, most))
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
    let rows = drawn(&kind.rows(group));
    let mut best_first = group.policies();
    best_first.retain(|policy| rows.iter().any(|row| row.policy == *policy));
    let total = |policy: &str| -> f64 {
        rows.iter().filter(|row| row.policy == policy).map(|row| kind.value(row)).sum()
    };
    best_first.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let line = |(policy, look): (&str, Look)| line(&rows, policy, look, kind);
    let lines = cast.looks(&best_first).into_iter().map(line);
    // A single point shows by its marker alone, which only those have that are named.
    let lines = lines.filter(|line| line.look.named || is_curve(line)).collect();
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
        lines,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(policy: &str, loads: &[f64]) -> Vec<Row> {
        let row =
            |load: &f64| Row { policy: policy.to_owned(), load: Some(*load), ..Row::default() };
        loads.iter().map(row).collect()
    }

    /// The loads of a policy that are drawn.
    fn drawn_of(policy: &str, rows: &[Vec<Row>]) -> Vec<f64> {
        let rows: Vec<&Row> = rows.iter().flatten().collect();
        loads(drawn(&rows).into_iter().filter(|row| row.policy == policy))
    }

    #[test]
    fn policies_that_ran_at_one_load_take_no_curve_from_those_that_ran_at_several() {
        let mut rows = vec![ran("weir", &[0.5, 1.0]), ran("push", &[0.5, 1.0])];
        rows.extend(["a", "b", "c", "d", "e", "f"].map(|policy| ran(policy, &[1.0])));
        assert_eq!(drawn_of("weir", &rows), [0.5, 1.0]);
        assert_eq!(drawn_of("push", &rows), [0.5, 1.0]);
        assert_eq!(drawn_of("f", &rows), [1.0], "a point beside the curves");
    }

    #[test]
    fn a_stray_load_of_one_policy_does_not_bend_the_axis() {
        let near = [0.5, 1.0, 1.3];
        let rows = [ran("weir", &near), ran("push", &[0.5, 1.0, 1.3, 7.2]), ran("other", &[9.0])];
        assert_eq!(drawn_of("push", &rows), near);
        assert!(drawn_of("other", &rows).is_empty());
        let rows = [ran("weir", &[0.5, 1.0]), ran("other", &[7.2])];
        assert_eq!((drawn_of("weir", &rows).len(), drawn_of("other", &rows).len()), (2, 0));
    }

    #[test]
    fn a_curve_goes_on_where_those_of_others_end() {
        let own = [0.2, 0.5, 1.0, 1.3, 1.6, 2.0];
        let rows = [ran("weir", &own), ran("push", &[0.5, 1.0])];
        assert_eq!(drawn_of("weir", &rows), own);
    }

    #[test]
    fn whoever_ran_at_two_loads_has_a_curve() {
        let rows = [ran("weir", &[0.5, 1.0]), ran("push", &[0.5, 1.0]), ran("far", &[5.0, 7.0])];
        assert_eq!(drawn_of("far", &rows), [5.0, 7.0]);
        let rows = [ran("weir", &[0.5, 1.0]), ran("push", &[1.0, 7.2])];
        assert_eq!(drawn_of("push", &rows), [1.0, 7.2]);
        assert_eq!(drawn_of("weir", &[ran("weir", &[0.5, 1.0, 7.2])]), [0.5, 1.0, 7.2]);
    }
}
