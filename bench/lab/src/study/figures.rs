//! A run as figures: per class, of the requests after the warm-up.

use weir_core::{Slo, Time};
use weir_schema::Quantiles as Stated;

use super::{
    row::Row,
    spread::{self, Quantiles},
};
use crate::{
    sim::{Outcome, Run, Served, SimRequest},
    workload::Objectives,
};

/// Share of the requests, by arrival, that are the warm-up.
const WARM_UP: f64 = 0.05;
/// Share of the requests whose prompts are the large ones.
const LARGE: f64 = 0.05;
/// Answer from which a time per token is one: see [`Row::attainment_from_16`].
const SHORT_TOKENS: u32 = 16;
/// Answer from which a time per token is compared with its prediction, as the evaluators that serve do.
const PREDICTED_TOKENS: u32 = 8;

/// The figures of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// All classes together, then each by its place.
    parts: Vec<Part>,
    jain: Option<f64>,
    idle_share: f64,
    window_s: f64,
}

/// Sums and latencies of some requests.
#[derive(Clone, Debug, Default)]
struct Part {
    requests: usize,
    attained: usize,
    attained_from_16: usize,
    attained_tokens: u64,
    ended_in_window: usize,
    refused: usize,
    rejected: usize,
    preemptions: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    ttft_ms: Vec<f64>,
    tpot_ms: Vec<f64>,
    ntpot_ms: Vec<f64>,
    e2e_ms: Vec<f64>,
    wait_ms: Vec<f64>,
    ttft_stated: Told,
    tpot_stated: Told,
    /// Prompt, whether it attained, and TTFT from arrival where it was served.
    prompts: Vec<(u32, bool, Option<f64>)>,
}

/// Predictions against what came.
#[derive(Clone, Debug, Default)]
struct Told {
    count: usize,
    errors: f64,
    covered: usize,
}

impl Told {
    fn compare(&mut self, stated: Stated, measured_ms: f64) {
        // A policy that predicts nothing states zero.
        if stated.p50 <= 0.0 || measured_ms <= 0.0 {
            return;
        }
        self.count += 1;
        self.errors += (f64::from(stated.p50) / measured_ms - 1.0).abs();
        self.covered += usize::from(measured_ms <= f64::from(stated.p90));
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.covered += other.covered;
    }

    fn per(&self, sum: f64) -> Option<f64> {
        (self.count > 0).then(|| sum / self.count as f64)
    }
}

impl Figures {
    pub(super) fn of(requests: &[SimRequest], run: &Run, objectives: &Objectives) -> Self {
        let warm_up = warm_up(requests);
        let both = || requests.iter().zip(&run.outcomes);
        let arrivals = || both().skip(warm_up).map(|(asked, outcome)| arrived(asked, outcome));
        let from = arrivals().min().unwrap_or_default();
        let to = arrivals().max().unwrap_or_default();
        let mut parts = vec![Part::default(); 1 + objectives.classes.len()];
        for (place, (asked, outcome)) in both().enumerate() {
            for part in [0, 1 + asked.class] {
                let Some(part) = parts.get_mut(part) else { continue };
                part.end(outcome, from, to);
                if place >= warm_up {
                    part.count(asked, outcome);
                }
            }
        }
        Self {
            jain: spread::jain(&shares(&parts)),
            idle_share: idle_share(run),
            window_s: to.ms_since(from) / 1000.0,
            parts,
        }
    }

    fn part(&self, part: usize) -> Option<&Part> {
        self.parts.get(part).filter(|part| part.requests > 0)
    }

    /// So many in the time in which requests came, per second; nothing where that is no time.
    fn per_s(&self, part: usize, of: fn(&Part) -> f64) -> Option<f64> {
        let count = of(self.parts.get(part)?);
        (self.window_s > 0.0).then(|| count / self.window_s)
    }
}

/// When a request really came; one that was not served, when it was planned to.
fn arrived(asked: &SimRequest, outcome: &Outcome) -> Time {
    match outcome {
        Outcome::Served(served) => served.arrived,
        Outcome::Refused(_) | Outcome::Rejected => asked.request.arrived,
    }
}

/// Attainment of each class that has requests.
fn shares(parts: &[Part]) -> Vec<f64> {
    let classes = parts.iter().skip(1).filter(|part| part.requests > 0);
    classes.map(|part| part.share(part.attained)).collect()
}

/// How many requests are the warm-up.
pub(crate) fn warm_up(requests: &[SimRequest]) -> usize {
    warm_up_of(requests.len())
}

/// How many of so many requests are.
pub(crate) fn warm_up_of(requests: usize) -> usize {
    (requests as f64 * WARM_UP).floor() as usize
}

/// The requests that a highest load is about: those of the highest band, without the warm-up.
#[derive(Clone, Debug)]
pub(crate) struct TopBand {
    warm_up: usize,
    /// Whether each class is of it.
    classes: Vec<bool>,
    /// How many there are.
    pub(super) requests: usize,
}

