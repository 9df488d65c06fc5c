//! The index against a plain list per pod.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A block that a pod holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Block {
    /// Of a prompt.
    Named(u64),
    /// Of an answer: the name of the prompt that it is to, and which one it is.
    Of(u64, usize),
}

/// The same belief of one pod written plainly: blocks from oldest to youngest, and the prompts of requests that are under way.
#[derive(Clone, Default)]
struct Model {
    capacity: usize,
    answers: usize,
    blocks: Vec<Block>,
    prompts: Vec<(Vec<u64>, u64)>,
    /// Answers so far.
    given: usize,
    /// The last one to each prompt, and how long it was.
    last: BTreeMap<u64, (usize, usize)>,
}

impl Model {
    /// The blocks that are in use.
    fn used(&self) -> BTreeSet<u64> {
        self.prompts.iter().flat_map(|(prompt, _)| prompt).copied().collect()
    }

    fn len(&self) -> usize {
        self.blocks.len() + self.used().len()
    }

    fn trim(&mut self) {
        let above = (self.len() + self.answers).saturating_sub(self.capacity);
        self.blocks.drain(..above.min(self.blocks.len()));
    }

    /// Makes those youngest that are not in use.
    fn touch(&mut self, blocks: &[u64]) {
        let used = self.used();
        for block in blocks.iter().rev().filter(|block| !used.contains(block)) {
            self.blocks.retain(|held| *held != Block::Named(*block));
            self.blocks.push(Block::Named(*block));
        }
    }

    fn insert(&mut self, blocks: &[u64]) {
        self.touch(blocks.get(..self.capacity).unwrap_or(blocks));
        self.trim();
    }

    /// Blocks that are held of the last answer to a prompt, and how many it had, if it can be that reply.
    fn answer(&self, reply: Reply) -> (usize, usize) {
        let Some(&(last, whole)) = self.last.get(&reply.to) else { return (0, 1) };
        let held = self.blocks.iter().filter(|held| **held == Block::Of(reply.to, last)).count();
        if whole <= 2 * (reply.end - reply.from) as usize { (held, whole) } else { (0, 1) }
    }

    fn enter(&mut self, blocks: &[u64], turn: Turn, answers: usize) {
        self.answers = answers;
        if let Some(reply) = turn.reply
            && self.answer(reply).0 > 0
        {
            let last = Block::Of(reply.to, self.last[&reply.to].0);
            self.blocks.retain(|held| *held != last);
        }
        let kept = blocks.get(..self.capacity).unwrap_or(blocks);
        self.blocks.retain(|held| !kept.iter().any(|block| *held == Block::Named(*block)));
        self.prompts.push((kept.to_vec(), turn.name));
        self.trim();
    }

    fn leave(&mut self, request: usize, answer: usize, answers: usize) -> (Vec<u64>, u64) {
        let (prompt, name) = self.prompts.remove(request);
        self.answers = answers;
        if self.capacity > 0 && answer > 0 {
            self.given += 1;
            self.blocks.extend(vec![Block::Of(name, self.given); answer]);
            if name != 0 {
                self.last.insert(name, (self.given, answer));
            }
        }
        self.touch(&prompt);
        self.trim();
        (prompt, name)
    }

    /// What is held, with the name of its prompt for a block of an answer: of the last one to that.
    fn oldest_to_youngest(&self) -> Vec<Result<u64, u64>> {
        let held = |block: &Block| match *block {
            Block::Named(name) => Ok(name),
            Block::Of(prompt, one) => {
                let is_last = |(last, _): &&(usize, usize)| *last == one;
                Err(self.last.get(&prompt).filter(is_last).map_or(0, |_| prompt))
            }
        };
        self.blocks.iter().map(held).collect()
    }

    fn matched(&self, blocks: &[u64]) -> usize {
        let used = self.used();
        let holds =
            |block: &&u64| used.contains(block) || self.blocks.contains(&Block::Named(**block));
        blocks.iter().take_while(holds).count()
    }

    fn matched_on(&self, blocks: &[u64], reply: Reply) -> usize {
        let held = self.matched(blocks);
        if held == 0 || held != reply.from as usize {
            return held;
        }
        let (of_answer, whole) = self.answer(reply);
        held + of_answer * (reply.end - reply.from) as usize / whole
    }
}

