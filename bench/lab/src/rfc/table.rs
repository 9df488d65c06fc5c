//! What came out, for people.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::{
    By, Cell, Check, Compared, OnEngines, Order, Placement, Ratio, Relation, Verdict,
    compare::{ORDERS, SERVED, means, order_name, placement_name, queued},
    judge::mean,
};

/// Everything that came out, as Markdown.
pub(super) fn report(compared: &[Compared], checks: &[Check], engines: &[OnEngines]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "## The RFC's four result lines\n\n{}", lines(checks));
    let mut part = |title: &str, table: &Table| {
        let _ = writeln!(text, "## {title}\n\n{table}\n");
    };
    let each = compared.iter().map(|one| Shown {
        name: &one.set_up.name,
        offered: one.offered,
        line: one.set_up.line,
        cells: one.cells.iter().filter(|cell| cell.by == By::Rfc).collect(),
        checks: checks.iter().filter(|check| check.set_up == one.set_up.name).collect(),
    });
    let each: Vec<Shown<'_>> = each.collect();
    part("Mean wait until the start, in seconds, with one queue", &waits(&each));
    part("Requests that missed their objective, in %", &violations(&each));
    part("The scheduler that serves in the same world, least-load pull", &served(compared));
    if !engines.is_empty() {
        let each = engines.iter().map(|one| Shown {
            name: &one.name,
            offered: one.offered,
            line: one.line,
            cells: one.cells.iter().collect(),
            checks: one.checks.iter().collect(),
        });
        let each: Vec<Shown<'_>> = each.collect();
        part(
            "Over engines: mean time beyond an idle pod's, in seconds, with one queue",
            &waits(&each),
        );
        part("Over engines: requests that missed their objective, in %", &violations(&each));
    }
    text
}

/// What a row shows.
struct Shown<'a> {
    name: &'a str,
    offered: f64,
    line: usize,
    cells: Vec<&'a Cell>,
    checks: Vec<&'a Check>,
}

impl Shown<'_> {
    fn cell(&self, placement: Placement, order: Order) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| (cell.placement, cell.order) == (placement, order)).copied()
    }
}

fn new<const N: usize>(header: [&str; N], left: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(header);
    let numbers = table.column_iter_mut().skip(left);
    numbers.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// The lines, as the RFC has them.
const LINES: [&str; 4] = [
    "Waits, bi-pattern, one kind of GPU: binpack < least-load pull < least-load push < random",
    "Waits, bi-pattern, two kinds of GPU: binpack = least-load pull < least-load push < random",
    "Waits, multi-pattern: binpack = least-load pull = least-load push < random",
    "Violations: queue per pattern < simple queue",
];

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "yes",
        Verdict::Not => "no",
        Verdict::Open => "open",
        Verdict::Nothing => "none",
    }
}

fn sign(says: Relation) -> &'static str {
    match says {
        Relation::Less => "<",
        Relation::Same => "=",
    }
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2} ± {:.2}", ratio.value, ratio.ci))
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// The worst of several: one that does not hold, then one that is open.
fn together<'a>(checks: impl Iterator<Item = &'a Check>) -> Verdict {
    let rank = |verdict: Verdict| match verdict {
        Verdict::Not => 3,
        Verdict::Open => 2,
        Verdict::Holds => 1,
        Verdict::Nothing => 0,
    };
    let worst = checks.map(|check| check.verdict).max_by_key(|verdict| rank(*verdict));
    worst.unwrap_or(Verdict::Nothing)
}

/// Each of the RFC's lines with where it holds and where it does not; the fourth for each way to read it.
fn lines(checks: &[Check]) -> String {
    let mut text = String::new();
    for (number, line) in (1..).zip(LINES) {
        let _ = writeln!(text, "{number}. {line}");
        let read: Vec<Option<Order>> = match number {
            4 => ORDERS.iter().skip(1).copied().map(Some).collect(),
            _ => vec![None],
        };
        for order in read {
            let of = |check: &&Check| {
                let named = order.is_none_or(|order| {
                    check.these.starts_with(&format!("{} (", order_name(order)))
                });
                check.line == number && named
            };
            let of: Vec<&Check> = checks.iter().filter(of).collect();
            let read_as =
                order.map_or_else(String::new, |order| format!("{}: ", order_name(order)));
            let _ = writeln!(text, "   - {read_as}{}", summary(&of));
        }
    }
    text
}

