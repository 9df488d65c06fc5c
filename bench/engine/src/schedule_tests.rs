//! The scheduler alone, one synchronous step after another.

use super::*;
use crate::hardware::hardware;

#[path = "lora_tests.rs"]
mod lora;

struct Rig {
    scheduler: Scheduler,
    rows: Vec<Row>,
}

/// 32 usable blocks of 16 tokens, 256 tokens a step, unless changed.
fn rig(change: impl Fn(&mut EngineConfig)) -> Rig {
    let mut cfg = EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap());
    cfg.num_blocks = 33;
    cfg.max_num_batched_tokens = 256;
    change(&mut cfg);
    Rig { scheduler: Scheduler::new(&cfg), rows: Vec::new() }
}

fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

impl Rig {
    fn add(&mut self, prompt_tokens: u32, output_tokens: u32, blocks: Vec<u64>) -> SeqIndex {
        self.add_with_priority(prompt_tokens, output_tokens, blocks, 0)
    }

    fn add_with_priority(
        &mut self,
        prompt_tokens: u32,
        output_tokens: u32,
        blocks: Vec<u64>,
        priority: i32,
    ) -> SeqIndex {
        let (brought_tokens, keeps, adapter) = (0, false, None);
        self.add_job(Job {
            prompt_tokens,
            blocks,
            output_tokens,
            priority,
            brought_tokens,
            keeps,
            adapter,
        })
    }

    fn add_job(&mut self, job: Job) -> SeqIndex {
        let index = self.scheduler.accept(job, 0.0);
        self.scheduler.enqueue(index);
        index
    }

    /// Plans a step: who gets how many tokens.
    fn plan(&mut self) -> Vec<(SeqIndex, u32)> {
        let Self { scheduler, rows } = self;
        scheduler.schedule(0.0, rows);
        rows.iter().map(|row| (row.seq, row.tokens)).collect()
    }

    /// Processes what was planned; who got a token.
    fn process(&mut self) -> Vec<SeqIndex> {
        let mut sampled = Vec::new();
        for row in std::mem::take(&mut self.rows) {
            if self.scheduler.sampled(&row) {
                sampled.push(row.seq);
                let seq = self.scheduler.seqs.at(row.seq);
                if seq.generated == seq.target {
                    self.scheduler.end(row.seq);
                }
            }
        }
        self.scheduler.drop_ended();
        sampled
    }

    fn step(&mut self) -> Vec<(SeqIndex, u32)> {
        let planned = self.plan();
        self.process();
        planned
    }

    fn seq(&self, index: SeqIndex) -> &Sequence {
        self.scheduler.seqs.at(index)
    }

    fn free(&self) -> u32 {
        self.scheduler.pool.free()
    }
}

#[test]
fn one_token_budget_is_shared_by_decodes_and_prefills() {
    let mut rig = rig(|cfg| cfg.max_num_batched_tokens = 40);
    let a = rig.add(30, 9, vec![]);
    rig.step();
    let b = rig.add(100, 9, vec![]);
    assert_eq!(rig.step(), [(a, 1), (b, 39)]);
    assert_eq!(rig.step(), [(a, 1), (b, 39)]);
    assert_eq!(rig.step(), [(a, 1), (b, 22)]);
    assert_eq!(rig.step(), [(a, 1), (b, 1)]);
}

#[test]
fn running_sequences_go_in_order_of_admission_an_early_prefill_before_a_later_decode() {
    let mut rig = rig(|cfg| cfg.max_num_batched_tokens = 32);
    let a = rig.add(28, 9, vec![]);
    let b = rig.add(10, 9, vec![]);
    rig.step();
    let c = rig.add(64, 9, vec![]);
    assert_eq!(rig.step(), [(a, 1), (b, 6), (c, 25)]);
    rig.scheduler.cfg.max_num_batched_tokens = 20;
    assert_eq!(rig.step(), [(a, 1), (b, 1), (c, 18)]);
    let d = rig.add(5, 9, vec![]);
    rig.scheduler.cfg.max_num_batched_tokens = 23;
    assert_eq!(rig.step(), [(a, 1), (b, 1), (c, 21)], "the newcomer gets what is left: nothing");
    assert_eq!(rig.step(), [(a, 1), (b, 1), (c, 1), (d, 5)]);
}

