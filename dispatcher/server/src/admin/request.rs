//! Requests: those that wait, page by page; one, with the reason why it waits.

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
    fault::{ErrorBody, Fault},
    history::PoolQuery,
    seat::{Pool, Seat},
    take::{Name, Query},
};
use crate::hub::seat::Called;

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
        return Err(Fault::parameter("limit", "must be from 1 to 1000"));
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
pub(super) struct Wanted<'a> {
    pub(super) lane: Option<&'a str>,
    pub(super) band: Option<i8>,
    pub(super) tenant: Option<&'a str>,
    pub(super) late: Option<bool>,
    pub(super) older_than_ms: Option<f64>,
}

/// The same as the pool's scheduler takes it.
pub(super) fn filter(pool: Pool<'_>, wanted: Wanted<'_>) -> Result<Filter, Fault> {
    let age = |ms: f64| {
        let sane = (0.0..=1e12).contains(&ms);
        sane.then(|| Duration::from_secs_f64(ms / 1000.0))
            .ok_or_else(|| Fault::parameter("older_than_ms", "must be from 0 to 1e12"))
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
    params(("id" = String, Path, description = "Its x-request-id, or its number"), PoolQuery),
    responses((status = 200, body = RequestDetail), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn show(
    State(seat): State<Arc<Seat>>,
    Name(name): Name,
    Query(query): Query<PoolQuery>,
) -> Result<Json<Value>, Fault> {
    seat.aside(move |seat| detail(seat, query.pool.as_deref(), &name).map(Json)).await
}

/// A request whose client calls it `cancel`, at the path where others are cancelled.
#[utoipa::path(
    get, path = "/requests/cancel", tag = "requests", operation_id = "request_called_cancel",
    params(PoolQuery),
    responses((status = 200, body = RequestDetail), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn show_cancel(
    State(seat): State<Arc<Seat>>,
    query: Query<PoolQuery>,
) -> Result<Json<Value>, Fault> {
    show(State(seat), Name("cancel".to_owned()), query).await
}

/// Everything known of the request of a name.
pub(super) fn detail(seat: &Seat, pool: Option<&str>, name: &str) -> Result<Value, Fault> {
    let pools = seat.pools(pool)?;
    let found = Called::readings(name).into_iter().find_map(|which| {
        let found = |pool: &Pool<'_>| Some(members(*pool, &pool.hub.inspect(&which)?));
        pools.iter().find_map(found)
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
