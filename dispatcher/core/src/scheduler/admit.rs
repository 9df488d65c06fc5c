//! Arrivals against the bounds, and everything that refuses.

use std::time::Duration;

use crate::{
    Action, Band, PromptSize, RefusalReason, Request, RequestId, Time,
    decide::{affinity, filter},
    headroom::{outlook, start},
    pattern::Pattern,
    policy::{Hopeless, Order},
    queue::{Waiting, order},
    scheduler::Scheduler,
};

/// Bounds of the `Retry-After` hint: clients sleep as long as they are told, some without a cap of
/// their own.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Of those that no class has profiled capacity for, beside how many caches are too small.
const INFEASIBLE: u8 = 1 << 7;

impl Scheduler {
    /// Admits a request into its lane, or refuses it.
    pub(super) fn arrive(&mut self, now: Time, request: Box<Request>, actions: &mut Vec<Action>) {
        self.counters.arrived += 1;
        if let Some(reason) = self.shut(now, &request) {
            self.demand.came_like_others(now, request.band);
            *self.refused.entry(reason).or_default() += 1;
            actions.push(Action::Refuse(self.refusal(now, &request, reason)));
            self.note_refusal(now, &request, reason, None);
            return;
        }
        // One that does not wait takes nobody's place.
        if !request.immediate
            && let Some(full) = self.full(&request)
        {
            for victim in self.who_makes_room(&request).unwrap_or_default() {
                self.refuse_waiting(now, victim, full, actions);
            }
        }
        self.alive.enter(&request);
        self.names.enter(&request);
        self.note_immediate(&request);
        let waiting = self.waiting_entry(request);
        self.note_demand(now, &waiting);
        self.note_length(now, &waiting);
        let (id, sheddable) = (waiting.request.id, waiting.request.band.sheddable());
        self.enqueue(now, waiting);
        if sheddable && let Some(reason) = self.floor(now).denied(id) {
            self.refuse(now, id, reason, actions);
        }
    }

    /// Why a newcomer is not admitted, if so. When the queue is full, somebody less important makes
    /// room if possible.
    pub(super) fn shut(&self, now: Time, request: &Request) -> Option<RefusalReason> {
        if self.closing {
            return Some(RefusalReason::Closing);
        }
        if request.immediate {
            return None;
        }
        let sheddable = request.band.sheddable();
        if let Some(full) = self.full(request) {
            return self.who_makes_room(request).is_none().then_some(full);
        }
        let limit = self.config.bounds.max_predicted_wait;
        let limit = request.slo.ttft.map_or(limit, |ttft| ttft.min(limit));
        let over = sheddable && self.predicted_wait(now, request.band) > limit;
        over.then_some(RefusalReason::PredictedWait)
    }

    fn full(&self, request: &Request) -> Option<RefusalReason> {
        let bounds = &self.config.bounds;
        if self.board.len() >= bounds.max_requests {
            return Some(RefusalReason::QueueFull);
        }
        let bytes = self.board.bytes() + u64::from(request.body_bytes);
        (bytes > bounds.max_bytes).then_some(RefusalReason::QueueBytes)
    }

    /// The sheddable requests that make room for one that is not, in a queue that is full; `None` where they are not enough.
    fn who_makes_room(&self, request: &Request) -> Option<Vec<RequestId>> {
        if request.band.sheddable() {
            return None;
        }
        let mut victims = Vec::new();
        let mut bytes = self.board.bytes() + u64::from(request.body_bytes);
        for victim in self.board.expendable() {
            victims.push(victim.request.id);
            bytes -= u64::from(victim.request.body_bytes);
            if bytes <= self.config.bounds.max_bytes {
                return Some(victims);
            }
        }
        None
    }

    /// How long a newcomer of a band would wait.
    pub(super) fn predicted_wait(&self, now: Time, band: Band) -> Duration {
        let (ahead, oldest) = self.board.backlog_of(band);
        self.drain.wait(band, ahead, oldest, now)
    }

    /// The same as it is shown, in milliseconds: `None` while it cannot be said, because nothing of the band can
    /// leave: nothing waits in it, an operator holds all that does, or no pod is ready.
    pub(super) fn drain_ms(&self, now: Time, band: Band) -> Option<f64> {
        let leaves = self.no_pod_since.is_none() && self.board.backlog_of(band).0 > 0;
        // What is there by then is refused.
        let most = self.config.bounds.max_wait;
        leaves.then(|| self.predicted_wait(now, band).min(most).as_secs_f64() * 1e3)
    }

