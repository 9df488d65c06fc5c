//! One pod's engine on the wall clock: takes calls, delivers what the engine puts out, and counts it.
//!
//! Owned by its server and by every body that it feeds; [`Sim::drive`] is the one task that lets time pass. The engine never
//! waits for a client: a slow reader's chunks queue up in its call, at most one per token of its answer.

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::proto::MetricFamily;
use rand::{SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, LogNormal};
use tokio::{sync::Notify, time::Instant};
use weir_engine::{Engine, EngineConfig, Job, Output, Rejected, SeqId};

use super::{
    answer::{Finish, Shape, text},
    ask::{Ask, Endpoint, Prompt},
    body::Reply,
    call::Call,
    clock::Clock,
    error::Refusal,
    fault::Doom,
    meters::{Meters, Times},
    starts::Starts,
};

/// One pod's engine.
pub(super) struct Sim {
    state: RefCell<State>,
    /// Something changed that the next event depends on.
    changed: Notify,
    model: Rc<str>,
    max_model_len: u32,
    speed: f64,
}

struct State {
    engine: Engine,
    clock: Clock,
    sequences: HashMap<SeqId, Sequence>,
    /// Calls that a fault makes fall silent; their sequences may be over.
    stalling: Vec<Weak<RefCell<Call>>>,
    outputs: Vec<Output>,
    lengths: SmallRng,
    calls: u64,
    meters: Meters,
    starts: Starts,
}

struct Sequence {
    call: Rc<RefCell<Call>>,
    choice: usize,
    prompt_tokens: u32,
    arrived_ms: f64,
    last_token_ms: Option<f64>,
}

/// What a request says beside its body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside<'a> {
    pub(super) request_id: Option<&'a [u8]>,
    pub(super) output_tokens: Option<u32>,
    pub(super) doom: Option<Doom>,
}

impl Sim {
    pub(super) fn new(
        engine: EngineConfig,
        model: &str,
        (max_model_len, speed): (u32, f64),
    ) -> Result<Self, prometheus::Error> {
        let state = State {
            meters: Meters::new(model, &engine)?,
            lengths: SmallRng::seed_from_u64(engine.seed),
            engine: Engine::new(engine),
            clock: Clock::new(Instant::now(), speed),
            sequences: HashMap::new(),
            stalling: Vec::new(),
            outputs: Vec::new(),
            calls: 0,
            starts: Starts::default(),
        };
        let (state, changed) = (RefCell::new(state), Notify::new());
        Ok(Self { state, changed, model: model.into(), max_model_len, speed })
    }

    /// The model it serves.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The longest sequence it takes, in tokens.
    pub(super) fn max_model_len(&self) -> u32 {
        self.max_model_len
    }

    /// Tokens per KV block.
    pub(super) fn block_tokens(&self) -> u32 {
        self.state.borrow().engine.config().block_size
    }

