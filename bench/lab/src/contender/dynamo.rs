//! `dynamo-kv`: the KV-aware router of NVIDIA Dynamo.
//!
//! It costs a worker, in blocks, `prefill_load_scale x max(0, prompt tokens to be computed there and of the newcomer - credit x
//! blocks it has) + blocks that its requests and the newcomer hold`, and takes the cheapest; equals by chance, and at a
//! temperature above zero all by a softmax of the costs spread over 0 to 1. Requests wait, first come, first served, while
//! every worker has more prompt tokens in flight than `router_queue_threshold` steps hold. Formula and defaults are those of
//! lib/kv-router (selector/default.rs, config.rs).
//!
//! Difference: what a worker has cached is known from what was sent there, under the engine's own order of forgetting, and not
//! from the engine's events.

use std::collections::HashMap;

use weir_core::{Request, Time, policy::Dice};

use super::desk::{self, BLOCK_TOKENS, Decide, Desk, Post};

/// The router with one worker set.
#[derive(Clone, Debug)]
pub(super) struct KvRouter {
    /// Credit of a block that the worker has.
    overlap_credit: f64,
    /// Weight of the blocks to be computed.
    prefill_load_scale: f64,
    /// 0 takes the cheapest.
    temperature: f64,
    /// Steps full of prompt tokens that a worker may have in flight before requests wait.
    queue_threshold: f64,
    held: Vec<Held>,
    dice: Dice,
}

/// Blocks of the prompts in flight on one worker.
#[derive(Clone, Debug, Default)]
struct Held {
    /// Requests that hold each block that others may share.
    shared: HashMap<u64, u32>,
    /// Blocks that one request has to itself.
    own: u64,
}

impl Held {
    fn blocks(&self) -> u64 {
        self.shared.len() as u64 + self.own
    }

    /// Blocks of a prompt that are not held yet. Whoever holds a block holds all before it.
    fn fresh(&self, request: &Request) -> u64 {
        let held = request.blocks.partition_point(|block| self.shared.contains_key(block));
        blocks(request).saturating_sub(held as u64)
    }
}

/// Blocks of a prompt.
fn blocks(request: &Request) -> u64 {
    u64::from(desk::input_tokens(request)).div_ceil(BLOCK_TOKENS)
}

/// Blocks of a prompt that no other has.
fn own_blocks(request: &Request) -> u64 {
    blocks(request).saturating_sub(request.blocks.len() as u64)
}

impl KvRouter {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            overlap_credit: 1.0,
            prefill_load_scale: 1.0,
            temperature: 0.0,
            queue_threshold: 16.0,
            held: Vec::new(),
            dice: Dice::new(seed),
        }
    }

    fn cost(&self, request: &Request, place: usize, post: &Post) -> f64 {
        let overlap = post.index.matched_with_answer(request) as f64;
        let raw_tokens = post.prefill_tokens + u64::from(desk::input_tokens(request));
        let raw_blocks = raw_tokens as f64 / BLOCK_TOKENS as f64;
        let prefill_blocks = (raw_blocks - self.overlap_credit * overlap).max(0.0);
        let decode_blocks = match self.held.get(place) {
            Some(held) => held.blocks() + held.fresh(request),
            None => blocks(request),
        };
        self.prefill_load_scale * prefill_blocks + decode_blocks as f64
    }

    /// The cheapest, equals by chance; at a temperature, by chance in proportion to the softmax.
    fn pick(&mut self, costs: &[f64]) -> Option<usize> {
        let least = costs.iter().copied().reduce(f64::min)?;
        let most = costs.iter().copied().reduce(f64::max)?;
        let weight = |cost: f64| {
            if self.temperature <= 0.0 || most <= least {
                return f64::from(u8::from(cost <= least));
            }
            (-(cost - least) / ((most - least) * self.temperature)).exp()
        };
        let weights: Vec<f64> = costs.iter().map(|cost| weight(*cost)).collect();
        let mut left = self.dice.uniform() * weights.iter().sum::<f64>();
        let passed = weights.iter().position(|weight| {
            left -= weight;
            left <= 0.0
        });
        Some(passed.unwrap_or(costs.len() - 1))
    }

    fn busy(&self, post: &Post) -> bool {
        post.prefill_tokens as f64 > self.queue_threshold * f64::from(post.class.chunk_tokens)
    }
}

impl Decide for KvRouter {
    fn place(&mut self, _now: Time, head: &Request, desk: &Desk) -> Option<usize> {
        if desk.posts.iter().all(|post| self.busy(post)) {
            return None;
        }
        let costs: Vec<f64> =
            desk.places().map(|(place, post)| self.cost(head, place, post)).collect();
        self.pick(&costs)
    }

    /// Its indexer follows the engines' KV events.
    fn hears_of_answers(&self) -> bool {
        true
    }

