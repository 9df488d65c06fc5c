//! Requests that go from one dispatcher's books to another's, when another one decides than before.
//!
//! The one that gives a request away forgets it, as if it had never been there, and the one that takes it books it as its own: it is in
//! one of the two at a time.

use crate::{
    Band, Phase, PodId, PodSpec, PullConfig, Request, RequestId, Running, Time,
    decide::score,
    fleet::PodState,
    inspect::PodDetail,
    length::LengthHistory,
    scheduler::{
        Scheduler,
        flight::{Flight, Way},
        hidden::Lateness,
        progress::estimate,
    },
};

impl Scheduler {
    /// Gives a running request away.
    pub fn hand_over(&mut self, id: RequestId) -> Option<Running> {
        let flight = self.land(id, None)?;
        self.part_with(&flight.request);
        Some(Running {
            pod: flight.pod,
            sent: flight.sent,
            uncached_tokens: flight.uncached_tokens,
            first_token: flight.first_token,
            events: flight.events,
            prediction: flight.prediction,
            tokens_per_event: flight.tokens_per_event,
            request: flight.request,
        })
    }

    /// What waits.
    pub fn waiting_ids(&self) -> Vec<RequestId> {
        self.board.ids()
    }

    /// The same with the band of each, in no order.
    pub fn waiting_in_bands(&self) -> impl Iterator<Item = (Band, RequestId)> {
        self.board.all().map(|waiting| (waiting.request.band, waiting.request.id))
    }

    /// Gives nothing out from now on, or does again: the ledgers may be in another's books while what waits is still here.
    pub const fn withhold(&mut self, withholds: bool) {
        self.withholds = withholds;
    }

    /// Whether nothing is given out.
    pub const fn withholds(&self) -> bool {
        self.withholds
    }

    /// Gives a waiting request away.
    pub fn withdraw(&mut self, now: Time, id: RequestId) -> Option<Box<Request>> {
        let mut waiting = self.board.remove(id)?;
        self.part_with(&waiting.request);
        self.note_backlog(now, waiting.pattern.band);
        self.board.recycle(&mut waiting);
        Some(waiting.request)
    }

    fn part_with(&mut self, request: &Request) {
        self.alive.leave(request);
        self.names.leave(request);
        self.counters.handed_over += 1;
    }

    /// Takes a running request; one that is known already is ignored. Its pod may have left: then it is in no ledger until that is back.
    pub(super) fn adopt(&mut self, running: Running) {
        let Running { request, pod, sent, uncached_tokens, first_token, events, .. } = running;
        let id = request.id;
        if self.flights.contains_key(&id) || self.board.get(id).is_some() {
            self.counters.ignored += 1;
            return;
        }
        let class = self.pods.get(&pod).map_or(0, |pod| pod.spec.class);
        self.counters.adopted += 1;
        self.alive.enter(&request);
        self.names.enter(&request);
        let mut waiting = self.waiting_entry(request);
        self.board.recycle(&mut waiting);
        let load = self.config.load(class, waiting.input_tokens, waiting.output_tokens);
        let way = Way {
            pod,
            load: load.unwrap_or(0.0),
            sent,
            uncached_tokens,
            row: None,
            api_ms: 0.0,
            prediction: running.prediction,
            tokens_per_event: running.tokens_per_event,
        };
        let mut flight = Flight::depart(waiting, way);
        (flight.first_token, flight.events) = (first_token, events);
        self.unstreamed += usize::from(!flight.request.streamed);
        self.book(&mut flight);
        self.note_start(pod);
        self.flights.insert(id, flight);
    }

    /// Whether anything runs on a pod, also on one that has left.
    pub fn runs_on(&self, pod: PodId) -> bool {
        self.flights.values().any(|flight| flight.pod == pod)
    }

    /// What runs on a pod that has left, and is back under another number, runs on there.
    pub fn carry_over(&mut self, from: PodId, to: PodId) {
        let Some(class) = self.pods.get(&to).map(|pod| pod.spec.class) else { return };
        let flights = self.flights.values().filter(|flight| flight.pod == from);
        let mut ids: Vec<_> = flights.map(|flight| (flight.sent, flight.request.id)).collect();
        ids.sort_unstable();
        for (_, id) in ids {
            let Some(mut flight) = self.land(id, None) else { continue };
            let load = self.config.load(class, flight.input_tokens, flight.output_tokens);
            // The pod may be of another class now than the one that its row is of.
            (flight.pod, flight.load, flight.row) = (to, load.unwrap_or(0.0), None);
            self.unstreamed += usize::from(!flight.request.streamed);
            self.book(&mut flight);
            self.flights.insert(id, flight);
        }
        self.note_start(to);
    }

    /// Brings a pod's ledger to where a request has come.
    fn book(&mut self, flight: &mut Flight) {
        let Some(pod) = self.pods.get_mut(&flight.pod) else { return };
        enter(pod, flight, self.lateness, &self.length, &self.config.pull);
        self.keep_prompt(flight);
    }

    /// A pod that has left, as it would be if it were back, for what ran there runs on; `None` once nothing does. What it was given is
    /// what is still there.
    pub fn departed(&self, now: Time, spec: PodSpec, requests: usize) -> Option<PodDetail> {
        let left = self.flights.values().filter(|flight| flight.pod == spec.id);
        let mut left: Vec<&Flight> = left.collect();
        if left.is_empty() {
            return None;
        }
        left.sort_unstable_by_key(|flight| (flight.sent, flight.request.id));
        let class = score::class(&self.config, spec.class);
        let mut pod = PodState::new(spec, class);
        pod.phase = Phase::Draining;
        for flight in left {
            let tokens = [flight.input_tokens.into(), flight.uncached_tokens];
            pod.sent(tokens, &flight.request);
            pod.held_up(flight.sent, flight.uncached_tokens);
            enter(&mut pod, flight, self.lateness, &self.length, &self.config.pull);
        }
        Some(self.pod_detail(now, &pod, requests))
    }
}

/// Brings a pod's ledger to where a request has come.
fn enter(
    pod: &mut PodState,
    flight: &Flight,
    lateness: Lateness,
    lengths: &LengthHistory,
    config: &PullConfig,
) {
    pod.load += flight.load;
    pod.ledger.debit(flight.pending(lateness));
    // What was seen of its steps since they were last looked at was seen without it.
    pod.stride.idle();
    let resident = |first| pod.ledger.first_token(flight.request.id, first, config);
    if let Some((_, seat)) = flight.first_token.and_then(resident) {
        pod.ledger.progress_of(seat, flight.generated(), config);
        estimate(&mut pod.ledger, seat, lengths, config);
    }
}
