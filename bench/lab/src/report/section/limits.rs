//! Policies against what no scheduler could beat.

use anyhow::Result;

use super::{Part, Section};
use crate::report::{
    cast::{Cast, SUBJECT_NAME},
    choice::{Choice, choose},
    group::mix_words,
    html::Table,
    input::{LimitLine, Placed, Runs},
    plot::{Bar, Bars, Look, Unit},
    words::{counted, exact, ms, number, percent, range, slug, times},
};

pub(super) fn section(runs: &Runs, cast: &Cast) -> Result<Option<Section>> {
    let scenes = scenes(runs);
    let parts: Vec<Part> =
        scenes.iter().map(|lines| part(runs, lines, cast)).collect::<Result<_>>()?;
    if parts.is_empty() {
        return Ok(None);
    }
    Ok(Some(Section {
        id: "limits",
        title: "How far from what no scheduler could beat",
        lead: lead(&scenes),
        how: "The limit is that of one server as fast as all pods together, which may interrupt and move anything, knows everything and computes a shared prefix once. No scheduler reaches it: steps, batches and pods cost what it does not pay. What is missing to it is at most what a better scheduler could gain.",
        parts,
    }))
}

fn key(line: &Placed<LimitLine>) -> (usize, u64) {
    (line.setting, line.item.load.to_bits())
}

/// The lines that count.
pub(super) fn chosen(runs: &Runs) -> Choice<&Placed<LimitLine>> {
    choose(
        &runs.limits,
        |line| (key(line), line.item.policy.as_str()),
        |line| runs.rank(line.item.requests, line.file),
    )
}

/// Lines of one setting and load.
fn scenes(runs: &Runs) -> Vec<Vec<&Placed<LimitLine>>> {
    let mut scenes: Vec<Vec<&Placed<LimitLine>>> = Vec::new();
    for line in chosen(runs).kept {
        let same = |scene: &&mut Vec<&Placed<LimitLine>>| {
            scene.first().is_some_and(|first| key(first) == key(line))
        };
        match scenes.iter_mut().find(same) {
            Some(scene) => scene.push(line),
            None => scenes.push(vec![line]),
        }
    }
    scenes
}

/// Of the limit.
fn reached(line: &LimitLine) -> f64 {
    if line.attainment_limit > 0.0 { line.attainment / line.attainment_limit } else { 1.0 }
}

fn lead(scenes: &[Vec<&Placed<LimitLine>>]) -> String {
    let lines = scenes.iter().flatten().map(|placed| &placed.item);
    let weirs = lines.filter(|line| line.policy == SUBJECT_NAME);
    let mut shares: Vec<f64> = weirs.map(reached).collect();
    shares.sort_by(f64::total_cmp);
    match (shares.first(), shares.last()) {
        (Some(least), Some(most)) => format!(
            "`{SUBJECT_NAME}` reaches {} of the limit in {}.",
            range(&percent(*least), &percent(*most)),
            counted(shares.len(), "setting", "settings"),
        ),
        _ => format!("{}.", counted(scenes.len(), "setting", "settings")),
    }
}

fn part(runs: &Runs, placed: &[&Placed<LimitLine>], cast: &Cast) -> Result<Part> {
    let Some(Placed { item: of, setting, .. }) = placed.first() else { return Ok(Part::default()) };
    let lines: Vec<&LimitLine> = placed.iter().map(|placed| &placed.item).collect();
    let (common, heading) = (runs.common(*setting), runs.heading(*setting));
    let heading = format!("{heading}, load {}", exact(of.load));
    let run = format!(
        "{} in front of {}; traffic `{}` at load {}; {}; {}, {} counted in all.",
        counted(lines.len(), "policy", "policies"),
        common.pool_words(),
        common.workload,
        number(of.load),
        mix_words(&common.mix),
        counted(of.seeds, "seed", "seeds"),
        counted(of.requests, "request", "requests"),
    );
    let mut part = Part { heading, run, ..Part::default() };
    part.table = Table::new([
        "policy",
        "in time",
        "limit",
        "of the limit",
        "mean TTFT over its limit",
        "mean end to end over its limit",
    ]);
    for line in &lines {
        let over = |mean: Option<f64>, limit: Option<f64>| {
            let pair = mean.zip(limit).filter(|(_, limit)| *limit > 0.0);
            pair.map_or_else(
                || "-".to_owned(),
                |(mean, limit)| format!("{} / {}: {}", ms(mean), ms(limit), times(mean / limit)),
            )
        };
        part.lead += &format!(
            " `{}` serves {} in time where at most {} could be.",
            line.policy,
            percent(line.attainment),
            percent(line.attainment_limit)
        );
        part.table.row([
            format!("`{}`", line.policy),
            percent(line.attainment),
            percent(line.attainment_limit),
            percent(reached(line)),
            over(line.ttft_ms_mean, line.ttft_ms_limit),
            over(line.e2e_ms_mean, line.e2e_ms_limit),
        ]);
    }
    part.pictures.push(bars(&part.heading, &lines, cast).draw()?);
    Ok(part)
}

fn bars(heading: &str, lines: &[&LimitLine], cast: &Cast) -> Bars {
    let bar = |line: &&LimitLine| Bar {
        name: line.policy.clone(),
        look: cast.look(&line.policy),
        value: line.attainment,
        interval: None,
    };
    // Turns of a conversation come when the policy lets them: the limits of two policies may differ, and the higher one holds
    // for both.
    let limit = lines.iter().map(|line| line.attainment_limit).fold(0.0, f64::max);
    let limit = Bar {
        name: "no scheduler more than".to_owned(),
        look: Look::OTHER,
        value: limit,
        interval: None,
    };
    Bars {
        name: format!("limits-{}", slug(heading)),
        title: "Requests in time, and the limit".to_owned(),
        about: format!("Share of requests in time per policy and the limit, {heading}"),
        unit: Unit::Share,
        signed: false,
        bars: std::iter::once(limit).chain(lines.iter().map(bar)).collect(),
    }
}
