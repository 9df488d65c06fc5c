//! Dispatched requests until their end: ends, retries, samples.

use std::sync::Arc;

use weir_schema::{Feature, Features, FirstToken, Prediction, Row, prefill_pairs};

use crate::{
    Action, AdapterId, Answered, Dispatch, End, EndKind, PodId, RefusalReason, Request, RequestId,
    RequestView, Time,
    fleet::PodState,
    headroom::{judge, start::Prefill},
    ledger::{Pending, Resident},
    pattern::Pattern,
    per_event,
    queue::{Failed, Waiting},
    scheduler::{Scheduler, hidden::Lateness},
};

/// Takes a pod off those that a request could not be delivered to.
pub(super) fn allow(failed: &mut Option<Box<Failed>>, pod: PodId) {
    failed.iter_mut().for_each(|failed| failed.pods.retain(|one| *one != pod));
}

/// A dispatched request.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) request: Box<Request>,
    pub(super) input_tokens: u32,
    /// The request's own, at hand for every batch of tokens.
    pub(super) sequences: u32,
    pub(super) pod: PodId,
    /// Share of the pod's profiled capacity that it takes.
    pub(super) load: f64,
    pub(super) output_tokens: u32,
    /// Deliveries before this one.
    failed: Option<Box<Failed>>,
    pattern: Pattern,
    due: Time,
    spare_ms: f32,
    late: bool,
    pub(super) sent: Time,
    pub(super) first_token: Option<Time>,
    /// Its place among the pod's residents, when it was last looked for.
    pub(super) seat: usize,
    /// Events with some of the answer, as far as was told.
    pub(super) events: u32,
    /// Tokens that come with one after a sequence's first. As known when it was sent, or more since: its count never falls.
    pub(super) tokens_per_event: f64,
    pub(super) uncached_tokens: f64,
    /// Share of these by which it holds up what steps together with its pod: less than all where other prompts begin with it.
    pub(super) held_up: f32,
    /// Blocks of its prompt that its pod is thought to keep for it.
    pub(super) kept: usize,
    /// The row that it was decided with, where that was here.
    pub(super) row: Option<Row>,
    /// What it was thought to pay outside the steps then, in milliseconds.
    api_ms: f32,
    pub(super) prediction: Prediction,
}

/// How a request gets to its pod.
pub(super) struct Way {
    pub(super) pod: PodId,
    /// Share of the pod's profiled capacity that it takes.
    pub(super) load: f64,
    pub(super) sent: Time,
    pub(super) uncached_tokens: f64,
    /// The row that it was decided with, where that was here.
    pub(super) row: Option<Row>,
    /// What it is thought to pay outside the steps, in milliseconds.
    pub(super) api_ms: f32,
    pub(super) prediction: Prediction,
    pub(super) tokens_per_event: f64,
}

impl Flight {
    /// A waiting request leaves for its pod.
    pub(super) fn depart(waiting: Waiting, way: Way) -> Self {
        let Way { pod, load, sent, uncached_tokens, row, api_ms, prediction, tokens_per_event } =
            way;
        Self {
            sequences: waiting.request.sequences,
            request: waiting.request,
            input_tokens: waiting.input_tokens,
            pod,
            api_ms,
            load,
            output_tokens: waiting.output_tokens,
            failed: waiting.failed,
            pattern: waiting.pattern,
            due: waiting.due,
            spare_ms: waiting.spare_ms,
            late: waiting.late,
            sent,
            first_token: None,
            seat: 0,
            events: 0,
            tokens_per_event,
            uncached_tokens,
            held_up: 1.0,
            kept: 0,
            row,
            prediction,
        }
    }

    /// Deliveries tried, this one included.
    pub(super) fn attempts(&self) -> u32 {
        self.failed.as_ref().map_or(0, |failed| failed.attempts) + 1
    }

    /// It goes back to where it stood, and not to the same pod.
    fn come_back(self, now: Time, tries: u32) -> Waiting {
        let attempts = self.attempts() - 1 + tries;
        let mut failed = self.failed.unwrap_or_default();
        (failed.attempts, failed.at) = (attempts, now);
        failed.pods.push(self.pod);
        let tokens = (self.input_tokens, self.output_tokens);
        Waiting {
            failed: Some(failed),
            late: self.late,
            spare_ms: self.spare_ms,
            ..Waiting::new(self.request, tokens, self.pattern, self.due)
        }
    }