    /// Lets time pass, for ever.
    pub(super) async fn drive(self: Rc<Self>) {
        loop {
            // The state is let go before anything is awaited.
            let next = self.state.borrow_mut().advance();
            match next {
                None => self.changed.notified().await,
                Some(next) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(next) => {}
                        () = self.changed.notified() => {}
                    }
                }
            }
        }
    }

    /// Starts a call: all of its sequences or none.
    pub(super) fn begin(self: &Rc<Self>, ask: &Ask, beside: Beside<'_>) -> Result<Reply, Refusal> {
        self.check(ask)?;
        let call = self.state.borrow_mut().begin(ask, beside, (&self.model, self.max_model_len));
        self.changed.notify_one();
        call.map(|call| Reply::new(Rc::clone(self), call))
    }

    /// Ends the sequences of a call whose client has left; nothing to do for one that is over.
    pub(super) fn abandon(&self, call: &Rc<RefCell<Call>>) {
        let ids: Vec<SeqId> = call.borrow().unfinished().collect();
        if !ids.is_empty() {
            self.state.borrow_mut().abort(&ids);
            self.changed.notify_one();
        }
    }

    /// Takes `factor` times as long from now on.
    pub(super) fn slow(&self, factor: f64) {
        self.state.borrow_mut().clock.set_speed(Instant::now(), self.speed / factor);
        self.changed.notify_one();
    }

    /// Lets every stalled stream go on.
    pub(super) fn unstall(&self) {
        let stalling = std::mem::take(&mut self.state.borrow_mut().stalling);
        for call in stalling.iter().filter_map(Weak::upgrade) {
            call.borrow_mut().unstall();
        }
    }

    /// What `/metrics` is made of.
    pub(super) fn metrics(&self) -> Vec<MetricFamily> {
        let state = self.state.borrow();
        state.meters.read(&state.engine.metrics(), (state.starts.total, state.starts.duplicates))
    }

    /// The answer of `/sim/starts`.
    pub(super) fn starts(&self) -> serde_json::Value {
        let starts = &self.state.borrow().starts;
        let ids: Vec<String> = starts.ids().map(|id| format!("{id:016x}")).collect();
        serde_json::json!({"total": starts.total, "duplicates": starts.duplicates, "ids": ids})
    }

    fn check(&self, ask: &Ask) -> Result<(), Refusal> {
        let output = ask.max_tokens.unwrap_or(1);
        for prompt in &ask.prompts {
            let asked = u64::from(prompt.tokens) + u64::from(output);
            if asked > u64::from(self.max_model_len) {
                let (limit, prompt) = (self.max_model_len, prompt.tokens);
                return Err(Refusal::TooLong { limit, asked, prompt, output });
            }
        }
        Ok(())
    }
}

impl State {
    /// Delivers everything that is due and returns when something next will be.
    fn advance(&mut self) -> Option<Instant> {
        let now_ms = self.clock.ms(Instant::now());
        let mut outputs = std::mem::take(&mut self.outputs);
        self.engine.advance(now_ms, &mut outputs);
        for output in outputs.drain(..) {
            self.deliver(&output);
        }
        self.outputs = outputs;
        self.engine.next_event_ms().map(|ms| self.clock.instant(ms))
    }

    fn deliver(&mut self, output: &Output) {
        match *output {
            Output::Token { id, index, at_ms } => self.token(id, index, at_ms),
            Output::Finished {
                id, at_ms, queue_ms, prefill_ms, decode_ms, output_tokens, ..
            } => {
                let Some(sequence) = self.sequences.remove(&id) else { return };
                let Some(finish) = sequence.call.borrow_mut().finished(sequence.choice) else {
                    return;
                };
                let wall_s = |ms| self.clock.wall_s(ms);
                self.meters.finished(
                    finish,
                    &Times {
                        e2e_s: wall_s(at_ms - sequence.arrived_ms),
                        queue_s: wall_s(queue_ms),
                        prefill_s: wall_s(prefill_ms),
                        decode_s: wall_s(decode_ms),
                        prompt_tokens: sequence.prompt_tokens,
                        output_tokens,
                    },
                );
            }
        }
    }

