//! The index against a plain list per pod.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const POD: PodId = PodId(3);
/// Of no conversation.
const ALONE: Turn = Turn { name: 0, reply: None };

fn names(bytes: &[u8], seed: u64) -> Vec<u64> {
    block_hashes(bytes, seed).collect()
}

/// A prompt with one block per letter.
fn prompt(letters: &[u8]) -> Vec<u64> {
    let bytes: Vec<u8> = letters.iter().flat_map(|l| [*l; BLOCK_BYTES]).collect();
    names(&bytes, 7)
}

/// A prompt in which a letter stands for 1, 8 or 15 blocks.
fn long_prompt(letters: &[u8]) -> Vec<u64> {
    let blocks = letters.iter().flat_map(|l| std::iter::repeat_n(*l, 1 + 7 * usize::from(*l)));
    prompt(&blocks.collect::<Vec<u8>>())
}

/// An index with one pod.
fn alone(capacity: usize) -> PrefixIndex {
    let mut index = PrefixIndex::default();
    index.set_capacity(POD, capacity);
    index
}

/// How many leading blocks of a prompt a pod holds.
fn matched(index: &PrefixIndex, pod: PodId, blocks: &[u64]) -> usize {
    let mut found = Vec::new();
    index.matches(blocks, &ALONE, &mut found);
    let share = found.iter().find(|one| one.pod == pod).map_or(0.0, |one| one.share);
    let blocks_held = (share * blocks.len() as f64).round() as usize;
    assert_eq!(index.matched(pod, blocks), blocks_held);
    blocks_held
}

#[test]
fn only_full_blocks_are_named_and_names_depend_on_all_before_and_on_the_seed() {
    let mut bytes: Vec<u8> = (0..4 * BLOCK_BYTES).map(|place| place as u8).collect();
    assert!(names(&bytes[..BLOCK_BYTES - 1], 0).is_empty());
    assert_eq!(names(&bytes[..2 * BLOCK_BYTES - 1], 0).len(), 1);
    let named = names(&bytes, 0);
    assert_eq!(named.len(), 4);
    assert_eq!(named[..2], names(&bytes[..2 * BLOCK_BYTES + 20], 0));
    let seeded = names(&bytes, 1);
    assert!(named.iter().zip(&seeded).all(|(a, b)| a != b));
    bytes[BLOCK_BYTES + 6] += 1;
    let changed = names(&bytes, 0);
    assert_eq!(named[0], changed[0]);
    assert!(named[1..].iter().zip(&changed[1..]).all(|(a, b)| a != b));
}

#[test]
fn blocks_of_the_same_text_have_names_of_their_own() {
    let mut named = names(&[b'x'; 4096 * BLOCK_BYTES], 0);
    named.extend(names(&[[b'y'; BLOCK_BYTES], [b'x'; BLOCK_BYTES]].concat(), 0));
    let all = named.len();
    named.sort_unstable();
    named.dedup();
    assert_eq!(named.len(), all);
}

#[test]
fn a_prompt_matches_as_far_as_it_shares_its_beginning() {
    let mut index = alone(100);
    index.insert(POD, &prompt(b"system one"));
    assert_eq!(matched(&index, POD, &prompt(b"system two")), 7);
    assert_eq!(matched(&index, POD, &prompt(b"system one more")), 10);
    assert_eq!(matched(&index, POD, &prompt(b"another")), 0);
    assert_eq!(matched(&index, POD, &[]), 0);
    assert_eq!(index.len_of(POD), 10);
}

#[test]
fn a_full_index_forgets_the_deepest_blocks_of_the_oldest_prompt_first() {
    let mut index = alone(6);
    index.insert(POD, &prompt(b"abcd"));
    index.insert(POD, &prompt(b"xyz"));
    assert_eq!(matched(&index, POD, &prompt(b"abcd")), 3);
    index.insert(POD, &prompt(b"ab"));
    index.insert(POD, &prompt(b"q"));
    assert_eq!(matched(&index, POD, &prompt(b"abcd")), 2);
    assert_eq!(matched(&index, POD, &prompt(b"xyz")), 3);
    index.insert(POD, &prompt(b"r"));
    assert_eq!(matched(&index, POD, &prompt(b"xyz")), 2);
}

