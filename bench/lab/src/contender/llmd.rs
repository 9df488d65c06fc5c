//! `llmd-fc` and `llmd-composite`: llm-d's router with what it has by default; `llmd-fc-lora` and `llmd-lora`: with its LoRA
//! affinity scorer too.
//!
//! The scorers look at the last scrape and at nothing else of a pod's load: queue depth spread over 0 to 1 between the pods,
//! free KV cache, and the share of the prompt that was sent there before, weighted 2, 2 and 3; the best pod is taken, equals by
//! chance. `llmd-composite` pushes by them. `llmd-fc` has flow control with slo-deadline order in front: strict bands, the
//! earliest deadline first, and nobody goes while the pool is saturated, which is while the mean over the pods of the larger of
//! queue / 5 and KV use / .8 is 1 or more. One request goes per cycle; there is a cycle every millisecond and one per arrival.
//! Who has waited a minute is refused, and so is a newcomer that finds 5,000 of its band waiting.
//!
//! The LoRA affinity scorer, of weight 1 beside the others, gives a pod 1 where the adapter runs by the last scrape, .8 where
//! those that run or wait are fewer than it runs at once, .6 where it waits, and else 0, as it has who asks for no adapter
//! (`lora_affinity.go`). Of a pod that has had no request for an adapter nothing is known, and its score is 0.
//!
//! The presets `flow-control` and `load-prefix-322` are the same rules on Weir's ledger, which sees what was sent since the last
//! scrape. Between two scrapes llm-d sends everything to the pod that looked best, and its gate stays open.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use weir_core::{Request, Scrape, TICK, Time, policy::Dice};

use super::desk::{self, Decide, Desk, Post, Rank};
use crate::sim::LoraScrape;

/// Queued prompts at which a pod is full.
const QUEUE_DEPTH: f64 = 5.0;
/// Share of the KV cache at which it is.
const KV_USAGE: f64 = 0.8;
/// Longest wait (`defaultRequestTTL`).
const TTL: Duration = Duration::from_secs(60);
/// Most that wait in one band (`maxRequests`).
const MOST_WAITING: usize = 5000;
/// Weights of prefix, queue and KV cache.
const WEIGHTS: [f64; 3] = [3.0, 2.0, 2.0];

/// Weight of the LoRA affinity where it counts.
const LORA_WEIGHT: f64 = 1.0;

/// The router.
#[derive(Clone, Debug)]
pub(super) struct Router {
    gate: Option<Gate>,
    /// Weight of the LoRA affinity scorer.
    lora_weight: f64,
    dice: Dice,
}

/// Flow control: cycles that are left at this moment.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    cycles: f64,
    at: Time,
}

impl Router {
    /// With flow control.
    pub(super) fn gated(seed: u64) -> Self {
        Self { gate: Some(Gate::default()), ..Self::open(seed) }
    }

    /// Without.
    pub(super) const fn open(seed: u64) -> Self {
        Self { gate: None, lora_weight: 0.0, dice: Dice::new(seed) }
    }

    /// With the LoRA affinity scorer.
    pub(super) const fn with_loras(self) -> Self {
        Self { lora_weight: LORA_WEIGHT, ..self }
    }

    fn best(&mut self, head: &Request, desk: &Desk) -> Option<usize> {
        let mut scores = scores(head, &desk.posts);
        if self.lora_weight > 0.0 {
            for (score, post) in scores.iter_mut().zip(&desk.posts) {
                *score += self.lora_weight * lora_affinity(head, &post.adapters);
            }
        }
        let best = scores.iter().copied().reduce(f64::max)?;
        let equals: Vec<usize> =
            (0..scores.len()).filter(|place| scores.get(*place) == Some(&best)).collect();
        equals.get(self.dice.below(equals.len())).copied()
    }
}

impl Gate {
    /// Adds the cycles since the last look, which was no longer ago than a tick while anything waited.
    fn turn(&mut self, now: Time) {
        self.cycles = (self.cycles + now.ms_since(self.at)).min(TICK.as_secs_f64() * 1e3);
        self.at = now;
    }
}

/// Mean over the pods of the larger of queue and KV use, each over its threshold.
fn saturation(posts: &[Post]) -> f64 {
    let of = |scrape: &Scrape| {
        (f64::from(scrape.waiting) / QUEUE_DEPTH).max(f64::from(scrape.kv_usage) / KV_USAGE)
    };
    let sum: f64 = posts.iter().map(|post| of(&post.scrape)).sum();
    if posts.is_empty() { 1.0 } else { sum / posts.len() as f64 }
}