    /// A pod works again: if it has to come back, it may try that one.
    pub(super) fn forgive(&mut self, pod: PodId) {
        allow(&mut self.failed, pod);
    }

    /// What of its prompt is to be computed.
    pub(super) fn prefill(&self) -> Prefill {
        let tokens = self.uncached_tokens;
        let cached_tokens = (f64::from(self.input_tokens) - tokens).max(0.0);
        Prefill { tokens, pairs: prefill_pairs(tokens, cached_tokens) }
    }

    /// Its entry in the pod's ledger.
    pub(super) fn pending(&self, lateness: Lateness) -> Pending {
        let due = || lateness.first_token(self.sent, &self.prediction);
        let Prefill { tokens: uncached_tokens, pairs: uncached_pairs } = self.prefill();
        Pending {
            id: self.request.id,
            since: self.sent,
            uncached_tokens,
            uncached_pairs,
            assumed_first_token: (!self.request.streamed).then(due),
            late: self.late,
            resident: Resident {
                id: self.request.id,
                band: self.request.band,
                tpot_slo_ms: judge::tpot_slo_ms(&self.request.slo),
                first_token: self.sent,
                generated: 0,
                remaining: 1.0,
                estimate_at: 0,
                input_tokens: self.input_tokens,
                sequences: self.request.sequences,
                max_output_tokens: self.request.max_output_tokens,
                tenant: self.request.tenant.clone(),
                streamed: self.request.streamed,
                adapter: self.request.adapter.as_deref().map(AdapterId::of),
            },
        }
    }

    /// What the caller is told.
    pub(super) fn dispatch(&self) -> Dispatch {
        Dispatch {
            id: self.request.id,
            pod: self.pod,
            attempt: self.attempts(),
            arrived: self.request.arrived,
            waited: self.sent.since(self.request.arrived),
            slo: self.request.slo,
            sequences: self.sequences.max(1),
            uncached_tokens: self.uncached_tokens,
            prediction: self.prediction,
            tokens_per_event: self.tokens_per_event,
        }
    }

    /// What is shown of it.
    pub(super) fn view(&self, now: Time, decoding: bool) -> RequestView {
        let Request { streamed, slo, .. } = self.request.as_ref();
        let ttft_ms = streamed.then(|| self.first_token.unwrap_or(now).ms_since(self.sent));
        let tokens = self.tokens();
        let gaps = self.per_sequence(tokens).saturating_sub(1);
        let first = self.first_token.filter(|_| gaps > 0);
        RequestView {
            id: self.request.id,
            request_id: self.request.name.clone(),
            band: self.request.band,
            adapter: self.request.adapter.clone(),
            decoding,
            streamed: *streamed,
            ttft_slo_ms: judge::ttft_slo_ms(slo),
            tpot_slo_ms: judge::tpot_slo_ms(slo),
            wait_ms: self.sent.ms_since(self.request.arrived),
            predicted_ttft_ms: self.prediction.ttft_ms.p50,
            predicted_tpot_ms: self.prediction.tpot_ms.p50,
            ttft_ms,
            tpot_ms: first.map(|first| now.ms_since(first) / f64::from(gaps)),
            tokens,
        }
    }

    /// What its first token says of what is paid outside the steps, where that is known.
    pub(super) fn first_token_of(&self, pod: Option<&PodState>, now: Time) -> Option<FirstToken> {
        let prior_ms = Features(self.row?).get(Feature::PriorTtftMs);
        let steps_ms = f64::from(prior_ms - self.api_ms);
        let pod_class = pod?.spec.class;
        Some(FirstToken { pod_class, measured_ms: now.ms_since(self.sent), steps_ms })
    }

    /// It has come to so many events. Returns how many are new, after the first of each sequence.
    pub(super) fn come_to(&mut self, events: u32) -> u32 {
        let fresh = events.saturating_sub(self.events.max(self.sequences.max(1)));
        self.events = self.events.max(events);
        fresh
    }

    /// Tokens that its events came to so far.
    pub(super) fn tokens(&self) -> u32 {
        per_event::tokens(self.events, self.sequences, self.tokens_per_event)
    }

    /// The same for each of its sequences.
    pub(super) fn generated(&self) -> u32 {
        self.per_sequence(self.tokens())
    }

    /// Tokens per sequence of a total.
    pub(super) fn per_sequence(&self, tokens: u32) -> u32 {
        tokens / self.sequences.max(1)
    }
}

