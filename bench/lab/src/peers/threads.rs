//! Weir by itself with one data-plane thread and with more: what a second one brings, and how much of the CPU time is the
//! scheduler's, which one thread at a time can be in.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::{
    cost::Family,
    figures::Spread,
    load::{CLOSED, Crew},
    peer::Peer,
    play::{Plan, Running},
    pod::Pods,
};
use crate::http_get;

/// The counter of the time that threads have been in the scheduler.
const BUSY: &str = "weir_scheduler_busy_seconds_total";
/// The names of the data plane's threads begin so.
const DATA: &str = "weir-data-";

/// One closed loop through Weir with some number of threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    threads: usize,
    /// What was measured, in the order of [`COLUMNS`].
    values: [f64; 4],
}

/// Name, heading and decimals of what is measured. Shares are of the process's CPU time.
const COLUMNS: [(&str, &str, usize); 4] = [
    ("requests_per_s", "req/s", 0),
    ("cpu_us_per_request", "CPU us/req", 1),
    ("data_threads_share", "data threads' share", 2),
    ("scheduler_share", "scheduler's share", 2),
];

/// CPU time of the process and of its data plane, and the time that was spent in the scheduler.
struct Spent {
    all: Duration,
    data: Duration,
    scheduler: Duration,
}

impl Plan {
    /// Measures Weir with each number of threads in turn, round after round.
    pub(super) async fn by_threads(&self, pods: &Pods, request: &Bytes) -> Result<Vec<Turn>> {
        let mut turns = Vec::new();
        for round in 0..self.rounds {
            eprintln!("threads, round {} of {}", round + 1, self.rounds);
            for threads in self.threads.iter().copied() {
                let cores = if threads == 1 { &self.cores } else { &self.all_cores };
                let up = self.start_on(Peer::Weir, pods, cores, threads).await?;
                turns.push(turn(&up, threads, request, self.lasts).await?);
            }
        }
        Ok(turns)
    }
}

async fn turn(up: &Running, threads: usize, request: &Bytes, lasts: Duration) -> Result<Turn> {
    let crew = Crew::gather(up.target, CLOSED, request).await?;
    let family = up.family().context("Weir has ended")?;
    let before = spent(up, &family).await?;
    let outcome = crew.closed(request, lasts).await;
    let after = spent(up, &family).await?;
    ensure!(outcome.errors == 0 && outcome.requests > 0, "{:?}", outcome.error);
    let count = outcome.requests as f64;
    let all = (after.all.saturating_sub(before.all)).as_secs_f64();
    let data = after.data.saturating_sub(before.data).as_secs_f64();
    let scheduler = after.scheduler.saturating_sub(before.scheduler).as_secs_f64();
    let values =
        [count / outcome.took.as_secs_f64(), all * 1e6 / count, data / all, scheduler / all];
    Ok(Turn { threads, values })
}

async fn spent(up: &Running, family: &Family) -> Result<Spent> {
    let text = http_get::get(up.side, "/metrics").await?;
    let scheduler = total(&text, BUSY).with_context(|| format!("Weir has no {BUSY}"))?;
    Ok(Spent { all: family.cpu()?, data: family.cpu_of(DATA)?, scheduler })
}

/// Seconds of a counter, over all its labels.
fn total(text: &str, name: &str) -> Option<Duration> {
    let values = text.lines().filter_map(|line| {
        line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    values.reduce(|sum, one| sum + one).and_then(|sum| Duration::try_from_secs_f64(sum).ok())
}

/// Numbers of threads in the order in which they came, each with the spread of what was measured.
fn rows(turns: &[Turn]) -> Vec<(usize, [Option<Spread>; 4])> {
    let mut counts: Vec<usize> = Vec::new();
    for turn in turns.iter().filter(|turn| turn.threads > 0) {
        if !counts.contains(&turn.threads) {
            counts.push(turn.threads);
        }
    }
    let row = |threads| {
        let mine = || turns.iter().filter(|turn| turn.threads == threads);
        let column = |at: usize| mine().filter_map(|turn| turn.values.get(at).copied()).collect();
        (threads, [0, 1, 2, 3].map(|at| Spread::of(column(at))))
    };
    counts.into_iter().map(row).collect()
}

pub(super) fn for_people(turns: &[Turn]) -> String {
    let mut table = Table::new();
    let titles = COLUMNS.iter().map(|(_, title, _)| *title);
    table.load_preset(presets::ASCII_MARKDOWN).set_header(["threads"].into_iter().chain(titles));
    for (threads, spreads) in rows(turns) {
        let cells = spreads.iter().zip(COLUMNS).map(|(spread, (_, _, decimals))| match spread {
            Some(Spread { median, min, max }) => {
                format!("{median:.decimals$} ({min:.decimals$} to {max:.decimals$})")
            }
            None => "-".to_owned(),
        });
        table.add_row([threads.to_string()].into_iter().chain(cells));
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("Weir by itself, closed loop at {CLOSED}, by threads of its data plane:\n{table}\n")
}

pub(super) fn for_programs(turns: &[Turn]) -> Value {
    let row = |(threads, spreads): (usize, [Option<Spread>; 4])| {
        let columns = spreads.iter().zip(COLUMNS);
        let columns = columns.map(|(spread, (name, _, _))| (name.to_owned(), json!(spread)));
        let first = ("threads".to_owned(), json!(threads));
        Value::Object(std::iter::once(first).chain(columns).collect())
    };
    rows(turns).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_the_sum_over_its_labels() {
        let text =
            "# TYPE a counter\na{model=\"x y\"} 1.5\na{model=\"z\"} 0.25\na_more{b=\"c\"} 9\n";
        assert_eq!(total(text, "a"), Some(Duration::from_millis(1750)));
        assert_eq!(total(text, "b"), None);
    }

    #[test]
    fn each_number_of_threads_has_a_row_with_its_spread() {
        let turn = |threads, per_s| Turn { threads, values: [per_s, 30.0, 0.9, 0.125] };
        let turns = [turn(1, 100.0), turn(2, 150.0), turn(1, 110.0)];
        let rows = for_programs(&turns);
        assert_eq!((&rows[0]["threads"], &rows[1]["threads"]), (&json!(1), &json!(2)));
        assert_eq!(
            rows[0]["requests_per_s"],
            json!({ "median": 105.0, "min": 100.0, "max": 110.0 })
        );
        assert_eq!(rows[1]["scheduler_share"]["median"], json!(0.125));
        let text = for_people(&turns);
        assert!(text.contains("105 (100 to 110)") && text.contains("0.12"), "{text}");
    }
}
