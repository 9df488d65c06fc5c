//! Users in groups who share a system prompt and come back with everything that was said so far.
//!
//! This is the multi-turn shared-prefix generator of inference-perf, whose two published readings differ in what a turn carries
//! ([`Reading`]). In both, question and answer lengths are drawn once per user, a user sends the same question text in every
//! round, request number i of a stage belongs to user i modulo their number, which user is in which group is shuffled, and a
//! user's next round waits for the answer of the one before it, before its own clock starts.
//!
//! A conversation that would grow past [`Facts::context_tokens`] starts again from its system prompt.

use std::sync::OnceLock;

use anyhow::Result;
use rand::{Rng, seq::SliceRandom};
use weir_core::prefix::{Reply, Turn};

use super::{
    Means, Objectives, Source,
    arrivals::{self, Call},
    chain::{Chain, name},
    draft::Draft,
    draw::stream,
    length::Length,
    means::Count,
};
use crate::sim::SimRequest;

/// What a turn of a conversation carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// inference-perf of early 2026 (fc877d3): one system prompt, then all questions and answers; conversations live on
    /// through all stages.
    Kept,
    /// Its head of mid 2026: every turn carries the system prompt again, and each stage starts with empty conversations.
    Cleared,
    /// Conversations of so many turns whose next turn does not wait, from users in random order: arrivals stay open-loop.
    Open(u32),
}

/// The numbers of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Groups, each with a system prompt of its own.
    pub(super) groups: u32,
    /// Users of a group.
    pub(super) users_per_group: u32,
    /// Length of a system prompt.
    pub(super) system_tokens: u32,
    /// Length of a user's question.
    pub(super) question: Length,
    /// Length of a user's answers.
    pub(super) answer: Length,
    /// A conversation gets no longer than this.
    pub(super) context_tokens: u32,
    /// The rate at which its means are counted where it has no stages of its own, and over how many requests.
    pub(super) usual: (f64, usize),
}

/// Requests over which the means of open conversations are counted.
const OPEN_SAMPLE: usize = 3000;
/// And those of stages, at most: every published ladder has fewer.
pub(super) const STAGED_SAMPLE: usize = 30_000;

/// Kinds of text.
const SYSTEM: u64 = 1;
const QUESTION: u64 = 2;
const ANSWER: u64 = 3;
/// A prompt as a whole, which the turn after it names too.
const PROMPT: u64 = 4;

/// The source.
#[derive(Debug)]
pub struct Conversation {
    name: String,
    facts: Facts,
    reading: Reading,
    stages: Option<Vec<(f64, f64)>>,
    /// Seed of the sample for the means.
    seed: u64,
    means: OnceLock<Means>,
}

impl Conversation {
    pub(super) fn new(
        name: impl Into<String>,
        facts: Facts,
        reading: Reading,
        stages: Option<Vec<(f64, f64)>>,
        seed: u64,
    ) -> Self {
        Self { name: name.into(), facts, reading, stages, seed, means: OnceLock::new() }
    }

    fn calls(&self, rate_rps: f64, count: usize, seed: u64) -> Result<Vec<Call>> {
        match &self.stages {
            Some(stages) => Ok(arrivals::staged(stages, count, seed)),
            None => arrivals::steady(rate_rps, count, seed),
        }
    }

