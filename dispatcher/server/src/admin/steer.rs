//! What an operator does with what waits: cancel one request or all that a filter finds, move one to
//! another band.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use weir_core::{Band, RequestId, inspect::Filter};

use super::{
    audit::{self, Change},
    fault::{ErrorBody, Fault},
    guard::Caller,
    request::{RequestDetail, Wanted, detail, filter},
    seat::{Pool, Seat},
    take::{Body, Name, PoolAsk, some_whole, whole},
};
use crate::hub::{Hub, seat::Called};

/// How many were cancelled.
#[derive(Debug, Serialize, ToSchema)]
pub struct Cancelled {
    /// How many.
    pub cancelled: usize,
}

/// Refuse a waiting request. Its client gets 503 `cancelled_by_operator` and is asked not to retry.
#[utoipa::path(
    post, path = "/requests/{id}/cancel", tag = "requests", operation_id = "cancel",
    params(("id" = String, Path, description = "Its x-request-id, or its number")),
    request_body = PoolAsk,
    responses(
        (status = 200, body = Cancelled),
        (status = 409, body = ErrorBody, description = "It does not wait, or several may be meant"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn cancel(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Name(name): Name,
    Body(ask): Body<PoolAsk>,
) -> Result<Json<Cancelled>, Fault> {
    let cancel = move |seat: &Seat| {
        let pool = ask.pool.as_deref();
        let change = Change { action: "cancel", pool: seat.written(pool), what: &name };
        audit::change(seat, &caller, change, || {
            seat.decides(pool)?;
            on_waiting(seat, pool, &name, Hub::cancel_waiting)?;
            Ok((Json(Cancelled { cancelled: 1 }), 1))
        })
    };
    seat.aside(cancel).await
}

/// Most numbers of requests of one name that a refusal lists.
const LISTED: usize = 20;

/// Does something to the waiting request that a name means, in the pool where it waits; says which that is.
fn on_waiting(
    seat: &Seat,
    pool: Option<&str>,
    name: &str,
    act: impl Fn(&Hub, &Called) -> bool,
) -> Result<RequestId, Fault> {
    let pools = seat.pools(pool)?;
    let number = meant(&pools, name)?;
    // By its number: another one that is called so may have come meanwhile.
    if pools.iter().any(|pool| act(pool.hub, &Called::Id(number))) {
        return Ok(number);
    }
    Err(Fault::Conflict(format!("the request {name} does not wait any more")))
}

/// The number of the request that a name means. A name that several waiting requests have, and digits that are the name
/// of one request and the number of another, are refused: what was meant is not guessed.
fn meant(pools: &[Pool<'_>], name: &str) -> Result<RequestId, Fault> {
    let known = |which: Called| {
        let number = pools.iter().find_map(|pool| pool.hub.number(&which))?;
        Some((which, number))
    };
    let known: Vec<_> = Called::readings(name).into_iter().filter_map(known).collect();
    let is_a_name = matches!(&known[..], [(Called::Name(_), _), ..]);
    let called = |pool: &Pool<'_>| pool.hub.waiting_called(name);
    let waiting: Vec<_> = if is_a_name { pools.iter().flat_map(called).collect() } else { vec![] };
    if waiting.len() > 1 {
        return Err(several(name, &waiting));
    }
    match &known[..] {
        [] => Err(Fault::not_found("request", name)),
        [(_, called), (_, numbered)] if called != numbered => Err(Fault::Conflict(format!(
            "{name} is what one request is called and the number of another; say #{} or #{}",
            called.0, numbered.0
        ))),
        [(_, number), ..] => Ok(waiting.first().copied().unwrap_or(*number)),
    }
}

/// Several requests may be meant: these, the youngest first.
fn several(name: &str, numbers: &[RequestId]) -> Fault {
    let listed: Vec<String> =
        numbers.iter().take(LISTED).map(|number| format!("#{}", number.0)).collect();
    let more = if numbers.len() > LISTED { " or another number" } else { "" };
    let listed = listed.join(" or ");
    Fault::Conflict(format!("several waiting requests are called {name}; say {listed}{more}"))
}

/// The band that a request is to have.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveAsk {
    /// The pool; may be left out.
    #[serde(default)]
    pub pool: Option<String>,
    /// The band; a higher one goes first, below 0 is sheddable.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = -128, maximum = 127)]
    pub band: i8,
}

/// Put a waiting request into another band, at the rank it had when it arrived.
#[utoipa::path(
    post, path = "/requests/{id}/move", tag = "requests", operation_id = "move",
    params(("id" = String, Path, description = "Its x-request-id, or its number")),
    request_body = MoveAsk,
    responses(
        (status = 200, body = RequestDetail),
        (status = 409, body = ErrorBody, description = "It does not wait, or several may be meant"),
        (status = "4XX", body = ErrorBody),
    )
)]
pub(super) async fn shift(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Name(name): Name,
    Body(ask): Body<MoveAsk>,
) -> Result<Json<Value>, Fault> {
    let shift = move |seat: &Seat| {
        let (pool, band) = (ask.pool.as_deref(), Band(ask.band));
        let what = format!("{name} to band {}", band.0);
        let change = Change { action: "move", pool: seat.written(pool), what: &what };
        audit::change(seat, &caller, change, || {
            seat.decides(pool)?;
            let number = on_waiting(seat, pool, &name, |hub, which| hub.move_waiting(which, band))?;
            Ok((Json(detail(seat, pool, &format!("#{}", number.0))?), 1))
        })
    };
    seat.aside(shift).await
}