impl Scheduler {
    /// Nobody looked for a while: how long what is under way took nobody knows, nor how long the steps of its pods.
    pub(super) fn stood_still(&mut self, now: Time) {
        self.stood_still_until = now;
        self.pods.values_mut().for_each(|pod| pod.stride.idle());
    }

    /// A dispatched request is over.
    pub(super) fn end(&mut self, now: Time, end: End, actions: &mut Vec<Action>) {
        self.note_last_events(&end);
        let Some(flight) = self.land(end.id, end.output_tokens) else {
            self.counters.ignored += 1;
            return;
        };
        self.alive.leave(&flight.request);
        self.note_end(now, &flight, &end);
        // Of a response that is not streamed no token was seen.
        if end.kind != EndKind::Complete {
            self.take_back_prefill(now, &flight);
        }
        match end.kind {
            EndKind::Complete | EndKind::PodError | EndKind::BadRequest => {
                self.counters.completed += 1
            }
            EndKind::ClientGone => self.counters.client_gone += 1,
            EndKind::PodFailed => self.counters.failed += 1,
        }
        if end.kind == EndKind::Complete {
            self.learn(&flight, &end);
        }
        let class = self.pods.get(&flight.pod).map(|pod| pod.class.name.clone());
        // One of a pod that has left has no class.
        let class = class.unwrap_or_default();
        let times_count = flight.sent >= self.stood_still_until;
        let sample = flight.sample(now, &end, &self.config.model, class);
        if let Some(sample) = sample.filter(|_| times_count) {
            self.predictor.observe_sample(&sample);
            if let Some(pod) = self.pods.get_mut(&flight.pod) {
                pod.accuracy.learn(&sample);
            }
            actions.push(Action::Sample(Box::new(sample)));
        }
    }

    /// The last events of a stream may have come after the last look at it. Where steps are counted by events they count.
    fn note_last_events(&mut self, end: &End) {
        let Some(flight) = self.flights.get_mut(&end.id) else { return };
        let fresh = flight.come_to(end.events);
        let (id, seat, come) = (flight.pod, flight.seat, [flight.generated(), fresh]);
        let Some(pod) = self.pods.get_mut(&id) else { return };
        if pod.steps_apart() {
            self.advance(id, (end.id, seat), come);
        } else {
            pod.meter.came(fresh);
        }
    }

    /// A prompt of which no token came is not computed any more: what was booked for that is what the pods have free for others. An
    /// engine that refuses a prompt, for it is too long, says so at once.
    fn take_back_prefill(&mut self, now: Time, flight: &Flight) {
        // What was decided elsewhere, or on the pod's life before, was not booked.
        let booked = flight.row.is_some() && flight.first_token.is_none();
        let Some(pod) = self.pods.get_mut(&flight.pod).filter(|_| booked) else { return };
        let input_tokens = f64::from(flight.input_tokens);
        let pairs = prefill_pairs(flight.uncached_tokens, input_tokens - flight.uncached_tokens);
        let booked_ms =
            self.predictor.step_time(pod.spec.class).prefill_ms(flight.uncached_tokens, pairs);
        let left_ms = (booked_ms - now.ms_since(flight.sent)).max(0.0);
        if left_ms > 0.0 {
            let left_tokens = flight.uncached_tokens * left_ms / booked_ms;
            pod.took_back(flight.sent, input_tokens);
            self.let_go_on(now, flight, [left_tokens, left_ms]);
        }
    }

