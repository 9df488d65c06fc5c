//! What the index believes of pods, step by step.

mod model;

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

#[test]
fn a_pod_with_large_blocks_finds_whole_ones() {
    let mut index = alone(40);
    index.insert(POD, &prompt(b"abcdefgh"));
    let share = |index: &PrefixIndex, tokens: f64, asked: &[u8]| {
        let mut found = Vec::new();
        index.finds((&prompt(asked), tokens), &ALONE, &mut found);
        found.first().map(|one| one.share)
    };
    let version = index.version();
    index.set_grain(POD, 100);
    assert!(index.version() > version);
    // It holds 150 of 200 tokens, then 90 of 120, and then the whole prompt.
    assert_eq!(share(&index, 200.0, b"abcdefxx"), Some(0.5));
    assert_eq!(share(&index, 120.0, b"abcdefxx"), None);
    assert_eq!(share(&index, 200.0, b"abcdefgh"), Some(0.5), "its last token is computed");
    assert_eq!(share(&index, 201.0, b"abcdefgh"), Some(200.0 / 201.0));
    index.set_grain(POD, 0);
    assert_eq!(share(&index, 200.0, b"abcdefxx"), Some(0.75));
}

#[test]
fn what_a_pod_finds_less_of_counts_for_less_until_it_leaves() {
    let mut index = alone(40);
    index.insert(POD, &prompt(b"abcdefgh"));
    index.set_capacity(PodId(4), 40);
    index.insert(PodId(4), &prompt(b"abcdefgh"));
    let shares = |index: &PrefixIndex| {
        let mut found = Vec::new();
        index.finds((&prompt(b"abcdwxyz"), 128.0), &ALONE, &mut found);
        found.iter().map(|one| one.share).collect::<Vec<_>>()
    };
    let version = index.version();
    index.set_found(POD, 0.25);
    assert!(index.version() > version && shares(&index) == [0.125, 0.5]);
    index.set_found(POD, 1.0);
    assert_eq!(shares(&index), [0.5, 0.5]);
    index.set_found(POD, 0.25);
    index.remove(POD);
    index.set_capacity(POD, 40);
    index.insert(POD, &prompt(b"abcdefgh"));
    assert_eq!(shares(&index), [0.5, 0.5]);
}

#[test]
fn an_answer_after_which_another_was_given_is_asked_for_by_nobody_wherever_it_is_recalled() {
    let mut index = alone(40);
    for answer in [4, 3] {
        index.enter(POD, &prompt(b"ab"), &Turn { name: 5, reply: None }, 0);
        index.leave(POD, (&prompt(b"ab"), 5), answer, 0);
    }
    let two = index.cached(POD);
    let goes_on = Turn { name: 0, reply: Some(Reply { to: 5, from: 2, end: 6 }) };
    index.enter(POD, &prompt(b"abANSWER"), &goes_on, 0);
    let mut other = alone(40);
    other.recall(POD, &index.cached(POD));
    assert!(other.rings[&POD].answer_to(5).is_none());
    // What is younger here is the last one.
    other.enter(POD, &prompt(b"ab"), &Turn { name: 5, reply: None }, 0);
    other.leave(POD, (&prompt(b"ab"), 5), 1, 0);
    other.recall(POD, &two);
    assert_eq!(other.rings[&POD].answer_to(5).map(|answer| answer.blocks), Some(1));
    other.enter(POD, &prompt(b"abANSWER"), &goes_on, 0);
    assert!(other.rings[&POD].answer_to(5).is_none());
}

#[test]
fn what_is_recalled_is_older_than_what_is_known_and_takes_what_room_is_left() {
    let mut before = alone(100);
    before.insert(POD, &prompt(b"system one"));
    before.insert(POD, &prompt(b"system two"));
    before.insert(POD, &prompt(b"another"));
    let cached = before.cached(POD);
    let mut index = alone(18);
    index.insert(POD, &prompt(b"system more"));
    index.recall(POD, &cached);
    assert_eq!(matched(&index, POD, &prompt(b"another")), 7, "the youngest");
    assert_eq!(index.len_of(POD), 18);
    index.insert(POD, &prompt(b"new"));
    assert_eq!(matched(&index, POD, &prompt(b"another")), 4);
    assert_eq!(matched(&index, POD, &prompt(b"system more")), 11);
    let version = index.version();
    index.recall(POD, &cached);
    assert_eq!((index.version(), index.len_of(POD)), (version, 18), "there is no room");
    index.recall(PodId(99), &cached);
    assert_eq!(index.len_of(PodId(99)), 0, "no such pod");
}

#[test]
fn what_is_recalled_without_what_was_before_it_spoils_nothing() {
    let mut before = alone(100);
    before.insert(POD, &prompt(b"abcd"));
    before.insert(POD, &prompt(b"abxy"));
    let Cached(parts) = before.cached(POD);
    let orphan = parts
        .iter()
        .find(|part| matches!(part, Part::Prompt(names) if names[..] == prompt(b"abcd")[2..]));
    let mut index = alone(20);
    index.recall(POD, &Cached(orphan.into_iter().cloned().collect()));
    assert_eq!(index.len_of(POD), 2);
    index.insert(POD, &prompt(b"abcd"));
    index.insert(POD, &prompt(b"abuv"));
    assert_eq!(matched(&index, POD, &prompt(b"abcd")), 4);
    // What cannot be found is forgotten in its turn, and what has its name is not.
    index.insert(POD, &prompt(b"0123456789"));
    index.insert(POD, &prompt(b"ab"));
    assert_eq!((index.len_of(POD), matched(&index, POD, &prompt(b"abcd"))), (18, 4));
    index.remove(POD);
    assert_eq!((index.segments.len(), index.segments.used()), (0, (0, 0)));
}
