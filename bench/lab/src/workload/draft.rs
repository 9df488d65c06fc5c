//! A request before it has objectives.

use std::sync::Arc;

use rand::{Rng, rngs::SmallRng};
use weir_core::{PromptSize, Request, RequestId, Time, prefix::Turn};

use super::{BLOCK_TOKENS, Objective, Objectives};
use crate::sim::SimRequest;

/// What a source knows of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft<'a> {
    /// When it comes, in seconds from the start.
    pub(super) at_s: f64,
    /// Length of the prompt.
    pub(super) input_tokens: u32,
    /// Length of the answer.
    pub(super) output_tokens: u32,
    /// The class that it has of itself.
    pub(super) class: Option<&'a str>,
    /// Hashes of all of the prompt's full blocks, or none where nobody shares any.
    pub(super) blocks: Arc<[u64]>,
    /// The same with the answer's, where a later turn has that in its prompt.
    pub(super) blocks_with_answer: Option<Arc<[u64]>>,
    /// What it is in its conversation.
    pub(super) turn: Turn,
    /// Place of the turn that it waits for.
    pub(super) after: Option<usize>,
}

impl Draft<'_> {
    /// The request at a place of the list, with the objectives of its own class, or of one drawn by share.
    pub(super) fn request(
        self,
        place: usize,
        objectives: &Objectives,
        rng: &mut SmallRng,
    ) -> SimRequest {
        // Drawn also when it is not needed, so that naming a class moves no other request's.
        let drawn = objectives.by_share(rng.random());
        let own = self.class.and_then(|name| objectives.place_of(name));
        let class = own.unwrap_or(drawn);
        let objective = objectives.classes.get(class);
        debug_assert!(
            self.blocks.is_empty()
                || self.blocks.len() == (self.input_tokens / BLOCK_TOKENS) as usize,
            "blocks of a part of the prompt pass for all of it"
        );
        SimRequest {
            request: Request {
                slo: objective.map(|class| class.slo(self.input_tokens)).unwrap_or_default(),
                band: objective.map(Objective::band).unwrap_or_default(),
                body_bytes: self.input_tokens.saturating_mul(4),
                blocks: self.blocks,
                turn: self.turn,
                ..Request::new(
                    RequestId(place as u64),
                    Time::from_micros((self.at_s * 1e6) as u64),
                    PromptSize::Tokens(self.input_tokens),
                )
            },
            class,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            blocks_with_answer: self.blocks_with_answer,
            after: self.after,
        }
    }
}
