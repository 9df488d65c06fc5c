//! What one pod, or a rival's idea of one, has cached.

use weir_core::{PodId, Request, prefix::PrefixIndex};

/// The only pod of its index.
const POD: PodId = PodId(0);

/// The blocks of one pod.
#[derive(Clone, Debug)]
pub(super) struct Cached(PrefixIndex);

impl Cached {
    /// Holds at most so many blocks.
    pub(super) fn new(capacity: usize) -> Self {
        let mut index = PrefixIndex::default();
        index.set_capacity(POD, capacity);
        Self(index)
    }

    /// It was sent a prompt.
    pub(super) fn insert(&mut self, blocks: &[u64]) {
        self.0.insert(POD, blocks);
    }

    /// It gave an answer of so many blocks to a prompt of that name, for somebody who hears of what engines compute.
    pub(super) fn answered(&mut self, prompt: u64, blocks: usize) {
        self.0.leave(POD, (&[], prompt), blocks, 0);
    }

    /// How many leading blocks of a prompt it holds.
    pub(super) fn matched(&self, blocks: &[u64]) -> usize {
        self.0.matched(POD, blocks)
    }

    /// The same with the answer that the prompt goes on from.
    pub(super) fn matched_with_answer(&self, request: &Request) -> usize {
        let mut found = Vec::new();
        self.0.matches(&request.blocks, &request.turn, &mut found);
        let share = found.first().map_or(0.0, |one| one.share);
        (share * request.blocks.len() as f64).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_core::{
        PromptSize, RequestId, Time,
        prefix::{Reply, Turn},
    };

    use super::*;

    #[test]
    fn who_hears_of_answers_finds_them_in_the_turn_that_goes_on() {
        let mut cached = Cached::new(100);
        cached.insert(&[1, 2, 3]);
        let reply = Some(Reply { to: 7, from: 3, end: 5 });
        let next = Request {
            blocks: Arc::from([1, 2, 3, 4, 5, 6]),
            turn: Turn { name: 9, reply },
            ..Request::new(RequestId(1), Time::ZERO, PromptSize::Tokens(96))
        };
        assert_eq!(cached.matched_with_answer(&next), 3);
        cached.answered(7, 2);
        assert_eq!((cached.matched_with_answer(&next), cached.matched(&next.blocks)), (5, 3));
    }
}
