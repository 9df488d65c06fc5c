//! Pods as they join, change, tell of themselves and leave.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{
    Phase, PodId, PodSpec, RequestId, Scrape, Time,
    decide::{filter, score},
    fleet::{Found, PodState},
    scheduler::{Scheduler, flight::allow},
};

/// A pod that a request could not be delivered to may be tried again when it answers so much later.
const TRY_AGAIN: Duration = Duration::from_millis(250);

impl Scheduler {
    pub(super) fn scraped(&mut self, now: Time, id: PodId, scrape: Scrape) {
        // Scrapes come while nothing else does.
        self.predictor.take_up();
        let Some(pod) = self.pods.get_mut(&id) else {
            self.counters.ignored += 1;
            return;
        };
        let before = (pod.kv_capacity_tokens(), pod.prefix_tokens());
        let loras_before = pod.max_loras();
        pod.scraped(now, scrape);
        if pod.is_to_be_tried(now) {
            pod.try_more(now);
        }
        let same_loras = pod.max_loras() == loras_before;
        let found = pod.note_found(now, &scrape);
        let holds_as_much = pod.kv_capacity_tokens() == before.0;
        self.resize_index(id, before.1);
        if let Some(found) = found {
            self.note_found(id, found);
        }
        if !holds_as_much && self.note_longest_prompts(now) {
            self.part_picky();
        }
        if !same_loras {
            self.note_slotted();
        }
        self.note_generated(id, &scrape);
        self.try_again(now, id);
    }

    /// A pod finds another share of what it is believed to have cached than it did.
    fn note_found(&mut self, id: PodId, found: Found) {
        self.pods.index_mut().set_found(id, found.share);
        if let Some(pod) = self.pods.get(&id).filter(|_| found.mistaught) {
            self.predictor.doubt_steps(pod.spec.class);
        }
    }

    /// Lets the index believe that a pod has as many tokens of prompts cached as it may have now, where they were others before, and finds
    /// them again in pieces as large.
    pub(super) fn resize_index(&mut self, id: PodId, before: u64) {
        let tokens = self.pods.get(&id).map_or(before, PodState::prefix_tokens);
        if tokens != before {
            self.pods.index_mut().set_capacity(id, self.config.named_blocks(tokens));
        }
        // What is named is found to within a block of its own already.
        let grain = self.pods.get(&id).map_or(0, PodState::grain);
        let grain = if grain > self.config.named_tokens { grain } else { 0 };
        self.pods.index_mut().set_grain(id, grain);
    }

    /// A pod answers: what could not be delivered to it a while ago may be tried there again. A connection that failed once is no
    /// reason to wait for another pod where there is none.
    pub(super) fn try_again(&mut self, now: Time, id: PodId) {
        for waiting in &self.requeued {
            if let Some(waiting) = self.board.get_mut(*waiting)
                && waiting.failed.as_ref().is_some_and(|failed| now.since(failed.at) >= TRY_AGAIN)
            {
                allow(&mut waiting.failed, id);
            }
        }
    }

    /// Requests that a pod has.
    pub fn requests_on(&self, pod: PodId) -> usize {
        self.pods.get(&pod).map_or(0, |pod| pod.ledger.len())
    }

    /// Pods that said that they take no more are tried again as time passes.
    pub(super) fn try_full_pods(&mut self, now: Time) {
        let due = |pod: &&PodState| pod.is_to_be_tried(now);
        let due: SmallVec<[PodId; 4]> =
            self.pods.values().filter(due).map(|pod| pod.spec.id).collect();
        for id in due {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.try_more(now);
            }
        }
    }

    pub(super) fn pod_up(&mut self, now: Time, spec: PodSpec, phase: Option<Phase>) {
        let (id, class) = (spec.id, score::class(&self.config, spec.class));
        match self.pods.get_mut(&spec.id) {
            Some(pod) => {
                let before = pod.prefix_tokens();
                pod.spec = spec;
                pod.class = class;
                self.resize_index(id, before);
            }
            None => {
                let pod = PodState::new(spec, class);
                let blocks = self.config.named_blocks(pod.prefix_tokens());
                let before = pod.prefix_tokens();
                self.pods.insert(pod, blocks);
                self.resize_index(id, before);
            }
        }
        match phase {
            Some(phase) => self.pod_phase(now, id, phase),
            None => self.note_readiness(now),
        }
    }

    pub(super) fn pod_down(&mut self, now: Time, id: PodId) {
        if let Some(pod) = self.pods.remove(&id) {
            self.gone.push(pod.spec);
        }
        // No number is given twice: nobody waits for what cannot come back.
        self.forgive(id);
        self.note_readiness(now);
    }

    pub(super) fn pod_phase(&mut self, now: Time, id: PodId, phase: Phase) {
        let Some(pod) = self.pods.get_mut(&id) else {
            self.counters.ignored += 1;
            return;
        };
        let recovered = phase == Phase::Ready && pod.phase == Phase::Broken;
        pod.phase = phase;
        if recovered {
            self.forgive(id);
        }
        self.note_readiness(now);
    }

    /// A pod that was broken works again: requests that could not be delivered may try it.
    fn forgive(&mut self, id: PodId) {
        for waiting in &self.requeued {
            if let Some(waiting) = self.board.get_mut(*waiting) {
                allow(&mut waiting.failed, id);
            }
        }
        self.flights.values_mut().for_each(|flight| flight.forgive(id));
    }

    /// Which prompts each pod takes, after those that are open or what their caches hold has changed. Tells whether other prompts are
    /// too long for some pod now.
    fn note_longest_prompts(&mut self, now: Time) -> bool {
        let before = self.pods.largest();
        let others = self.pods.note_longest_prompts(filter::is_open);
        let (open, all) = self.pods.largest();
        if (open, all) != before {
            let out = all.is_some_and(|most| open < most);
            self.largest_out_since = out.then(|| self.largest_out_since.unwrap_or(now));
            let mut outsized = if out { self.board.ids() } else { Vec::new() };
            let tokens = |id: &RequestId| self.board.get(*id).map(|one| one.input_tokens.into());
            outsized.retain(|id| tokens(id).is_some_and(|tokens| self.pods.hold_later(tokens)));
            self.outsized = outsized;
        }
        others || (open, all) != before
    }

    pub(super) fn note_readiness(&mut self, now: Time) {
        let open = self.pods.values().filter(|pod| filter::is_open(pod));
        let mut classes: SmallVec<_> = open.map(|pod| pod.spec.class).collect();
        classes.sort_unstable();
        classes.dedup();
        let other_classes = classes != self.open_classes;
        self.open_classes = classes;
        self.note_slotted();
        let none = self.open_classes.is_empty();
        self.no_pod_since = if none { self.no_pod_since.or(Some(now)) } else { None };
        if self.note_longest_prompts(now) || other_classes {
            self.part_picky();
        }
    }
}
