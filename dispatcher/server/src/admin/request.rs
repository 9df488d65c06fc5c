//! Requests: those that wait, page by page; one, with the reason why it waits; cancelling and moving.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use weir_core::{
    Band, Reason, RequestView,
    inspect::{DecisionView, Filter, Inspection, Look, Moment, State as Where, WaitingView},
};

use super::{
    audit::{self, Change},
    fault::{ErrorBody, Fault},
    guard::Caller,
    history::PoolQuery,
    seat::{Pool, Seat},
    take::{Body, Name, Query, maybe_whole, whole},
};
use crate::hub::{Hub, seat::Called};

/// Requests of one page, unless another number is asked for.
const PAGE: usize = 100;
/// Most requests of one page.
const LONGEST_PAGE: usize = 1000;

/// Which waiting requests are meant, and where their list goes on.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// The pool; may be left out when there is one.
    pub pool: Option<String>,
    /// Those of a lane, by its name.
    pub lane: Option<String>,
    /// Those of a band.
    #[param(minimum = -128, maximum = 127)]
    pub band: Option<i8>,
    /// Those of a tenant.
    pub tenant: Option<String>,
    /// Those that can no longer meet their TTFT objective, or those that can.
    pub late: Option<bool>,
    /// Those that have waited at least so many milliseconds.
    #[param(minimum = 0, maximum = 1e12)]
    pub older_than_ms: Option<f64>,
    /// Most requests of the page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<usize>,
    /// Where the page before ended: its `next`.
    #[param(pattern = "^[0-9]{1,19}\\.[0-9]{1,19}$")]
    pub cursor: Option<String>,
}

/// A page of what waits, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Waiting {
    /// The requests. A filter that matches little may leave a short page with more behind it.
    pub requests: Vec<WaitingRow>,
    /// The cursor of the next page; `null`: this was the last.
    pub next: Option<String>,
}

/// A request that waits.
#[derive(Debug, Serialize, ToSchema)]
pub struct WaitingRow {
    /// The pool it is in.
    pub pool: String,
    /// What is known of it.
    #[serde(flatten)]
    pub view: WaitingView,
}

/// What waits, oldest first.
#[utoipa::path(
    get, path = "/requests", tag = "requests", operation_id = "requests", params(ListQuery),
    responses((status = 200, body = Waiting), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn list(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Waiting>, Fault> {
    seat.aside(move |seat| page(seat, &query).map(Json)).await
}

fn page(seat: &Seat, query: &ListQuery) -> Result<Waiting, Fault> {
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=LONGEST_PAGE).contains(&limit) {
        return Err(Fault::parameter("limit", "must be in 1..=1000"));
    }
    let after = query.cursor.as_deref().map(str::parse).transpose();
    let after = after.map_err(|_| Fault::parameter("cursor", "must be the `next` of a page"))?;
    let pool = seat.pool(query.pool.as_deref())?;
    let wanted = Wanted {
        lane: query.lane.as_deref(),
        band: query.band,
        tenant: query.tenant.as_deref(),
        late: query.late,
        older_than_ms: query.older_than_ms,
    };
    let page = pool.hub.waiting_page(&filter(pool, wanted)?, after, limit);
    let row = |view| WaitingRow { pool: pool.name().to_owned(), view };
    let requests = page.requests.into_iter().map(row).collect();
    Ok(Waiting { requests, next: page.next.map(|next| next.to_string()) })
}

/// A filter as it is asked for.
struct Wanted<'a> {
    lane: Option<&'a str>,
    band: Option<i8>,
    tenant: Option<&'a str>,
    late: Option<bool>,
    older_than_ms: Option<f64>,
}

fn filter(pool: Pool<'_>, wanted: Wanted<'_>) -> Result<Filter, Fault> {
    let age = |ms: f64| {
        let sane = (0.0..=1e12).contains(&ms);
        sane.then(|| Duration::from_secs_f64(ms / 1000.0))
            .ok_or_else(|| Fault::parameter("older_than_ms", "must be in 0..=1e12"))
    };
    Ok(Filter {
        lane: wanted.lane.map(|lane| pool.lane(lane)).transpose()?,
        band: wanted.band.map(Band),
        tenant: wanted.tenant.map(Arc::from),
        late: wanted.late,
        older_than: wanted.older_than_ms.map(age).transpose()?,
    })
}

/// Everything known of one request. Which members are there follows from `state`.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestDetail {
    /// The pool it is in.
    pub pool: String,
    /// Where it is: waiting, running or recent.
    pub state: Where,
    /// Its number.
    pub id: u64,
    /// What its client calls it.
    pub request_id: String,
    /// Its band.
    pub band: i8,
    /// Its lane, while it waits.
    #[schema(required = false)]
    pub lane: Option<String>,
    /// Who sent it.
    #[schema(required = false)]
    pub tenant: Option<String>,
    /// Time since its arrival, while it waits, in milliseconds.
    #[schema(required = false)]
    pub age_ms: Option<f64>,
    /// Time until its first token is due, while it waits; negative once that has passed.
    #[schema(required = false)]
    pub deadline_ms: Option<f64>,
    /// That time less the best TTFT that any pod could give it.
    #[schema(required = false)]
    pub slack_ms: Option<f64>,
    /// Its objective for the time from arrival to the first token, in milliseconds.
    #[schema(required = false)]
    pub ttft_slo_ms: Option<f64>,
    /// Its objective for the time per output token, in milliseconds.
    #[schema(required = false)]
    pub tpot_slo_ms: Option<f64>,
    /// Why it waits.
    #[schema(required = false)]
    pub reason: Option<Reason>,
    /// The state in plain words, and what it waits for.
    pub explanation: String,
    /// Every pod as this request sees it, while it waits.
    pub pods: Vec<Look>,
    /// What happened to it, as far as it is remembered, oldest first.
    pub history: Vec<Moment>,
    /// The last decision on it that is remembered.
    pub decision: Option<DecisionView>,
    /// What it does on its pod, while it runs.
    pub running: Option<RequestView>,
    /// The pod it is or was on.
    pub pod: Option<String>,
}

