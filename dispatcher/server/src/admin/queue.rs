//! Lanes, bands and tenants: what waits where, since when, and how near it is to its objectives; and
//! the gates that hold a lane, a band or a pool.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::{
    Band, Gate,
    inspect::{BandView, Census, Count, QueueView, Risk},
};

use super::{
    audit::{self, Change},
    fault::{ErrorBody, Fault},
    guard::Caller,
    history::PoolQuery,
    seat::{Pool, Seat},
    take::{Body, Query, some_whole},
};
use crate::hub::Hub;

/// What waits, in three ways of counting.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Queues {
    /// Lanes with something in them: those with most late requests first, then the deepest.
    pub queues: Vec<Queue>,
    /// Bands with something in them, the highest first.
    pub bands: Vec<BandQueue>,
    /// Tenants with something waiting, the most first.
    pub tenants: Vec<TenantQueue>,
    /// Age of the counts that a walk made (`bytes`, `risk`, `tenants`), in milliseconds.
    pub as_of_ms: f64,
}

/// A lane.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Queue {
    /// The pool it is in.
    pub pool: String,
    /// What it is.
    #[serde(flatten)]
    pub view: QueueView,
    /// Body bytes of its requests.
    pub bytes: u64,
    /// How near its requests are to their objectives.
    pub risk: Risk,
    /// Requests that were counted for it.
    pub scanned: usize,
}

/// A band.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BandQueue {
    /// The pool it is in.
    pub pool: String,
    /// The band.
    pub band: i8,
    /// Requests waiting.
    pub depth: usize,
    /// Their body bytes.
    pub bytes: u64,
    /// Age of the oldest, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits is dispatched, in milliseconds; `null` while nothing of it can leave: there
    /// is nothing, all of it is paused, or no pod is ready.
    pub drain_ms: Option<f64>,
    /// Whether an operator holds all of it.
    pub paused: bool,
    /// How near its requests are to their objectives.
    pub risk: Risk,
}

/// A tenant.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TenantQueue {
    /// The pool it is in.
    pub pool: String,
    /// The tenant; `null`: requests without one; `(others)`: those of more tenants than are counted.
    pub tenant: Option<Arc<str>>,
    /// Requests waiting.
    pub depth: usize,
    /// Their body bytes.
    pub bytes: u64,
    /// Age of the oldest, in milliseconds.
    pub oldest_wait_ms: f64,
}

/// What waits, by lane, band and tenant.
#[utoipa::path(
    get, path = "/queues", tag = "queues", operation_id = "queues", params(PoolQuery),
    responses((status = 200, body = Queues), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn queues(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<PoolQuery>,
) -> Result<Json<Queues>, Fault> {
    let of = move |seat: &Seat| Ok(Json(of(&seat.pools(query.pool.as_deref())?)));
    seat.aside(of).await
}

/// What waits in some pools.
pub fn of(pools: &[Pool<'_>]) -> Queues {
    let mut all = Queues::default();
    for pool in pools {
        let seen = pool.hub.queues();
        all.as_of_ms = all.as_of_ms.max(seen.as_of_ms);
        let lanes = seen.lanes.into_iter();
        all.queues.extend(lanes.map(|(view, count)| queue(pool, view, count)));
        let bands = seen.bands.into_iter().filter(|(view, _)| view.depth > 0);
        all.bands.extend(bands.map(|(view, count)| band(pool, view, count)));
        all.tenants.extend(tenants(pool, &seen.census));
    }
    let order = |one: &Queue| (one.risk.late, one.risk.tight, one.view.depth);
    all.queues.sort_by(|a, b| order(b).cmp(&order(a)).then_with(|| a.view.lane.cmp(&b.view.lane)));
    all.tenants.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| a.tenant.cmp(&b.tenant)));
    all
}

fn queue(pool: &Pool<'_>, view: QueueView, count: Option<Count>) -> Queue {
    let count = count.unwrap_or_default();
    let (pool, risk) = (pool.name().to_owned(), within(count.risk, view.depth));
    Queue { pool, bytes: count.bytes, risk, scanned: count.depth, view }
}

/// At most as many as wait now: the walk that counted them was a moment ago, and some may have left since. The worst are kept.
fn within(risk: Risk, depth: usize) -> Risk {
    let late = risk.late.min(depth);
    let tight = risk.tight.min(depth - late);
    Risk { late, tight, ok: risk.ok.min(depth - late - tight) }
}