    /// The longest of all bands: `None` while something waits and nothing of it can leave.
    pub(super) fn pool_drain_ms(&self, now: Time) -> Option<f64> {
        let empty = self.board.is_empty().then_some(0.0);
        let drains = self.board.bands().filter_map(|(band, _)| self.drain_ms(now, band));
        drains.reduce(f64::max).or(empty)
    }

    /// When coming back is predicted to help.
    pub(super) fn retry_after(&self, now: Time, band: Band) -> Duration {
        let [least, most] = RETRY_AFTER;
        self.predicted_wait(now, band).clamp(least, most)
    }

    /// Tokens of a request's prompt, over all its sequences.
    pub(super) fn input_tokens(&self, request: &Request) -> u32 {
        match request.prompt {
            PromptSize::Tokens(tokens) => tokens,
            PromptSize::Bytes(bytes) => self.ratio.tokens(bytes),
        }
    }

    /// A request becomes an entry of the board: sizes, predicted length, pattern, rank.
    pub(super) fn waiting_entry(&mut self, request: Box<Request>) -> Waiting {
        let input_tokens = self.input_tokens(&request);
        let output_tokens =
            self.length.predict(request.tenant.as_ref(), input_tokens, request.max_output_tokens);
        let edges = &self.config.buckets;
        let pattern = Pattern::of(edges, request.band, input_tokens, output_tokens, None);
        let due = request.arrived;
        let mut waiting = Waiting::new(request, (input_tokens, output_tokens), pattern, due);
        if !waiting.request.blocks.is_empty() || waiting.request.prefilled {
            waiting.standing = Some(self.board.blank());
            affinity::refresh(&mut waiting, self.pods.index());
        }
        if !waiting.request.prefilled {
            waiting.pattern.warm = affinity::warm_pod(waiting.matches());
        }
        self.rerank(&mut waiting);
        waiting
    }

    /// Gives a request the place that it has under the order of the pool.
    pub(super) fn rerank(&self, waiting: &mut Waiting) {
        waiting.picky = self.picky(waiting);
        waiting.adapter = self.adapter(waiting);
        let order = self.rules.order;
        let may_wait = waiting.request.may_wait();
        let (tokens, head_start, spare) = match order {
            Order::HeadStart => {
                let idle_ms = self.idle_ttft_ms(waiting);
                let to_compute = start::uncached(f64::from(waiting.input_tokens), waiting.share);
                let (head_start, spare) =
                    (self.strain.head_start(idle_ms), self.strain.spare(may_wait, idle_ms));
                (to_compute as u32, head_start, spare)
            }
            _ => (waiting.input_tokens, Duration::ZERO, may_wait),
        };
        waiting.spare_ms = spare.as_secs_f32() * 1e3;
        waiting.due = order::due(&waiting.request, tokens, order, head_start);
    }

    /// Which pods do not take a request; 0: all do. How many sizes of caches are too small for its prompt while another's is not, and
    /// whether no class has profiled capacity for it.
    pub(super) fn picky(&self, waiting: &Waiting) -> u8 {
        let asked = waiting.request.by_header;
        let rules = if asked { &self.rules_by_header } else { &self.rules };
        let sizes = (waiting.input_tokens, waiting.output_tokens);
        let tokens = f64::from(waiting.input_tokens);
        let outsized = self.pods.hold_later(tokens).then_some(filter::OUTSIZED);
        let short = outsized.unwrap_or(self.pods.short_of(tokens).min(filter::OUTSIZED - 1));
        let infeasible = self.config.is_infeasible(rules, &self.open_classes, sizes);
        if infeasible { short | INFEASIBLE } else { short }
    }

    /// Puts what not every pod takes any more, or again, into the lanes of its kind.
    pub(super) fn part_picky(&mut self) {
        let moves = |id: &RequestId| {
            self.board.get(*id).is_some_and(|waiting| {
                waiting.picky != self.picky(waiting) || waiting.adapter != self.adapter(waiting)
            })
        };
        let moved: Vec<RequestId> = self.board.ids().into_iter().filter(moves).collect();
        for id in moved {
            let Some(mut waiting) = self.board.remove(id) else { continue };
            waiting.picky = self.picky(&waiting);
            waiting.adapter = self.adapter(&waiting);
            self.board.recycle(&mut waiting);
            self.board.insert(waiting);
        }
    }