/// One request: by its number, or by the id that its client knows.
#[utoipa::path(
    get, path = "/requests/{id}", tag = "requests", operation_id = "request",
    params(("id" = String, Path, description = "Its number, or its x-request-id"), PoolQuery),
    responses((status = 200, body = RequestDetail), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn show(
    State(seat): State<Arc<Seat>>,
    Name(name): Name,
    Query(query): Query<PoolQuery>,
) -> Result<Json<Value>, Fault> {
    seat.aside(move |seat| detail(seat, query.pool.as_deref(), &name).map(Json)).await
}

fn detail(seat: &Seat, pool: Option<&str>, name: &str) -> Result<Value, Fault> {
    let which = Called::parse(name);
    let found = seat.pools(pool)?.into_iter().find_map(|pool| {
        let found = pool.hub.inspect(&which)?;
        Some(members(pool, &found))
    });
    found.ok_or_else(|| Fault::not_found("request", name))
}

/// The facts of where it is, and what is known wherever it is.
fn members(pool: Pool<'_>, found: &Inspection) -> Value {
    let facts = match (&found.waiting, &found.running, &found.ended) {
        (Some(waiting), ..) => serde_json::to_value(waiting),
        (_, Some(running), _) => serde_json::to_value(running),
        (.., ended) => serde_json::to_value(ended),
    };
    let mut all = match facts {
        Ok(Value::Object(facts)) => facts,
        _ => Map::new(),
    };
    let pod = all.remove("pod").unwrap_or_else(|| json!(found.pod));
    let everywhere = json!({
        "pool": pool.name(), "state": found.state, "explanation": found.explanation, "pod": pod,
        "pods": found.pods, "history": found.history, "decision": found.decision,
        "running": found.running,
    });
    if let Value::Object(everywhere) = everywhere {
        all.extend(everywhere);
    }
    Value::Object(all)
}

/// The pool of a request; may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolAsk {
    /// The pool; may be left out.
    #[serde(default)]
    pub pool: Option<String>,
}

/// How many were cancelled.
#[derive(Debug, Serialize, ToSchema)]
pub struct Cancelled {
    /// How many.
    pub cancelled: usize,
}

/// Refuse a waiting request. Its client gets 503 `cancelled_by_operator` and is asked not to retry.
#[utoipa::path(
    post, path = "/requests/{id}/cancel", tag = "requests", operation_id = "cancel",
    params(("id" = String, Path, description = "Its number, or its x-request-id")),
    request_body = PoolAsk,
    responses(
        (status = 200, body = Cancelled),
        (status = 409, body = ErrorBody, description = "It does not wait"),
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
            on_waiting(seat, pool, &name, Hub::cancel_waiting)?;
            Ok((Json(Cancelled { cancelled: 1 }), 1))
        })
    };
    seat.aside(cancel).await
}

/// Does something to the waiting request of a name, in the pool where it waits.
fn on_waiting(
    seat: &Seat,
    pool: Option<&str>,
    name: &str,
    act: impl Fn(&Hub, &Called) -> bool,
) -> Result<(), Fault> {
    let which = Called::parse(name);
    let pools = seat.pools(pool)?;
    if pools.iter().any(|pool| act(pool.hub, &which)) {
        return Ok(());
    }
    if pools.iter().any(|pool| pool.hub.inspect(&which).is_some()) {
        return Err(Fault::Conflict(format!("the request {name} does not wait any more")));
    }
    Err(Fault::not_found("request", name))
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
    params(("id" = String, Path, description = "Its number, or its x-request-id")),
    request_body = MoveAsk,
    responses(
        (status = 200, body = RequestDetail),
        (status = 409, body = ErrorBody, description = "It does not wait"),
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
            on_waiting(seat, pool, &name, |hub, which| hub.move_waiting(which, band))?;
            Ok((Json(detail(seat, pool, &name)?), 1))
        })
    };
    seat.aside(shift).await
}

/// Which waiting requests are to be cancelled: at least one member beside the pool must be there.
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
    #[serde(default, deserialize_with = "maybe_whole")]
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
        let why = "name at least one of lane, band, tenant, late and older_than_ms";
        return Err(Fault::Parameter { param: None, message: why.to_owned() });
    }
    let done = pool.hub.cancel_matching(&filter, ask.dry_run);
    let sample = done.sample.iter().map(ToString::to_string).collect();
    Ok(CancelledMany { matched: done.matched, cancelled: done.cancelled, sample })
}
