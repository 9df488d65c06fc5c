//! What was measured against what was stored.

use comfy_table::{CellAlignment, Table, presets};

use super::stored::{Measured, Stored};

/// What became of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not below what is stored by more than its interval.
    Held,
    /// Above it by more than that: time to store it.
    Better,
    /// Below it by more than that.
    Fallen,
    /// The trace is another one than the one that was stored.
    Elsewhere,
    /// Nothing is stored of it.
    Unknown,
}

/// A slice with what is stored of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged<'a> {
    pub(super) now: &'a Measured,
    pub(super) then: Option<&'a Measured>,
    pub(super) verdict: Verdict,
}

/// Each slice by what is stored.
pub(super) fn judge<'a>(measured: &'a [Measured], stored: &'a Stored) -> Vec<Judged<'a>> {
    let one = |now: &'a Measured| {
        let then = stored.slices.iter().find(|then| then.slice == now.slice);
        let verdict = match then {
            Some(then) if now.is_like(then) => compare(now, then),
            Some(then) if now.traffic != then.traffic => Verdict::Elsewhere,
            _ => Verdict::Unknown,
        };
        let then = then.filter(|then| now.is_like(then));
        Judged { now, then, verdict }
    };
    measured.iter().map(one).collect()
}

fn compare(now: &Measured, then: &Measured) -> Verdict {
    match now.ratio - then.ratio {
        change if change < -then.interval => Verdict::Fallen,
        change if change > then.interval => Verdict::Better,
        _ => Verdict::Held,
    }
}

/// The table.
pub(super) fn table(judged: &[Judged<'_>], subject: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let own = format!("{subject} rps in time");
    table.set_header([
        "slice",
        "load",
        &own,
        "best rival",
        "its rps in time",
        "ratio",
        "stored",
        "verdict",
    ]);
    for Judged { now, then, verdict } in judged {
        let with_interval = |one: &Measured| format!("{:.3} ± {:.3}", one.ratio, one.interval);
        table.add_row([
            now.slice.clone(),
            format!("{:.2}", now.load),
            format!("{:.2}", now.weir_rps),
            now.rival.clone(),
            format!("{:.2}", now.rival_rps),
            with_interval(now),
            then.map_or_else(|| "-".to_owned(), with_interval),
            match verdict {
                Verdict::Held => "held",
                Verdict::Better => "better",
                Verdict::Fallen => "FALLEN",
                Verdict::Elsewhere => "another trace, not judged",
                Verdict::Unknown => "NOT STORED",
            }
            .to_owned(),
        ]);
    }
    let numbers = table.column_iter_mut().enumerate();
    let numbers = numbers.filter(|(column, _)| ![0, 3, 7].contains(column));
    numbers.for_each(|(_, column)| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// What it comes to, and what to do about it; `left` are lines about slices that were not run.
pub(super) fn words(judged: &[Judged<'_>], subject: &str, left: &[String]) -> String {
    let mut lines = Vec::new();
    let of = |verdict| judged.iter().filter(move |one| one.verdict == verdict);
    for one in of(Verdict::Fallen) {
        let then = one.then.map_or(0.0, |then| then.ratio - then.interval);
        lines.push(format!(
            "{}: {subject} serves {:.3} times what {} does in time, and at least {then:.3} times was stored",
            one.now.slice, one.now.ratio, one.now.rival,
        ));
    }
    lines.extend(
        of(Verdict::Unknown).map(|one| format!("{}: nothing is stored of it", one.now.slice)),
    );
    if !lines.is_empty() {
        lines.push("if that is meant, store it: weir-bench guard --renew".to_owned());
    }
    if of(Verdict::Better).count() > 0 {
        lines.push(
            "some are better than stored; to hold them there: weir-bench guard --renew".to_owned(),
        );
    }
    lines.extend(left.iter().cloned());
    if judged.iter().all(|one| !matches!(one.verdict, Verdict::Fallen | Verdict::Unknown)) {
        let of_those = if left.is_empty() { "" } else { ", where it was measured" };
        lines.push(format!("weir's goodput against its best rival has not fallen{of_those}"));
    }
    lines.join("\n")
}