impl TopBand {
    pub(crate) fn of(requests: &[SimRequest], objectives: &Objectives) -> Self {
        let top = objectives.classes.iter().map(|class| class.band).max();
        let classes = objectives.classes.iter().map(|class| Some(class.band) == top).collect();
        let mut of = Self { warm_up: warm_up(requests), classes, requests: 0 };
        let counted = requests.iter().enumerate().filter(|(place, asked)| of.counts(*place, asked));
        of.requests = counted.count();
        of
    }

    fn counts(&self, place: usize, asked: &SimRequest) -> bool {
        place >= self.warm_up && self.classes.get(asked.class).is_some_and(|of_it| *of_it)
    }

    /// Whether this is one of them that missed an objective.
    pub(super) fn missed(&self, place: usize, asked: &SimRequest, outcome: &Outcome) -> bool {
        !in_time(asked, outcome) && self.counts(place, asked)
    }

    /// Share of them that met both objectives in a run.
    pub(crate) fn attained(&self, requests: &[SimRequest], run: &Run) -> f64 {
        let outcomes = requests.iter().zip(&run.outcomes).enumerate();
        let missed =
            outcomes.filter(|(place, (asked, outcome))| self.missed(*place, asked, outcome));
        1.0 - missed.count() as f64 / self.requests.max(1) as f64
    }
}

fn idle_share(run: &Run) -> f64 {
    let busy_ms: f64 = run.engines.iter().map(|engine| engine.busy_ms).sum();
    let all_ms = run.ended.ms_since(Time::ZERO) * run.engines.len() as f64;
    if all_ms > 0.0 { (1.0 - busy_ms / all_ms).max(0.0) } else { 1.0 }
}

/// Whether a request was served inside its objectives.
pub(crate) fn in_time(asked: &SimRequest, outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Served(served) if attains(asked.request.slo, served, 0))
}

/// Whether a request met its objectives; TPOT only from so many tokens on.
fn attains(slo: Slo, served: &Served, tpot_from_tokens: u32) -> bool {
    let within = |objective: Option<std::time::Duration>, ms: f64| {
        objective.is_none_or(|objective| ms <= objective.as_secs_f64() * 1000.0)
    };
    let paced = served.tpot_ms.filter(|_| served.output_tokens >= tpot_from_tokens);
    within(slo.ttft, served.ttft_from_arrival_ms()) && paced.is_none_or(|ms| within(slo.tpot, ms))
}

impl Part {
    /// Books that a request, of the warm-up or not, ended while others came.
    fn end(&mut self, outcome: &Outcome, from: Time, to: Time) {
        if let Outcome::Served(served) = outcome {
            let since_ms = served.arrived.ms_since(from) - from.ms_since(served.arrived);
            let ended_ms = since_ms + served.e2e_ms;
            let inside = ended_ms >= 0.0 && ended_ms <= to.ms_since(from);
            self.ended_in_window += usize::from(inside);
        }
    }

    fn count(&mut self, asked: &SimRequest, outcome: &Outcome) {
        self.requests += 1;
        let mut prompt = (asked.input_tokens, false, None);
        match outcome {
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Rejected => self.rejected += 1,
            Outcome::Served(served) => {
                let attained = attains(asked.request.slo, served, 0);
                self.serve(asked, served, attained);
                prompt = (asked.input_tokens, attained, Some(served.ttft_from_arrival_ms()));
            }
        }
        self.prompts.push(prompt);
    }

    fn serve(&mut self, asked: &SimRequest, served: &Served, attained: bool) {
        self.attained += usize::from(attained);
        let from_16 = attains(asked.request.slo, served, SHORT_TOKENS);
        self.attained_from_16 += usize::from(from_16);
        self.attained_tokens += if attained { u64::from(served.output_tokens) } else { 0 };
        self.preemptions += u64::from(served.preemptions);
        self.prompt_tokens += u64::from(asked.input_tokens);
        self.cached_tokens += u64::from(served.cached_tokens);
        self.ttft_ms.push(served.ttft_from_arrival_ms());
        self.tpot_ms.extend(served.tpot_ms);
        self.ntpot_ms.push(served.e2e_ms / f64::from(served.output_tokens.max(1)));
        self.e2e_ms.push(served.e2e_ms);
        self.wait_ms.push(served.wait_ms);
        self.ttft_stated.compare(served.predicted.ttft_ms, served.ttft_ms);
        if let Some(ms) = served.tpot_ms.filter(|_| served.output_tokens >= PREDICTED_TOKENS) {
            self.tpot_stated.compare(served.predicted.tpot_ms, ms);
        }
    }

    fn share(&self, count: usize) -> f64 {
        count as f64 / self.requests.max(1) as f64
    }

