//! Probes, metrics and the snapshot, on a listener, a thread and a runtime of their own: a busy data
//! plane never fails a probe. Reads handles and changes nothing.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{
    telemetry::{Watched, exposition},
    worker::Stop,
};

/// Opens the listener, so that an address that is taken is known before anything starts.
///
/// # Errors
/// When the address cannot be listened on.
pub fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers until it is told to stop.
pub async fn run(listener: std::net::TcpListener, watched: Watched, mut stop: Stop) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin side cannot listen"),
    };
    let serving = axum::serve(listener, routes(Arc::new(watched)));
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::error!(%error, "the admin side ended");
        },
        () = stop.requested() => {}
    }
}

/// What is answered.
pub fn routes(watched: Arc<Watched>) -> Router {
    type Shared = State<Arc<Watched>>;
    Router::new()
        .route("/livez", get("ok\n"))
        .route("/readyz", get(|State(watched): Shared| async move { readyz(&watched) }))
        .route("/metrics", get(|State(watched): Shared| async move { metrics(&watched) }))
        .route("/snapshot", get(|State(watched): Shared| async move { Json(watched.overview()) }))
        .with_state(watched)
}

fn readyz(watched: &Watched) -> Response {
    match watched.ready() {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn metrics(watched: &Watched) -> Response {
    match exposition::text(watched) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
