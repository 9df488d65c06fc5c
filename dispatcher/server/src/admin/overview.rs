//! Every pool in a few figures.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    fault::{ErrorBody, Fault},
    seat::{Pool, Seat},
    take::Query,
};
use crate::shutdown::Stage;

/// The whole dispatcher in a few figures.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Overview {
    /// Version of the dispatcher.
    pub version: &'static str,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Whether it was asked to stop.
    pub draining: bool,
    /// One per model.
    pub pools: Vec<PoolFigures>,
}

/// One pool in a few figures.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PoolFigures {
    /// The model it serves.
    pub pool: String,
    /// Where the dispatcher is that decides, if that is another one: then what waits is there.
    pub decided_by: Option<String>,
    /// By which policy.
    #[schema(value_type = String)]
    pub policy: weir_core::Policy,
    /// Requests waiting, late ones included.
    pub waiting: usize,
    /// Their body bytes.
    pub waiting_bytes: u64,
    /// Requests on pods.
    pub in_flight: usize,
    /// Requests waiting that can no longer meet their TTFT objective, as counted at most a second ago.
    pub late: usize,
    /// Age of the oldest waiting request, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits now and is not paused is dispatched, in milliseconds; `null` while all of
    /// it is paused or no pod is ready. The age of the oldest in a band until that has had something waiting for ten seconds of late.
    pub drain_ms: Option<f64>,
    /// Whether an operator holds the whole pool.
    pub paused: bool,
    /// Everything that an operator holds: `pool`, bands as `b0`, lanes by their names.
    pub held: Vec<String>,
    /// Pods that take requests.
    pub pods_ready: usize,
    /// All pods.
    pub pods: usize,
    /// How many pods what comes needs; `null`: the dispatcher that decides knows.
    pub need: Option<weir_core::Need>,
    /// Version of the bundle that predicts; `null`: none does.
    pub model_version: Option<u64>,
    /// What became of the last minutes' requests, by band, the highest first.
    pub attainment: Vec<Attainment>,
    /// Refusals since the start, by reason.
    pub refused: BTreeMap<&'static str, u64>,
}

/// What became of a band's requests lately.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Attainment {
    /// The band.
    pub band: i8,
    /// The objective of the band, if one alone has it.
    pub objective: Option<String>,
    /// Seconds looked back over.
    pub window_s: f64,
    /// Requests that ended, refused ones included; not those whose client left.
    pub sent: u64,
    /// Of them, whole responses inside their objectives.
    pub attained: u64,
    /// Of them, refused.
    pub refused: u64,
}

/// Which pool is meant.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OverviewQuery {
    /// The pool; left out: all.
    pub pool: Option<String>,
}

/// Every pool in a few figures.
#[utoipa::path(
    get, path = "/overview", tag = "overview", operation_id = "overview", params(OverviewQuery),
    responses((status = 200, body = Overview), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn overview(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<OverviewQuery>,
) -> Result<Json<Overview>, Fault> {
    let seen = move |seat: &Seat| {
        let pools = seat.pools(query.pool.as_deref())?;
        Ok(Json(seen(seat, pools)))
    };
    seat.aside(seen).await
}

/// The whole dispatcher in a few figures.
pub fn of(seat: &Seat) -> Overview {
    seen(seat, seat.pools(None).unwrap_or_default())
}

fn seen(seat: &Seat, pools: Vec<Pool<'_>>) -> Overview {
    let watched = seat.watched();
    Overview {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: watched.uptime_s(),
        draining: watched.life.stage() > Stage::Serving,
        pools: pools.into_iter().map(|pool| figures(seat, pool)).collect(),
    }
}

fn figures(seat: &Seat, pool: Pool<'_>) -> PoolFigures {
    let seen = pool.hub.summary();
    PoolFigures {
        pool: pool.name().to_owned(),
        decided_by: pool.decided_by(),
        policy: seen.policy,
        waiting: seen.waiting,
        waiting_bytes: seen.waiting_bytes,
        in_flight: seen.in_flight,
        late: late(&pool, seen.waiting),
        oldest_wait_ms: seen.oldest_wait_ms,
        drain_ms: seen.drain_ms,
        paused: seen.paused.iter().any(|gate| gate == "pool"),
        held: seen.paused,
        pods_ready: seen.pods_ready,
        pods: seen.pods,
        need: pool.decided_by().is_none().then_some(seen.need),
        model_version: pool.model_version(),
        attainment: attainment(seat, pool),
        refused: seen.refused.iter().map(|(why, count)| (why.name(), *count)).collect(),
    }
}

/// As the lanes count them, so that what an operator holds back is counted too.
fn late(pool: &Pool<'_>, waiting: usize) -> usize {
    let census = pool.hub.counted().census;
    census.bands.values().map(|count| count.risk.late).sum::<usize>().min(waiting)
}

fn attainment(seat: &Seat, pool: Pool<'_>) -> Vec<Attainment> {
    let (window_s, bands) = seat.history().attained(pool.index);
    let of = |(band, ends): (i8, super::history::Ends)| Attainment {
        band,
        objective: seat.settings().objective_of(band),
        window_s,
        sent: ends.sent,
        attained: ends.attained,
        refused: ends.refused,
    };
    bands.into_iter().rev().map(of).collect()
}
