//! What no scheduler could beat, and what one that sees the future reaches: how far a run is from either.
//!
//! [`limits`] takes requests and pods and gives an upper bound of the requests in time, lower bounds of the mean TTFT and the
//! mean time to the end, and the share of the prompts that a cache without bounds would have. All rest on one relaxation:
//! the pods are one server as fast as all of them together, which may interrupt and spread anything, charges for a token what it
//! costs in the fullest step (`charge`), and computes a shared block once (`work`). Beside that no request is faster than
//! alone on an idle pod. Nothing is assumed of the policy: it may know everything, hold, reorder and refuse.
//!
//! - In time: work that must be done by a due time, dropped by the rule of Moore and Hodgson (`in_time`), for the prompts alone and
//!   for whole requests; the smaller of both. Requests that would be late even alone are not counted.
//! - Means: preemptive shortest remaining work, or smallest work first with half of a request's own time behind it (`flow`),
//!   or everybody alone; the largest of the three.
//!
//! The bounds hold for given arrivals. A turn of a conversation that starts when the one before it is over comes when the policy
//! lets it: [`limits`] takes only its floor, and [`limits_of`] the moments at which it came in a run. Engines whose
//! steps are noisy are taken three standard deviations faster for the requests in time, where a single lucky step could
//! decide; the means are those of engines without noise, which many steps come to.
//!
//! [`clairvoyant`] is the other end: a policy that knows every length and the state of every engine, and tries each pod before it
//! gives a request to one. It is reachable, not optimal.
//!
//! # Layout
//! - `charge`, `work`: what has to be done at least; `in_time`, `flow`, `tree`: the relaxed problems, solved
//! - `clairvoyant`: the oracle; `regret`: a run against both
//! - `args`, `table`: `weir-bench limits`; `lines`: at given loads; `highest`: the loads that are held

mod args;
mod charge;
mod clairvoyant;
mod flow;
mod highest;
mod in_time;
mod lines;
mod regret;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use weir_engine::EngineConfig;

use crate::{
    sim::{Outcome, Pool, Run, SimRequest},
    workload::Objectives,
};
use charge::{Charge, Server};
use in_time::Job;
use work::{Case, Work};

pub use args::LimitsArgs;
pub use clairvoyant::{Sight, clairvoyant};
pub(crate) use highest::bound;
pub use highest::{Highest, LIMIT, highest, oracle_attains};
pub use lines::{Line, ORACLE, compare};
pub use regret::{Regret, regret};

/// Standard deviations by which steps are taken to be shorter than they are, for the requests in time.
const LUCK: f64 = 3.0;

/// What no scheduler can beat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// All requests that are counted.
    pub all: Limit,
    /// Those of each class, as if the other classes did not come.
    pub classes: Vec<(String, Limit)>,
    /// Requests before this place are not counted: they are the warm-up.
    pub counted_from: usize,
}

/// What no scheduler can beat with some of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limit {
    /// How many there are.
    pub requests: usize,
    /// How many would be in time if each were alone.
    pub feasible: usize,
    /// At most so many are in time.
    pub in_time: usize,
    /// The mean TTFT from arrival is no less, where it is served to all.
    pub ttft_ms_mean: Option<f64>,
    /// Nor is the mean time from arrival to the last token.
    pub e2e_ms_mean: Option<f64>,
    /// At most this share of the prompt tokens is found in caches.
    pub prefix_hit: f64,
}

impl Limit {
    /// Share of the requests that can be in time.
    pub fn attainment(&self) -> f64 {
        self.in_time as f64 / self.requests.max(1) as f64
    }
}

/// The limits of requests on the pods of a pool, whatever the policy. All requests are counted.
pub fn limits(pool: &Pool, requests: &[SimRequest], objectives: &Objectives) -> Limits {
    let case =
        |asked| Case { asked, arrived_ms: ms(asked), fixed: asked.after.is_none(), counted: true };
    let cases: Vec<Case<'_>> = requests.iter().map(case).collect();
    of_cases(pool, &cases, &cases, objectives)
}