/// What is held, with the name of its prompt for a block of an answer.
fn oldest_to_youngest(index: &PrefixIndex, pod: PodId) -> Vec<Result<u64, u64>> {
    let kept = index.rings.get(&pod).into_iter().flat_map(Ring::oldest_to_youngest);
    let blocks = |kept| match kept {
        Kept::Segment(id) => index.segments.held(id, pod).into_iter().rev().map(Ok).collect(),
        Kept::Answer(answer) => vec![Err(answer.to); answer.held as usize],
        Kept::Nothing => unreachable!("it is in no ring"),
    };
    kept.flat_map(blocks).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>),
    Enter(Vec<u8>, Turn, usize),
    /// One of those that are under way.
    Over(prop::sample::Index, usize, usize),
    Capacity(usize),
    Leave,
}

fn reply() -> impl Strategy<Value = Reply> {
    (1..4u64, 0..40u32, 0..40u32).prop_map(|(to, from, len)| Reply { to, from, end: from + len })
}

fn turn() -> impl Strategy<Value = Turn> {
    (0..4u64, prop::option::of(reply())).prop_map(|(name, reply)| Turn { name, reply })
}

fn step() -> impl Strategy<Value = (u32, Step)> {
    let prompt = || prop::collection::vec(0..3u8, 0..12);
    let step = prop_oneof![
        10 => prompt().prop_map(Step::Insert),
        20 => (prompt(), turn(), 0..60usize)
            .prop_map(|(letters, turn, answers)| Step::Enter(letters, turn, answers)),
        14 => (any::<prop::sample::Index>(), 0..40usize, 0..60usize)
            .prop_map(|(which, answer, answers)| Step::Over(which, answer, answers)),
        2 => prop_oneof![Just(0), 0..200usize].prop_map(Step::Capacity),
        1 => Just(Step::Leave),
    ];
    (0..4u32, step)
}

fn apply(index: &mut PrefixIndex, model: &mut Model, pod: PodId, step: Step) {
    match step {
        Step::Insert(letters) => {
            index.insert(pod, &long_prompt(&letters));
            model.insert(&long_prompt(&letters));
        }
        Step::Enter(letters, turn, answers) => {
            let kept = index.enter(pod, &long_prompt(&letters), &turn, answers);
            if index.rings.contains_key(&pod) {
                model.enter(&long_prompt(&letters), turn, answers);
                assert_eq!(model.prompts.last().unwrap().0.len(), kept);
            }
        }
        Step::Over(which, answer, answers) if !model.prompts.is_empty() => {
            let (prompt, name) = model.leave(which.index(model.prompts.len()), answer, answers);
            index.leave(pod, (&prompt, name), answer, answers);
        }
        Step::Over(..) => {}
        Step::Capacity(capacity) => {
            index.set_capacity(pod, capacity);
            model.capacity = capacity;
            if capacity == 0 {
                *model = Model::default();
            }
            model.trim();
        }
        Step::Leave => {
            index.remove(pod);
            *model = Model::default();
        }
    }
}

