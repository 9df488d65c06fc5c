//! What came out, for people: Markdown, and curves as SVG.

use std::{fmt::Write, path::Path};

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};

use super::{
    compare::{Ratio, Verdict, ntpot, throughput},
    measure::{Compared, Effort, Measured},
    published::{BASE, COLUMNS, Column, PRODUCTION, Says},
    set_up::{Asks, Reading},
};
use crate::report::{Curves, write_curves};

/// Everything, as Markdown.
pub(super) fn report(compared: &[Compared], effort: &Effort) -> String {
    let mut text = String::new();
    let ladders = || compared.iter().filter(|one| matches!(one.set_up.asks, Asks::Ladder(_)));
    if ladders().count() > 0 {
        let _ =
            writeln!(text, "## What was published of predicted latency\n\n{}\n", claims(ladders()));
        let _ = writeln!(
            text,
            "## Time per output token and tokens per second as ratios\n\n{}\n",
            ratios(ladders())
        );
    }
    for one in compared {
        let reading = match (effort.reading, one.set_up.name.len()) {
            (Reading::Head, 1) => ", head's reading",
            _ => "",
        };
        let (name, title) = (one.set_up.name, one.set_up.title);
        let _ = writeln!(
            text,
            "## {name}: {title}{reading}\n\n{}.\n",
            one.set_up.pods(effort.kv_blocks)
        );
        let _ = match one.set_up.asks {
            Asks::Ladder(_) => writeln!(text, "{}\n", steps(one)),
            Asks::Production => writeln!(text, "{}\n\n{}\n", production(one), steps(one)),
        };
    }
    text
}

fn aligned(header: Vec<String>, words: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(header);
    let columns = table.column_iter_mut().skip(words);
    columns.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn heads(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn ranged(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |ratio| format!("{:.2} ({:.2} to {:.2})", ratio.value, ratio.least, ratio.most),
    )
}

/// Each claim with its ratio.
fn claims<'a>(compared: impl Iterator<Item = &'a Compared>) -> Table {
    let mut table =
        aligned(heads(&["scenario", "published", "over", "time per token here", "holds"]), 5);
    for one in compared {
        for (over, says, ratio, verdict) in one.judged() {
            let says = match says {
                Says::Better => "better",
                Says::Alike => "alike",
            };
            let holds = match verdict {
                Verdict::Holds => "yes",
                Verdict::Even => "even",
                Verdict::Fails => "no",
            };
            let row = [one.set_up.name, says, over, &ranged(Some(ratio)), holds].map(str::to_owned);
            table.add_row(row);
        }
    }
    table
}

/// All policies over round robin.
fn ratios<'a>(compared: impl Iterator<Item = &'a Compared>) -> Table {
    let compared: Vec<&Compared> = compared.collect();
    let policies = compared.first().map(|one| one.measured.iter().skip(1)).into_iter().flatten();
    let names: Vec<&str> = policies.map(|one| one.policy.as_str()).collect();
    let header = ["scenario", "over the first"].into_iter().chain(names);
    let mut table = aligned(header.map(str::to_owned).collect(), 2);
    for one in compared {
        let Some((first, others)) = one.measured.split_first() else { continue };
        let mut add = |what: &str, of: fn(&Measured, &Measured) -> Option<Ratio>| {
            let words = [one.set_up.name.to_owned(), format!("{what}, {}", first.policy)];
            let values = others.iter().map(|own| ranged(of(own, first)));
            table.add_row(words.into_iter().chain(values));
        };
        add("ms per token", ntpot);
        add("most tokens/s", throughput);
    }
    table
}

/// Every rate under every policy.
fn steps(one: &Compared) -> Table {
    let names = one.measured.iter().map(|own| own.policy.clone());
    let header = std::iter::once("rps: ms per token, tokens/s, hit %".to_owned()).chain(names);
    let mut table = aligned(header.collect(), 0);
    let rates = one.measured.first().map(Measured::rates).unwrap_or_default();
    for (place, rate) in rates.iter().enumerate() {
        let cell = |own: &Measured| {
            let [ntpot, tokens, hit] = [
                own.mean(place, |step| step.ntpot_ms),
                own.mean(place, |step| step.tokens_per_s),
                own.mean(place, |step| step.prefix_hit * 100.0),
            ];
            format!("{ntpot:.1}, {tokens:.0}, {hit:.0}")
        };
        table.add_row(std::iter::once(format!("{rate:.0}")).chain(one.measured.iter().map(cell)));
    }
    if one.measured.iter().any(|own| own.failed() > 0) {
        let failed = one.measured.iter().map(|own| own.failed().to_string());
        table.add_row(std::iter::once("not served".to_owned()).chain(failed));
    }
    table
}

/// Words for some stages, and whether one of a rate is among them.
type Part = (&'static str, fn(f64) -> bool);

/// The published table and ours, both over the tuned heuristic.
fn production(one: &Compared) -> Table {
    let published = COLUMNS.iter();
    let ours = one.measured.iter().map(|own| own.policy.as_str());
    let header = ["over load-prefix-322".to_owned()]
        .into_iter()
        .chain(published.map(|name| format!("published {name}")))
        .chain(ours.map(|name| format!("{name} here")));
    let mut table = aligned(header.collect(), 1);
    let parts: [Part; 2] = [("", |_| true), (", stages of 5 rps", |rate| rate > 2.0)];
    for (part, is_wanted) in parts {
        let base = one.of(BASE).map(|base| base.production(is_wanted)).unwrap_or_default();
        let figures: Vec<_> = one.measured.iter().map(|own| own.production(is_wanted)).collect();
        for (place, Column { name, values }) in PRODUCTION.iter().enumerate() {
            let [.., over, _] = *values;
            let said = values.iter().map(|value| match part {
                "" => format!("{:.2}", value / over),
                _ => "-".to_owned(),
            });
            let here = figures.iter().map(|own| {
                let of = |figures: &[Option<f64>; 6]| figures.get(place).copied().flatten();
                of(own)
                    .zip(of(&base))
                    .map_or_else(|| "-".to_owned(), |(own, base)| format!("{:.2}", own / base))
            });
            let cells = std::iter::once(format!("{name}{part}")).chain(said).chain(here);
            table.add_row(cells);
        }
    }
    table
}

/// Curves of every ladder: two files each.
pub(super) fn plot(compared: &[Compared], folder: &Path) -> Result<()> {
    for one in compared.iter().filter(|one| matches!(one.set_up.asks, Asks::Ladder(_))) {
        let curves = |file: &str, y: &str, is_log, of: fn(&super::measure::Step) -> f64| {
            let line = |own: &Measured| {
                let rates = own.rates().into_iter().enumerate();
                let points = rates.map(|(place, rate)| (rate, own.mean(place, of))).collect();
                (own.policy.clone(), points)
            };
            let title = format!("Scenario {}: {}", one.set_up.name, one.set_up.title);
            let lines = one.measured.iter().map(line).collect();
            let name = format!("qps-{}-{file}", one.set_up.name);
            write_curves(
                folder,
                Curves {
                    name,
                    title,
                    x: "requests per second".to_owned(),
                    y: y.to_owned(),
                    is_log,
                    lines,
                },
            )
        };
        curves("ntpot", "time per output token, ms", true, |step| step.ntpot_ms)?;
        curves("tokens", "output tokens per second", false, |step| step.tokens_per_s)?;
    }
    Ok(())
}
