//! The RFC's policies: four ways to place a request, and the order in which requests are pulled.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use weir_core::profile::has_room;

use super::world::{Consumer, Decide, Start, World};

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// To any consumer, at once.
    Random,
    /// To the one with the least load, at once; its load may be above 1.
    LeastPush,
    /// To the one with the least load that has room, when one has.
    LeastPull,
    /// To the one with the most load that has room, when one has.
    BinpackPull,
}

/// Which request is pulled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "queue", rename_all = "kebab-case")]
pub enum Order {
    /// One queue, first come, first served.
    Simple,
    /// A queue for each pattern; of their heads the one that is nearest to missing its objective, or furthest beyond it.
    Pattern {
        /// What may pass a head that fits nowhere.
        head: Head,
        /// Whether what is bound to miss its objective goes only when nothing else waits.
        demote: bool,
    },
}

/// What may pass a head that fits nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// Any other head that fits, as in AIBrix's code.
    Backfill,
    /// Nothing.
    Strict,
    /// What is over before the head can start, or runs elsewhere than where it will (EASY backfilling).
    Reserve,
}

/// A policy at work.
pub(super) fn decider(placement: Placement, order: Order, seed: u64) -> Box<dyn Decide> {
    match placement {
        Placement::Random => {
            Box::new(Push { dice: Some(SmallRng::seed_from_u64(!seed)), came: None })
        }
        Placement::LeastPush => Box::new(Push { dice: None, came: None }),
        Placement::LeastPull | Placement::BinpackPull => {
            let pack = placement == Placement::BinpackPull;
            Box::new(Pull { pack, order, lanes: Vec::new(), late: VecDeque::new() })
        }
    }
}

/// Gives every request out at once: by chance with dice, to the least load without.
struct Push {
    dice: Option<SmallRng>,
    came: Option<usize>,
}

impl Decide for Push {
    fn arrive(&mut self, _: f64, request: usize, _: &World<'_>) {
        self.came = Some(request);
    }

    fn ended(&mut self, _: f64, _: usize, _: &World<'_>) {}

    fn next(&mut self, _: f64, world: &World<'_>) -> Option<Start> {
        let request = self.came.take()?;
        if let Some(dice) = &mut self.dice {
            return Some((request, dice.random_range(0..world.consumers.len())));
        }
        let loads = world.consumers.iter().enumerate();
        let least = loads.min_by(|(_, one), (_, other)| {
            one.given.total_cmp(&other.given).then(one.count.cmp(&other.count))
        });
        least.map(|(consumer, _)| (request, consumer))
    }
}

struct Pull {
    pack: bool,
    order: Order,
    /// What waits, by pattern, the oldest first.
    lanes: Vec<VecDeque<usize>>,
    /// What is bound to miss its objective, the oldest first.
    late: VecDeque<usize>,
}

/// Where a head will start, and when.
type Reservation = (usize, f64);

impl Pull {
    /// Gives out one request, if any can go.
    fn pull(&mut self, now_s: f64, world: &World<'_>) -> Option<Start> {
        self.demote(now_s, world);
        let mut heads: Vec<(f64, usize)> = self
            .lanes
            .iter()
            .filter_map(|lane| lane.front())
            .map(|head| (self.urgency(*head, now_s, world), *head))
            .collect();
        heads.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut reserved: Option<Reservation> = None;
        for (_, head) in &heads {
            if let Some(consumer) = self.place(*head, now_s, reserved, world) {
                self.lanes.iter_mut().filter(|lane| lane.front() == Some(head)).for_each(|lane| {
                    lane.pop_front();
                });
                return Some((*head, consumer));
            }
            match self.order {
                Order::Simple | Order::Pattern { head: Head::Strict, .. } => return None,
                Order::Pattern { head: Head::Backfill, .. } => {}
                Order::Pattern { head: Head::Reserve, .. } => {
                    reserved = reserved.or_else(|| soonest(*head, world));
                }
            }
        }
        let late = self.late.front().copied().filter(|_| heads.is_empty())?;
        let consumer = self.place(late, now_s, None, world)?;
        self.late.pop_front();
        Some((late, consumer))
    }

    fn demote(&mut self, now_s: f64, world: &World<'_>) {
        if !matches!(self.order, Order::Pattern { demote: true, .. }) {
            return;
        }
        for lane in &mut self.lanes {
            let lost = |request: &usize| {
                let end_s = world.waited_s(*request, now_s) + world.least_latency_s(*request);
                end_s > world.slo_s(*request)
            };
            while let Some(request) = lane.front().copied().filter(lost) {
                lane.pop_front();
                self.late.push_back(request);
            }
        }
    }

    /// AIBrix's rank: seconds by which a request will be late if it starts now; or its age, in a single queue.
    fn urgency(&self, request: usize, now_s: f64, world: &World<'_>) -> f64 {
        let waited_s = world.waited_s(request, now_s);
        match self.order {
            Order::Simple => waited_s,
            Order::Pattern { .. } => {
                waited_s + world.least_latency_s(request) - world.slo_s(request)
            }
        }
    }

    /// The consumer that a request goes to, if one has room.
    fn place(
        &self,
        request: usize,
        now_s: f64,
        reserved: Option<Reservation>,
        world: &World<'_>,
    ) -> Option<usize> {
        let fits = world.consumers.iter().enumerate().filter(|(place, one)| {
            let cost = world.cost(request, one);
            let passes = reserved.is_none_or(|(consumer, at_s)| {
                consumer != *place || now_s + cost.latency_s <= at_s
            });
            passes && has_room(one.used, cost.load)
        });
        // As in the core: what it will carry, then who was given fewer.
        let key = |one: &Consumer| {
            let after = one.used + world.cost(request, one).load;
            if self.pack { -after } else { after }
        };
        let best = fits.min_by(|(_, one), (_, other)| {
            key(one).total_cmp(&key(other)).then(one.count.cmp(&other.count))
        });
        best.map(|(place, _)| place)
    }
}

/// Where a request that fits nowhere now can start first, if nothing else is given out.
fn soonest(request: usize, world: &World<'_>) -> Option<Reservation> {
    let at = |(place, one): (usize, &Consumer)| {
        let load = world.cost(request, one).load;
        let mut running = one.running.clone();
        running.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut used = one.used;
        let end = running.into_iter().find(|(_, freed)| {
            used -= freed;
            // What is left of a sum of which everything was taken.
            has_room(if used < 1e-9 { 0.0 } else { used }, load)
        });
        end.map(|(at_s, _)| (place, at_s))
    };
    let each = world.consumers.iter().enumerate().filter_map(at);
    each.min_by(|one, other| one.1.total_cmp(&other.1))
}

impl Decide for Pull {
    fn arrive(&mut self, _: f64, request: usize, world: &World<'_>) {
        let pattern = world.arrivals.get(request).map_or(0, |one| one.pattern);
        self.lanes.resize(world.set_up.patterns.len(), VecDeque::new());
        if let Some(lane) = self.lanes.get_mut(pattern) {
            lane.push_back(request);
        }
    }

    fn ended(&mut self, _: f64, _: usize, _: &World<'_>) {}

    fn next(&mut self, now_s: f64, world: &World<'_>) -> Option<Start> {
        self.pull(now_s, world)
    }
}
