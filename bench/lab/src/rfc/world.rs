//! The RFC's world: consumers of a capacity, requests that take a share of one for a fixed time, and somebody who says which
//! goes where.
//!
//! A request given to a consumer waits there, first come, first served, until its load and what runs are at most the whole
//! capacity. Who pulls gives one only where it starts at once; who pushes does not ask.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
};

use anyhow::{Context, Result};
use weir_core::profile::has_room;

use super::setup::{Arrival, SetUp};

/// What a pattern takes of a consumer of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Share of its capacity.
    pub(super) load: f64,
    /// For so many seconds.
    pub(super) latency_s: f64,
}

/// A consumer.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumer {
    /// Its kind.
    pub(super) class: usize,
    /// Load of what runs.
    pub(super) used: f64,
    /// Load of what runs and what waits there.
    pub(super) given: f64,
    /// Requests that it was ever given.
    pub(super) count: usize,
    /// When each that runs ends, and its load.
    pub(super) running: Vec<(f64, f64)>,
    queue: VecDeque<usize>,
}

/// A set-up with its requests, as whoever decides sees it.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) set_up: &'a SetUp,
    pub(super) arrivals: &'a [Arrival],
    pub(super) consumers: Vec<Consumer>,
    /// By pattern, then by kind of consumer.
    costs: Vec<Vec<Cost>>,
}