    /// Makes the requests of these arrivals, one after the other.
    fn each(&self, calls: &[Call], seed: u64, mut emit: impl FnMut(usize, Draft<'static>)) {
        let mut users = self.users(seed);
        let mut anybody = stream(seed, "users");
        for (place, call) in calls.iter().enumerate() {
            let number = match self.reading {
                Reading::Open(_) => anybody.random_range(0..users.len().max(1)),
                Reading::Kept | Reading::Cleared => call.index % users.len().max(1),
            };
            if let Some(user) = users.get_mut(number) {
                emit(place, user.turn(place, call, &self.facts, self.reading));
            }
        }
    }

    fn users(&self, seed: u64) -> Vec<User> {
        let facts = &self.facts;
        let mut groups: Vec<u32> = (0..facts.groups)
            .flat_map(|group| std::iter::repeat_n(group, facts.users_per_group as usize))
            .collect();
        groups.shuffle(&mut stream(seed, "groups"));
        let mut rng = stream(seed, "lengths");
        let user = |(number, group): (u64, u32)| User {
            number,
            system: name([SYSTEM, u64::from(group), 0], 0),
            question_tokens: facts.question.draw(&mut rng),
            answer_tokens: facts.answer.draw(&mut rng),
            said: Chain::default(),
            turns: 0,
            stage: 0,
            last: None,
            reply: None,
        };
        (0..).zip(groups).map(user).collect()
    }

    fn count_means(&self) -> Means {
        let count = match (&self.stages, self.reading) {
            (Some(_), _) => STAGED_SAMPLE,
            (None, Reading::Open(_)) => OPEN_SAMPLE,
            (None, _) => self.facts.usual.1,
        };
        let calls = self.calls(self.facts.usual.0, count, self.seed).unwrap_or_default();
        let mut means = Count::default();
        self.each(&calls, self.seed, |_, draft| means.draft(&draft));
        means.means()
    }
}

impl Source for Conversation {
    fn name(&self) -> &str {
        &self.name
    }

    fn means(&self) -> Means {
        *self.means.get_or_init(|| self.count_means())
    }

    fn stages(&self) -> Option<&[(f64, f64)]> {
        self.stages.as_deref()
    }

    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        let calls = self.calls(rate_rps, count, seed)?;
        let mut classes = stream(seed, "classes");
        let mut requests = Vec::with_capacity(calls.len());
        self.each(&calls, seed, |place, draft| {
            requests.push(draft.request(place, objectives, &mut classes));
        });
        Ok(requests)
    }
}

/// A user and what was said so far.
#[derive(Debug)]
struct User {
    number: u64,
    /// Name of its group's system prompt.
    system: u64,
    question_tokens: u32,
    answer_tokens: u32,
    said: Chain,
    /// Turns of the conversation so far.
    turns: u32,
    /// Stage of the last one.
    stage: usize,
    /// Place of the last one.
    last: Option<usize>,
    /// The answer to that, from which the next turn of the conversation goes on.
    reply: Option<Reply>,
}

impl User {
    fn turn(
        &mut self,
        place: usize,
        call: &Call,
        facts: &Facts,
        reading: Reading,
    ) -> Draft<'static> {
        let number = place as u64;
        let (over, question, after) = match reading {
            Reading::Kept => (false, [QUESTION, self.number, 0], self.last.replace(place)),
            Reading::Cleared => {
                (self.stage != call.stage, [QUESTION, self.number, 0], self.last.replace(place))
            }
            Reading::Open(turns) => (self.turns >= turns, [QUESTION, number, 0], None),
        };
        let again = if reading == Reading::Cleared { facts.system_tokens } else { 0 };
        let grown = again.saturating_add(self.question_tokens).saturating_add(self.answer_tokens);
        if over || self.said.tokens().saturating_add(grown) > facts.context_tokens {
            (self.said, self.turns, self.reply) = (Chain::default(), 0, None);
        }
        if self.turns == 0 || reading == Reading::Cleared {
            self.said.append(self.system, facts.system_tokens);
        }
        self.said.append(name(question, 0), self.question_tokens);
        let (input_tokens, blocks) = (self.said.tokens(), self.said.blocks());
        self.said.append(name([ANSWER, number, 0], 0), self.answer_tokens);
        (self.turns, self.stage) = (self.turns + 1, call.stage);
        let (called, blocks_with_answer) = (name([PROMPT, number, 0], 0), self.said.blocks());
        let [from, end] = [&blocks, &blocks_with_answer].map(|blocks| blocks.len() as u32);
        let reply = self.reply.replace(Reply { to: called, from, end });
        Draft {
            at_s: call.at_s,
            input_tokens,
            output_tokens: self.answer_tokens,
            class: None,
            blocks,
            blocks_with_answer: Some(blocks_with_answer),
            turn: Turn { name: called, reply },
            after,
        }
    }
}