fn scores(head: &Request, posts: &[Post]) -> Vec<f64> {
    let queues = || posts.iter().map(|post| post.scrape.waiting);
    let (longest, shortest) = (queues().max().unwrap_or(0), queues().min().unwrap_or(0));
    let [prefix_weight, queue_weight, kv_weight] = WEIGHTS;
    let score = |post: &Post| {
        let blocks = head.blocks.len().max(1) as f64;
        let prompt_blocks = f64::from(desk::input_tokens(head)) / desk::BLOCK_TOKENS as f64;
        let known = post.index.matched(&head.blocks) as f64 / prompt_blocks.max(blocks);
        let queue = if longest == shortest {
            1.0
        } else {
            f64::from(longest - post.scrape.waiting) / f64::from(longest - shortest)
        };
        let kv = 1.0 - f64::from(post.scrape.kv_usage);
        prefix_weight * known + queue_weight * queue + kv_weight * kv
    };
    posts.iter().map(score).collect()
}

fn lora_affinity(head: &Request, told: &LoraScrape) -> f64 {
    let is_in = |list: &[Arc<str>]| head.adapter.as_ref().is_some_and(|one| list.contains(one));
    let more = told.waiting.iter().filter(|one| !told.running.contains(one));
    if is_in(&told.running) {
        1.0
    } else if told.running.len() + more.count() < told.most as usize {
        0.8
    } else if is_in(&told.waiting) {
        0.6
    } else {
        0.0
    }
}

impl Decide for Router {
    fn place(&mut self, now: Time, head: &Request, desk: &Desk) -> Option<usize> {
        if let Some(gate) = &mut self.gate {
            gate.turn(now);
            if saturation(&desk.posts) >= 1.0 {
                // Every cycle until now found the pool full.
                gate.cycles = 0.0;
            }
            if gate.cycles < 1.0 {
                return None;
            }
            gate.cycles -= 1.0;
        }
        self.best(head, desk)
    }

    fn rank(&self, request: &Request) -> Rank {
        if self.gate.is_none() {
            return (Reverse(weir_core::Band::default()), request.arrived);
        }
        let due = request.deadline().unwrap_or(Time::NEVER);
        (Reverse(request.band), due)
    }

    fn turns_away(&self, request: &Request, desk: &Desk) -> bool {
        self.gate.is_some() && desk.waiting_in(request.band) >= MOST_WAITING
    }

    fn patience(&self) -> Option<Duration> {
        self.gate.map(|_| TTL)
    }