    /// About the best TTFT that an idle pod could give a request, in milliseconds: of the fastest class, with as much of
    /// the prompt as any pod has. Unlike [`crate::decide::Floor::best_ttft_ms`] it does not look at each pod.
    fn idle_ttft_ms(&self, waiting: &Waiting) -> f64 {
        self.idle_ttft_ms_of(waiting.input_tokens, waiting.share)
    }

    /// The same of a prompt of so many tokens of which a pod has a share.
    pub(super) fn idle_ttft_ms_of(&self, input_tokens: u32, share: f64) -> f64 {
        let tokens = f64::from(input_tokens);
        let steps = self.steps();
        let classes = self.config.classes.iter().zip(&steps);
        classes
            .map(|(class, steps)| outlook::best_ttft_ms(steps, class.chunk_tokens, tokens, share))
            .reduce(f64::min)
            .unwrap_or_default()
    }

    /// Remembers how long a prompt takes, unless an idle pod takes longer than it may wait: nothing is kept for what cannot be in time.
    fn note_length(&mut self, now: Time, waiting: &Waiting) {
        let idle_ms = self.idle_ttft_ms(waiting);
        if idle_ms <= waiting.request.may_wait().as_secs_f64() * 1e3 {
            self.longest.came(now, idle_ms);
        }
    }

    /// Puts an entry on the board, at the rank it had when it arrived.
    pub(super) fn enqueue(&mut self, now: Time, waiting: Waiting) {
        let band = waiting.pattern.band;
        if filter::is_outsized(&waiting) {
            self.outsized.push(waiting.request.id);
        }
        self.note_adapter(now, waiting.adapter);
        self.board.insert(waiting);
        self.note_backlog(now, band);
    }

    /// The client of a waiting request has left.
    pub(super) fn cancel(&mut self, now: Time, id: RequestId) {
        let Some(mut waiting) = self.board.remove(id) else {
            self.counters.ignored += 1;
            return;
        };
        self.alive.leave(&waiting.request);
        self.note_backlog(now, waiting.pattern.band);
        self.note_cancel(now, &waiting);
        self.board.recycle(&mut waiting);
        self.counters.cancelled += 1;
    }

    /// Refuses a request that waits.
    pub(super) fn refuse_waiting(
        &mut self,
        now: Time,
        id: RequestId,
        reason: RefusalReason,
        actions: &mut Vec<Action>,
    ) {
        if let Some(waiting) = self.board.get(id) {
            let (arrived, ttft) = (waiting.request.arrived, waiting.request.slo.ttft);
            self.note_strain(now, arrived, ttft);
        }
        self.refuse(now, id, reason, actions);
    }