fn band(pool: &Pool<'_>, view: BandView, count: Option<Count>) -> BandQueue {
    let count = count.unwrap_or_default();
    BandQueue {
        pool: pool.name().to_owned(),
        band: view.band.0,
        depth: view.depth,
        bytes: count.bytes,
        oldest_wait_ms: view.oldest_wait_ms,
        drain_ms: view.drain_ms,
        paused: view.paused,
        risk: within(count.risk, view.depth),
    }
}

fn tenants(pool: &Pool<'_>, census: &Census) -> Vec<TenantQueue> {
    let of = |tenant: Option<Arc<str>>, count: Count| TenantQueue {
        pool: pool.name().to_owned(),
        tenant,
        depth: count.depth,
        bytes: count.bytes,
        oldest_wait_ms: count.oldest_wait_ms,
    };
    let named = census.tenants.iter().map(|(tenant, count)| of(Some(tenant.clone()), *count));
    let others = [(None, census.no_tenant), (Some(Arc::from("(others)")), census.other_tenants)];
    let others = others.into_iter().map(|(tenant, count)| of(tenant, count));
    named.chain(others).filter(|one| one.depth > 0).collect()
}

/// The lanes of each pool that are most at risk, at most so many.
pub fn riskiest(mut queues: Queues, most: usize) -> Vec<Queue> {
    let mut shown = BTreeMap::<String, usize>::new();
    queues.queues.retain(|queue| {
        let shown = shown.entry(queue.pool.clone()).or_default();
        *shown += 1;
        *shown <= most
    });
    queues.queues
}

/// What is to be held or let go: the whole pool unless a lane or a band is named.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GateAsk {
    /// The pool; may be left out when there is one.
    #[serde(default)]
    pub pool: Option<String>,
    /// One lane, by its name.
    #[serde(default)]
    pub lane: Option<String>,
    /// One band; not beside a lane.
    #[serde(default, deserialize_with = "some_whole")]
    #[schema(minimum = -128, maximum = 127)]
    pub band: Option<i8>,
}

/// What is held.
#[derive(Debug, Serialize, ToSchema)]
pub struct Held {
    /// Every gate of the pool that is shut: `pool`, bands as `b0`, lanes by their names.
    pub paused: Vec<String>,
}

/// Accept and hold: what is named waits until it is resumed, inside the bounds of every wait.
#[utoipa::path(
    post, path = "/queues/pause", tag = "queues", operation_id = "pause", request_body = GateAsk,
    responses((status = 200, body = Held), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn pause(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(ask): Body<GateAsk>,
) -> Result<Json<Held>, Fault> {
    seat.aside(move |seat| turn(seat, &caller, &ask, "pause", Hub::pause)).await
}

/// Let what is held go again. Without a lane or a band every gate of the pool is opened.
#[utoipa::path(
    post, path = "/queues/resume", tag = "queues", operation_id = "resume", request_body = GateAsk,
    responses((status = 200, body = Held), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn resume(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(ask): Body<GateAsk>,
) -> Result<Json<Held>, Fault> {
    seat.aside(move |seat| turn(seat, &caller, &ask, "resume", Hub::resume)).await
}

fn turn(
    seat: &Seat,
    caller: &Caller,
    ask: &GateAsk,
    action: &'static str,
    turn: fn(&Hub, Gate) -> Vec<String>,
) -> Result<Json<Held>, Fault> {
    let what = match (&ask.lane, ask.band) {
        (Some(lane), _) => lane.clone(),
        (None, Some(band)) => format!("b{band}"),
        (None, None) => "pool".to_owned(),
    };
    let pool = ask.pool.as_deref();
    let change = Change { action, pool: seat.written(pool), what: &what };
    let held = audit::change(seat, caller, change, || {
        let pool = seat.pool(pool)?;
        pool.decides()?;
        let paused = turn(pool.hub, gate(pool, ask)?);
        Ok((Held { paused }, 1))
    });
    held.map(Json)
}

fn gate(pool: Pool<'_>, ask: &GateAsk) -> Result<Gate, Fault> {
    match (&ask.lane, ask.band) {
        (Some(_), Some(_)) => Err(Fault::parameter("band", "name a lane or a band, not both")),
        (Some(lane), None) => pool.lane(lane).map(Gate::Lane),
        (None, Some(band)) => Ok(Gate::Band(Band(band))),
        (None, None) => Ok(Gate::Pool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_late_than_wait() {
        let counted = Risk { late: 255, tight: 3, ok: 2 };
        assert_eq!(within(counted, 241), Risk { late: 241, tight: 0, ok: 0 });
        assert_eq!(within(counted, 257), Risk { late: 255, tight: 2, ok: 0 });
        assert_eq!(within(counted, 300), counted, "what came since is not counted yet");
    }
}
