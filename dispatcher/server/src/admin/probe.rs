//! Probes, metrics and the snapshot: what was here before there was an API, for machines that scrape.

use std::sync::Arc;

use axum::{
    Json,
    extract::{RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::seat::Seat;
use crate::telemetry::exposition;

/// The process is alive.
pub(super) async fn livez() -> &'static str {
    std::future::ready("ok\n").await
}

/// Whether requests should be sent here; with `?pods=0` also while no pod is ready, so that they are held.
pub(super) async fn readyz(State(seat): State<Arc<Seat>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let holds = query.split('&').any(|pair| pair == "pods=0");
    let watched = seat.watched();
    let ready = match if holds { watched.stays() } else { watched.ready() } {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    };
    std::future::ready(ready).await
}

/// Every series.
pub(super) async fn metrics(State(seat): State<Arc<Seat>>) -> Response {
    let page = match exposition::text(seat.watched()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    std::future::ready(page).await
}

/// The whole dispatcher at this moment.
pub(super) async fn snapshot(State(seat): State<Arc<Seat>>) -> Response {
    std::future::ready(Json(seat.watched().overview()).into_response()).await
}
