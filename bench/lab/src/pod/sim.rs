//! One pod's engine on the wall clock: takes calls, delivers what the engine puts out, and counts it.
//!
//! Owned by its server and by every body that it feeds; [`Sim::drive`] is the one task that lets time pass. The engine never
//! waits for a client: a slow reader's chunks queue up in its call, at most one per token of its answer.

use std::{
    cell::RefCell,
    collections::HashMap,
    net::SocketAddr,
    ops::Range,
    rc::{Rc, Weak},
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::proto::MetricFamily;
use rand::{SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, LogNormal};
use tokio::{sync::Notify, time::Instant};
use weir_engine::{Engine, EngineConfig, Job, Output, SeqId};

use super::{
    answer::{Finish, Shape, text},
    ask::{Ask, Endpoint, Prompt},
    body::Reply,
    call::Call,
    clock::Clock,
    error::Refusal,
    fault::Doom,
    handover::{Handover, Kept, Loan, Teller},
    meters::{Meters, Times},
    models::Models,
    starts::Starts,
};

/// One pod's engine.
pub(super) struct Sim {
    state: RefCell<State>,
    /// Something changed that the next event depends on.
    changed: Notify,
    models: Models,
    max_model_len: u32,
    speed: f64,
    teller: Teller,
}

struct State {
    engine: Engine,
    clock: Clock,
    sequences: HashMap<SeqId, Sequence>,
    kept: Kept,
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
    /// Its blocks stay for another pod when it ends.
    keeps: bool,
    /// KV of another pod that it is loading.
    loan: Option<Loan>,
}

/// What a request says beside its body, and where it came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    pub(super) request_id: Option<&'a [u8]>,
    pub(super) output_tokens: Option<u32>,
    /// The ranks behind the port that it came to.
    pub(super) ranks: &'a Range<u16>,
    /// The one of them that it is for, counted from 0; each sequence goes to the least loaded one otherwise.
    pub(super) rank: Option<i64>,
    pub(super) doom: Option<Doom>,
}

impl Sim {
    pub(super) fn new(
        (engine, ranks_per_port): (EngineConfig, usize),
        models: Models,
        (max_model_len, speed): (u32, f64),
        (address, teller): (SocketAddr, Teller),
    ) -> Result<Self, prometheus::Error> {
        let engine = Engine::new(engine);
        let state = State {
            meters: Meters::new(&models, engine.config(), ranks_per_port)?,
            lengths: SmallRng::seed_from_u64(engine.config().seed),
            engine,
            clock: Clock::new(Instant::now(), speed),
            sequences: HashMap::new(),
            kept: Kept::new(address),
            stalling: Vec::new(),
            outputs: Vec::new(),
            calls: 0,
            starts: Starts::default(),
        };
        let (state, changed) = (RefCell::new(state), Notify::new());
        Ok(Self { state, changed, models, max_model_len, speed, teller })
    }