#[test]
fn a_prompt_longer_than_the_capacity_keeps_its_beginning() {
    let mut index = alone(3);
    index.insert(POD, &prompt(b"abcdefgh"));
    assert_eq!((matched(&index, POD, &prompt(b"abcdefgh")), index.len_of(POD)), (3, 3));
}

#[test]
fn capacity_may_shrink_to_nothing_and_grow_again() {
    let mut index = alone(8);
    index.insert(POD, &prompt(b"abcdefgh"));
    index.set_capacity(POD, 2);
    assert_eq!((matched(&index, POD, &prompt(b"abcdefgh")), index.len_of(POD)), (2, 2));
    index.set_capacity(POD, 0);
    index.insert(POD, &prompt(b"abc"));
    assert_eq!(index.len_of(POD), 0);
    index.set_capacity(POD, 5);
    index.insert(POD, &prompt(b"abcdefgh"));
    assert_eq!(matched(&index, POD, &prompt(b"abcdefgh")), 5);
    assert_eq!(index.rings[&POD].room(), 1);
}

#[test]
fn a_full_index_no_longer_grows() {
    let mut index = alone(1000);
    let fill = |index: &mut PrefixIndex, rounds: std::ops::Range<u64>| {
        for seed in rounds {
            index.insert(POD, &names(&[0; 70 * BLOCK_BYTES], seed));
        }
    };
    fill(&mut index, 0..500);
    let sizes = index.segments.room();
    fill(&mut index, 500..2000);
    assert_eq!((index.len_of(POD), index.segments.len()), (1000, 15));
    assert_eq!(index.segments.room(), sizes);
    assert_eq!(index.rings[&POD].room(), 16);
}

#[test]
fn a_pod_that_leaves_takes_its_blocks_with_it() {
    let mut index = alone(10);
    index.set_capacity(PodId(9), 10);
    index.insert(POD, &prompt(b"abc"));
    index.insert(PodId(9), &prompt(b"ab"));
    index.remove(POD);
    assert_eq!(matched(&index, POD, &prompt(b"abc")), 0);
    assert_eq!(matched(&index, PodId(9), &prompt(b"abc")), 2);
    index.remove(PodId(9));
    assert!(index.segments.len() == 0 && index.rings.is_empty());
    index.insert(POD, &prompt(b"abc"));
    assert_eq!(index.segments.len(), 0, "it is not known any more");
}

#[test]
fn what_is_in_use_stays_and_is_the_youngest_when_it_no_longer_is() {
    let mut index = alone(8);
    assert_eq!(index.enter(POD, &prompt(b"abcd"), &ALONE, 0), 4);
    index.insert(POD, &prompt(b"wxyz"));
    index.insert(POD, &prompt(b"q"));
    assert_eq!(matched(&index, POD, &prompt(b"abcd")), 4, "it is older, and in use");
    assert_eq!(matched(&index, POD, &prompt(b"wxyz")), 3);
    index.leave(POD, (&prompt(b"abcd"), 0), 0, 0);
    index.insert(POD, &prompt(b"rs"));
    assert_eq!(matched(&index, POD, &prompt(b"wxyz")), 1);
    assert_eq!(matched(&index, POD, &prompt(b"abcd")), 4, "it was used last");
}

#[test]
fn a_prompt_that_two_use_is_in_use_until_both_are_over() {
    let mut index = alone(6);
    index.enter(POD, &prompt(b"abcd"), &ALONE, 0);
    index.enter(POD, &prompt(b"ab"), &ALONE, 0);
    index.leave(POD, (&prompt(b"abcd"), 0), 0, 0);
    index.insert(POD, &prompt(b"wxyz"));
    assert_eq!(matched(&index, POD, &prompt(b"abcd")), 2);
    index.leave(POD, (&prompt(b"ab"), 0), 0, 0);
    index.insert(POD, &prompt(b"qrs"));
    assert_eq!(matched(&index, POD, &prompt(b"ab")), 2);
    assert_eq!(matched(&index, POD, &prompt(b"wxyz")), 1);
}

#[test]
fn answers_take_room_and_go_before_their_prompts() {
    let mut index = alone(10);
    index.insert(POD, &prompt(b"wxyz"));
    index.enter(POD, &prompt(b"abc"), &ALONE, 5);
    assert_eq!(matched(&index, POD, &prompt(b"wxyz")), 2, "the answers of others");
    index.leave(POD, (&prompt(b"abc"), 0), 4, 0);
    assert_eq!(matched(&index, POD, &prompt(b"wxyz")), 2);
    index.insert(POD, &prompt(b"mnopq"));
    assert_eq!(matched(&index, POD, &prompt(b"wxyz")), 0);
    assert_eq!(matched(&index, POD, &prompt(b"abc")), 3);
    assert_eq!(index.len_of(POD), 10, "two blocks of the answer are left");
}