/// The members that say which waiting requests are to be cancelled; at least one must be there.
pub(super) const FILTERS: [&str; 5] = ["lane", "band", "tenant", "late", "older_than_ms"];

/// Which waiting requests are to be cancelled: at least one of lane, band, tenant, late and older_than_ms
/// must be there.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelAsk {
    /// The pool; may be left out when there is one.
    #[serde(default)]
    pub pool: Option<String>,
    /// Those of a lane, by its name.
    #[serde(default)]
    pub lane: Option<String>,
    /// Those of a band.
    #[serde(default, deserialize_with = "some_whole")]
    #[schema(minimum = -128, maximum = 127)]
    pub band: Option<i8>,
    /// Those of a tenant.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Those that can no longer meet their TTFT objective, or those that can.
    #[serde(default)]
    pub late: Option<bool>,
    /// Those that have waited at least so many milliseconds.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1e12)]
    pub older_than_ms: Option<f64>,
    /// Whether they are only to be counted.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a cancellation by filter came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct CancelledMany {
    /// Requests that the filter found.
    pub matched: usize,
    /// Of them, cancelled; 0 in a dry run.
    pub cancelled: usize,
    /// What the clients call the first of them, at most 20.
    pub sample: Vec<String>,
}

/// Refuse every waiting request that a filter finds, or count them.
#[utoipa::path(
    post, path = "/requests/cancel", tag = "requests", operation_id = "cancel_many",
    request_body = CancelAsk,
    responses((status = 200, body = CancelledMany), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn cancel_many(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Body(ask): Body<CancelAsk>,
) -> Result<Json<CancelledMany>, Fault> {
    let sweep = move |seat: &Seat| {
        if ask.dry_run {
            return sweep(seat, &ask).map(Json);
        }
        let (pool, what) = (seat.written(ask.pool.as_deref()), described(&ask));
        let change = Change { action: "cancel_many", pool, what: &what };
        audit::change(seat, &caller, change, || {
            seat.decides(ask.pool.as_deref())?;
            let done = sweep(seat, &ask)?;
            let cancelled = done.cancelled;
            Ok((Json(done), cancelled))
        })
    };
    seat.aside(sweep).await
}

fn described(ask: &CancelAsk) -> String {
    let of = |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
    let parts = [
        of("lane", ask.lane.clone()),
        of("band", ask.band.map(|band| band.to_string())),
        of("tenant", ask.tenant.clone()),
        of("late", ask.late.map(|late| late.to_string())),
        of("older_than_ms", ask.older_than_ms.map(|ms| ms.to_string())),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn sweep(seat: &Seat, ask: &CancelAsk) -> Result<CancelledMany, Fault> {
    let pool = seat.pool(ask.pool.as_deref())?;
    let wanted = Wanted {
        lane: ask.lane.as_deref(),
        band: ask.band,
        tenant: ask.tenant.as_deref(),
        late: ask.late,
        older_than_ms: ask.older_than_ms,
    };
    let filter = filter(pool, wanted)?;
    if filter == Filter::default() {
        let message = format!("name at least one of {}", FILTERS.join(", "));
        return Err(Fault::Parameter { param: None, message });
    }
    let done = pool.hub.cancel_matching(&filter, ask.dry_run);
    let sample = done.sample.iter().map(ToString::to_string).collect();
    Ok(CancelledMany { matched: done.matched, cancelled: done.cancelled, sample })
}