proptest! {
    #[test]
    fn the_index_equals_a_plain_list_per_pod_walked_block_by_block(
        capacities in prop::collection::vec(0..200usize, 4),
        steps in prop::collection::vec(step(), 0..50),
        asked in prop::collection::vec((prop::collection::vec(0..3u8, 0..12), reply()), 1..5),
    ) {
        let mut index = PrefixIndex::default();
        let mut models = vec![Model::default(); 4];
        for (pod, capacity) in (0..).map(PodId).zip(capacities) {
            apply(&mut index, &mut models[pod.0 as usize], pod, Step::Capacity(capacity));
        }
        for (pod, step) in steps {
            let (before, version) = (index.clone(), index.version());
            apply(&mut index, &mut models[pod as usize], PodId(pod), step);
            let is_named = |block: &&Block| matches!(block, Block::Named(_));
            let named = |model: &Model| {
                model.blocks.iter().filter(is_named).count() + model.used().len()
            };
            let held: usize = models.iter().map(named).sum();
            prop_assert_eq!(index.segments.held_by_all(), held);
            for (pod, model) in (0..).map(PodId).zip(&models) {
                prop_assert_eq!(oldest_to_youngest(&index, pod), model.oldest_to_youngest());
                prop_assert_eq!(index.len_of(pod), model.len());
                for (letters, reply) in &asked {
                    let blocks = long_prompt(letters);
                    let held = model.matched(&blocks);
                    prop_assert_eq!(matched(&index, pod, &blocks), held);
                    // Chance would have it that a reply begins where a match ends.
                    let reply = Reply { from: held as u32, end: held as u32 + reply.end, ..*reply };
                    let on = model.matched_on(&blocks, reply).min(blocks.len());
                    prop_assert_eq!(matched_on(&index, pod, &blocks, reply), on);
                    let same = before.matched(pod, &blocks) == index.matched(pod, &blocks);
                    prop_assert!(same || index.version() > version);
                }
            }
        }
        for (pod, model) in (0..).map(PodId).zip(&mut models) {
            apply(&mut index, model, pod, Step::Leave);
        }
        prop_assert_eq!((index.segments.len(), index.segments.used()), (0, (0, 0)));
    }

    #[test]
    fn another_index_that_recalls_what_is_cached_holds_the_same(
        capacities in prop::collection::vec(0..200usize, 4),
        steps in prop::collection::vec(step(), 0..50),
        (over, pieces) in (any::<prop::sample::Index>(), 1..40usize),
    ) {
        let mut index = PrefixIndex::default();
        let mut models = vec![Model::default(); 4];
        for (pod, capacity) in (0..).map(PodId).zip(capacities) {
            apply(&mut index, &mut models[pod.0 as usize], pod, Step::Capacity(capacity));
        }
        for (pod, step) in steps {
            apply(&mut index, &mut models[pod as usize], PodId(pod), step);
        }
        let mut other = PrefixIndex::default();
        for (pod, model) in (0..).map(PodId).zip(&mut models) {
            while !model.prompts.is_empty() {
                apply(&mut index, model, pod, Step::Over(over, 0, 0));
            }
            other.set_capacity(pod, index.rings.get(&pod).map_or(0, |ring| ring.capacity));
            let cached = index.cached(pod);
            prop_assert_eq!(cached.len(), index.len_of(pod));
            for piece in cached.clone().in_pieces(pieces) {
                let names: usize = piece.0.iter().map(Part::names).sum();
                prop_assert!(names <= pieces);
                other.recall(pod, &piece);
            }
            prop_assert_eq!(oldest_to_youngest(&other, pod), oldest_to_youngest(&index, pod));
            let answers = |index: &PrefixIndex| {
                (0..4).map(|to| index.answer_to(pod, to)).collect::<Vec<_>>()
            };
            prop_assert_eq!(answers(&other), answers(&index));
        }
        prop_assert_eq!(other.segments.held_by_all(), index.segments.held_by_all());
    }

    #[test]
    fn matches_are_in_the_order_of_the_pods_and_none_is_empty(
        steps in prop::collection::vec(step(), 0..60),
        asked in prop::collection::vec(0..3u8, 0..12),
    ) {
        let mut index = PrefixIndex::default();
        let mut models = vec![Model::default(); 4];
        for (pod, model) in (0..).map(PodId).zip(&mut models) {
            apply(&mut index, model, pod, Step::Capacity(20));
        }
        for (pod, step) in steps {
            apply(&mut index, &mut models[pod as usize], PodId(pod), step);
        }
        let mut found = vec![Match { pod: PodId(77), share: 1.0 }];
        index.matches(&long_prompt(&asked), &ALONE, &mut found);
        prop_assert!(found.is_sorted_by(|a, b| a.pod < b.pod));
        prop_assert!(found.iter().all(|one| one.share > 0.0 && one.share <= 1.0));
    }

    #[test]
    fn names_that_are_no_prompts_harm_nothing_and_go_with_their_pods(
        prompts in prop::collection::vec((0..4u32, prop::collection::vec(0..5u64, 0..40)), 0..60),
    ) {
        let mut index = PrefixIndex::default();
        (0..4).for_each(|pod| index.set_capacity(PodId(pod), 50));
        for (pod, blocks) in prompts {
            index.insert(PodId(pod), &blocks);
            prop_assert!(index.len_of(PodId(pod)) <= 50);
            prop_assert!(index.matched(PodId(pod), &blocks) <= blocks.len());
        }
        (0..4).for_each(|pod| index.remove(PodId(pod)));
        prop_assert_eq!((index.segments.len(), index.segments.used()), (0, (0, 0)));
    }
}