/// The blocks that a pod holds of a prompt that goes on from an answer.
fn matched_on(index: &PrefixIndex, pod: PodId, blocks: &[u64], reply: Reply) -> usize {
    let mut found = Vec::new();
    index.matches(blocks, &Turn { name: 0, reply: Some(reply) }, &mut found);
    let share = found.iter().find(|one| one.pod == pod).map_or(0.0, |one| one.share);
    (share * blocks.len() as f64).round() as usize
}

#[test]
fn a_pod_holds_its_answer_for_the_turn_that_goes_on_from_it() {
    let mut index = alone(20);
    index.set_capacity(PodId(9), 20);
    for pod in [POD, PodId(9)] {
        index.enter(pod, &prompt(b"abc"), &Turn { name: 5, reply: None }, 0);
    }
    let next = prompt(b"abcANSWERde");
    let reply = Reply { to: 5, from: 3, end: 9 };
    assert_eq!(matched_on(&index, POD, &next, reply), 3, "it is under way");
    index.leave(POD, (&prompt(b"abc"), 5), 5, 0);
    assert_eq!(matched_on(&index, POD, &next, reply), 9, "its tokens are longer than a prompt's");
    assert_eq!(
        matched_on(&index, POD, &next, Reply { end: 7, ..reply }),
        7,
        "as far as it stands there"
    );
    assert_eq!(matched_on(&index, POD, &next, Reply { end: 5, ..reply }), 3, "of another length");
    assert_eq!(matched_on(&index, POD, &next, Reply { to: 7, ..reply }), 3, "to another prompt");
    assert_eq!(matched_on(&index, POD, &next, Reply { from: 2, ..reply }), 3);
    assert_eq!(matched_on(&index, PodId(9), &next, reply), 3, "another pod's");
    assert_eq!(index.len_of(POD), 8);
    index.enter(POD, &next, &Turn { name: 6, reply: Some(reply) }, 0);
    assert_eq!(index.len_of(POD), 11, "it has names now");
    assert_eq!(matched_on(&index, POD, &prompt(b"abcOTHER"), reply), 3);
    assert!(index.rings[&POD].answer_to(5).is_none());
}

#[test]
fn of_an_answer_that_is_being_forgotten_the_beginning_is_held_and_of_two_the_last() {
    let mut index = alone(10);
    let reply = Reply { to: 5, from: 2, end: 6 };
    for answer in [4, 3] {
        index.enter(POD, &prompt(b"ab"), &Turn { name: 5, reply: None }, 0);
        index.leave(POD, (&prompt(b"ab"), 5), answer, 0);
    }
    assert_eq!(matched_on(&index, POD, &prompt(b"abANSWER"), reply), 6);
    index.insert(POD, &prompt(b"vwxyz"));
    assert_eq!(matched_on(&index, POD, &prompt(b"abANSWER"), reply), 6, "the older one went");
    index.insert(POD, &prompt(b"qr"));
    assert_eq!(matched_on(&index, POD, &prompt(b"abANSWER"), reply), 3);
    index.insert(POD, &prompt(b"s"));
    assert_eq!(matched_on(&index, POD, &prompt(b"abANSWER"), reply), 2);
    assert!(index.rings[&POD].answer_to(5).is_none());
}

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
    let kept = index.rings.get(&pod).map_or_else(Vec::new, Ring::oldest_to_youngest);
    let blocks = |kept| match kept {
        Kept::Segment(id) => index.segments.held(id, pod).into_iter().rev().map(Ok).collect(),
        Kept::Answer(answer) => vec![Err(answer.to); answer.held as usize],
        Kept::Nothing => unreachable!("it is in no ring"),
    };
    kept.into_iter().flat_map(blocks).collect()
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
                let held = |block: &Block| match *block {
                    Block::Named(name) => Ok(name),
                    Block::Of(prompt, _) => Err(prompt),
                };
                let blocks: Vec<_> = model.blocks.iter().map(held).collect();
                prop_assert_eq!(oldest_to_youngest(&index, pod), blocks);
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
