//! A run against what no scheduler could beat.

use std::time::Duration;

use weir_core::Slo;

use super::{Limit, Limits};
use crate::sim::{Outcome, Run, Served, SimRequest};

/// What a run made of the requests that are counted, and what it left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Regret {
    /// Requests in time.
    pub in_time: usize,
    /// Requests that the limit says might have been in time beside these.
    pub missed: usize,
    /// Mean TTFT from arrival of those served.
    pub ttft_ms_mean: Option<f64>,
    /// It as a multiple of the limit.
    pub ttft_over_limit: Option<f64>,
    /// Mean time from arrival to the last token of those served.
    pub e2e_ms_mean: Option<f64>,
    /// It as a multiple of the limit.
    pub e2e_over_limit: Option<f64>,
    /// Share of their prompt tokens found in caches.
    pub prefix_hit: f64,
    /// Share of the tokens that could have been found and were not, of all their prompt tokens.
    pub hit_missed: f64,
}

/// How far a run is from its limits, which are those of [`super::limits_of`] it. With the limits of [`super::limits`] the
/// means are compared only as long as the run served everybody.
pub fn regret(run: &Run, requests: &[SimRequest], limits: &Limits) -> Regret {
    let limit: Limit = limits.all;
    let both = requests.iter().zip(&run.outcomes).skip(limits.counted_from);
    let served: Vec<(&SimRequest, &Served)> = both
        .filter_map(|(asked, outcome)| match outcome {
            Outcome::Served(served) => Some((asked, served)),
            Outcome::Refused(_) | Outcome::Rejected => None,
        })
        .collect();
    let in_time = served.iter().filter(|(asked, one)| attains(asked.request.slo, one)).count();
    let mean = |of: fn(&Served) -> f64| {
        let sum: f64 = served.iter().map(|(_, one)| of(one)).sum();
        (!served.is_empty()).then(|| sum / served.len() as f64)
    };
    let over = |mean_ms: Option<f64>, limit_ms: Option<f64>| Some(mean_ms? / limit_ms?);
    let (ttft, e2e) = (mean(Served::ttft_from_arrival_ms), mean(|one| one.e2e_ms));
    let prompts: f64 = served.iter().map(|(asked, _)| f64::from(asked.input_tokens)).sum();
    let cached: f64 = served.iter().map(|(_, one)| f64::from(one.cached_tokens)).sum();
    let prefix_hit = if prompts > 0.0 { cached / prompts } else { 0.0 };
    Regret {
        in_time,
        missed: limit.in_time.saturating_sub(in_time),
        ttft_ms_mean: ttft,
        ttft_over_limit: over(ttft, limit.ttft_ms_mean),
        e2e_ms_mean: e2e,
        e2e_over_limit: over(e2e, limit.e2e_ms_mean),
        prefix_hit,
        hit_missed: (limit.prefix_hit - prefix_hit).max(0.0),
    }
}

/// Whether a request met both objectives; an answer of one token has no pace.
fn attains(slo: Slo, served: &Served) -> bool {
    let within = |objective: Option<Duration>, ms: Option<f64>| match (objective, ms) {
        (Some(objective), Some(ms)) => ms <= objective.as_secs_f64() * 1e3,
        _ => true,
    };
    within(slo.ttft, Some(served.ttft_from_arrival_ms())) && within(slo.tpot, served.tpot_ms)
}
