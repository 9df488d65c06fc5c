//! Which LoRA adapter runs where: slots are given out before requests are ([`crate::fleet::slots`]).
//!
//! What counts is that there is a slot for everybody: who asks for an adapter that runs nowhere waits until all of another one's requests on
//! some pod have ended, which takes most answers longer than a first token may. So an adapter that runs is given a further slot where
//! enough of them are free, or where its requests wait for long; and the one that gives way is one that runs elsewhere too, where there is
//! such a one.

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;

use crate::{
    AdapterId, AdapterView, PodId, RequestId, Time,
    decide::filter,
    fleet::{
        PodState,
        slots::{Slots, Turn},
    },
    policy::Rules,
    queue::Waiting,
    scheduler::Scheduler,
};

/// Share of its spare time that a request has waited when its adapter is given a further slot.
const FURTHER_SHARE: f64 = 0.75;
/// For so long one has waited then that is promised no first token.
const FURTHER_WAIT: Duration = Duration::from_millis(1500);
/// For how many times as long as its requests go on an adapter has its only slot before it gives way: the slot is empty by and by for
/// that long, and a pod that does nothing but change adapters serves one request after the other.
const STAYS: f64 = 3.0;
/// How many times as long as predicted an answer may be that has not begun.
const LONGEST: f64 = 2.0;
/// For so long an adapter that was asked for is thought to be asked for again.
const SEEN: Duration = Duration::from_secs(60);
/// Adapters that are kept in mind before those are forgotten that were not asked for lately.
const KNOWN: usize = 1024;

/// Where adapters run and do not give way.
struct Homes {
    /// Each that runs somewhere, in order, with on how many pods.
    counts: Vec<(AdapterId, usize)>,
    /// Whether more slots are free than there are adapters that may come and run nowhere, with one to spare.
    plenty: bool,
}

impl Homes {
    /// On how many pods an adapter runs.
    fn of(&self, adapter: AdapterId) -> usize {
        let at = self.counts.binary_search_by_key(&adapter, |(one, _)| *one).ok();
        at.and_then(|at| self.counts.get(at)).map_or(0, |(_, pods)| *pods)
    }
}

/// Adapters that heads ask for, each with the first of these.
type Wanted = SmallVec<[(AdapterId, RequestId); 8]>;

impl Scheduler {
    /// The adapter that counts for where a request goes and by which lane: where pods run any number of them, or its policy lets nobody wait,
    /// none does.
    pub(super) fn adapter(&self, waiting: &Waiting) -> Option<AdapterId> {
        let asked = waiting.request.by_header;
        let rules: &Rules = if asked { &self.rules_by_header } else { &self.rules };
        let counts = self.slotted && rules.gated();
        let adapter = waiting.request.adapter.as_deref().map(AdapterId::of);
        // What is held by its adapter's name stays so.
        adapter.filter(|adapter| counts || self.board.paused().names(*adapter))
    }

    /// Notes whether a pod runs only so many adapters at once.
    pub(super) fn note_slotted(&mut self) {
        let slotted = self.pods.values().any(|pod| pod.max_loras().is_some());
        if slotted != self.slotted {
            self.slotted = slotted;
            self.part_picky();
        }
    }

    /// Notes that somebody asks for an adapter.
    pub(super) fn note_adapter(&mut self, now: Time, adapter: Option<AdapterId>) {
        let Some(adapter) = adapter else { return };
        self.adapters.insert(adapter, now);
        if self.adapters.len() > KNOWN {
            self.adapters.retain(|_, at| now.since(*at) < SEEN);
        }
    }

    /// Says who may take which slot, before anything is given out.
    pub(super) fn allot_slots(&mut self, now: Time) {
        if !self.slotted {
            return;
        }
        let wanted = self.wanted();
        self.take_back_slots(|adapter| !wanted.iter().any(|(other, _)| *other == adapter));
        if wanted.is_empty() {
            return;
        }
        let homes = self.homes(now);
        for (adapter, head) in wanted {
            self.allot_slot(now, (adapter, head), &homes);
        }
    }