    /// Takes a request off its pod, whose answer had so many tokens if that was told: of one that is not streamed few were seen.
    pub(super) fn land(&mut self, id: RequestId, told: Option<u32>) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        self.unstreamed -= usize::from(!flight.request.streamed);
        if let Some(pod) = self.pods.get_mut(&flight.pod) {
            let before = pod.ledger.answer_tokens();
            // A pod that left and came back knows nothing of it.
            let was_there = pod.ledger.credit(id);
            if was_there {
                pod.meter.ended(flight.sequences, flight.request.streamed);
                pod.load = (pod.load - flight.load).max(0.0);
            }
            if pod.ledger.is_empty() {
                // Sums of floats drift by their last bits; an empty pod carries exactly nothing.
                pod.load = 0.0;
                pod.stride.idle();
            }
            if was_there {
                let left = pod.ledger.answer_tokens();
                let seen = before.saturating_sub(left);
                let answer = self.config.named_blocks(seen.max(told.map_or(0, u64::from)));
                let answers = self.config.named_blocks(left);
                let blocks = flight.request.blocks.get(..flight.kept).unwrap_or_default();
                let prompt = (blocks, flight.request.turn.name);
                self.pods.index_mut().leave(flight.pod, prompt, answer, answers);
            }
        }
        self.note_start(flight.pod);
        Some(flight)
    }

    /// The pod keeps the prompt while it is at work on it. An engine refuses what its cache does not hold, and has all that it had.
    pub(super) fn keep_prompt(&mut self, flight: &mut Flight) {
        let Some(pod) = self.pods.get_mut(&flight.pod) else { return };
        if f64::from(flight.input_tokens) <= pod.kv_capacity_tokens() {
            let answers = self.config.named_blocks(pod.ledger.answer_tokens());
            let index = self.pods.index_mut();
            let request = &flight.request;
            flight.kept = index.enter(flight.pod, &request.blocks, &request.turn, answers);
        }
    }

    fn learn(&mut self, flight: &Flight, end: &End) {
        self.learn_per_event(flight, end);
        self.learn_answer(&flight.answered(end));
    }

    /// Learns of a whole response, whoever gave it a pod.
    pub(super) fn learn_answer(&mut self, answered: &Answered) {
        let Answered { tenant, input_tokens, output_tokens, prompt } = answered;
        if let Some((bytes, tokens)) = *prompt {
            self.ratio.observe(bytes, tokens);
        }
        if let Some(output_tokens) = *output_tokens {
            self.length.observe(tenant.as_ref(), *input_tokens, output_tokens);
        }
    }

    /// The blocks of a dispatched prompt.
    pub fn prompt_of(&self, id: RequestId) -> Option<&Arc<[u64]>> {
        self.flights.get(&id).map(|flight| &flight.request.blocks)
    }

    /// What will be learned of a response by its end; `None` when it was not whole.
    pub fn answer_of(&self, end: &End) -> Option<Answered> {
        let flight = self.flights.get(&end.id).filter(|_| end.kind == EndKind::Complete);
        flight.map(|flight| flight.answered(end))
    }

    /// A pod turned a request away: it takes no more for now.
    pub(super) fn turned_away(&mut self, now: Time, id: RequestId, actions: &mut Vec<Action>) {
        let pod = self.flights.get(&id).map(|flight| flight.pod);
        let Some(pod) = pod.and_then(|pod| self.pods.get(&pod)) else {
            return self.undelivered(now, (id, 0), actions);
        };
        // One that has nothing else to do would turn away whatever comes.
        let others = pod.others(now, self.config.pull.stale_after_ms).sequences;
        let is_idle = pod.ledger.len() <= 1 && others <= 0.0;
        let pod = pod.spec.id;
        self.counters.turned_away += 1;
        self.undelivered(now, (id, u32::from(is_idle)), actions);
        if let Some(pod) = self.pods.get_mut(&pod) {
            pod.turned_away(now);
        }
        if let Some(waiting) = self.board.get_mut(id) {
            allow(&mut waiting.failed, pod);
        }
    }

    /// Nothing of a request reached its pod, in so many tries.
    pub(super) fn undelivered(
        &mut self,
        now: Time,
        (id, tries): (RequestId, u32),
        actions: &mut Vec<Action>,
    ) {
        let Some(flight) = self.land(id, None) else {
            self.counters.ignored += 1;
            return;
        };
        self.counters.requeued += 1;
        self.take_back_prefill(now, &flight);
        self.note_requeue(now, &flight);
        let spent = tries > 0 && flight.attempts() >= self.config.max_attempts;
        let gone = self.pods.get(&flight.pod).is_none().then_some(flight.pod);
        let mut waiting = flight.come_back(now, tries);
        gone.into_iter().for_each(|pod| allow(&mut waiting.failed, pod));
        waiting.picky = self.picky(&waiting);
        waiting.adapter = self.adapter(&waiting);
        self.note_immediate(&waiting.request);
        self.enqueue(now, waiting);
        if self.closing {
            self.refuse_waiting(now, id, RefusalReason::Closing, actions);
        } else if spent {
            self.refuse_waiting(now, id, RefusalReason::Undeliverable, actions);
        } else {
            self.requeued.push(id);
        }
    }
}