/// The limits of what a run had to serve: every request at the moment when it came in the run; the means and the hits over those that
/// the run served, since who refuses the largest has smaller ones. The first `warm_up` requests are not counted.
pub fn limits_of(
    pool: &Pool,
    requests: &[SimRequest],
    objectives: &Objectives,
    run: &Run,
    warm_up: usize,
) -> Limits {
    let both = || requests.iter().zip(&run.outcomes).enumerate();
    let case = |(place, (asked, outcome))| {
        let (arrived_ms, fixed) = match outcome {
            &Outcome::Served(served) => (served.arrived.as_micros() as f64 / 1e3, true),
            Outcome::Refused(_) | Outcome::Rejected => (ms(asked), asked.after.is_none()),
        };
        Case { asked, arrived_ms, fixed, counted: place >= warm_up }
    };
    let cases: Vec<Case<'_>> = both().map(case).collect();
    let served = both().filter(|(_, (_, outcome))| matches!(outcome, Outcome::Served(_)));
    let served: Vec<Case<'_>> = served.map(case).collect();
    Limits { counted_from: warm_up, ..of_cases(pool, &cases, &served, objectives) }
}

/// The limit of the requests of the highest band, as if no others took time; what those have left in caches is there. The first
/// `warm_up` requests are not counted.
fn limits_of_top_band(
    pool: &Pool,
    requests: &[SimRequest],
    objectives: &Objectives,
    warm_up: usize,
) -> Limit {
    let top = objectives.classes.iter().map(|class| class.band).max();
    let is_top = |class: usize| objectives.classes.get(class).map(|class| class.band) == top;
    let case = |(place, asked)| Case {
        asked,
        arrived_ms: ms(asked),
        fixed: asked.after.is_none(),
        counted: place >= warm_up && is_top(asked.class),
    };
    let cases: Vec<Case<'_>> = requests.iter().enumerate().map(case).collect();
    of_cases(pool, &cases, &[], objectives).all
}

fn ms(asked: &SimRequest) -> f64 {
    asked.request.arrived.as_micros() as f64 / 1e3
}

/// `asked` are all cases, `served` those over which means are taken.
fn of_cases(
    pool: &Pool,
    asked: &[Case<'_>],
    served: &[Case<'_>],
    objectives: &Objectives,
) -> Limits {
    let engines: Vec<&EngineConfig> = pool.pods.iter().map(|pod| &pod.engine).collect();
    let noise = engines.iter().map(|engine| engine.noise_sigma).fold(0.0, f64::max);
    let servers = (Server::of(&engines, (-LUCK * noise).exp()), Server::of(&engines, 1.0));
    let (Some(lucky), Some(server)) = servers else { return Limits::default() };
    let caches = engines.iter().find(|engine| engine.prefix_caching);
    let block_tokens = caches.map(|engine| engine.block_size.max(1));
    let (asked, served) = (sorted(asked), sorted(served));
    let (asked_work, served_work) =
        (work::work(&asked, block_tokens), work::work(&served, block_tokens));
    let one = |class: Option<usize>| {
        let of_class = |case: &Case<'_>| class.is_none_or(|class| case.asked.class == class);
        let all = Part::of(&asked, &asked_work, of_class);
        let means = Part::of(&served, &served_work, of_class);
        Limit {
            requests: all.cases.len(),
            feasible: all.feasible(&lucky),
            in_time: all.in_time(&lucky),
            ttft_ms_mean: means.mean_ms(&server, &TTFT),
            e2e_ms_mean: means.mean_ms(&server, &E2E),
            prefix_hit: work::hit(&means.cases, &means.work),
        }
    };
    let named = objectives.classes.iter().enumerate();
    let classes = named.map(|(place, class)| (class.name.clone(), one(Some(place)))).collect();
    Limits { all: one(None), classes, counted_from: 0 }
}

fn sorted<'a>(cases: &[Case<'a>]) -> Vec<Case<'a>> {
    let mut cases = cases.to_vec();
    cases.sort_by(|one, other| one.arrived_ms.total_cmp(&other.arrived_ms));
    cases
}

/// Which mean is bounded: the work that counts, what a request takes alone, and what lies behind the mean moment of its work.
struct Mean {
    work_ms: fn(&Charge, &Work) -> f64,
    alone_ms: fn(&Charge, &Work) -> f64,
    tail_ms: fn(&Charge, &Work) -> f64,
}

const TTFT: Mean = Mean {
    work_ms: Charge::prefill_ms,
    alone_ms: Charge::first_token_ms,
    tail_ms: Charge::prompt_tail_ms,
};

const E2E: Mean = Mean {
    work_ms: Charge::total_ms,
    alone_ms: |charge, work| charge.first_token_ms(work) + charge.decode_ms(work),
    tail_ms: Charge::whole_tail_ms,
};

/// The counted requests of all classes, or of one, with their work.
struct Part<'a> {
    cases: Vec<Case<'a>>,
    work: Vec<Work>,
}