/// Where some checks hold, where they do not, and where nobody can tell.
fn summary(checks: &[&Check]) -> String {
    let mut set_ups: Vec<&str> = checks.iter().map(|check| check.set_up.as_str()).collect();
    set_ups.dedup();
    set_ups.sort_unstable();
    set_ups.dedup();
    let verdict =
        |set_up: &str| together(checks.iter().copied().filter(|check| check.set_up == set_up));
    let decided = set_ups.iter().filter(|set_up| verdict(set_up) != Verdict::Nothing).count();
    let held = set_ups.iter().filter(|set_up| verdict(set_up) == Verdict::Holds).count();
    let mut text = format!("holds in {held} of {decided}");
    for (wanted, said) in [(Verdict::Not, "not"), (Verdict::Open, "cannot be told")] {
        let these = set_ups.iter().filter(|set_up| verdict(set_up) == wanted);
        let each: Vec<String> = these
            .map(|set_up| {
                let here = checks
                    .iter()
                    .filter(|check| check.set_up == **set_up && check.verdict == wanted);
                let why: Vec<String> = here.map(|check| why(check)).collect();
                format!("{set_up} ({})", why.join(", "))
            })
            .collect();
        if !each.is_empty() {
            let _ = write!(text, "; {said}: {}", each.join("; "));
        }
    }
    text
}

fn why(check: &Check) -> String {
    let placed = check.those.split_once('(').map(|(_, placed)| placed.trim_end_matches(')'));
    match placed {
        Some(placed) => format!("{placed} {}", ratio(check.ratio)),
        None => {
            format!("{} {} {}: {}", check.these, sign(check.says), check.those, ratio(check.ratio))
        }
    }
}

fn waits(shown: &[Shown<'_>]) -> Table {
    let mut table = new(
        [
            "set-up",
            "offered %",
            "binpack",
            "pull",
            "push",
            "random",
            "binpack / pull",
            "pull / push",
            "push / random",
            "line",
            "holds",
        ],
        1,
    );
    let placements =
        [Placement::BinpackPull, Placement::LeastPull, Placement::LeastPush, Placement::Random];
    for one in shown {
        let wait = |placement: Placement| {
            let cell = one.cell(placement, Order::Simple);
            cell.map_or_else(String::new, |cell| format!("{:.3}", mean(&cell.wait_s)))
        };
        let here = || one.checks.iter().copied().filter(|check| check.line < 4);
        let each = here().map(|check| {
            format!("{}, {} {}", ratio(check.ratio), sign(check.says), word(check.verdict))
        });
        let mut row = vec![one.name.to_owned(), format!("{:.1}", one.offered * 100.0)];
        row.extend(placements.map(wait));
        row.extend(each);
        row.extend([one.line.to_string(), word(together(here())).to_owned()]);
        table.add_row(row);
    }
    table
}

fn violations(shown: &[Shown<'_>]) -> Table {
    let mut table = new(
        [
            "set-up",
            "placement",
            "simple",
            "backfill",
            "strict",
            "reserve",
            "strict, demote",
            "reserve, demote",
            "backfill / simple",
            "strict / simple",
            "strict, demote / simple",
        ],
        2,
    );
    for one in shown {
        for placement in
            [Placement::Random, Placement::LeastPush, Placement::LeastPull, Placement::BinpackPull]
        {
            let missed = |order: Order| {
                let cell = one.cell(placement, order);
                cell.map_or_else(|| "-".to_owned(), |cell| percent(mean(&cell.violations)))
            };
            let against = |order: Order| {
                let named = queued(placement, order);
                let check = one.checks.iter().find(|check| check.these == named);
                check.map_or_else(String::new, |check| {
                    format!("{}, {}", ratio(check.ratio), word(check.verdict))
                })
            };
            let mut row = vec![one.name.to_owned(), placement_name(placement).to_owned()];
            row.extend(ORDERS.map(missed));
            let told = [1, 2, 4].into_iter().filter_map(|place| ORDERS.get(place).copied());
            row.extend(told.map(against));
            table.add_row(row);
        }
    }
    table
}

fn served(compared: &[Compared]) -> Table {
    let mut table = new(
        [
            "set-up",
            "queue",
            "wait s, RFC's policy",
            "wait s, weir",
            "missed %, RFC's policy",
            "missed %, weir",
        ],
        2,
    );
    for one in compared {
        for order in SERVED {
            let cell = |by| one.cell(by, Placement::LeastPull, order).map(means);
            let (Some(rfc), Some(weir)) = (cell(By::Rfc), cell(By::Weir)) else { continue };
            table.add_row([
                one.set_up.name.clone(),
                order_name(order).to_owned(),
                format!("{:.3}", rfc.0),
                format!("{:.3}", weir.0),
                percent(rfc.1),
                percent(weir.1),
            ]);
        }
    }
    table
}
