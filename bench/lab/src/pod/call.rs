//! One request's progress: sequences feed it tokens, its body or its waiter takes what they became.

use std::{collections::VecDeque, task::Waker};

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use weir_engine::SeqId;

use super::{
    answer::{Chunks, Finish, Shape, Usage},
    fault::Doom,
};

/// The state that the engine's side and the HTTP side of a request share.
#[derive(Debug)]
pub(super) struct Call {
    shape: Shape,
    stream: bool,
    include_usage: bool,
    prompt_tokens: u32,
    choices: Vec<Choice>,
    /// Sequences that still generate.
    running: usize,
    /// Tokens generated, over all choices.
    tokens: u32,
    doom: Option<Doom>,
    /// What to give to the pod that will read the KV that is kept.
    handed: Option<Value>,
    /// Bytes to be sent.
    ready: VecDeque<Bytes>,
    /// Bytes kept back by a stall.
    withheld: VecDeque<Bytes>,
    cut: bool,
    /// A cut call has waited once, so that what it sent before has left.
    flushed: bool,
    waker: Option<Waker>,
}

/// One sequence of a call.
#[derive(Debug)]
pub(super) struct Choice {
    /// Its sequence in the engine.
    pub(super) seq: SeqId,
    /// Tokens it will have.
    pub(super) tokens: u32,
    /// Why it will end.
    pub(super) finish: Finish,
    chunks: Option<Chunks>,
    ended: bool,
}

/// What a body finds when it looks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Bytes(Bytes),
    Wait,
    Cut,
    End,
}

impl Call {
    pub(super) fn new(
        shape: Shape,
        (stream, include_usage): (bool, bool),
        prompt_tokens: u32,
        doom: Option<Doom>,
    ) -> Self {
        Self {
            shape,
            stream,
            include_usage,
            prompt_tokens,
            choices: Vec::new(),
            running: 0,
            tokens: 0,
            doom,
            handed: None,
            ready: VecDeque::new(),
            withheld: VecDeque::new(),
            cut: false,
            flushed: false,
            waker: None,
        }
    }

    /// Adds a sequence and returns its index.
    pub(super) fn add(&mut self, seq: SeqId, tokens: u32, finish: Finish) -> usize {
        let index = self.choices.len();
        let chunks = self.stream.then(|| self.shape.chunks(index));
        self.choices.push(Choice { seq, tokens, finish, chunks, ended: false });
        self.running += 1;
        index
    }

    /// A token of a choice; `index` counts from 1. Returns whether the call was cut by it.
    pub(super) fn token(&mut self, choice: usize, index: u32) -> bool {
        self.tokens += 1;
        if let Some(Doom::CutAfter(after)) = self.doom
            && self.tokens > after
        {
            self.cut = true;
            self.wake();
            return true;
        }
        if self.stream {
            self.chunk(choice, index);
        }
        false
    }

    fn chunk(&mut self, choice: usize, index: u32) {
        let Some(of) = self.choices.get(choice) else { return };
        let opening =
            if index == 1 { self.shape.opening(choice, self.prompt_tokens) } else { None };
        let chunk = match &of.chunks {
            Some(chunks) if index < of.tokens => chunks.word(index),
            _ => self.shape.last(choice, index, of.finish),
        };
        opening.into_iter().chain([chunk]).for_each(|bytes| self.push(bytes));
    }

    /// A choice has had its last token. Returns why it ended.
    pub(super) fn finished(&mut self, choice: usize) -> Option<Finish> {
        let of = self.choices.get_mut(choice)?;
        let finish = of.finish;
        of.ended = true;
        self.running -= 1;
        if self.running == 0 && self.stream {
            let closing = self.shape.closing(self.include_usage.then(|| self.usage()), finish);
            self.push(closing);
        }
        if self.running == 0 {
            self.wake();
        }
        Some(finish)
    }

    /// The id that the answer has.
    pub(super) fn id(&self) -> &str {
        &self.shape.id
    }

    /// Adds to the whole answer what another pod is to be given; a stream does not say it.
    pub(super) fn hand(&mut self, params: Value) {
        self.handed = Some(params);
    }

    /// Sequences that still generate.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = SeqId> {
        self.choices.iter().filter(|choice| !choice.ended).map(|choice| choice.seq)
    }

    /// Lets a stalled stream go on.
    pub(super) fn unstall(&mut self) {
        if matches!(self.doom, Some(Doom::SilentAfter(_))) {
            self.doom = None;
            self.ready.append(&mut self.withheld);
            self.wake();
        }
    }

    /// What a body sends now; everything that is ready goes out together.
    pub(super) fn next(&mut self, waker: &Waker) -> Next {
        match self.ready.pop_front() {
            Some(only) if self.ready.is_empty() => Next::Bytes(only),
            Some(first) => {
                let mut all = BytesMut::from(first.as_ref());
                self.ready.drain(..).for_each(|bytes| all.extend_from_slice(&bytes));
                Next::Bytes(all.freeze())
            }
            None if self.cut && self.flushed => Next::Cut,
            None if self.cut => {
                self.flushed = true;
                waker.wake_by_ref();
                Next::Wait
            }
            None if self.running == 0 && !self.silent() => Next::End,
            None => {
                self.waker = Some(waker.clone());
                Next::Wait
            }
        }
    }

    /// The whole answer, for a call that is not streamed and over.
    pub(super) fn whole(&self) -> String {
        let choices: Vec<(u32, Finish)> =
            self.choices.iter().map(|choice| (choice.tokens, choice.finish)).collect();
        self.shape.whole(&choices, self.usage(), self.handed.as_ref())
    }

    fn usage(&self) -> Usage {
        Usage { prompt: self.prompt_tokens, completion: self.tokens }
    }

    fn silent(&self) -> bool {
        matches!(self.doom, Some(Doom::SilentAfter(after)) if self.tokens > after)
    }

    fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if self.silent() {
            self.withheld.push_back(bytes);
        } else {
            self.ready.push_back(bytes);
            self.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
