//! Everything that is told.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{
    beside_top_band,
    chunk::{RULE_SHARE, Sweep},
    of_top_band,
    pods::{Held, Needed},
    top_band,
    traffic::{HOUR_S, Looked},
};
use crate::{
    report::{asked, attained},
    study::{Row, Setting, least_span_s, told, too_short},
    workload::{Means, Objectives},
};

/// Loads of the curve, as shares of the highest one.
pub(super) const CURVE: [f64; 8] = [0.5, 0.7, 0.85, 1.0, 1.1, 1.2, 1.35, 1.5];

/// Of fewer requests, and of a part that is shorter, the busiest part of the traffic is chance.
const LEAST_REQUESTS: usize = 20;
const LEAST_PART_S: f64 = 1.0;

/// What is said of the pods where nobody knows the traffic's rate.
const NO_TIMES: &str = "The trace has no times, so it has no rate of its own, and how many pods it takes is not known: \
     divide the rate that is to be served by that per pod, or record when requests came.";

/// The advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Advice {
    /// Name of the traffic.
    pub workload: String,
    /// Mean prompt tokens, output tokens, and the shared part of the prompts.
    pub means: [f64; 3],
    /// Requests per second of the traffic itself; `None` where the trace has no times.
    pub own_rps: Option<f64>,
    /// Name of the objectives.
    pub mix: String,
    /// Share of the requests of the highest band that is to meet them.
    pub at: f64,
    /// What the pods are.
    pub gpu: String,
    /// How many the sweep and the curve are of.
    pub pods: usize,
    /// Who gives requests to them.
    pub policy: String,
    /// The chunk to set, in tokens.
    pub chunk_tokens: u32,
    /// The rate that the pods sustain with it, in requests per second.
    pub sustainable_rps: f64,
    /// Whether a higher one was tried that they do not: false where the search ended before one was.
    pub bounded: bool,
    /// Every chunk that was tried.
    pub sweep: Sweep,
    /// The pods that the traffic's own rate takes with that chunk; `None` where it has none.
    pub needed: Option<Needed>,
    /// Figures around the highest load with that chunk.
    pub curve: Vec<Point>,
    /// Of which classes the figures are, where there are several, for people.
    #[serde(skip)]
    whose: Option<String>,
    /// What is to be known of it, for people.
    #[serde(skip)]
    warnings: Vec<String>,
}

/// A point of the curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    /// Requests per second.
    pub rps: f64,
    /// Attainment of the classes of the highest band.
    pub attainment: f64,
    /// All figures of all classes together.
    pub row: Row,
    /// The same of the class of the highest band alone; where that band has several, of all classes too.
    pub top_row: Row,
}

impl Advice {
    pub(super) fn new(
        setting: &Setting,
        policy: &str,
        (own_rps, at): (Option<f64>, f64),
        sweep: Sweep,
        needed: Option<Needed>,
        curve: &[Vec<Row>],
    ) -> Self {
        let Means { input_tokens, output_tokens, hit } = setting.source.means();
        let capacity_rps = setting.capacity_rps();
        let point = |rows: &Vec<Row>| {
            let row = rows.first().cloned().unwrap_or_default();
            let rps = row.load.unwrap_or_default() * capacity_rps;
            let objectives = &setting.objectives;
            let attainment = of_top_band(rows, objectives);
            Point { rps, attainment, row, top_row: beside_top_band(rows, objectives) }
        };
        let best = sweep.best();
        let least = sweep.tried.iter().map(|one| one.least_requests).max().unwrap_or_default();
        let of = format!("the highest load of {policy}");
        let short = (least > setting.requests).then(|| too_short(setting, &of, least));
        let of_needed = needed.as_ref().and_then(|needed| of_needed(setting, needed));
        let warnings = short.into_iter().chain(of_needed).collect();
        Self {
            workload: setting.source.name().to_owned(),
            means: [input_tokens, output_tokens, hit],
            own_rps,
            mix: setting.mix.clone(),
            at,
            gpu: setting.gpu.clone(),
            pods: setting.pool.pods.len(),
            policy: policy.to_owned(),
            chunk_tokens: best.map_or(0, |best| best.chunk_tokens),
            sustainable_rps: best.map_or(0.0, |best| best.rps),
            bounded: best.is_none_or(|best| best.row.bounded),
            curve: curve.iter().map(point).collect(),
            sweep,
            needed,
            whose: whose_figures(&setting.objectives),
            warnings,
        }
    }

