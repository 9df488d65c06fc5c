//! The published scenarios: their numbers, and the names of their variants.
//!
//! A to D are those of the benchmark of llm-d's predicted-latency scheduling (groups, users per group, system prompt, question
//! and answer as mean and standard deviation); each was run as a ladder of rates, 100 s at each. The production ladder is of the
//! same benchmark. What it leaves open (the steps of the ladders, the users of the production ladder) is chosen here and said in
//! docs/workloads.md.

use super::{Conversation, Reading, arrivals::STAGE_S, conversation::Facts, length::Length};

/// A conversation gets no longer than the longest input of the production profile.
const CONTEXT_TOKENS: u32 = 131_072;
/// Seconds between two stages. The original starts a stage when the last answer of the one before it is over; the list of
/// arrivals is made before that is known, so the pause is longer than that ever takes.
const PAUSE_S: f64 = 400.0;
/// The same of the production ladder, whose stages of many requests are followed by quiet ones.
const PRODUCTION_PAUSE_S: f64 = 60.0;
/// Seconds of a stage of the production ladder.
const PRODUCTION_STAGE_S: f64 = 200.0;
/// Turns of an open conversation.
const OPEN_TURNS: u32 = 3;

/// A published scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Its letter.
    pub(super) letter: &'static str,
    /// What it is, in a few words.
    pub(super) what: &'static str,
    facts: Facts,
    ladder_rps: &'static [f64],
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// What follows the letter in its name.
    pub(super) suffix: &'static str,
    /// What it is, in a few words.
    pub(super) what: &'static str,
    reading: Reading,
    ladder: bool,
}

/// Every variant of a scenario, the plain one first.
pub(super) static VARIANTS: [Variant; 5] = [
    Variant {
        suffix: "",
        what: "conversations live on (inference-perf fc877d3)",
        reading: Reading::Kept,
        ladder: false,
    },
    Variant {
        suffix: "@head",
        what: "each turn repeats the system prompt, stages of 100 s start empty (inference-perf head)",
        reading: Reading::Cleared,
        ladder: false,
    },
    Variant {
        suffix: ":open",
        what: "three turns that do not wait for each other",
        reading: Reading::Open(OPEN_TURNS),
        ladder: false,
    },
    Variant {
        suffix: ":ladder",
        what: "the published ladder of rates, conversations live on",
        reading: Reading::Kept,
        ladder: true,
    },
    Variant {
        suffix: "@head:ladder",
        what: "the published ladder of rates, head's reading",
        reading: Reading::Cleared,
        ladder: true,
    },
];

/// A to D.
pub(super) static SCENARIOS: [Scenario; 4] = [
    Scenario {
        letter: "A",
        what: "6 system prompts of 1000 tokens, 1000 users each, questions of 30",
        facts: facts((6, 1000), 1000, (30, 9), 42.5),
        ladder_rps: &[5.0, 20.0, 35.0, 50.0, 65.0, 80.0],
    },
    Scenario {
        letter: "B",
        what: "6 system prompts of 1000 tokens, 1000 users each, questions of 3000",
        facts: facts((6, 1000), 1000, (3000, 900), 13.0),
        ladder_rps: &[2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0],
    },
    Scenario {
        letter: "C",
        what: "150 system prompts of 6000 tokens, 5 users each, questions of 1200",
        facts: facts((150, 5), 6000, (1200, 360), 12.0),
        ladder_rps: &[2.0, 6.0, 10.0, 14.0, 18.0, 22.0],
    },
    Scenario {
        letter: "D",
        what: "150 system prompts of 1000 tokens, 5 users each, questions of 6200",
        facts: facts((150, 5), 1000, (6200, 1860), 8.0),
        ladder_rps: &[2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0],
    },
];

const fn facts(
    users: (u32, u32),
    system_tokens: u32,
    question: (u32, u32),
    usual_rps: f64,
) -> Facts {
    Facts {
        groups: users.0,
        users_per_group: users.1,
        system_tokens,
        question: Length::around(question.0, question.1),
        answer: Length::around(1000, 300),
        context_tokens: CONTEXT_TOKENS,
        usual: (usual_rps, (usual_rps * STAGE_S) as usize),
    }
}

/// A variant of a scenario as a source.
pub(super) fn conversation(scenario: &Scenario, variant: &Variant, seed: u64) -> Conversation {
    let name = format!("{}{}", scenario.letter, variant.suffix);
    let stages =
        variant.ladder.then(|| ladder(STAGE_S, PAUSE_S, scenario.ladder_rps.iter().copied()));
    Conversation::new(name, scenario.facts, variant.reading, stages, seed)
}

/// Stages of these rates and so many seconds, with a pause after each but the last.
fn ladder(stage_s: f64, pause_s: f64, rates_rps: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let mut stages: Vec<_> = rates_rps.flat_map(|rps| [(rps, stage_s), (0.0, pause_s)]).collect();
    stages.pop();
    stages
}

/// Question of the production profile: normal with mean 729 and standard deviation 13550, clipped. Nearly half of the mass is at
/// the bound, and the mean becomes 5783.
pub(super) const PRODUCTION_QUESTION: Length =
    Length::Normal { mean: 729.0, std: 13_550.0, least: 1, most: CONTEXT_TOKENS };
/// Answer of the production profile, likewise; the mean becomes 1039.
pub(super) const PRODUCTION_ANSWER: Length =
    Length::Normal { mean: 300.0, std: 2213.0, least: 1, most: 8192 };

/// So many users that waiting for one's own answer does not hold the rate down (with half of them it does), and stages so long
/// that each of them comes 30 times, for a hit near the published one.
const PRODUCTION: Facts = Facts {
    groups: 8,
    users_per_group: 20,
    system_tokens: 1000,
    question: PRODUCTION_QUESTION,
    answer: PRODUCTION_ANSWER,
    context_tokens: CONTEXT_TOKENS,
    usual: (3.0, 4800),
};

/// The production ladder with all its rates times a factor.
pub(super) fn production_ladder(name: &str, factor: f64, seed: u64) -> Conversation {
    let rates = [1.0, 5.0, 1.0, 5.0, 1.0, 5.0, 1.0, 5.0].map(|rps| rps * factor);
    Conversation::new(
        name,
        PRODUCTION,
        Reading::Kept,
        Some(ladder(PRODUCTION_STAGE_S, PRODUCTION_PAUSE_S, rates.into_iter())),
        seed,
    )
}

/// Its requests at one of its rates only, for as long as all stages of that rate take.
pub(super) fn production_stage(name: &str, rate_rps: f64, seed: u64) -> Conversation {
    let stages = vec![(rate_rps, 4.0 * PRODUCTION_STAGE_S)];
    Conversation::new(name, PRODUCTION, Reading::Kept, Some(stages), seed)
}

/// Its requests at any rate.
pub(super) fn production(name: &str, seed: u64) -> Conversation {
    Conversation::new(name, PRODUCTION, Reading::Kept, None, seed)
}

/// Two applications, everybody else's first question each: what all requests of one have in common takes nearly a second to compute.
const APPLICATIONS: Facts = Facts {
    groups: 2,
    users_per_group: 20_000,
    system_tokens: 11_000,
    question: Length::around(200, 60),
    answer: Length::around(150, 50),
    context_tokens: CONTEXT_TOKENS,
    usual: (20.0, 4000),
};

/// Requests of two applications with a long system prompt each.
pub(super) fn applications(name: &str, seed: u64) -> Conversation {
    Conversation::new(name, APPLICATIONS, Reading::Open(1), None, seed)
}
