//! Which rules make no sense, each with the key it is about. Called once, when a configuration is
//! read; nothing after that looks at a number again.

use super::{Admission, Affinity, Filter, Mode, Picker, Rules, Scorer, UsageLimit};

const SHARE: &str = "must be from 0 to 1";
const POSITIVE: &str = "must be above 0";
const WEIGHTS: &str = "the weights must be at least 0, and one of them above it";
const CEILINGS: &str =
    "min_ceiling and max_ceiling must be from 0 to 1, and min_ceiling not above max_ceiling";

/// Keys that cannot be used, and why.
#[derive(Debug, Default)]
struct Found(Vec<(String, &'static str)>);

impl Found {
    fn require(&mut self, holds: bool, key: &str, why: &'static str) {
        if !holds {
            self.0.push((key.to_owned(), why));
        }
    }
}

fn share(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn weights(weights: &[f64]) -> bool {
    let sane = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
    sane && weights.iter().sum::<f64>() > 0.0
}

/// What cannot be used of some rules: the key under `policy` and why.
pub fn problems(rules: &Rules) -> Vec<(String, &'static str)> {
    let mut found = Found::default();
    found.require(positive(rules.slo_buffer), "slo_buffer", POSITIVE);
    admission(rules.admission, &mut found);
    for (index, filter) in rules.filters.iter().enumerate() {
        self::filter(*filter, &format!("filters[{index}]"), &mut found);
    }
    affinity(rules.affinity, &mut found);
    scorer(rules.scorer, &mut found);
    let some = !matches!(rules.picker, Picker::TopRandom { k: 0 });
    found.require(some, "picker.k", "must be at least 1");
    together(rules, &mut found);
    found.0
}

fn admission(admission: Admission, found: &mut Found) {
    match admission {
        Admission::Open => {}
        Admission::LatencySlo { cold_kv } => {
            found.require(share(cold_kv), "admission.cold_kv", SHARE);
        }
        Admission::Probabilistic { queue_depth, kv_usage, power, factor } => {
            found.require(positive(queue_depth), "admission.queue_depth", POSITIVE);
            found.require(positive(kv_usage), "admission.kv_usage", POSITIVE);
            found.require(positive(power), "admission.power", POSITIVE);
            found.require(positive(factor), "admission.factor", POSITIVE);
        }
    }
}

/// Checks a filter, which stands at `at`.
fn filter(filter: Filter, at: &str, found: &mut Found) {
    let mut require = |holds, key: &str, why| found.require(holds, &format!("{at}.{key}"), why);
    match filter {
        Filter::Headroom | Filter::Failover { .. } | Filter::Staleness { .. } => {}
        Filter::HeadroomTier { explore_negative } => {
            require(share(explore_negative), "explore_negative", SHARE);
        }
        Filter::Saturation { queue_depth, kv_usage, max_concurrency, limit, .. } => {
            require(positive(queue_depth), "queue_depth", POSITIVE);
            require(positive(kv_usage), "kv_usage", POSITIVE);
            require(max_concurrency > 0, "max_concurrency", POSITIVE);
            if let UsageLimit::PriorityHoldback { min_ceiling, max_ceiling } = limit {
                let sane = share(min_ceiling) && share(max_ceiling) && min_ceiling <= max_ceiling;
                require(sane, "limit", CEILINGS);
            }
        }
        Filter::Capacity { most } => require(positive(most), "most", POSITIVE),
        Filter::Latency {
            ttft_slo_ms,
            tpot_slo_ms,
            ttft_dispatch_threshold,
            tpot_dispatch_threshold,
        } => {
            require(positive(ttft_slo_ms), "ttft_slo_ms", POSITIVE);
            require(positive(tpot_slo_ms), "tpot_slo_ms", POSITIVE);
            require(positive(ttft_dispatch_threshold), "ttft_dispatch_threshold", POSITIVE);
            require(positive(tpot_dispatch_threshold), "tpot_dispatch_threshold", POSITIVE);
        }
    }
}

fn affinity(affinity: Affinity, found: &mut Found) {
    let Affinity::PrefixCache {
        threshold,
        exploration_probability,
        max_ttft_penalty_ms,
        peak_prefill_throughput,
        ..
    } = affinity
    else {
        return;
    };
    found.require(share(threshold), "affinity.threshold", SHARE);
    found.require(share(exploration_probability), "affinity.exploration_probability", SHARE);
    let sane = max_ttft_penalty_ms.is_finite() && max_ttft_penalty_ms >= 0.0;
    found.require(sane, "affinity.max_ttft_penalty_ms", "must be at least 0");
    let key = "affinity.peak_prefill_throughput";
    found.require(positive(peak_prefill_throughput), key, POSITIVE);
}

fn scorer(scorer: Scorer, found: &mut Found) {
    let load = match scorer {
        Scorer::Headroom {
            ttft_weight,
            tpot_weight,
            kv_weight,
            queue_weight,
            prefix_weight,
            ..
        } => {
            found.require(weights(&[ttft_weight, tpot_weight]), "scorer", WEIGHTS);
            [kv_weight, queue_weight, prefix_weight]
        }
        Scorer::LoadPrefix { kv_weight, queue_weight, prefix_weight } => {
            [kv_weight, queue_weight, prefix_weight]
        }
        _ => return,
    };
    found.require(weights(&load), "scorer", WEIGHTS);
}

/// Parts that do not go together.
fn together(rules: &Rules, found: &mut Found) {
    let later = rules.filters.iter().skip(1).any(|filter| *filter == Filter::Headroom);
    found.require(!later, "filters", "`headroom` must come first, or not at all");
    let waits = rules.affinity == Affinity::WarmWait && rules.dispatch == Mode::Push;
    found.require(
        !waits,
        "affinity",
        "`warm-wait` needs a dispatch that pulls; write `dispatch: pull`, or another affinity",
    );
}
