//! What has to be computed for each request, whoever serves it and in whatever order.
//!
//! A block of prompt that several requests share has to be computed once. It is charged to the request that comes first of
//! those that have it. That holds for any order of serving: when another one computes it earlier in fact, it does so after the first
//! one has come, on the pod where that one then finds it, and what it did can be booked to the first one without moving it. Blocks that
//! somebody pays for in any case (an answer that it generates, the last block of its prompt) are free for everybody else.

use std::collections::HashSet;

use crate::sim::SimRequest;

/// A request as the limits see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    /// What is asked.
    pub(super) asked: &'a SimRequest,
    /// When it comes, at the earliest.
    pub(super) arrived_ms: f64,
    /// Whether it comes then whatever the policy does. One that follows another does not.
    pub(super) fixed: bool,
    /// Whether it is in the figures.
    pub(super) counted: bool,
}

/// What one request costs at least, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    /// Tokens of the prompt.
    pub(super) prompt_tokens: f64,
    /// Tokens of the answer.
    pub(super) output_tokens: f64,
    /// Prompt tokens that no cache spares.
    pub(super) fresh_tokens: f64,
    /// Pairs of one of those and a token up to it.
    pub(super) pairs: f64,
}

impl Work {
    /// Steps after the first token.
    pub(super) fn decodes(&self) -> f64 {
        self.output_tokens - 1.0
    }

    /// Tokens of context that its decodes read, together.
    pub(super) fn context_tokens(&self) -> f64 {
        let decodes = self.decodes();
        decodes * self.prompt_tokens + decodes * (decodes + 1.0) / 2.0
    }

    /// Those of each decode.
    pub(super) fn contexts(&self) -> impl DoubleEndedIterator<Item = f64> {
        let prompt = self.prompt_tokens;
        (1..=self.decodes() as u32).map(move |index| prompt + f64::from(index))
    }

    fn charge(&mut self, from: u32, until: u32) {
        let (from, until) = (f64::from(from), f64::from(until));
        self.fresh_tokens += until - from;
        self.pairs += (until * until - from * from) / 2.0;
    }
}

/// Tokens of the answer, the cut by the request's own bound included.
pub(super) fn output_tokens(asked: &SimRequest) -> u32 {
    asked.output_tokens.min(asked.request.max_output_tokens.unwrap_or(u32::MAX)).max(1)
}

/// Hashes of the blocks that prompt and answer fill.
pub(super) fn blocks(asked: &SimRequest) -> &[u64] {
    asked.blocks_with_answer.as_deref().unwrap_or(&asked.request.blocks)
}

/// The work of each of `cases`, which are in the order of their arrivals. `block_tokens` is `None` where nothing is cached.
pub(super) fn work(cases: &[Case<'_>], block_tokens: Option<u32>) -> Vec<Work> {
    let size = block_tokens.unwrap_or(u32::MAX).max(1);
    let mut paid: HashSet<u64> = HashSet::new();
    for case in cases.iter().filter(|_| block_tokens.is_some()) {
        let own = blocks(case.asked).iter().skip(findable(case.asked, size) as usize);
        paid.extend(own);
    }
    let one = |case: &Case<'_>| {
        let prompt = case.asked.input_tokens.max(1);
        let mut work = Work {
            prompt_tokens: f64::from(prompt),
            output_tokens: f64::from(output_tokens(case.asked)),
            ..Work::default()
        };
        let findable = if block_tokens.is_some() { findable(case.asked, size) } else { 0 };
        let mut from = 0;
        for block in blocks(case.asked).iter().take(findable as usize) {
            // Of one that may come at any time nobody knows what is computed before it.
            if paid.insert(*block) && case.fixed {
                work.charge(from, from + size);
            }
            from += size;
        }
        work.charge(from, prompt);
        work
    };
    cases.iter().map(one).collect()
}

/// Blocks of a prompt that a cache can spare: at least one token is always computed.
fn findable(asked: &SimRequest, block_tokens: u32) -> u32 {
    (asked.input_tokens.max(1) - 1) / block_tokens
}

/// Prompt tokens that a cache without bounds would have, as a share of all that are counted.
pub(super) fn hit(cases: &[Case<'_>], work: &[Work]) -> f64 {
    let counted = cases.iter().zip(work).filter(|(case, _)| case.counted);
    let (fresh, all) = counted.fold((0.0, 0.0), |(fresh, all), (_, work)| {
        (fresh + work.fresh_tokens, all + work.prompt_tokens)
    });
    if all > 0.0 { 1.0 - fresh / all } else { 0.0 }
}