    fn sent(&mut self, request: &Request, place: usize) {
        if self.held.len() <= place {
            self.held.resize_with(place + 1, Held::default);
        }
        if let Some(held) = self.held.get_mut(place) {
            held.own += own_blocks(request);
            for block in request.blocks.iter() {
                *held.shared.entry(*block).or_default() += 1;
            }
        }
    }

    fn ended(&mut self, request: &Request, place: usize) {
        let Some(held) = self.held.get_mut(place) else { return };
        held.own = held.own.saturating_sub(own_blocks(request));
        for block in request.blocks.iter() {
            if let Some(count) = held.shared.get_mut(block) {
                *count -= 1;
                if *count == 0 {
                    held.shared.remove(block);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::posed::Posed, *};

    fn router() -> KvRouter {
        KvRouter::new(1)
    }

    /// kv-router, selector/default.rs: `logit = prefill_load_scale * max(0, raw_prefill_blocks - overlap_credit_blocks) +
    /// decode_cost_blocks`, lowest wins; credit 1, scale 1.
    #[test]
    fn the_worker_with_the_fewest_blocks_to_compute_and_to_hold_is_taken() {
        let mut posed = Posed::new(2, router());
        let first = posed.arrives_with(0, 1600, (1, 100)).unwrap();
        posed.first_token(0);
        // There 100 - 100 to compute and 100 + 0 to hold; on the other 100 and 100.
        assert_eq!(posed.arrives_with(1, 1600, (1, 100)), Some(first));
        // A stranger: 100 to compute and 100 + 100 to hold there, 100 and 100 on the other.
        assert_eq!(posed.arrives(2, 1600), Some(1 - first));
        // The next one: 100 and 200 there; on the other 200, for nothing is computed yet, and 200.
        assert_eq!(posed.arrives(3, 1600), Some(first));
    }

    #[test]
    fn the_cost_is_that_of_the_formula() {
        let mut posed = Posed::new(1, router());
        posed.arrives(0, 800);
        posed.first_token(0);
        posed.arrives_with(1, 480, (1, 10));
        let (desk, router) = posed.parts();
        let asked = super::super::posed::request(2, Time::ZERO, 320);
        let asked = Request { blocks: super::super::posed::blocks(1, 20), ..asked };
        // 480 tokens being computed and 320 of its own are 50 blocks, 10 of which are there; 50 + 30 are held, 10 fresh.
        assert_eq!(router.cost(&asked, 0, &desk.posts[0]), 40.0 + 90.0);
    }

    /// config.rs: "Queue threshold fraction for prefill token capacity. When set, requests are queued if all workers exceed
    /// this fraction of max_num_batched_tokens", 16.
    #[test]
    fn requests_wait_while_every_worker_has_sixteen_steps_of_prompts() {
        let mut posed = Posed::new(2, router());
        let places: Vec<_> = (0..4).map(|id| posed.arrives(id, 100_000).unwrap()).collect();
        assert_eq!(places.iter().sum::<u32>(), 2, "two each: {places:?}");
        assert_eq!(posed.arrives(4, 100), None, "200,000 is above 16 x 8192 on both");
        let freed = places[0];
        assert_eq!(posed.first_token(0), [(4, freed)]);
    }

    /// selector/default.rs, softmax over normalised costs: scale is -1 / ((max - min) x temperature).
    #[test]
    fn a_temperature_spreads_by_the_softmax_of_the_costs() {
        let mut router = KvRouter { temperature: 1.0, ..router() };
        let drawn = (0..10_000).filter(|_| router.pick(&[5.0, 10.0]) == Some(1)).count();
        let share = (-1.0_f64).exp() / (1.0 + (-1.0_f64).exp());
        assert!((drawn as f64 / 1e4 - share).abs() < 0.015, "{drawn} for {share}");
        let mut coldest = KvRouter { temperature: 0.0, ..router };
        assert!((0..100).all(|_| coldest.pick(&[5.0, 10.0]) == Some(0)));
        let ties = (0..1000).filter(|_| coldest.pick(&[5.0, 5.0]) == Some(1)).count();
        assert!((400..600).contains(&ties), "equals by chance: {ties}");
    }

    #[test]
    fn what_was_held_is_free_again_at_the_end() {
        let mut posed = Posed::new(2, router());
        for id in 0..40 {
            posed.arrives_with(id, 500 + 10 * id as u32, (id % 3, 20));
        }
        (0..40).for_each(|id| assert_eq!(posed.ends(id), []));
        let (desk, router) = posed.parts();
        assert!(router.held.iter().all(|held| held.blocks() == 0));
        assert!(desk.posts.iter().all(|post| (post.in_flight, post.prefill_tokens) == (0, 0)));
    }
}
