//! Every set-up under every policy, over the seeds, and what that says of the RFC's lines.

use anyhow::Result;
use serde::Serialize;
use weir_core::{Policy, Rules, policy};

use super::{
    judge::{Check, Relation, mean},
    policy::{Head, Order, Placement, decider},
    served::Served,
    set_ups,
    setup::SetUp,
    world::{Decide, Tally, World},
};
use crate::study::in_parallel;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The RFC's policies, written down for its world.
    Rfc,
    /// The scheduler that serves, with the same parts.
    Weir,
}

/// One policy in one set-up, by seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Who decides.
    pub by: By,
    /// Where requests go.
    pub placement: Placement,
    /// Which goes next.
    #[serde(flatten)]
    pub order: Order,
    /// Mean seconds from arrival to the start, by seed.
    pub wait_s: Vec<f64>,
    /// Share of the requests that missed their objective, by seed.
    pub violations: Vec<f64>,
}

/// A set-up under all policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The set-up.
    pub set_up: SetUp,
    /// Work that comes, as a share of what the consumers can do.
    pub offered: f64,
    /// The policies in it.
    pub cells: Vec<Cell>,
}

impl Compared {
    /// The cell of a policy.
    pub fn cell(&self, by: By, placement: Placement, order: Order) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| (cell.by, cell.placement, cell.order) == (by, placement, order))
    }
}

/// The queue by pattern.
pub const fn pattern(head: Head, demote: bool) -> Order {
    Order::Pattern { head, demote }
}

/// The orders of which the violations are compared, the simple queue first.
pub const ORDERS: [Order; 6] = [
    Order::Simple,
    pattern(Head::Backfill, false),
    pattern(Head::Strict, false),
    pattern(Head::Reserve, false),
    pattern(Head::Strict, true),
    pattern(Head::Reserve, true),
];

/// The orders in which the scheduler that serves is asked too: the simple queue, AIBrix's, and its own preset's.
pub const SERVED: [Order; 3] =
    [Order::Simple, pattern(Head::Backfill, false), pattern(Head::Strict, true)];

/// Set-ups in which it is asked, one of each kind.
const SERVED_IN: [&str; 3] =
    ["bi-pattern, 6 alike", "bi-pattern, 2 twice as fast and 2", "multi-pattern, 4 alike"];

/// All set-ups under all policies.
///
/// # Errors
/// When a set-up makes no profile.
pub fn compare(seeds: &[u64], horizon_s: f64, threads: usize) -> Result<Vec<Compared>> {
    let set_ups = set_ups();
    let mut asked = Vec::new();
    for (place, set_up) in set_ups.iter().enumerate() {
        for placement in [Placement::Random, Placement::LeastPush] {
            asked.push((place, By::Rfc, placement, Order::Simple));
        }
        for placement in [Placement::LeastPull, Placement::BinpackPull] {
            asked.extend(ORDERS.map(|order| (place, By::Rfc, placement, order)));
        }
        if SERVED_IN.contains(&set_up.name.as_str()) {
            let each = |order| (place, By::Weir, Placement::LeastPull, order);
            asked.extend(SERVED.map(each));
        }
    }
    let job = |(place, by, placement, order): (usize, By, Placement, Order)| {
        let set_up = set_ups.get(place);
        let job = move || {
            let mut cell =
                Cell { by, placement, order, wait_s: Vec::new(), violations: Vec::new() };
            for (set_up, seed) in
                set_up.iter().flat_map(|one| seeds.iter().map(move |seed| (*one, seed)))
            {
                let tally = once(set_up, &cell, horizon_s, *seed)?;
                cell.wait_s.push(tally.wait_s);
                cell.violations.push(tally.violations);
            }
            Ok((place, cell))
        };
        Box::new(job) as Box<dyn FnOnce() -> Result<(usize, Cell)> + Send + '_>
    };
    let cells = in_parallel(asked.into_iter().map(job).collect(), threads);
    let cells = cells.into_iter().collect::<Result<Vec<_>>>()?;
    let of = |(place, set_up): (usize, &SetUp)| Compared {
        set_up: set_up.clone(),
        offered: set_up.offered(),
        cells: cells.iter().filter(|(of, _)| *of == place).map(|(_, cell)| cell.clone()).collect(),
    };
    Ok(set_ups.iter().enumerate().map(of).collect())
}

/// One run.
fn once(set_up: &SetUp, cell: &Cell, horizon_s: f64, seed: u64) -> Result<Tally> {
    let arrivals = set_up.arrivals(horizon_s, seed);
    let world = World::new(set_up, &arrivals)?;
    let mut decide: Box<dyn Decide> = match cell.by {
        By::Rfc => decider(cell.placement, cell.order, seed),
        By::Weir => Box::new(Served::new(set_up, rules(cell.placement, cell.order))?),
    };
    Ok(world.serve(decide.as_mut()))
}

