//! `sglang-cache-aware`: the router of SGLang with its default policy.
//!
//! sgl-router keeps, for each worker, a tree of the texts that it sent there. While the workers' loads are balanced, a request
//! goes to the worker that has the longest beginning of its text, if that is more than `cache_threshold` of it, else to the
//! worker with the smallest tree; when they are not, to the worker with the fewest requests in flight. Numbers are those that
//! its command line starts with (`router_args.py`); the library's own defaults differ.
//!
//! Differences: text is counted in tokens and compared block by block, and what no other request shares is counted and not
//! kept. The tree forgets its least recently used leaves as soon as it is too large, not every two minutes.

use weir_core::{Request, Time};

use super::{
    cached::Cached,
    desk::{self, BLOCK_TOKENS, Decide, Desk, Post},
};

/// Characters that a token stands for.
const CHARS_PER_TOKEN: u64 = 4;

/// The policy `cache_aware`.
#[derive(Clone, Debug)]
pub(super) struct CacheAware {
    /// Share of the text above which the worker that has it is taken.
    cache_threshold: f64,
    /// Difference between the largest and the smallest load above which loads may be out of balance,
    balance_abs_threshold: usize,
    /// and their ratio above which they are.
    balance_rel_threshold: f64,
    /// Characters kept per worker.
    max_tree_size: u64,
    trees: Vec<Tree>,
}

/// What was sent to one worker.
#[derive(Clone, Debug)]
struct Tree {
    /// Blocks that others may share.
    shared: Cached,
    /// Characters of all that was inserted, what is shared counted once.
    chars: u64,
}

impl Default for CacheAware {
    fn default() -> Self {
        Self {
            cache_threshold: 0.3,
            balance_abs_threshold: 64,
            balance_rel_threshold: 1.5,
            max_tree_size: 1 << 26,
            trees: Vec::new(),
        }
    }
}

impl CacheAware {
    fn tree(&mut self, place: usize) -> Option<&mut Tree> {
        let most = self.max_tree_size / CHARS_PER_TOKEN / BLOCK_TOKENS;
        let empty = || Tree { shared: Cached::new(most as usize), chars: 0 };
        if self.trees.len() <= place {
            self.trees.resize_with(place + 1, empty);
        }
        self.trees.get_mut(place)
    }

    fn imbalanced(&self, desk: &Desk) -> bool {
        let loads = || desk.posts.iter().map(|post| post.in_flight);
        let (most, least) = (loads().max().unwrap_or(0), loads().min().unwrap_or(0));
        most - least > self.balance_abs_threshold
            && most as f64 > least as f64 * self.balance_rel_threshold
    }

    /// The worker that has most of a text, and how much of it.
    fn warmest(&self, request: &Request) -> Option<(usize, f64)> {
        let tokens = u64::from(desk::input_tokens(request)).max(1);
        let mut best = None;
        for (place, tree) in self.trees.iter().enumerate() {
            let known = tree.shared.matched(&request.blocks) as u64 * BLOCK_TOKENS;
            if best.is_none_or(|(_, most)| known > most) {
                best = Some((place, known));
            }
        }
        best.map(|(place, known)| (place, known as f64 / tokens as f64))
    }
}

impl Decide for CacheAware {
    fn place(&mut self, _now: Time, head: &Request, desk: &Desk) -> Option<usize> {
        if self.imbalanced(desk) {
            return desk.least_loaded(|_| true);
        }
        let warmest = self.warmest(head).filter(|(_, share)| *share > self.cache_threshold);
        if let Some((place, _)) = warmest {
            return Some(place);
        }
        let size = |place: usize| self.trees.get(place).map_or(0, |tree| tree.chars);
        // Trees that are full have one size here, which real ones hardly have.
        let first = |(place, post): &(usize, &Post)| {
            let chars = size(*place);
            (chars, if chars < self.max_tree_size { 0 } else { post.in_flight }, *place)
        };
        desk.places().min_by_key(first).map(|(place, _)| place)
    }

    fn sent(&mut self, request: &Request, place: usize) {
        let most = self.max_tree_size;
        let Some(tree) = self.tree(place) else { return };
        let known = tree.shared.matched(&request.blocks) as u64 * BLOCK_TOKENS;
        tree.shared.insert(&request.blocks);
        let fresh = u64::from(desk::input_tokens(request)).saturating_sub(known);
        tree.chars = (tree.chars + fresh * CHARS_PER_TOKEN).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::posed::Posed, *};

    /// sgl-router, cache_aware.rs: "If match rate > cache_threshold: Route to the worker with highest match (likely has
    /// relevant data cached)"; router_args.py: cache_threshold 0.3.
    #[test]
    fn a_text_of_which_a_worker_has_more_than_the_threshold_goes_there() {
        let mut posed = Posed::new(3, CacheAware::default());
        assert_eq!(posed.arrives_with(0, 1000, (1, 20)), Some(0));
        assert_eq!(posed.arrives_with(1, 1000, (2, 20)), Some(1));
        // 320 of 1000 tokens are known, the first time on worker 0.
        assert_eq!(posed.arrives_with(2, 1000, (1, 20)), Some(0));
        assert_eq!(posed.arrives_with(3, 1000, (2, 20)), Some(1));
    }

    /// "If match rate <= cache_threshold: Route to the worker with smallest tree size (most available cache capacity)".
    #[test]
    fn a_text_that_is_hardly_known_goes_to_the_smallest_tree() {
        let mut posed = Posed::new(2, CacheAware::default());
        assert_eq!(posed.arrives_with(0, 3000, (1, 40)), Some(0));
        assert_eq!(posed.arrives(1, 1000), Some(1));
        // 640 of 3000 tokens are known on worker 0; the tree of worker 1 has 1000.
        assert_eq!(posed.arrives_with(2, 3000, (1, 40)), Some(1));
        assert_eq!(posed.arrives(3, 100), Some(0), "3000 against 4000");
    }

    /// "A system is considered imbalanced if both conditions are met: 1. (max - min) > abs_threshold 2. max > rel_threshold *
    /// min"; then "routes new requests to the least busy worker".
    #[test]
    fn out_of_balance_the_least_busy_worker_is_taken_whatever_it_knows() {
        let mut posed = Posed::new(2, CacheAware::default());
        for id in 0..65 {
            assert_eq!(posed.arrives_with(id, 320, (1, 20)), Some(0), "{id}");
        }
        // 65 against 0 is above 64 and above 1.5 times 0.
        assert_eq!(posed.arrives_with(65, 320, (1, 20)), Some(1));
        assert_eq!(posed.arrives_with(66, 320, (1, 20)), Some(0), "64 is not");
    }
}