/// Says which request goes to which consumer.
pub(super) trait Decide {
    /// A request came.
    fn arrive(&mut self, now_s: f64, request: usize, world: &World<'_>);

    /// A request was over; its load is back.
    fn ended(&mut self, now_s: f64, request: usize, world: &World<'_>);

    /// A request that goes now, if any does. Asked again until none does.
    fn next(&mut self, now_s: f64, world: &World<'_>) -> Option<Start>;
}

/// A request goes to a consumer.
pub(super) type Start = (usize, usize);

/// What became of the requests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) requests: usize,
    /// Mean seconds from arrival to the start.
    pub(super) wait_s: f64,
    /// Share whose wait and latency were longer than their objective.
    pub(super) violations: f64,
}

impl<'a> World<'a> {
    pub(super) fn new(set_up: &'a SetUp, arrivals: &'a [Arrival]) -> Result<Self> {
        let profiles = set_up.profiles()?;
        let kinds = 0..set_up.kinds().len() as u16;
        let cost = |tokens: u32, class: u16| {
            let cost = profiles.cost(class, tokens, 1).and_then(Result::ok);
            let cost = cost.context("a pattern that no consumer can serve")?;
            Ok(Cost { load: cost.load, latency_s: cost.cell.e2e_s })
        };
        let costs = set_up.patterns.iter().map(|pattern| {
            kinds.clone().map(|class| cost(SetUp::tokens(pattern), class)).collect()
        });
        let costs = costs.collect::<Result<Vec<Vec<Cost>>>>()?;
        let consumer = |class| Consumer { class: usize::from(class), ..Consumer::default() };
        let consumers = set_up.classes().into_iter().map(consumer).collect();
        Ok(Self { set_up, arrivals, consumers, costs })
    }

    /// What a request takes of a consumer.
    pub(super) fn cost(&self, request: usize, consumer: &Consumer) -> Cost {
        let pattern = self.arrivals.get(request).map_or(0, |one| one.pattern);
        let of_pattern = self.costs.get(pattern).and_then(|costs| costs.get(consumer.class));
        of_pattern.copied().unwrap_or_default()
    }

    /// Seconds that a request takes on the fastest kind of consumer.
    pub(super) fn least_latency_s(&self, request: usize) -> f64 {
        let pattern = self.arrivals.get(request).map_or(0, |one| one.pattern);
        let costs = self.costs.get(pattern).map_or(&[][..], Vec::as_slice);
        costs.iter().map(|cost| cost.latency_s).fold(f64::INFINITY, f64::min)
    }

    /// Seconds that are promised to a request.
    pub(super) fn slo_s(&self, request: usize) -> f64 {
        let pattern = self.arrivals.get(request).map_or(0, |one| one.pattern);
        self.set_up.patterns.get(pattern).map_or(f64::INFINITY, |one| one.slo_s)
    }

    /// Seconds since a request came.
    pub(super) fn waited_s(&self, request: usize, now_s: f64) -> f64 {
        now_s - self.arrivals.get(request).map_or(now_s, |one| one.at_s)
    }

    /// Serves everything that comes, to its end.
    pub(super) fn serve(mut self, decide: &mut dyn Decide) -> Tally {
        let mut ends = BinaryHeap::new();
        let mut tally = Tally { requests: self.arrivals.len(), ..Tally::default() };
        let mut next = 0;
        loop {
            let end_s = ends.peek().map(|Reverse(end): &Reverse<End>| end.at_s);
            let arrival_s = self.arrivals.get(next).map(|one| one.at_s);
            let now_s = match (end_s, arrival_s) {
                (Some(end_s), arrival_s) if arrival_s.is_none_or(|at_s| end_s <= at_s) => {
                    let Some(Reverse(end)) = ends.pop() else { break };
                    self.free(&end);
                    decide.ended(end_s, end.request, &self);
                    self.start_queued(end.consumer, end_s, &mut ends, &mut tally);
                    end_s
                }
                (_, Some(at_s)) => {
                    decide.arrive(at_s, next, &self);
                    next += 1;
                    at_s
                }
                (_, None) => break,
            };
            while let Some((request, consumer)) = decide.next(now_s, &self) {
                self.give(request, consumer);
                self.start_queued(consumer, now_s, &mut ends, &mut tally);
            }
        }
        let count = tally.requests.max(1) as f64;
        Tally { wait_s: tally.wait_s / count, violations: tally.violations / count, ..tally }
    }

    fn give(&mut self, request: usize, consumer: usize) {
        let load = self.consumers.get(consumer).map(|one| self.cost(request, one).load);
        if let (Some(one), Some(load)) = (self.consumers.get_mut(consumer), load) {
            one.given += load;
            one.count += 1;
            one.queue.push_back(request);
        }
    }

    /// Starts what waits at a consumer as far as it has room.
    fn start_queued(
        &mut self,
        consumer: usize,
        now_s: f64,
        ends: &mut BinaryHeap<Reverse<End>>,
        tally: &mut Tally,
    ) {
        while let Some(one) = self.consumers.get(consumer) {
            let Some(request) = one.queue.front().copied() else { return };
            let Cost { load, latency_s } = self.cost(request, one);
            if !has_room(one.used, load) {
                return;
            }
            let wait_s = self.waited_s(request, now_s);
            tally.wait_s += wait_s;
            tally.violations += f64::from(u8::from(wait_s + latency_s > self.slo_s(request)));
            let at_s = now_s + latency_s;
            ends.push(Reverse(End { at_s, consumer, request, load }));
            if let Some(one) = self.consumers.get_mut(consumer) {
                one.queue.pop_front();
                one.running.push((at_s, load));
                one.used += load;
            }
        }
    }

    fn free(&mut self, end: &End) {
        let Some(one) = self.consumers.get_mut(end.consumer) else { return };
        let place =
            one.running.iter().position(|(at_s, load)| (*at_s, *load) == (end.at_s, end.load));
        if let Some(place) = place {
            one.running.swap_remove(place);
        }
        // Sums drift; they are made anew.
        one.used = one.running.iter().map(|(_, load)| load).sum();
        one.given -= end.load;
        if one.running.is_empty() && one.queue.is_empty() {
            one.given = 0.0;
        }
    }
}

/// A request will be over.
#[derive(Clone, Copy, Debug)]
struct End {
    at_s: f64,
    consumer: usize,
    request: usize,
    load: f64,
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.request.cmp(&other.request))
    }
}