#[test]
fn a_long_prefill_is_capped_only_while_it_has_company() {
    let mut rig = rig(|cfg| cfg.long_prefill_token_threshold = 16);
    let a = rig.add(100, 2, vec![]);
    assert_eq!(rig.step(), [(a, 100)]);
    let b = rig.add(100, 9, vec![]);
    assert_eq!(rig.step(), [(a, 1), (b, 16)]);
    assert_eq!(rig.step(), [(b, 84)], "alone again");
}

#[test]
fn when_memory_is_short_the_last_admitted_is_preempted() {
    let mut rig = rig(|cfg| cfg.num_blocks = 7);
    let a = rig.add(32, 50, vec![]);
    let b = rig.add(32, 50, vec![]);
    rig.step();
    assert_eq!(rig.step(), [(a, 1), (b, 1)], "a third block each");
    for _ in 0..15 {
        rig.step();
    }
    assert_eq!(rig.plan(), [(a, 1)], "a needs a fourth block and takes it from b");
    assert_eq!(rig.scheduler.running, [a]);
    assert_eq!((rig.seq(b).computed, rig.seq(b).preemptions), (0, 1));
    assert!(rig.seq(b).blocks.is_empty());
    assert_eq!(rig.scheduler.tally.preemptions, 1);
}

#[test]
fn a_sequence_preempts_itself_when_it_is_the_last() {
    let mut rig = rig(|cfg| cfg.num_blocks = 6);
    let a = rig.add(40, 50, vec![]);
    let b = rig.add(31, 50, vec![]);
    rig.step();
    assert_eq!(rig.step(), [(a, 1), (b, 1)]);
    assert_eq!(rig.plan(), [(a, 1)], "b needs a third block and there is none");
    assert_eq!(rig.scheduler.waiting.head(), Some(b));
}

#[test]
fn a_preempted_sequence_keeps_its_tokens_resumes_first_and_recomputes() {
    let mut rig = rig(|cfg| {
        cfg.num_blocks = 6;
        cfg.prefix_caching = false;
    });
    rig.add(40, 7, vec![]);
    let b = rig.add(31, 50, vec![]);
    rig.step();
    rig.step();
    let c = rig.add(5, 2, vec![]);
    rig.step();
    assert_eq!((rig.scheduler.waiting.head(), rig.seq(b).generated), (Some(b), 2));
    for _ in 0..4 {
        rig.step();
    }
    assert_eq!(rig.step(), [(b, 33), (c, 5)], "prompt and both generated tokens");
    assert_eq!(rig.seq(b).generated, 3);
}

#[test]
fn a_resumed_sequence_finds_its_own_blocks_in_the_cache() {
    let mut rig = rig(|cfg| cfg.num_blocks = 7);
    let a = rig.add(48, 2, vec![]);
    let b = rig.add(40, 50, vec![]);
    rig.step();
    assert_eq!(rig.step(), [(a, 1)], "b makes room, a ends");
    assert_eq!(rig.step(), [(b, 9)], "prompt and one token, less two cached blocks");
    assert_eq!(rig.seq(b).cached_tokens, 0, "the first admission found nothing");
}

#[test]
fn nobody_is_admitted_in_a_step_that_preempted() {
    let mut rig = rig(|cfg| {
        cfg.num_blocks = 9;
        cfg.max_num_seqs = 2;
        cfg.priority_policy = true;
    });
    let keeper = rig.add_with_priority(48, 50, vec![], 0);
    rig.add_with_priority(80, 50, vec![], 5);
    rig.step();
    let small = rig.add_with_priority(1, 1, vec![], 0);
    assert_eq!(rig.plan(), [(keeper, 1)], "the newcomer would fit into what the victim gave back");
    rig.process();
    assert_eq!(rig.step(), [(keeper, 1), (small, 1)]);
}

#[test]
fn a_head_that_does_not_fit_blocks_those_behind_it() {
    let mut rig = rig(|cfg| cfg.num_blocks = 9);
    let a = rig.add(64, 3, vec![]);
    rig.step();
    rig.add(65, 3, vec![]);
    let small = rig.add(1, 1, vec![]);
    assert_eq!(rig.step(), [(a, 1)], "5 blocks are needed and 3 are free");
    assert!(matches!(rig.seq(small).phase, Phase::Waiting(_)));
}

