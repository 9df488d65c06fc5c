//! Rivals that are rules of Weir's scheduler, each with the bounds on waiting that its source has.
//!
//! - `jspt`: join the shortest predicted TTFT; what predicted-latency routing is without objectives
//! - `pl-least`, `pl-most`: llm-d's predicted-latency scheduling with the best score always taken, packing or spreading. The
//!   preset `predicted-latency` draws in proportion to the score
//! - `aibrix-pull`: AIBrix as its code is (seed 002): a pod pulls while its profiled capacity lasts, the pattern with the least
//!   slack first, whatever fits passes what does not, nobody is demoted or refused, and there are no priorities
//! - `pattern-pull`: the preset, which holds the line behind a head and demotes
//!
//! The last two rest on profiles of the pool ([`super::profiled`]) under the tightest objective of the traffic. AIBrix draws a
//! length at random from its history whenever it needs one; here it is the median, once.

use std::time::Duration;

use weir_core::{
    Band, Bounds, Policy, Rules, Scheduler, SchedulerConfig,
    policy::{Hopeless, Mode, Picker, Scorer, Strategy},
};
use weir_schema::Target;

use super::{Contender, informed::Informed, profiled};
use crate::sim::Pool;

/// Nobody is refused for having to wait, and nobody for having waited.
fn unbounded() -> Bounds {
    let forever = Duration::from_secs(u64::from(u32::MAX));
    Bounds {
        max_requests: usize::MAX,
        max_bytes: u64::MAX,
        max_predicted_wait: forever,
        max_wait: forever,
        max_wait_late: forever,
        ..Bounds::default()
    }
}

/// The rules of `jspt`.
fn jspt() -> Rules {
    Rules { scorer: Scorer::LowestLatency { target: Target::Ttft }, ..Policy::LeastRequest.rules() }
}

/// llm-d's predicted latency, the best score always taken.
fn predicted(strategy: Strategy) -> Rules {
    let mut rules = Policy::PredictedLatency.rules();
    if let Scorer::Headroom { strategy: said, .. } = &mut rules.scorer {
        *said = strategy;
    }
    Rules { picker: Picker::Best, ..rules }
}

/// AIBrix's own reading of its RFC.
fn aibrix() -> Rules {
    Rules { dispatch: Mode::PullBackfill, hopeless: Hopeless::Serve, ..Policy::PatternPull.rules() }
}

/// The contender of a name, if it is one of these.
pub(super) fn named(name: &str) -> Option<Contender> {
    let pushed = |rules: Rules| {
        Some(Contender::scheduler(name, move |config| config.rules = Some(rules.clone())))
    };
    match name {
        "jspt" => pushed(jspt()),
        "pl-least" => pushed(predicted(Strategy::Least)),
        "pl-most" => pushed(predicted(Strategy::Most)),
        "aibrix-pull" => Some(profiled(name, true, |config| {
            config.rules = Some(aibrix());
            config.bounds = unbounded();
        })),
        "pattern-pull" => Some(profiled(name, false, |config| config.policy = Policy::PatternPull)),
        _ => None,
    }
}

/// A scheduler with profiles of the pool under the tightest objective of the traffic.
fn profiled(name: &str, one_band: bool, change: fn(&mut SchedulerConfig)) -> Contender {
    Contender::new(name, move |pool: &Pool, predictor, seed| {
        let mut config = super::configured(pool, seed, &change);
        let pool = pool.clone();
        Informed::by(move |requests| {
            config.profiles = profiled::of(&pool, profiled::tightest_tpot_ms(requests));
            let tell = move |request: &mut weir_core::Request| {
                if one_band {
                    request.band = Band::default();
                }
            };
            (Scheduler::new(config, predictor), Box::new(tell))
        })
    })
}

#[cfg(test)]
mod tests {
    use weir_core::policy::{Filter, Order, Placement, check};

    use super::{
        super::posed::{self, Posed},
        *,
    };

    #[test]
    fn the_rules_of_every_rival_make_sense() {
        for rules in [jspt(), predicted(Strategy::Most), predicted(Strategy::Least), aibrix()] {
            assert_eq!(check::problems(&rules), [], "{rules:?}");
        }
    }

    /// AIBrix, slo_queue.go: "sort heads by their most relaxed rank descending, try each head in turn (BACKFILL: if a head does
    /// not fit, the next head is tried)"; rank = waited + expected - target. Issue 642: "only pulls from the global queue if the
    /// instance side has spare capacity", "a least-load routing strategy is sufficient". "There is no code that rejects on
    /// elapsed time (rank only orders)".
    #[test]
    fn aibrix_pulls_by_slack_backfills_and_rejects_nobody() {
        let rules = aibrix();
        assert_eq!((rules.order, rules.dispatch), (Order::Slack, Mode::PullBackfill));
        assert_eq!(rules.filters, [Filter::Capacity { most: 1.0 }]);
        assert_eq!(rules.scorer, Scorer::PatternLoad { placement: Placement::LeastLoad });
        assert_eq!(rules.hopeless, Hopeless::Serve);
        assert!(unbounded().max_wait > Duration::from_secs(1 << 31));
    }

    /// Issue 642: "Capacity(P) = Pending requests(P)"; "the profile indicates that adding more requests will break the stable
    /// status".
    #[test]
    fn a_pod_pulls_as_many_requests_of_a_pattern_as_its_capacity() {
        let profiles = profiled::of(&posed::pool(1), 50.0);
        let config = SchedulerConfig { profiles, ..SchedulerConfig::default() };
        // Before anything was seen an answer is expected to have 256 tokens.
        let capacity = (1.0 / config.load(0, 1024, 256).unwrap()) as usize;
        let mut posed = Posed::named("aibrix-pull", 1);
        let sent = (0..400).filter(|id| posed.arrives(*id, 1024).is_some()).count();
        assert_eq!(sent, capacity, "of 400");
    }

    #[test]
    fn what_fits_passes_what_does_not_in_aibrix_and_not_under_the_preset() {
        for (name, passes) in [("aibrix-pull", true), ("pattern-pull", false)] {
            let mut posed = Posed::named(name, 1);
            assert_eq!(posed.arrives(0, 20_000), Some(0));
            let full = (1..400).find(|id| posed.arrives(*id, 20_000).is_none());
            assert!(full.is_some(), "{name}");
            assert_eq!(posed.arrives(1000, 100).is_some(), passes, "{name}");
        }
    }

    /// Seed 003: "it routes to the server with the least positive headroom"; llm-d latency-scorer: headroomSelectionStrategy
    /// least, weights .8 and .2.
    #[test]
    fn predicted_latency_packs_or_spreads_and_always_takes_the_best() {
        for strategy in [Strategy::Least, Strategy::Most] {
            let rules = predicted(strategy);
            let Scorer::Headroom { strategy: said, ttft_weight, tpot_weight, .. } = rules.scorer
            else {
                panic!("{:?}", rules.scorer)
            };
            assert_eq!((said, ttft_weight, tpot_weight), (strategy, 0.8, 0.2));
            assert_eq!((rules.picker, rules.dispatch), (Picker::Best, Mode::Push));
        }
    }

    /// Seed 003: "if no SLOs are provided, it simply prefers servers with lower predicted latencies".
    #[test]
    fn jspt_pushes_to_the_lowest_predicted_ttft() {
        let rules = jspt();
        assert_eq!(rules.scorer, Scorer::LowestLatency { target: Target::Ttft });
        assert_eq!((rules.dispatch, rules.filters.len()), (Mode::Push, 0));
    }
}
