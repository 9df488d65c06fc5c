//! Pods: what they do, how well they are predicted, whether they may be used; cordon, drain, uncordon.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{AdapterView, Phase, REQUESTS_SHOWN, RequestView};

use super::{
    audit::{self, Change},
    fault::{ErrorBody, Fault},
    guard::Caller,
    history::PoolQuery,
    seat::{Pool, Seat, several},
    take::{Body, Name, PoolAsk, Query},
};
use crate::{
    fleet::Ask,
    hub::{
        Hub,
        seat::{Leaving, PodSeen},
    },
};

/// Every pod.
#[derive(Debug, Serialize, ToSchema)]
pub struct Pods {
    /// Them, in the order in which they joined.
    pub pods: Vec<PodRow>,
}

/// A pod.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PodRow {
    /// The pool it is in.
    pub pool: String,
    /// Its name.
    pub pod: String,
    /// Its host and port.
    pub address: String,
    /// Its class.
    pub class: String,
    /// ready, broken, cordoned, draining, drained, or leaving: it is configured, or found, no more, and its requests go to their end.
    pub phase: &'static str,
    /// Whether it may be used.
    pub breaker: BreakerRow,
    /// Requests decoding there, by the ledger.
    pub residents: usize,
    /// Prompts there without a first token, by the ledger.
    pub pending: usize,
    /// Their uncached tokens.
    pub pending_tokens: u64,
    /// Tokens of context that its residents hold, by the ledger.
    pub kv_tokens: u64,
    /// Share of KV blocks in use at the last scrape.
    pub kv_usage: f32,
    /// Tokens that its KV cache holds, as it says, or else as its class has it.
    pub kv_capacity_tokens: u64,
    /// Tokens of prompts that it has cached when it is full, likewise; 0 where it finds none again.
    pub prefix_capacity_tokens: u64,
    /// Requests running at the last scrape.
    pub running: u32,
    /// Requests waiting inside the engine at the last scrape.
    pub queued: u32,
    /// Of both, those that other pools sent there.
    pub elsewhere: u32,
    /// Age of the last scrape, in milliseconds; `null` before the first.
    pub scrape_age_ms: Option<f64>,
    /// Step time now, in milliseconds; where a step brings several tokens, what of it one of them takes.
    pub step_ms: f64,
    /// Smallest TPOT objective among its residents, in milliseconds.
    pub tightest_tpot_ms: Option<f64>,
    /// Longest stall that a request which has just come may cause, in milliseconds; `null`: nothing bounds it.
    pub stall_budget_ms: Option<f64>,
    /// Requests it has been given.
    pub dispatched: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Those that it was believed to have cached.
    pub cached_tokens: u64,
    /// Share of what is believed cached there that it finds; 1 while nothing speaks against it.
    pub cache_found: f64,
    /// LoRA adapters that run there, in the order of their names.
    pub adapters: Vec<AdapterView>,
    /// Most of them that it runs at once; `null`: nothing is known to bound them.
    pub max_loras: Option<u32>,
    /// Requests with which it is thought to take no more, for it said so (503); `null` once that is over.
    pub full_with: Option<u32>,
    /// Mean absolute relative error of TTFT lately, as a fraction; `null` before any.
    pub error_ttft: Option<f64>,
    /// The same of TPOT.
    pub error_tpot: Option<f64>,
    /// Sequences that the ledger knows more than the last scrape; `null` without a fresh one.
    pub ledger_minus_scrape: Option<f64>,
    /// How far its drain is; `null` when nobody asked it to leave and it has not left.
    pub drain: Option<DrainRow>,
    /// What is in flight there, the tightest TPOT objective first.
    pub requests: Vec<RequestView>,
}

/// A pod's breaker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BreakerRow {
    /// Whether the pod is left alone.
    pub open: bool,
    /// Failures in a row, of traffic and of scrapes.
    pub failures: u32,
    /// What opened it.
    pub reason: Option<&'static str>,
}

/// How far a drain is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DrainRow {
    /// Time since it was asked for, or since the pod left, in milliseconds.
    pub since_ms: f64,
    /// Requests of this pool that are still there.
    pub left: usize,
    /// Requests there that this pool does not know of, by a scrape begun after its own were gone; `null`: not known.
    pub others: Option<u32>,
    /// Predicted time until nothing is, in milliseconds.
    pub expected_ms: f64,
}