    /// The same of one that did not wait, which says nothing of how long requests do.
    fn refuse(
        &mut self,
        now: Time,
        id: RequestId,
        reason: RefusalReason,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut waiting) = self.board.remove(id) else { return };
        let refusal = self.refusal(now, &waiting.request, reason);
        self.alive.leave(&waiting.request);
        self.note_backlog(now, waiting.pattern.band);
        *self.refused.entry(reason).or_default() += 1;
        self.note_refusal(now, &waiting.request, reason, Some(&waiting));
        self.board.recycle(&mut waiting);
        actions.push(Action::Refuse(refusal));
    }

    /// Refuses what has waited as long as it may.
    pub(super) fn expire(&mut self, now: Time, actions: &mut Vec<Action>) {
        let bounds = self.config.bounds;
        while let Some((arrived, id)) = self.board.oldest() {
            let homeless = self
                .no_pod_since
                .is_some_and(|since| now.since(since.max(arrived)) >= bounds.max_wait_no_pods);
            let reason = if homeless {
                RefusalReason::NoPods
            } else if now.since(arrived) >= bounds.max_wait {
                RefusalReason::MaxWait
            } else {
                break;
            };
            self.refuse_waiting(now, id, reason, actions);
        }
        let is_over =
            |(arrived, _): &(Time, RequestId)| now.since(*arrived) >= bounds.max_wait_late;
        while let Some((_, id)) = self.board.oldest_late().filter(is_over) {
            self.refuse_waiting(now, id, RefusalReason::MaxWait, actions);
        }
        while let Some((_, id)) = self.board.first_expiry().filter(|(at, _)| *at <= now) {
            self.refuse_waiting(now, id, self.or_no_pods(RefusalReason::Ttl), actions);
        }
        self.expire_undeliverable(now, actions);
        self.expire_outsized(now, actions);
    }

    /// A request that is too long for every open pod waits for the one that holds it as long as it would wait for any.
    fn expire_outsized(&mut self, now: Time, actions: &mut Vec<Action>) {
        let mut outsized = std::mem::take(&mut self.outsized);
        outsized.retain(|id| {
            let waiting = self.board.get(*id).filter(|waiting| filter::is_outsized(waiting));
            let left = waiting.and_then(|waiting| self.homeless_for(now, waiting));
            let over = left.is_some_and(|homeless| homeless >= self.config.bounds.max_wait_no_pods);
            if over {
                self.refuse_waiting(now, *id, RefusalReason::NoPods, actions);
            }
            left.is_some() && !over
        });
        self.outsized = outsized;
    }

    /// How long a request has waited while no pod was there that could take it; `None`: one is.
    fn homeless_for(&self, now: Time, waiting: &Waiting) -> Option<Duration> {
        let largest_out = self.largest_out_since.filter(|_| filter::is_outsized(waiting));
        let since = [self.no_pod_since, largest_out].into_iter().flatten().min()?;
        Some(now.since(since.max(waiting.request.arrived)))
    }

    /// In how many milliseconds a waiting request is refused if nothing changes.
    pub(super) fn refused_in_ms(&self, now: Time, waiting: &Waiting) -> f64 {
        let (bounds, request) = (&self.config.bounds, &waiting.request);
        let rules = if request.by_header { &self.rules_by_header } else { &self.rules };
        // What is held becomes late no more than what a policy serves like any other.
        let stays = self.board.paused().covers(waiting.key()) || rules.hopeless == Hopeless::Serve;
        let ttft = request.slo.ttft.filter(|_| !stays);
        let (arrived, longest) = (request.arrived, bounds.longest_wait(waiting.late, ttft));
        let left = longest.saturating_sub(now.since(arrived)).min(request.expires.since(now));
        let homeless = self.homeless_for(now, waiting);
        let homeless = homeless.map(|homeless| bounds.max_wait_no_pods.saturating_sub(homeless));
        homeless.map_or(left, |homeless| homeless.min(left)).as_secs_f64() * 1e3
    }

    /// Remembers a request that must not be left waiting when the event is over.
    pub(super) fn note_immediate(&mut self, request: &Request) {
        if request.immediate {
            self.immediate.push(request.id);
        }
    }

    /// Refuses what was not to wait and found no pod. Says whether there was any.
    pub(super) fn refuse_immediate(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let noted = std::mem::take(&mut self.immediate);
        let left: Vec<RequestId> =
            noted.into_iter().filter(|id| self.board.get(*id).is_some()).collect();
        for id in &left {
            self.refuse(now, *id, self.or_no_pods(RefusalReason::Immediate), actions);
        }
        !left.is_empty()
    }

    /// That there was no room is no reason while there is nobody to have it.
    const fn or_no_pods(&self, reason: RefusalReason) -> RefusalReason {
        if self.no_pod_since.is_some() { RefusalReason::NoPods } else { reason }
    }

    /// A request that failed on every pod there is waits for another one as long as it would wait for
    /// a first one. Where there is none, it waits for a first one as all do.
    fn expire_undeliverable(&mut self, now: Time, actions: &mut Vec<Action>) {
        let limit = self.config.bounds.max_wait_no_pods;
        let any_open = self.no_pod_since.is_none();
        let stuck = |id: &RequestId| {
            self.board.get(*id).is_some_and(|waiting| {
                let failed_at = waiting.failed.as_ref().map_or(now, |failed| failed.at);
                let mut open = self.pods.values().filter(|pod| filter::is_open(pod));
                any_open
                    && !waiting.excluded().is_empty()
                    && now.since(failed_at) >= limit
                    && open.all(|pod| waiting.excluded().contains(&pod.spec.id))
            })
        };
        let stuck: Vec<RequestId> = self.requeued.iter().copied().filter(stuck).collect();
        for id in stuck {
            self.refuse_waiting(now, id, RefusalReason::Undeliverable, actions);
        }
        let board = &self.board;
        self.requeued.retain(|id| board.get(*id).is_some());
    }

    /// The dispatcher is closing: nothing waits any more.
    pub(super) fn close(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.closing = true;
        for id in self.board.ids() {
            self.refuse_waiting(now, id, RefusalReason::Closing, actions);
        }
    }
}