    pub(super) fn for_people(&self) -> String {
        let mut text = String::new();
        let [input, output, hit] = self.means;
        let _ = writeln!(
            text,
            "{}: {}, {input:.0} tokens in, {output:.0} out, {:.0} % of the prompts shared. {} pods of {}, objectives {}, policy {}.",
            self.workload,
            self.own_rps.map_or("no times".to_owned(), |rps| format!("{} requests/s", rate(rps))),
            hit * 100.0,
            self.pods,
            self.gpu,
            self.mix,
            self.policy,
        );
        if let Some(whose) = &self.whose {
            let _ = writeln!(text, "{whose}");
        }
        let _ = writeln!(text, "\n{}\n", self.chunks());
        self.warnings.iter().for_each(|warning| {
            let _ = writeln!(text, "{warning}");
        });
        let _ = writeln!(text, "{}", self.verdict());
        match (&self.needed, self.own_rps) {
            (Some(needed), Some(own_rps)) => {
                let _ = writeln!(text, "{}", self.pods_needed(needed, own_rps));
                let _ = writeln!(text, "{}", looked_at(&needed.looked, own_rps));
            }
            _ => {
                let _ = writeln!(text, "{NO_TIMES}");
            }
        }
        let _ = write!(text, "\nWith a chunk of {}:\n{}", self.chunk_tokens, self.points());
        text
    }

    fn verdict(&self) -> String {
        let promise = asked(self.at);
        if self.sustainable_rps <= 0.0 {
            return format!("No chunk keeps {promise} at any load that was tried.");
        }
        let rule = match self.sweep.by_rule {
            Some(chunk) => format!("the rule of thumb says {chunk}"),
            None => "the rule of thumb allows none of these".to_owned(),
        };
        format!(
            "Set the engines' chunk (vLLM: --max-num-batched-tokens) to {}: {} requests/s at {promise}, {} per pod; \
             {rule} (a full step of at most {:.0} % of the tightest TPOT objective).",
            self.chunk_tokens,
            sustained(self.sustainable_rps, self.bounded),
            sustained(self.sustainable_rps / self.pods.max(1) as f64, self.bounded),
            RULE_SHARE * 100.0,
        )
    }

    fn pods_needed(&self, needed: &Needed, own_rps: f64) -> String {
        let each = |held: &Held| format!("{}: {}", held.pods, attained(held.attainment, self.at));
        let tried: Vec<String> = needed.tried.iter().map(each).collect();
        let tried = tried.join(", ");
        match needed.pods {
            Some(pods) => format!(
                "The traffic's own {} requests/s take {pods} pod{} (attained with {tried}).",
                rate(own_rps),
                if pods == 1 { "" } else { "s" }
            ),
            None => format!(
                "No number of pods that was tried keeps the promise at the traffic's own {} requests/s (attained with {tried}).",
                rate(own_rps)
            ),
        }
    }

    fn chunks(&self) -> Table {
        let header = [
            "chunk",
            "full step ms",
            "load",
            "requests/s",
            "per pod",
            "TTFT p95 ms",
            "TPOT p95 ms",
            "",
        ];
        let mut table = table(&header);
        for one in &self.sweep.tried {
            let best = one.chunk_tokens == self.chunk_tokens && one.rps > 0.0;
            let mark = if best { "best" } else { "" };
            table.add_row([
                one.chunk_tokens.to_string(),
                format!("{:.0}", one.full_step_ms),
                told(one.max_load, one.row.bounded),
                sustained(one.rps, one.row.bounded),
                sustained(one.rps / self.pods.max(1) as f64, one.row.bounded),
                ms(one.top_row.ttft_ms_p95, 0),
                ms(one.top_row.tpot_ms_p95, 1),
                mark.to_owned(),
            ]);
        }
        table
    }