#[test]
fn no_more_than_max_num_seqs_run() {
    let mut rig = rig(|cfg| cfg.max_num_seqs = 2);
    for _ in 0..3 {
        rig.add(1, 2, vec![]);
    }
    assert_eq!(rig.step().len(), 2);
    assert_eq!(rig.step().len(), 2);
    assert_eq!(rig.step().len(), 1);
}

#[test]
fn under_the_priority_policy_the_least_important_is_last_in_and_first_out() {
    let mut rig = rig(|cfg| {
        cfg.priority_policy = true;
        cfg.num_blocks = 10;
    });
    let low = rig.add_with_priority(48, 50, vec![], 5);
    let high = rig.add_with_priority(48, 50, vec![], -1);
    assert_eq!(rig.step(), [(high, 48), (low, 48)]);
    let mid = rig.add_with_priority(15, 50, vec![], 0);
    assert_eq!(rig.step(), [(high, 1), (low, 1), (mid, 15)]);
    assert_eq!(rig.step(), [(high, 1), (low, 1), (mid, 1)]);
    assert_eq!(rig.free(), 0);
    rig.scheduler.cfg.max_num_batched_tokens = 3;
    let last = rig.add_with_priority(9, 50, vec![], 1);
    assert_eq!(rig.plan(), [(high, 1), (mid, 1)], "low was planned before mid and is taken back");
    assert_eq!(rig.scheduler.running, [high, mid]);
    assert_eq!(rig.seq(low).preemptions, 1);
    rig.process();
    assert_eq!(rig.step(), [(high, 1), (mid, 1), (last, 1)], "last is before low in the queue");
}

#[test]
fn a_victim_planned_earlier_gives_its_tokens_to_those_behind_it() {
    let mut rig = rig(|cfg| {
        cfg.priority_policy = true;
        cfg.num_blocks = 6;
    });
    let low = rig.add_with_priority(40, 50, vec![], 5);
    rig.step();
    let taker = rig.add_with_priority(16, 50, vec![], 0);
    let tail = rig.add_with_priority(10, 50, vec![], 0);
    assert_eq!(rig.step(), [(low, 1), (taker, 16), (tail, 10)]);
    rig.scheduler.cfg.max_num_batched_tokens = 2;
    assert_eq!(rig.plan(), [(taker, 1), (tail, 1)], "the taker needs a block, low was planned");
}

#[test]
fn memory_is_taken_from_the_deepest_blocks_of_the_sequence_that_ended_first() {
    let mut rig = rig(|cfg| cfg.num_blocks = 9);
    rig.add(128, 1, hashes(0..8));
    rig.step();
    rig.add(48, 1, vec![]);
    rig.step();
    let again = rig.add(128, 1, hashes(0..8));
    rig.step();
    assert_eq!(rig.seq(again).cached_tokens, 80, "three of eight blocks are gone, the deepest");
}

#[test]
fn the_prefix_is_the_longest_run_of_cached_leading_blocks() {
    let mut rig = rig(|_| {});
    rig.add(64, 1, hashes(0..4));
    rig.step();
    let fork = rig.add(80, 1, vec![0, 1, 99, 3, 4]);
    assert_eq!(rig.step(), [(fork, 48)]);
    assert_eq!((rig.scheduler.tally.prefix_queries, rig.scheduler.tally.prefix_hits), (144, 32));
}

#[test]
fn a_fully_cached_prompt_recomputes_its_last_block() {
    let mut rig = rig(|_| {});
    rig.add(64, 1, hashes(0..4));
    rig.step();
    let again = rig.add(64, 1, hashes(0..4));
    assert_eq!(rig.plan(), [(again, 16)]);
    assert_eq!(rig.seq(again).cached_tokens, 48);
}

#[test]
fn without_prefix_caching_nothing_is_looked_up() {
    let mut rig = rig(|cfg| cfg.prefix_caching = false);
    rig.add(64, 1, hashes(0..4));
    rig.step();
    let again = rig.add(64, 1, hashes(0..4));
    assert_eq!(rig.plan(), [(again, 64)]);
    assert_eq!(rig.scheduler.tally.prefix_queries, 0);
}

#[test]
fn without_chunked_prefill_a_prompt_waits_for_a_step_that_holds_it() {
    let mut rig = rig(|cfg| {
        cfg.chunked_prefill = false;
        cfg.max_num_batched_tokens = 100;
    });
    let a = rig.add(60, 9, vec![]);
    let b = rig.add(60, 9, vec![]);
    assert_eq!(rig.step(), [(a, 60)]);
    assert_eq!(rig.step(), [(a, 1), (b, 60)]);
}