    /// What it serves.
    pub(super) fn models(&self) -> &Models {
        &self.models
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
        // Whoever lends its KV is told of a refusal, too.
        let loan = ask.handover.loan(&self.teller);
        self.check(ask)?;
        let serves = (&self.models, self.max_model_len);
        let call = self.state.borrow_mut().begin(ask, beside, serves, loan);
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

    /// Frees what was kept under a name for another pod; false if there is nothing.
    pub(super) fn release(&self, request_id: &str) -> bool {
        let released = self.state.borrow_mut().release(request_id);
        self.changed.notify_one();
        released
    }

    /// Empties the prefix cache; false while a request uses it.
    pub(super) fn reset_prefix_cache(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let now_ms = state.clock.ms(Instant::now());
        state.engine.reset_prefix_cache(now_ms)
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
        state.meters.read(&state.engine, (state.starts.total, state.starts.duplicates))
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
        while let Some(id) = self.kept.overdue(now_ms) {
            self.engine.release(now_ms, id);
        }
        let next = [self.engine.next_event_ms(), self.kept.next_ms()];
        next.into_iter().flatten().reduce(f64::min).map(|ms| self.clock.instant(ms))
    }

    fn release(&mut self, request_id: &str) -> bool {
        let now_ms = self.clock.ms(Instant::now());
        self.kept.take(request_id).is_some_and(|id| self.engine.release(now_ms, id))
    }

    fn deliver(&mut self, output: &Output) {
        match *output {
            Output::Token { id, index, at_ms } => self.token(id, index, at_ms),
            Output::Finished {
                id, at_ms, queue_ms, prefill_ms, decode_ms, output_tokens, ..
            } => {
                let Some(sequence) = self.sequences.remove(&id) else { return };
                if sequence.keeps {
                    self.keep(id, &sequence, at_ms);
                }
                let Some(finish) = sequence.call.borrow_mut().finished(sequence.choice) else {
                    return;
                };
                let wall_s = |ms| self.clock.wall_s(ms);
                let Some(meters) = self.meters.of(id.rank()) else { return };
                meters.finished(
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

    fn keep(&mut self, id: SeqId, sequence: &Sequence, at_ms: f64) {
        let blocks = sequence.prompt_tokens.div_ceil(self.engine.config().block_size);
        let mut call = sequence.call.borrow_mut();
        let params = self.kept.add(id, call.id(), blocks, at_ms);
        call.hand(params);
    }

    fn token(&mut self, id: SeqId, index: u32, at_ms: f64) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        drop(sequence.loan.take());
        let last_ms = sequence.last_token_ms.replace(at_ms);
        if let Some(meters) = self.meters.of(id.rank()) {
            match last_ms {
                None => meters.first_token(self.clock.wall_s(at_ms - sequence.arrived_ms)),
                Some(last_ms) => meters.next_token(self.clock.wall_s(at_ms - last_ms)),
            }
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
        (models, max_model_len): (&Models, u32),
        mut loan: Option<Loan>,
    ) -> Result<Rc<RefCell<Call>>, Refusal> {
        let now_ms = self.clock.ms(Instant::now());
        let shape = self.shape(ask, beside.request_id, models.name(ask.adapter));
        let prompt_tokens = ask.prompt_tokens();
        let streamed = (ask.stream, ask.include_usage);
        let call = Rc::new(RefCell::new(Call::new(shape, streamed, prompt_tokens, beside.doom)));
        if matches!(beside.doom, Some(Doom::SilentAfter(_))) {
            self.stalling.retain(|call| call.strong_count() > 0);
            self.stalling.push(Rc::downgrade(&call));
        }
        // Of several sequences the first one's blocks stay.
        let mut keeps = ask.handover == Handover::Keep;
        for prompt in &ask.prompts {
            let most = ask.max_tokens.unwrap_or(max_model_len - prompt.tokens);
            for _ in 0..ask.n {
                let (tokens, finish) = self.length(ask, beside.output_tokens, most);
                let mut job = self.job(ask, prompt, (tokens, finish), std::mem::take(&mut keeps));
                models.salt(ask.adapter, &mut job.blocks);
                let placed = self.place(beside).and_then(|rank| {
                    self.submit(&call, (rank, job), (finish, now_ms), loan.take())
                });
                if let Err(refusal) = placed {
                    let ids: Vec<SeqId> = call.borrow().unfinished().collect();
                    self.abort(&ids);
                    return Err(refusal);
                }
            }
        }
        if ask.handover != Handover::Keep {
            self.starts.count(beside.request_id);
        }
        Ok(call)
    }

    /// What the engine is given: its blocks are those that the prompt fills, with what is generated to it.
    fn job(
        &self,
        ask: &Ask,
        prompt: &Prompt,
        (output_tokens, finish): (u32, Finish),
        keeps: bool,
    ) -> Job {
        let blocks = if ask.endpoint.generates() {
            prompt.blocks_with(
                &text(ask.said, output_tokens, finish),
                self.engine.config().block_size,
            )
        } else {
            prompt.blocks.clone()
        };
        let loads = matches!(ask.handover, Handover::Load(_));
        Job {
            prompt_tokens: prompt.tokens,
            blocks,
            output_tokens,
            priority: ask.priority,
            brought_tokens: if loads { prompt.tokens } else { 0 },
            keeps,
            adapter: ask.adapter,
        }
    }

    /// The rank of a sequence: the one asked for, or else the least loaded behind its port.
    fn place(&self, Beside { ranks, rank, .. }: Beside<'_>) -> Result<u16, Refusal> {
        let Some(rank) = rank else { return Ok(self.engine.least_loaded_of(ranks.clone())) };
        let found = usize::try_from(rank).ok().and_then(|place| ranks.clone().nth(place));
        found.ok_or(Refusal::NoSuchRank { rank, ranks: ranks.len() })
    }

    fn submit(
        &mut self,
        call: &Rc<RefCell<Call>>,
        (rank, job): (u16, Job),
        (finish, arrived_ms): (Finish, f64),
        loan: Option<Loan>,
    ) -> Result<(), Refusal> {
        let Job { prompt_tokens, output_tokens, keeps, .. } = job;
        let id = self.engine.submit_to(arrived_ms, rank, job)?;
        let choice = call.borrow_mut().add(id, output_tokens, finish);
        let sequence = Sequence {
            call: Rc::clone(call),
            choice,
            prompt_tokens,
            arrived_ms,
            last_token_ms: None,
            keeps,
            loan,
        };
        self.sequences.insert(id, sequence);
        Ok(())
    }

    fn abort(&mut self, ids: &[SeqId]) {
        let now_ms = self.clock.ms(Instant::now());
        for &id in ids {
            self.sequences.remove(&id);
            // One that ended and keeps its blocks is over, although nobody was told.
            if !self.engine.release(now_ms, id)
                && self.engine.abort(now_ms, id)
                && let Some(meters) = self.meters.of(id.rank())
            {
                meters.aborted();
            }
        }
    }

    /// Tokens of an answer and why it ends: its true length without what was said before, cut at `most`.
    fn length(&mut self, ask: &Ask, told: Option<u32>, most: u32) -> (u32, Finish) {
        if !ask.endpoint.generates() {
            return (1, Finish::Stop);
        }
        let truth = told.unwrap_or_else(|| drawn_length(&mut self.lengths));
        let truth = truth.saturating_sub(ask.said).max(1);
        if truth > most { (most.max(1), Finish::Length) } else { (truth, Finish::Stop) }
    }

    fn shape(&mut self, ask: &Ask, request_id: Option<&[u8]>, model: &Rc<str>) -> Shape {
        let (endpoint, said) = (ask.endpoint, ask.said);
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
        Shape { endpoint, id, created, model: Rc::clone(model), said }
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