/// The preset `pattern-pull` with the parts that a policy asks for.
pub(super) fn rules(placement: Placement, order: Order) -> Rules {
    let (dispatch, rank, hopeless) = match order {
        Order::Simple => (policy::Mode::PullStrict, policy::Order::Fifo, policy::Hopeless::Serve),
        Order::Pattern { head, demote } => {
            let dispatch = match head {
                Head::Backfill => policy::Mode::PullBackfill,
                Head::Strict => policy::Mode::PullStrict,
                Head::Reserve => policy::Mode::PullReservation,
            };
            let lost = if demote { policy::Hopeless::Demote } else { policy::Hopeless::Serve };
            (dispatch, policy::Order::Slack, lost)
        }
    };
    let preset = Policy::PatternPull.rules();
    let load = |placement| policy::Scorer::PatternLoad { placement };
    let push = |scorer, picker| Rules {
        filters: Vec::new(),
        dispatch: policy::Mode::Push,
        scorer,
        picker,
        ..preset.clone()
    };
    let pull = |placement| Rules {
        dispatch,
        order: rank,
        hopeless,
        scorer: load(placement),
        ..preset.clone()
    };
    match placement {
        Placement::Random => push(policy::Scorer::None, policy::Picker::Random),
        Placement::LeastPush => push(load(policy::Placement::LeastLoad), policy::Picker::Best),
        Placement::LeastPull => pull(policy::Placement::LeastLoad),
        Placement::BinpackPull => pull(policy::Placement::Binpack),
    }
}

/// The RFC's relations of waits: which policy, which other one, and how.
fn waits(line: usize) -> [(Placement, Placement, Relation); 3] {
    let first = if line == 1 { Relation::Less } else { Relation::Same };
    let second = if line == 3 { Relation::Same } else { Relation::Less };
    [
        (Placement::BinpackPull, Placement::LeastPull, first),
        (Placement::LeastPull, Placement::LeastPush, second),
        (Placement::LeastPush, Placement::Random, Relation::Less),
    ]
}

/// The relations of the RFC's lines in a set-up.
pub fn checks(compared: &Compared) -> Vec<Check> {
    let (set_up, cells) = (&compared.set_up, &compared.cells);
    let rfc: Vec<&Cell> = cells.iter().filter(|cell| cell.by == By::Rfc).collect();
    relations(set_up.line, &set_up.name, &rfc, set_up.mean_latency_s())
}

/// The relations of one of the RFC's lines and of the fourth between some cells. Waits are alike when they differ by a
/// hundredth of `latency_s` at most.
pub(super) fn relations(line: usize, name: &str, cells: &[&Cell], latency_s: f64) -> Vec<Check> {
    let cell = |placement, order| {
        cells.iter().find(|cell| (cell.placement, cell.order) == (placement, order))
    };
    let wait = |(some, other, says): (Placement, Placement, Relation)| {
        let (these, those) = (cell(some, Order::Simple)?, cell(other, Order::Simple)?);
        let (own, others) = (placement_name(some), placement_name(other));
        let (these, those) = ((own, &these.wait_s[..]), (others, &those.wait_s[..]));
        Some(Check::of(line, name, these, those, says, latency_s))
    };
    let violation = |placement: Placement, order: Order| {
        let (these, those) = (cell(placement, order)?, cell(placement, Order::Simple)?);
        let (own, simple) = (queued(placement, order), queued(placement, Order::Simple));
        let these = (own.as_str(), &these.violations[..]);
        let those = (simple.as_str(), &those.violations[..]);
        Some(Check::of(4, name, these, those, Relation::Less, 0.0))
    };
    let pulls = [Placement::LeastPull, Placement::BinpackPull];
    let orders = ORDERS.iter().skip(1);
    let pairs = orders.flat_map(|order| pulls.map(|placement| (placement, *order)));
    let violations = pairs.filter_map(|(placement, order)| violation(placement, order));
    waits(line).into_iter().filter_map(wait).chain(violations).collect()
}

/// The name of a queue behind a placement, for tables.
pub fn queued(placement: Placement, order: Order) -> String {
    format!("{} ({})", order_name(order), placement_name(placement))
}

/// A placement's name, for tables.
pub const fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Random => "random push",
        Placement::LeastPush => "least-load push",
        Placement::LeastPull => "least-load pull",
        Placement::BinpackPull => "binpack pull",
    }
}

/// An order's name, for tables.
pub const fn order_name(order: Order) -> &'static str {
    match order {
        Order::Simple => "simple",
        Order::Pattern { head: Head::Backfill, demote: false } => "backfill",
        Order::Pattern { head: Head::Backfill, demote: true } => "backfill, demote",
        Order::Pattern { head: Head::Strict, demote: false } => "strict",
        Order::Pattern { head: Head::Strict, demote: true } => "strict, demote",
        Order::Pattern { head: Head::Reserve, demote: false } => "reserve",
        Order::Pattern { head: Head::Reserve, demote: true } => "reserve, demote",
    }
}

/// Means of a cell: seconds of wait, and the share of violations.
pub fn means(cell: &Cell) -> (f64, f64) {
    (mean(&cell.wait_s), mean(&cell.violations))
}