    /// The largest prompts of this seed, earlier ones first where they are equal.
    fn large(&self) -> Vec<(u32, bool, Option<f64>)> {
        let mut prompts = self.prompts.clone();
        prompts.sort_by_key(|(tokens, ..)| std::cmp::Reverse(*tokens));
        prompts.truncate((prompts.len() as f64 * LARGE).ceil() as usize);
        prompts
    }

    /// Adds what is told of all seeds together.
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.rejected += other.rejected;
        self.preemptions += other.preemptions;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.ttft_ms.extend(&other.ttft_ms);
        self.tpot_ms.extend(&other.tpot_ms);
        self.ntpot_ms.extend(&other.ntpot_ms);
        self.e2e_ms.extend(&other.e2e_ms);
        self.wait_ms.extend(&other.wait_ms);
        self.ttft_stated.add(&other.ttft_stated);
        self.tpot_stated.add(&other.tpot_stated);
        self.prompts.extend(other.large());
    }
}

/// The row of one part over the seeds, on a blank one; `None` when no request of it came.
pub(super) fn row(blank: &Row, seeds: &[Figures], part: usize) -> Option<Row> {
    let parts: Vec<&Part> = seeds.iter().filter_map(|seed| seed.part(part)).collect();
    let shares =
        |of: fn(&Part) -> usize| parts.iter().map(|part| part.share(of(part))).collect::<Vec<_>>();
    let attainment = shares(|part| part.attained);
    // Also of the seeds in which none of the class came: rates of the classes add up to that of all.
    let rate = |of: fn(&Part) -> f64| {
        let rates: Vec<f64> = seeds.iter().filter_map(|seed| seed.per_s(part, of)).collect();
        spread::mean(&rates).unwrap_or(f64::NAN)
    };
    let idle: Vec<f64> = seeds.iter().map(|seed| seed.idle_share).collect();
    let fairness: Vec<f64> = seeds.iter().filter_map(|seed| seed.jain).collect();
    let rated = Row {
        attainment: spread::mean(&attainment)?,
        attainment_ci: spread::half_width(&attainment),
        attainment_from_16: spread::mean(&shares(|part| part.attained_from_16))?,
        goodput_rps: rate(|part| part.attained as f64),
        goodput_tokens_per_s: rate(|part| part.attained_tokens as f64),
        throughput_rps: rate(|part| part.ended_in_window as f64),
        idle_share: spread::mean(&idle)?,
        jain: spread::mean(&fairness),
        ..blank.clone()
    };
    let mut sum = Part::default();
    parts.iter().for_each(|part| sum.add(part));
    Some(sum.timed(rated))
}

impl Part {
    /// Fills in what is told of all seeds together.
    fn timed(self, row: Row) -> Row {
        let (ttft, tpot) = (Quantiles::of(self.ttft_ms), Quantiles::of(self.tpot_ms));
        let (ntpot, e2e) = (Quantiles::of(self.ntpot_ms), Quantiles::of(self.e2e_ms));
        let wait = Quantiles::of(self.wait_ms);
        let large: Vec<f64> = self.prompts.iter().map(|(_, met, _)| f64::from(*met)).collect();
        Row {
            requests: self.requests,
            refused: self.refused,
            rejected: self.rejected,
            preemptions: self.preemptions,
            prefix_hit: self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64,
            ttft_ms_mean: ttft.mean,
            ttft_ms_p50: ttft.p50,
            ttft_ms_p95: ttft.p95,
            ttft_ms_p99: ttft.p99,
            tpot_ms_mean: tpot.mean,
            tpot_ms_p50: tpot.p50,
            tpot_ms_p95: tpot.p95,
            tpot_ms_p99: tpot.p99,
            ntpot_ms_mean: ntpot.mean,
            ntpot_ms_p50: ntpot.p50,
            ntpot_ms_p95: ntpot.p95,
            ntpot_ms_p99: ntpot.p99,
            e2e_ms_mean: e2e.mean,
            e2e_ms_p50: e2e.p50,
            e2e_ms_p95: e2e.p95,
            e2e_ms_p99: e2e.p99,
            wait_ms_p50: wait.p50,
            wait_ms_p95: wait.p95,
            wait_ms_p99: wait.p99,
            wait_ms_max: wait.max,
            mape_ttft: self.ttft_stated.per(self.ttft_stated.errors),
            mape_tpot: self.tpot_stated.per(self.tpot_stated.errors),
            coverage_ttft: self.ttft_stated.per(self.ttft_stated.covered as f64),
            coverage_tpot: self.tpot_stated.per(self.tpot_stated.covered as f64),
            attainment_large5: spread::mean(&large),
            worst_wait_ms: self.prompts.iter().filter_map(|(.., ms)| *ms).reduce(f64::max),
            ..row
        }
    }
}
