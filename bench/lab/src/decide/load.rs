//! The requests that come: a few kinds, each of its own tenant, with a prompt that all of the kind begin with.
//!
//! A kind has a size of prompt, a length of answer and a system prompt of [`SHARED_SHARE`] of the prompt. Every
//! fifth request continues an earlier one, so that one pod has most of it cached.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_core::{Band, PromptSize, Request, RequestId, Slo, Time};

use super::drive::Course;

/// Prompt sizes of the kinds, in tokens.
const INPUTS: [u32; 5] = [128, 256, 512, 1024, 2048];
/// Answer lengths of the kinds, in tokens.
const OUTPUTS: [u32; 4] = [32, 64, 128, 256];
/// Share of a prompt that all requests of a kind begin with.
const SHARED_SHARE: f64 = 0.45;
/// Tokens of a block of prompt, and its bytes.
const BLOCK_TOKENS: u32 = 16;
/// Bytes per token.
const TOKEN_BYTES: u32 = 4;
/// Share of requests that continue an earlier one.
const CONTINUED: f64 = 0.2;
/// Conversations of a kind that may be continued.
const KEPT: usize = 64;
/// Objectives at a real GPU's pace: Azure's conversations, as in docs/decisions/001-the-pull-loop.md.
const TTFT_SLO_MS: f64 = 2000.0;
const TPOT_SLO_MS: f64 = 50.0;

/// A kind of request.
#[derive(Debug)]
struct Kind {
    tenant: Arc<str>,
    input_tokens: u32,
    output_tokens: u32,
    shared: Vec<u64>,
    earlier: VecDeque<Arc<[u64]>>,
}

/// What a pod will make of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) streamed: bool,
    pub(super) input_tokens: u32,
    pub(super) output_tokens: u32,
    /// Prompt tokens that a pod that served the kind, or the conversation, before need not compute.
    pub(super) shared_tokens: u32,
}

/// Makes requests, the same ones for the same seed.
#[derive(Debug)]
pub(super) struct Load {
    kinds: Vec<Kind>,
    chance: SmallRng,
    slo: Slo,
    unstreamed: f64,
    unpromised: f64,
    next: u64,
}

impl Load {
    /// The requests of a course, with objectives at `pace` times a real GPU's.
    pub(super) fn new(course: &Course, pace: f64) -> Self {
        let Course { patterns, unstreamed, unpromised, seed, .. } = *course;
        let mut chance = SmallRng::seed_from_u64(seed);
        let ms = |ms: f64| Some(Duration::from_secs_f64(ms / 1e3 / pace));
        let slo = Slo { ttft: ms(TTFT_SLO_MS), tpot: ms(TPOT_SLO_MS) };
        let kinds = (0..patterns.max(1)).map(|place| Kind::new(place, &mut chance)).collect();
        Self { kinds, chance, slo, unstreamed, unpromised, next: 0 }
    }

    /// The number of the next request.
    pub(super) fn number(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    /// The next request.
    pub(super) fn next(&mut self, now: Time) -> Option<(Box<Request>, Sizes)> {
        let id = self.number();
        let place = self.chance.random_range(0..self.kinds.len());
        let kind = self.kinds.get_mut(place)?;
        let (blocks, shared_tokens) = kind.blocks(&mut self.chance);
        let input_tokens = blocks.len() as u32 * BLOCK_TOKENS;
        let bytes = input_tokens * TOKEN_BYTES;
        let spread = self.chance.random_range(0.7..1.3);
        // No draw where there is nothing to draw: the load stays the same one.
        let mut falls = |share: f64| share > 0.0 && self.chance.random_bool(share);
        let (streamed, promised) = (!falls(self.unstreamed), !falls(self.unpromised));
        let request = Request {
            streamed,
            slo: if promised { self.slo } else { Slo::default() },
            band: Band(1),
            tenant: Some(Arc::clone(&kind.tenant)),
            body_bytes: bytes,
            blocks,
            ..Request::new(id, now, PromptSize::Bytes(bytes))
        };
        let output_tokens = (f64::from(kind.output_tokens) * spread).max(2.0) as u32;
        Some((Box::new(request), Sizes { streamed, input_tokens, output_tokens, shared_tokens }))
    }
}

impl Kind {
    fn new(place: usize, chance: &mut SmallRng) -> Self {
        let pick = |of: &[u32], place: usize| of.get(place % of.len()).copied().unwrap_or(1);
        let input_tokens = pick(&INPUTS, place);
        let shared = f64::from(input_tokens / BLOCK_TOKENS) * SHARED_SHARE;
        Self {
            tenant: Arc::from(format!("tenant-{place}")),
            input_tokens,
            output_tokens: pick(&OUTPUTS, place / INPUTS.len()),
            shared: (0..shared as usize).map(|_| chance.random()).collect(),
            earlier: VecDeque::new(),
        }
    }

    /// The prompt of the next request, and how many tokens of it were sent before.
    fn blocks(&mut self, chance: &mut SmallRng) -> (Arc<[u64]>, u32) {
        let whole = (self.input_tokens / BLOCK_TOKENS) as usize;
        let place = chance.random_range(0..self.earlier.len().max(1));
        let continues = chance.random_bool(CONTINUED);
        // A conversation that has doubled is over.
        let before = self.earlier.get(place).filter(|one| continues && one.len() < 2 * whole);
        let begin = before.map_or(&*self.shared, |one| &**one);
        let more = match before {
            Some(_) => (whole / 4).max(1),
            None => (whole as f64 * chance.random_range(0.4..0.7)) as usize + 1,
        };
        let begun = begin.len();
        let blocks: Arc<[u64]> =
            begin.iter().copied().chain((0..more).map(|_| chance.random())).collect();
        if self.earlier.len() == KEPT {
            self.earlier.pop_front();
        }
        self.earlier.push_back(Arc::clone(&blocks));
        (blocks, begun as u32 * BLOCK_TOKENS)
    }
}