    fn arrived(&mut self, now: Time, desk: &Desk) {
        let Some(gate) = &mut self.gate else { return };
        if desk.waiting() == 1 {
            // Cycles without a request are gone.
            *gate = Gate { cycles: 1.0, at: now };
        } else {
            gate.turn(now);
            gate.cycles += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::posed::{Posed, request},
        *,
    };

    const MS: Duration = Duration::from_millis(1);

    /// llm-d utilization-detector: "mean over pods of max(q/5, kv/.8)"; a full pool holds everybody.
    #[test]
    fn requests_wait_while_the_mean_saturation_is_one() {
        let mut posed = Posed::new(2, Router::gated(1));
        posed.scrape(0, 8, 0.1);
        posed.scrape(1, 2, 0.1);
        // (8/5 + 2/5) / 2 = 1
        assert_eq!(posed.arrives(0, 100), None);
        posed.scrape(1, 1, 0.1);
        assert_eq!(posed.passes(MS), [(0, 1)]);
        posed.scrape(0, 0, 0.81);
        posed.scrape(1, 0, 0.81);
        assert_eq!(posed.arrives(1, 100), None, "memory counts as well");
    }

    /// llm-d flow control: "1 ms dispatch ticker, one item per cycle, plus one cycle per arrival".
    #[test]
    fn one_request_goes_per_cycle() {
        let mut posed = Posed::new(1, Router::gated(1));
        posed.scrape(0, 5, 0.0);
        (0..100).for_each(|id| assert_eq!(posed.arrives(id, 100), None));
        posed.scrape(0, 0, 0.0);
        assert_eq!(posed.passes(MS).len(), 1);
        assert_eq!(posed.passes(5 * MS).len(), 5);
        posed.arrives(100, 100);
        assert_eq!(posed.waiting(), 100 - 6, "a cycle for the arrival");
    }

    /// llm-d between bands: "strict priority"; in a band, slo-deadline: the earliest deadline, none last.
    #[test]
    fn the_higher_band_goes_first_and_in_a_band_the_earlier_deadline() {
        let mut posed = Posed::new(1, Router::gated(1));
        posed.scrape(0, 5, 0.0);
        let slo = |seconds| weir_core::Slo { ttft: Some(Duration::from_secs(seconds)), tpot: None };
        posed.comes(Request { slo: weir_core::Slo::default(), ..request(0, Time::ZERO, 100) });
        posed.comes(Request { slo: slo(9), ..request(1, Time::ZERO, 100) });
        posed.comes(Request { slo: slo(3), ..request(2, Time::ZERO, 100) });
        posed.comes(Request { band: weir_core::Band(1), ..request(3, Time::ZERO, 100) });
        posed.scrape(0, 0, 0.0);
        let order: Vec<u64> = posed.passes(10 * MS).iter().map(|(id, _)| *id).collect();
        assert_eq!(order, [3, 2, 1, 0]);
    }

    /// llm-d default profile: queue-scorer 2, kv-cache 2, prefix 3, on the last scrape. Whatever was sent since is not seen:
    /// issues 2066 and 2173 describe the herd.
    #[test]
    fn between_two_scrapes_everything_goes_to_the_pod_that_looked_best() {
        let mut posed = Posed::new(3, Router::open(1));
        posed.scrape(0, 0, 0.5);
        posed.scrape(1, 0, 0.2);
        posed.scrape(2, 3, 0.1);
        for id in 0..20 {
            assert_eq!(posed.arrives(id, 100), Some(1), "queues and memory decide");
        }
        // All of the prompt outweighs .3 of memory.
        posed.scrape(0, 0, 0.1);
        assert_eq!(posed.arrives_with(20, 320, (1, 20)), Some(0));
        posed.scrape(0, 0, 0.5);
        assert_eq!(posed.arrives_with(21, 320, (1, 20)), Some(0));
    }

    /// llm-d lora_affinity.go: 1.0 if active, 0.8 if those active or waiting are fewer than the most, 0.6 if waiting, else 0.
    #[test]
    fn a_pod_that_runs_the_adapter_is_best_then_one_with_a_slot_then_one_where_it_waits() {
        let told = |running: &[&str], waiting: &[&str]| {
            let names = |list: &[&str]| list.iter().map(|name| Arc::from(*name)).collect();
            LoraScrape { most: 2, running: names(running), waiting: names(waiting) }
        };
        let asked = |adapter: Option<&str>| Request {
            adapter: adapter.map(Arc::from),
            ..request(0, Time::ZERO, 100)
        };
        let score = |told: &LoraScrape| lora_affinity(&asked(Some("a")), told);
        assert_eq!(score(&told(&["b", "a"], &["c"])), 1.0);
        assert_eq!(score(&told(&["b"], &[])), 0.8);
        assert_eq!(score(&told(&["b"], &["b"])), 0.8, "b is one");
        assert_eq!(score(&told(&["b", "c"], &["a"])), 0.6);
        assert_eq!(score(&LoraScrape::default()), 0.0);
        assert_eq!(lora_affinity(&asked(None), &told(&["b", "c"], &[])), 0.0);

        let mut posed = Posed::new(2, Router::open(1).with_loras());
        posed.adapters(1, &told(&["a"], &[]));
        posed.scrape(0, 0, 0.0);
        posed.scrape(1, 0, 0.4);
        let sent = |id| Request { id: weir_core::RequestId(id), ..asked(Some("a")) };
        assert_eq!(posed.comes(sent(1)), Some(1), "1 - 2 x .4 against 0");
        posed.scrape(1, 0, 0.6);
        assert_eq!(posed.comes(sent(2)), Some(0));
    }

    /// llm-d flow control: "band maxRequests 5000, global unlimited; full: reject the newcomer".
    #[test]
    fn a_full_band_turns_nobody_away_from_another() {
        let mut posed = Posed::new(1, Router::gated(1));
        posed.scrape(0, 5, 0.0);
        (0..5000).for_each(|id| assert_eq!(posed.arrives_in_band(id, -1), None));
        posed.arrives_in_band(5000, 1);
        assert_eq!((posed.waiting(), posed.refused()), (5001, 0));
        posed.arrives_in_band(5001, -1);
        assert_eq!((posed.waiting(), posed.refused()), (5001, 1));
    }

    /// llm-d: defaultRequestTTL 60 s, answered 429.
    #[test]
    fn who_has_waited_a_minute_is_refused() {
        let mut posed = Posed::new(1, Router::gated(1));
        posed.scrape(0, 5, 0.0);
        posed.arrives(0, 100);
        posed.passes(Duration::from_secs(59));
        assert_eq!((posed.waiting(), posed.refused()), (1, 0));
        posed.passes(Duration::from_secs(2));
        assert_eq!((posed.waiting(), posed.refused()), (0, 1));
    }
}