#[test]
fn admission_reserves_the_whole_prompt_unless_told_not_to() {
    for (reserve, admitted) in [(true, 1), (false, 2)] {
        let mut rig = rig(|cfg| {
            cfg.reserve_full_isl = reserve;
            cfg.num_blocks = 13;
            cfg.max_num_batched_tokens = 80;
        });
        rig.add(64, 9, vec![]);
        rig.add(160, 9, vec![]);
        assert_eq!(rig.step().len(), admitted, "the second prompt needs 10 blocks, its chunk 1");
    }
}

#[test]
fn the_watermark_is_kept_free_only_beside_running_sequences() {
    let mut rig = rig(|cfg| cfg.watermark = 0.5);
    let a = rig.add(32 * 16 - 60, 9, vec![]);
    assert_eq!(rig.step(), [(a, 256)], "alone it may fill the cache");
    rig.add(16, 1, vec![]);
    assert_eq!(rig.step(), [(a, 196)], "beside it nothing may");
}

#[test]
fn a_hit_on_a_free_block_uses_up_free_memory_and_on_a_used_block_does_not() {
    let mut rig = rig(|cfg| cfg.num_blocks = 9);
    let owner = rig.add(64, 9, hashes(0..4));
    rig.step();
    let beside = rig.add(80, 9, hashes(0..5));
    assert_eq!(rig.step(), [(owner, 1), (beside, 16)], "4 blocks shared, 1 new, 1 for the owner");
    assert_eq!(rig.free(), 2);
    for index in [owner, beside] {
        rig.scheduler.end(index);
    }
    rig.scheduler.drop_ended();
    assert_eq!(rig.free(), 8);
    let other = rig.add(64, 9, hashes(50..54));
    rig.step();
    let late = rig.add(80, 9, hashes(0..5));
    assert_eq!(rig.step(), [(other, 1)], "5 are needed, 3 of them asleep in the 3 that are left");
    assert!(matches!(rig.seq(late).phase, Phase::Waiting(_)));
}

#[test]
fn a_block_can_be_hit_in_the_very_step_that_computes_it() {
    let mut rig = rig(|_| {});
    let first = rig.add(64, 9, hashes(0..4));
    let second = rig.add(70, 9, hashes(0..4));
    assert_eq!(rig.step(), [(first, 64), (second, 6)]);
}

#[test]
fn blocks_filled_by_output_can_be_hit_by_the_next_turn() {
    let mut rig = rig(|_| {});
    rig.add(30, 20, hashes(0..3));
    for _ in 0..20 {
        rig.step();
    }
    assert!(rig.scheduler.running.is_empty());
    let turn = rig.add(70, 9, hashes(0..4));
    assert_eq!(rig.step(), [(turn, 22)], "48 of 50 tokens were in full blocks");
}

#[test]
fn a_token_is_sampled_only_when_the_last_known_token_is_computed() {
    let mut rig = rig(|cfg| cfg.max_num_batched_tokens = 40);
    let a = rig.add(100, 2, vec![]);
    for want in [vec![], vec![], vec![a], vec![a]] {
        rig.plan();
        assert_eq!(rig.process(), want);
    }
    assert_eq!(rig.free(), 32, "freed when the last output is processed");
}

#[test]
fn a_planned_step_is_computed_for_the_next_one() {
    let mut rig = rig(|cfg| cfg.max_num_batched_tokens = 64);
    let a = rig.add(100, 3, vec![]);
    assert_eq!(rig.plan(), [(a, 64)]);
    assert_eq!(rig.plan(), [(a, 36)], "although the first output was not seen");
    assert_eq!(rig.plan(), [(a, 1)]);
    assert_eq!(rig.plan(), [(a, 1)]);
    assert_eq!(rig.plan(), [], "its last token is in flight");
}

#[test]
fn a_token_in_flight_of_a_preempted_sequence_is_discarded() {
    let mut rig = rig(|_| {});
    let a = rig.add(20, 9, vec![]);
    rig.plan();
    rig.scheduler.preempt(a);
    assert_eq!(rig.process(), []);
    assert_eq!((rig.seq(a).generated, rig.seq(a).needs()), (0, 20));
}