    fn token(&mut self, id: SeqId, index: u32, at_ms: f64) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        match sequence.last_token_ms.replace(at_ms) {
            None => self.meters.first_token(self.clock.wall_s(at_ms - sequence.arrived_ms)),
            Some(last_ms) => self.meters.next_token(self.clock.wall_s(at_ms - last_ms)),
        }
        let call = Rc::clone(&sequence.call);
        if call.borrow_mut().token(sequence.choice, index) {
            let ids: Vec<SeqId> = call.borrow().unfinished().collect();
            self.abort(&ids);
        }
    }

    fn begin(
        &mut self,
        ask: &Ask,
        beside: Beside<'_>,
        (model, max_model_len): (&Rc<str>, u32),
    ) -> Result<Rc<RefCell<Call>>, Refusal> {
        let now_ms = self.clock.ms(Instant::now());
        let shape = self.shape(ask.endpoint, beside.request_id, model);
        let prompt_tokens = ask.prompt_tokens();
        let streamed = (ask.stream, ask.include_usage);
        let call = Rc::new(RefCell::new(Call::new(shape, streamed, prompt_tokens, beside.doom)));
        if matches!(beside.doom, Some(Doom::SilentAfter(_))) {
            self.stalling.retain(|call| call.strong_count() > 0);
            self.stalling.push(Rc::downgrade(&call));
        }
        for prompt in &ask.prompts {
            let most = ask.max_tokens.unwrap_or(max_model_len - prompt.tokens);
            for _ in 0..ask.n {
                let length = self.length(ask.endpoint, beside.output_tokens, most);
                let job = (prompt.tokens, self.blocks(ask.endpoint, prompt, length));
                if let Err(rejected) = self.submit(&call, job, length, (ask.priority, now_ms)) {
                    let ids: Vec<SeqId> = call.borrow().unfinished().collect();
                    self.abort(&ids);
                    return Err(rejected.into());
                }
            }
        }
        self.starts.count(beside.request_id);
        Ok(call)
    }

    /// The blocks that a prompt fills, with what is generated to it.
    fn blocks(
        &self,
        endpoint: Endpoint,
        prompt: &Prompt,
        (tokens, finish): (u32, Finish),
    ) -> Vec<u64> {
        if endpoint.generates() {
            prompt.blocks_with(&text(tokens, finish), self.engine.config().block_size)
        } else {
            prompt.blocks.clone()
        }
    }

    fn submit(
        &mut self,
        call: &Rc<RefCell<Call>>,
        (prompt_tokens, blocks): (u32, Vec<u64>),
        (tokens, finish): (u32, Finish),
        (priority, arrived_ms): (i32, f64),
    ) -> Result<(), Rejected> {
        let job = Job { prompt_tokens, blocks, output_tokens: tokens, priority };
        let id = self.engine.submit(arrived_ms, job)?;
        let choice = call.borrow_mut().add(id, tokens, finish);
        let call = Rc::clone(call);
        let sequence = Sequence { call, choice, prompt_tokens, arrived_ms, last_token_ms: None };
        self.sequences.insert(id, sequence);
        Ok(())
    }

    fn abort(&mut self, ids: &[SeqId]) {
        let now_ms = self.clock.ms(Instant::now());
        for &id in ids {
            self.sequences.remove(&id);
            if self.engine.abort(now_ms, id) {
                self.meters.aborted();
            }
        }
    }

    /// Tokens of an answer and why it ends: its true length, cut at `most`.
    fn length(&mut self, endpoint: Endpoint, told: Option<u32>, most: u32) -> (u32, Finish) {
        if !endpoint.generates() {
            return (1, Finish::Stop);
        }
        let truth = told.unwrap_or_else(|| drawn_length(&mut self.lengths)).max(1);
        if truth > most { (most.max(1), Finish::Length) } else { (truth, Finish::Stop) }
    }

    fn shape(&mut self, endpoint: Endpoint, request_id: Option<&[u8]>, model: &Rc<str>) -> Shape {
        self.calls += 1;
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completions => "cmpl",
            Endpoint::Messages => "msg",
            Endpoint::Rerank => "rerank",
            _ => "embd",
        };
        let id = request_id.and_then(plain_id).map_or_else(
            || format!("{prefix}-{:08x}{:08x}", self.engine.config().seed, self.calls),
            |id| format!("{prefix}-{id}"),
        );
        let created =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Shape { endpoint, id, created, model: Rc::clone(model) }
    }
}

/// An id that can stand inside a JSON string as it is.
fn plain_id(id: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(id).ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (plain && !text.is_empty() && text.len() <= 128).then_some(text)
}

/// A median of 170 and a mean of about 200 tokens, as in the synthetic mix of `weir-bench load`.
fn drawn_length(rng: &mut SmallRng) -> u32 {
    let drawn = LogNormal::new(170f64.ln(), 0.58).map_or(170.0, |lengths| lengths.sample(rng));
    (drawn.round() as u32).clamp(1, 2000)
}
