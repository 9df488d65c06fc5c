//! What came out where no load was asked for, or nothing was promised: the figures themselves.
//!
//! Attainment against the load is told of neither. Traffic with rates of its own has no load, and without objectives everything
//! that is served is in time.

use super::{Part, Section, with_interval};
use crate::{
    report::{
        cast::worth,
        group::{Group, groups},
        html::Table,
        input::Runs,
        words::{counted, load, ms, number, percent},
    },
    study::Row,
};

pub(super) fn section(runs: &Runs) -> Option<Section> {
    let is_told_here =
        |row: &Row| row.max_load.is_none() && (row.load.is_none() || row.mix == "none");
    let groups = groups(runs, is_told_here);
    if groups.is_empty() {
        return None;
    }
    Some(Section {
        id: "plain",
        title: "Without a load or without objectives",
        lead: format!(
            "{}, of traffic with rates of its own or of which nothing is promised.",
            counted(groups.len(), "setting", "settings")
        ),
        how: "Times count from arrival: TTFT to the first token, end to end to the last. Where nothing is promised, attained is what was served.",
        parts: groups.iter().map(|group| part(group, runs)).collect(),
    })
}

fn part(group: &Group<'_>, runs: &Runs) -> Part {
    let (run, lead) = (group.what_was_run(runs), shows(group));
    Part {
        heading: group.heading.clone(),
        run,
        lead,
        table: table(group),
        open: true,
        ..Part::default()
    }
}

/// The best policy at each load and at rates of the traffic's own.
fn shows(group: &Group<'_>) -> String {
    let mut loads: Vec<Option<f64>> = group.of_class().map(|row| row.load).collect();
    loads.sort_by(|a, b| at(*a).total_cmp(&at(*b)));
    loads.dedup();
    loads.into_iter().filter_map(|load| shows_at(group, load)).collect()
}

fn shows_at(group: &Group<'_>, asked: Option<f64>) -> Option<String> {
    let rows = || group.of_class().filter(|row| row.load == asked);
    let best = rows().max_by(|a, b| worth(a).total_cmp(&worth(b)))?;
    let (policy, at, class) = (&best.policy, load(asked), &group.class);
    let policies = counted(rows().count(), "policy", "policies");
    Some(match best.e2e_ms_mean.filter(|_| best.mix == "none") {
        Some(end) => {
            format!(
                " At {at}, `{policy}` takes least end to end of {policies}, {} in the mean.",
                ms(end)
            )
        }
        None => format!(
            " At {at}, `{policy}` attains most of {policies}, {} of {class}.",
            with_interval(percent(best.attainment), best.attainment_ci.map(percent))
        ),
    })
}

/// What loads are sorted by; rates of the traffic's own come first.
fn at(load: Option<f64>) -> f64 {
    load.unwrap_or(0.0)
}

fn table(group: &Group<'_>) -> Table {
    let mut table = Table::new([
        "load",
        "policy",
        "class",
        "attained",
        "goodput rps",
        "TTFT mean / p50 / p99 ms",
        "TPOT mean / p50 / p99 ms",
        "end to end mean / p50 / p99 ms",
        "refused",
        "prefix hit",
    ]);
    let mut rows: Vec<&Row> = group.rows.iter().map(|(row, _)| *row).collect();
    rows.sort_by(|a, b| at(a.load).total_cmp(&at(b.load)).then(a.policy.cmp(&b.policy)));
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let times = |of: [Option<f64>; 3]| of.map(text).join(" / ");
    for row in rows {
        table.row([
            text(row.load),
            format!("`{}`", row.policy),
            row.class.clone(),
            with_interval(percent(row.attainment), row.attainment_ci.map(percent)),
            number(row.goodput_rps),
            times([row.ttft_ms_mean, row.ttft_ms_p50, row.ttft_ms_p99]),
            times([row.tpot_ms_mean, row.tpot_ms_p50, row.tpot_ms_p99]),
            times([row.e2e_ms_mean, row.e2e_ms_p50, row.e2e_ms_p99]),
            row.refused.to_string(),
            percent(row.prefix_hit),
        ]);
    }
    table
}