    fn points(&self) -> Table {
        let header = [
            "requests/s",
            "load",
            "attained",
            "goodput rps",
            "TTFT p50/p95 ms",
            "TPOT p50/p95 ms",
            "refused",
        ];
        let mut table = table(&header);
        for point in &self.curve {
            let (row, top) = (&point.row, &point.top_row);
            table.add_row([
                format!("{:.2}", point.rps),
                format!("{:.2}", row.load.unwrap_or_default()),
                attained(point.attainment, self.at),
                format!("{:.2}", row.goodput_rps),
                format!("{} / {}", ms(top.ttft_ms_p50, 0), ms(top.ttft_ms_p95, 0)),
                format!("{} / {}", ms(top.tpot_ms_p50, 1), ms(top.tpot_ms_p95, 1)),
                row.refused.to_string(),
            ]);
        }
        table
    }
}

/// What is to be known of the pods that the traffic takes: of traffic that is too short nothing makes a run long enough.
fn of_needed(setting: &Setting, needed: &Needed) -> Option<String> {
    let Looked { requests, requests_per_run, least_requests, .. } = needed.looked;
    if needed.tried.iter().any(|held| held.row.too_short) {
        let setting = Setting { requests: requests_per_run, ..setting.clone() };
        return Some(too_short(&setting, "the traffic's own rate", least_requests));
    }
    (least_requests > requests).then(|| {
        format!(
            "warning: the traffic is {requests} requests, which come in less than {:.0} s, three times the longest that one may \
             take, to its first token and for a mean answer. It was gone through again and again; peaks that it does not have \
             are in no figure. Record more of it",
            least_span_s(setting),
        )
    })
}

/// How much of the traffic was looked at, and how busy its busiest part is.
fn looked_at(looked: &Looked, own_rps: f64) -> String {
    let Looked { requests, requests_per_run, runs, share, .. } = looked;
    let times = if *runs == 1 { "a run".to_owned() } else { format!("{runs} runs") };
    let how = if *share < 1.0 {
        format!(
            "{:.0} % of its {requests} requests, in {runs} stretches of {requests_per_run}, the busiest one among them",
            share * 100.0
        )
    } else {
        format!("all of its {requests} requests, in {times} of {requests_per_run} with the warm-up")
    };
    format!("That is from {how}.{}", busiest(looked, own_rps))
}

/// How busy the busiest part of the traffic is, and nothing where that would be chance.
fn busiest(looked: &Looked, own_rps: f64) -> String {
    let Looked { requests, busiest_s, busiest_rps, .. } = *looked;
    if requests < LEAST_REQUESTS || busiest_s < LEAST_PART_S {
        return String::new();
    }
    let part =
        if busiest_s == HOUR_S { "hour".to_owned() } else { format!("tenth, {busiest_s:.0} s,") };
    let times = busiest_rps / own_rps;
    format!(" The busiest {part} has {} requests/s, {times:.2} times the mean.", rate(busiest_rps))
}

/// Of which classes the figures are, where they are not all of the same ones.
fn whose_figures(objectives: &Objectives) -> Option<String> {
    let top = top_band(objectives);
    (top.len() < objectives.classes.len()).then(|| match top[..] {
        [only] => format!(
            "Attained, TTFT and TPOT are of {only}, the class of the highest band; goodput and refused are of all classes."
        ),
        _ => format!(
            "Attained is of the highest band, which is {}; all other figures are of all classes.",
            top.join(", ")
        ),
    })
}

/// A rate at the highest load: where the search ended before a load failed, pods sustain that and maybe more.
fn sustained(rps: f64, bounded: bool) -> String {
    format!("{}{rps:.2}", if bounded { "" } else { "at least " })
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Requests per second, with two digits that count.
fn rate(rps: f64) -> String {
    let digits = if rps > 0.0 && rps < 0.1 { (1.0 - rps.log10().floor()) as usize } else { 2 };
    format!("{rps:.digits$}")
}

fn ms(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests;