impl<'a> Part<'a> {
    fn of(cases: &[Case<'a>], work: &[Work], wanted: impl Fn(&Case<'a>) -> bool) -> Self {
        let both = cases.iter().zip(work).filter(|(case, _)| case.counted && wanted(case));
        let (cases, work) = both.map(|(case, work)| (*case, *work)).unzip();
        Self { cases, work }
    }

    fn both(&self) -> impl Iterator<Item = (&Case<'a>, &Work)> {
        self.cases.iter().zip(&self.work)
    }

    /// Requests that would be in time on an idle pool.
    fn feasible(&self, server: &Server) -> usize {
        self.both().filter(|(case, work)| alone_in_time(server, case, work)).count()
    }

    fn in_time(&self, server: &Server) -> usize {
        let able = || self.both().filter(|(case, work)| alone_in_time(server, case, work));
        let prompts: Vec<Job> = able().map(|(case, work)| prompt(server, case, work)).collect();
        let wholes: Vec<Job> = able().map(|(case, work)| whole(server, case, work)).collect();
        let most = in_time::most_in_time(&prompts, server.speed)
            .min(in_time::most_in_time(&wholes, server.speed));
        // A whole number of requests; rounding must not take one away.
        (most + 1e-6).floor() as usize
    }

    /// The largest of the three bounds of the sum, over the requests.
    fn mean_ms(&self, server: &Server, mean: &Mean) -> Option<f64> {
        let able = || self.both().filter(|(_, work)| server.least(work, mean.alone_ms).is_some());
        let sum = |of: fn(&Charge, &Work) -> f64, fixed: bool| -> f64 {
            let those = able().filter(|(case, _)| case.fixed == fixed);
            those.filter_map(|(_, work)| server.least(work, of)).sum()
        };
        let jobs: Vec<flow::Arrival> = able()
            .filter(|(case, _)| case.fixed)
            .map(|(case, work)| (case.arrived_ms, (mean.work_ms)(&server.unit, work)))
            .collect();
        let api_ms = server.api_ms() * jobs.len() as f64;
        let alone = sum(mean.alone_ms, true);
        let soonest = api_ms + flow::shortest_remaining(&jobs, server.speed);
        let halves = api_ms + flow::mean_busy(&jobs, server.speed) + sum(mean.tail_ms, true);
        let whole = alone.max(soonest).max(halves) + sum(mean.alone_ms, false);
        let count = able().count();
        (count > 0).then(|| whole / count as f64)
    }
}

/// The objectives of a request, in milliseconds.
fn objectives_ms(case: &Case<'_>) -> (Option<f64>, Option<f64>) {
    let ms = |objective: Option<std::time::Duration>| objective.map(|slo| slo.as_secs_f64() * 1e3);
    (ms(case.asked.request.slo.ttft), ms(case.asked.request.slo.tpot))
}

fn alone_in_time(server: &Server, case: &Case<'_>, work: &Work) -> bool {
    let (ttft_ms, tpot_ms) = objectives_ms(case);
    let within = |objective_ms: Option<f64>, of: fn(&Charge, &Work) -> f64, times: f64| {
        let least_ms = server.least(work, of);
        least_ms.is_some_and(|ms| objective_ms.is_none_or(|slo_ms| ms <= slo_ms * times))
    };
    within(ttft_ms, Charge::first_token_ms, 1.0)
        && within(tpot_ms, Charge::decode_ms, work.decodes())
}

/// The prompt, due by the TTFT objective. What nothing is known of when it comes takes no room.
fn prompt(server: &Server, case: &Case<'_>, work: &Work) -> Job {
    let (ttft_ms, _) = objectives_ms(case);
    job(server, case, server.unit.prefill_ms(work), ttft_ms)
}

/// The whole request where both objectives say when it is due at the latest, otherwise its prompt.
fn whole(server: &Server, case: &Case<'_>, work: &Work) -> Job {
    match objectives_ms(case) {
        (Some(ttft_ms), Some(tpot_ms)) => {
            let due_ms = ttft_ms + tpot_ms * work.decodes();
            job(server, case, server.unit.total_ms(work), Some(due_ms))
        }
        _ => prompt(server, case, work),
    }
}

fn job(server: &Server, case: &Case<'_>, work_ms: f64, due_ms: Option<f64>) -> Job {
    let release_ms = case.arrived_ms + server.api_ms();
    match due_ms.filter(|_| case.fixed) {
        Some(due_ms) => Job { release_ms, due_ms: case.arrived_ms + due_ms, work_ms },
        None => Job { release_ms, due_ms: f64::INFINITY, work_ms: 0.0 },
    }
}
