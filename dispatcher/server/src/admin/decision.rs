//! The last decisions, with the pods that lost.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::inspect::DecisionView;

use super::{
    fault::{ErrorBody, Fault},
    seat::{Pool, Seat},
    take::Query,
};
use crate::hub::seat::Called;

/// Decisions of one answer, unless another number is asked for.
const SHOWN: usize = 50;
/// Most decisions of one answer: as many as a pool remembers.
const MOST: usize = 256;

/// Which decisions are meant.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DecisionQuery {
    /// The pool; left out: all.
    pub pool: Option<String>,
    /// Most decisions.
    #[param(minimum = 1, maximum = 256, default = 50)]
    pub limit: Option<usize>,
    /// Those on the request that its client calls so.
    pub request_id: Option<String>,
}

/// The last decisions.
#[derive(Debug, Serialize, ToSchema)]
pub struct Decisions {
    /// Them, newest first.
    pub decisions: Vec<DecisionRow>,
}

/// A decision.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DecisionRow {
    /// The pool it was taken in.
    pub pool: String,
    /// What was decided.
    #[serde(flatten)]
    pub view: DecisionView,
}

/// The last decisions, newest first.
#[utoipa::path(
    get, path = "/decisions", tag = "decisions", operation_id = "decisions", params(DecisionQuery),
    responses((status = 200, body = Decisions), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn list(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<DecisionQuery>,
) -> Result<Json<Decisions>, Fault> {
    seat.aside(move |seat| last(seat, &query).map(Json)).await
}

fn last(seat: &Seat, query: &DecisionQuery) -> Result<Decisions, Fault> {
    let limit = query.limit.unwrap_or(SHOWN);
    if !(1..=MOST).contains(&limit) {
        return Err(Fault::parameter("limit", "must be from 1 to 256"));
    }
    let of = query.request_id.clone().map(Called::Name);
    let mut decisions = Vec::new();
    for pool in seat.pools(query.pool.as_deref())? {
        decisions.extend(rows(pool, 0, limit, of.as_ref()));
    }
    decisions.sort_by(|a, b| a.view.at_ms.total_cmp(&b.view.at_ms));
    decisions.truncate(limit);
    Ok(Decisions { decisions })
}

/// The decisions of a pool numbered `since` or later, newest first.
pub fn rows(pool: Pool<'_>, since: u64, limit: usize, of: Option<&Called>) -> Vec<DecisionRow> {
    let row = |view| DecisionRow { pool: pool.name().to_owned(), view };
    pool.hub.decisions(since, limit, of).into_iter().map(row).collect()
}
