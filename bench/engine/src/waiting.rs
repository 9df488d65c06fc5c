//! The scheduler's waiting queue: first come first served, or by priority.
//!
//! One ordered map serves both policies and makes an abort O(log n). A preempted sequence returns to its own place. Under
//! FCFS that is the front, as in vLLM: whoever runs arrived before whoever waits, and the last admitted goes first. A job
//! whose KV was loaded first comes to its place as well, before those that arrived meanwhile, as in vLLM.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use crate::sequence::SeqIndex;

/// Place in the queue: priority (0 under FCFS), then order of submission.
pub(crate) type WaitKey = (i32, u64);

#[derive(Debug, Clone, Default)]
pub(crate) struct WaitQueue {
    queue: BTreeMap<WaitKey, SeqIndex>,
    by_priority: bool,
    /// Prompt tokens of everything here.
    pub prompt_tokens: u64,
}

impl WaitQueue {
    pub fn new(by_priority: bool) -> Self {
        Self { by_priority, ..Self::default() }
    }

    /// Puts a new or preempted sequence in its place.
    pub fn push(&mut self, seq: SeqIndex, priority: i32, order: u64, prompt: u32) -> WaitKey {
        let key = (if self.by_priority { priority } else { 0 }, order);
        self.queue.insert(key, seq);
        self.prompt_tokens += u64::from(prompt);
        key
    }

    pub fn head(&self) -> Option<SeqIndex> {
        self.queue.first_key_value().map(|(_, seq)| *seq)
    }

    /// All in their order, or those behind a place.
    pub fn behind(&self, place: Option<WaitKey>) -> impl Iterator<Item = (WaitKey, SeqIndex)> {
        let from = place.map_or(Unbounded, Excluded);
        self.queue.range((from, Unbounded)).map(|(key, seq)| (*key, *seq))
    }

    pub fn remove(&mut self, key: WaitKey, prompt: u32) {
        if self.queue.remove(&key).is_some() {
            self.prompt_tokens -= u64::from(prompt);
        }
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut WaitQueue, keys: &[(SeqIndex, WaitKey)]) -> Vec<SeqIndex> {
        let mut order = Vec::new();
        while let Some(head) = queue.head() {
            let (_, key) = keys.iter().find(|(seq, _)| *seq == head).unwrap();
            queue.remove(*key, 10);
            order.push(head);
        }
        assert_eq!(queue.prompt_tokens, 0);
        order
    }

    #[test]
    fn first_come_is_first_and_a_preempted_sequence_is_before_later_ones() {
        let mut queue = WaitQueue::new(false);
        let keys = [
            (1, queue.push(1, 9, 1, 10)),
            (2, queue.push(2, -9, 2, 10)),
            (3, queue.push(3, 5, 0, 10)),
        ];
        assert_eq!(drain(&mut queue, &keys), [3, 1, 2]);
    }

    #[test]
    fn by_priority_the_lowest_value_then_the_earliest_is_first() {
        let mut queue = WaitQueue::new(true);
        let keys = [
            (1, queue.push(1, 9, 1, 10)),
            (2, queue.push(2, 0, 3, 10)),
            (3, queue.push(3, 9, 0, 10)),
            (4, queue.push(4, 0, 2, 10)),
        ];
        assert_eq!(drain(&mut queue, &keys), [4, 2, 3, 1]);
    }
}