/// Every pod.
#[utoipa::path(
    get, path = "/pods", tag = "pods", operation_id = "pods", params(PoolQuery),
    responses((status = 200, body = Pods), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn pods(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<PoolQuery>,
) -> Result<Json<Pods>, Fault> {
    let all = move |seat: &Seat| {
        let pools = seat.pools(query.pool.as_deref())?;
        let pods = pools.into_iter().flat_map(|pool| rows(pool, REQUESTS_SHOWN)).collect();
        Ok(Json(Pods { pods }))
    };
    seat.aside(all).await
}

/// The pods of a pool, each with at most `requests` of what it serves.
pub fn rows(pool: Pool<'_>, requests: usize) -> Vec<PodRow> {
    pool.hub.pods_seen(requests).into_iter().map(|seen| row(pool, seen)).collect()
}

fn row(pool: Pool<'_>, seen: PodSeen) -> PodRow {
    let PodSeen { detail, address, breaker, leaving, has_left } = seen;
    let view = detail.view;
    PodRow {
        pool: pool.name().to_owned(),
        pod: view.name,
        address,
        class: view.class,
        phase: if has_left { "leaving" } else { phase(view.phase, leaving.as_ref()) },
        breaker: BreakerRow {
            open: breaker.is_some_and(|breaker| breaker.open),
            failures: breaker
                .map_or(0, |breaker| breaker.traffic_failures.max(breaker.scrape_failures)),
            reason: breaker.and_then(|breaker| breaker.why),
        },
        residents: view.residents,
        pending: view.pending,
        pending_tokens: view.pending_tokens,
        kv_tokens: view.kv_tokens,
        kv_usage: view.kv_usage,
        kv_capacity_tokens: view.kv_capacity_tokens,
        prefix_capacity_tokens: view.prefix_capacity_tokens,
        running: view.running,
        queued: view.queued,
        elsewhere: view.elsewhere,
        scrape_age_ms: view.scrape_age_ms,
        step_ms: view.step_ms / view.tokens_per_step,
        tightest_tpot_ms: view.tightest_tpot_ms,
        stall_budget_ms: view.stall_budget_ms,
        dispatched: view.dispatched,
        prompt_tokens: view.prompt_tokens,
        cached_tokens: view.cached_tokens,
        cache_found: view.cache_found,
        adapters: view.adapters,
        max_loras: view.max_loras,
        full_with: view.full_with,
        error_ttft: detail.errors.ttft,
        error_tpot: detail.errors.tpot,
        ledger_minus_scrape: detail.ledger_minus_scrape,
        drain: leaving.map(|leaving| DrainRow {
            since_ms: leaving.since_ms,
            left: leaving.left,
            others: leaving.others(),
            expected_ms: leaving.expected_ms,
        }),
        requests: view.requests,
    }
}

fn phase(phase: Phase, leaving: Option<&Leaving>) -> &'static str {
    match phase {
        _ if leaving.is_some_and(Leaving::is_done) => "drained",
        Phase::Ready => "ready",
        Phase::Broken => "broken",
        Phase::Cordoned => "cordoned",
        Phase::Draining => "draining",
    }
}

/// One pod, with everything that is in flight there.
#[utoipa::path(
    get, path = "/pods/{name}", tag = "pods", operation_id = "pod",
    params(("name" = String, Path, description = "Its name"), PoolQuery),
    responses((status = 200, body = PodRow), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn pod(
    State(seat): State<Arc<Seat>>,
    Name(name): Name,
    Query(query): Query<PoolQuery>,
) -> Result<Json<PodRow>, Fault> {
    let one = move |seat: &Seat| {
        let pool = home(seat, query.pool.as_deref(), &name)?;
        let seen = pool.hub.pod_seen(&name).ok_or_else(|| Fault::not_found("pod", name))?;
        Ok(Json(row(pool, seen)))
    };
    seat.aside(one).await
}

/// The pool of a pod. One that is in several is asked for with its pool.
fn home<'a>(seat: &'a Seat, pool: Option<&str>, name: &str) -> Result<Pool<'a>, Fault> {
    let all = seat.pools(pool)?;
    let of = |has: &dyn Fn(&Hub) -> bool| -> Vec<Pool<'a>> {
        all.iter().filter(|pool| has(pool.hub)).copied().collect()
    };
    let mut pools = of(&|hub| !hub.pods_called(name).is_empty());
    if pools.is_empty() {
        pools = of(&|hub| hub.pod_seen(name).is_some());
    }
    match pools.as_slice() {
        [] => Err(Fault::not_found("pod", name)),
        [only] => Ok(*only),
        _ => Err(several(&pools)),
    }
}

/// Send no new requests there; what is there goes on.
#[utoipa::path(
    post, path = "/pods/{name}/cordon", tag = "pods", operation_id = "cordon",
    params(("name" = String, Path, description = "Its name")), request_body = PoolAsk,
    responses((status = 200, body = PodRow), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn cordon(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Name(name): Name,
    Body(ask): Body<PoolAsk>,
) -> Result<Json<PodRow>, Fault> {
    seat.aside(move |seat| tell(seat, &caller, &name, &ask, ("cordon", Ask::Cordon))).await
}

/// Send no new requests there, and follow it until nothing is left: then it is drained.
#[utoipa::path(
    post, path = "/pods/{name}/drain", tag = "pods", operation_id = "drain",
    params(("name" = String, Path, description = "Its name")), request_body = PoolAsk,
    responses((status = 200, body = PodRow), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn drain(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Name(name): Name,
    Body(ask): Body<PoolAsk>,
) -> Result<Json<PodRow>, Fault> {
    seat.aside(move |seat| tell(seat, &caller, &name, &ask, ("drain", Ask::Drain))).await
}

/// Send requests there again.
#[utoipa::path(
    post, path = "/pods/{name}/uncordon", tag = "pods", operation_id = "uncordon",
    params(("name" = String, Path, description = "Its name")), request_body = PoolAsk,
    responses((status = 200, body = PodRow), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn uncordon(
    State(seat): State<Arc<Seat>>,
    caller: Caller,
    Name(name): Name,
    Body(ask): Body<PoolAsk>,
) -> Result<Json<PodRow>, Fault> {
    seat.aside(move |seat| tell(seat, &caller, &name, &ask, ("uncordon", Ask::Serve))).await
}

fn tell(
    seat: &Seat,
    caller: &Caller,
    name: &str,
    ask: &PoolAsk,
    (action, what): (&'static str, Ask),
) -> Result<Json<PodRow>, Fault> {
    let pool = ask.pool.as_deref();
    let change = Change { action, pool: seat.written(pool), what: name };
    audit::change(seat, caller, change, || {
        let pool = home(seat, pool, name)?;
        pool.decides()?;
        let seen = pool.hub.ask_pod(name, what).ok_or_else(|| Fault::not_found("pod", name))?;
        Ok((Json(row(pool, seen)), 1))
    })
}