    /// Who may take which slot, to be put back, and how often an adapter gave way.
    pub(super) fn slots_as_they_are(&self) -> (Vec<Slots>, u64) {
        let of_pods = self.pods.values().filter(|_| self.slotted).map(|pod| pod.slots.clone());
        (of_pods.collect(), self.counters.adapter_turns)
    }

    /// Puts it back.
    pub(super) fn put_back_slots(&mut self, (of_pods, turns): (Vec<Slots>, u64)) {
        if !of_pods.is_empty() {
            self.pods.values_mut().zip(of_pods).for_each(|(pod, slots)| pod.slots = slots);
        }
        self.counters.adapter_turns = turns;
    }

    /// The adapters that heads ask for, each with the first of these.
    fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::new();
        for (_, rank) in self.board.heads().into_iter().chain(self.board.late_heads()) {
            let adapter = self.board.get(rank.id()).and_then(|waiting| waiting.adapter);
            let Some(adapter) = adapter else { continue };
            if wanted.iter().all(|(other, _)| *other != adapter) {
                wanted.push((adapter, rank.id()));
            }
        }
        wanted
    }

    /// Gives an adapter that a head asks for what it may have: the slots that are free, or else that of another.
    fn allot_slot(&mut self, now: Time, (adapter, head): (AdapterId, RequestId), homes: &Homes) {
        let Some(head) = self.board.get(head) else { return };
        let open = || self.pods.values().filter(|pod| filter::usable_but_for_slots(pod, head));
        let runs = homes.of(adapter) > 0 && open().any(|pod| pod.is_home(adapter));
        let waits = waits_long(now, head);
        if runs && !waits && !homes.plenty {
            return;
        }
        let free = open().filter(|pod| !pod.runs(adapter) && pod.free_slots(adapter) > 0);
        let free: SmallVec<[PodId; 8]> = free.map(|pod| pod.spec.id).collect();
        if free.is_empty() && (waits || !runs) {
            // Who runs somewhere makes nobody homeless, however late it is: that one would need another's slot in its turn.
            let turn = self.turn_for(now, (adapter, head), (!runs, homes));
            if let Some((pod, turn)) = turn
                && let Some(pod) = self.pods.get_mut(&pod)
            {
                pod.slots.turn(turn);
                self.counters.adapter_turns += 1;
            }
        }
        for id in free {
            let is_admitted = |pod: &PodState| pod.slots.admitted().any(|one| one == adapter);
            if !self.pods.get(&id).is_none_or(is_admitted)
                && let Some(pod) = self.pods.get_mut(&id)
            {
                pod.slots.grant(adapter);
            }
        }
    }

    /// Where adapters run, and how many slots are left.
    fn homes(&self, now: Time) -> Homes {
        let open = || self.pods.values().filter(|pod| filter::is_open(pod));
        let at_home = open().flat_map(|pod| {
            let running = pod.ledger.adapters().iter().map(|one| one.adapter);
            running.filter(|adapter| !pod.slots.gives_way(*adapter))
        });
        let mut running: Vec<AdapterId> = at_home.collect();
        running.sort_unstable();
        let chunks = running.chunk_by(|one, next| one == next);
        let homes = Homes {
            counts: chunks.filter_map(|all| Some((*all.first()?, all.len()))).collect(),
            plenty: false,
        };
        let may_come = self.adapters.iter().filter(|(_, at)| now.since(**at) < SEEN);
        let homeless = may_come.filter(|(one, _)| homes.of(**one) == 0).count();
        let free = open().map(PodState::spare_slots).fold(0, usize::saturating_add);
        Homes { plenty: free > homeless + 1, ..homes }
    }

    /// Which adapter gives way on which pod to that of a head: one that runs elsewhere too, or, where it may be, one that has had its only
    /// slot for long enough; of these the one whose requests are soonest over.
    fn turn_for(
        &self,
        now: Time,
        (to, head): (AdapterId, &Waiting),
        (may_be_homeless, homes): (bool, &Homes),
    ) -> Option<(PodId, Turn)> {
        let open = || self.pods.values().filter(|pod| filter::usable_but_for_slots(pod, head));
        if open().any(|pod| pod.slots.is_awaited(to)) {
            return None;
        }
        let turns = open().flat_map(|pod| {
            let running = pod.ledger.adapters().iter();
            running.map(move |one| (pod, one.since, Turn { from: one.adapter, to }))
        });
        let turns = turns.filter(|(pod, _, turn)| pod.can_turn(*turn));
        let turns = turns.filter_map(|(pod, since, turn)| {
            // This is one of its homes.
            let becomes_homeless = homes.of(turn.from) <= 1;
            let left_ms = self.left_ms(now, pod, turn.from);
            let has_stayed = now.ms_since(since) >= STAYS * left_ms;
            let may = !becomes_homeless || may_be_homeless && has_stayed;
            may.then_some((becomes_homeless, left_ms, pod.spec.id, turn))
        });
        let first = turns.min_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        first.map(|(_, _, pod, turn)| (pod, turn))
    }

    /// In how many milliseconds the last of an adapter's requests on a pod is over, at its pace of now and with the longest answers.
    fn left_ms(&self, now: Time, pod: &PodState, adapter: AdapterId) -> f64 {
        let ledger = &pod.ledger;
        let residents = ledger.residents().iter().zip(ledger.paces());
        let residents = residents.filter(|(one, _)| one.adapter == Some(adapter));
        let pending = ledger.pending().iter().filter(|one| one.resident.adapter == Some(adapter));
        let flights = pending.filter_map(|one| self.flights.get(&one.id));
        let whole = flights.map(|flight| LONGEST * f64::from(flight.output_tokens));
        let tokens = residents.map(|(_, pace)| pace.latest).chain(whole).fold(0.0, f64::max);
        tokens * self.look_at(now, pod).step_ms
    }

    /// Takes back what some adapters may take: they are there now, or nobody asks for them any more.
    pub(super) fn take_back_slots(&mut self, of: impl Fn(AdapterId) -> bool) {
        let over = |pod: &PodState| {
            let over = pod.slots.admitted().filter(|adapter| of(*adapter));
            over.map(|adapter| (pod.spec.id, adapter)).collect::<SmallVec<[_; 2]>>()
        };
        let over: SmallVec<[(PodId, AdapterId); 4]> = self.pods.values().flat_map(over).collect();
        for (pod, adapter) in over {
            if let Some(pod) = self.pods.get_mut(&pod) {
                pod.slots.take_back(adapter);
            }
        }
    }

    /// The adapters that a pod runs.
    pub(super) fn adapter_views(&self, pod: &PodState) -> Vec<AdapterView> {
        let mut views = BTreeMap::new();
        if pod.ledger.adapters().is_empty() {
            return Vec::new();
        }
        let pending = pod.ledger.pending().iter().map(|one| &one.resident);
        for one in pending.chain(pod.ledger.residents()) {
            let name = self.flights.get(&one.id).and_then(|flight| flight.request.adapter.clone());
            let Some((name, id)) = name.zip(one.adapter) else { continue };
            let view = views.entry(name.clone()).or_insert_with(|| AdapterView {
                name,
                requests: 0,
                gives_way: pod.slots.gives_way(id),
            });
            view.requests += 1;
        }
        views.into_values().collect()
    }
}

/// Whether a head has waited for so long that its adapter is given a further slot.
fn waits_long(now: Time, head: &Waiting) -> bool {
    let waited = now.since(head.request.arrived);
    head.late
        || head.urgency(now) >= FURTHER_SHARE
        || head.request.slo.ttft.is_none() && waited >= FURTHER_WAIT
}
