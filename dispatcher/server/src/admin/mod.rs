//! The admin side: probes, metrics, the operator's page and the API behind it, on a listener, a thread
//! and a runtime of their own, so that a busy data plane never fails a probe.
//!
//! Reads and changes pools through their hubs only. Every call passes [`guard`]; every change leaves a
//! line by [`audit`]. A body, a query or a path that cannot be used is answered in the error shape of
//! [`fault`]. docs/admin.md describes every endpoint, and `/api/v1/openapi.json` is made from the code.
//!
//! # Layout
//! - [`config`]: tokens and what they allow; [`guard`]: who may; [`audit`]: who did
//! - [`seat`]: what every call reads; [`take`]: what a call says; [`fault`]: what it is told
//! - `door`: connections, how many, and which are closed; [`lead`]: what another dispatcher decides
//! - `probe`: liveness, readiness, metrics, the snapshot
//! - [`overview`], [`queue`], [`request`], [`pod`], [`model`], [`decision`], [`explain`], [`settings`]:
//!   one kind of thing each; [`steer`]: cancelling and moving what waits
//! - [`history`]: the last five minutes; [`chart`]: pictures of them; [`events`]: boards as they come
//! - [`page`]: the page's files; [`openapi`]: the description of the API

pub mod audit;
pub mod chart;
pub mod config;
pub mod decision;
mod door;
pub mod events;
pub mod explain;
pub mod fault;
pub mod guard;
pub mod history;
pub mod lead;
pub mod model;
pub mod openapi;
pub mod overview;
pub mod page;
pub mod pod;
mod probe;
pub mod queue;
pub mod request;
pub mod seat;
pub mod settings;
pub mod steer;
pub mod take;

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, middleware::from_fn_with_state, routing::get, serve::ListenerExt};
use tokio::net::TcpListener;

use self::{door::Door, fault::Fault, seat::Seat};
use crate::{descriptors, tls::Identity, worker::Stop};

/// Opens the listener, so that an address that is taken is known before anything starts.
///
/// # Errors
/// When the address cannot be listened on.
pub fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers, samples and broadcasts until it is told to stop.
pub async fn run(
    listener: std::net::TcpListener,
    identity: Option<Arc<Identity>>,
    seat: Arc<Seat>,
    mut stop: Stop,
) {
    let listener = match TcpListener::from_std(listener) {
        // A tap is what tells the routes where a connection is from.
        Ok(listener) => Door::new(listener, identity, descriptors::most_operators()).tap_io(|_| {}),
        Err(error) => return tracing::error!(%error, "the admin side cannot listen"),
    };
    let routes = routes(seat.clone()).into_make_service_with_connect_info::<SocketAddr>();
    tokio::select! {
        served = axum::serve(listener, routes) => if let Err(error) = served {
            tracing::error!(%error, "the admin side ended");
        },
        () = history::sample(seat.clone()) => {}
        () = events::broadcast(seat) => {}
        () = stop.requested() => {}
    }
}

/// What is answered.
pub fn routes(seat: Arc<Seat>) -> Router {
    let (api, description) = openapi::api().split_for_parts();
    let description = Arc::new(description);
    let described = move || std::future::ready(axum::Json(description.clone()));
    Router::new()
        .route("/livez", get(probe::livez))
        .route("/readyz", get(probe::readyz))
        .route("/metrics", get(probe::metrics))
        .route("/snapshot", get(probe::snapshot))
        .route("/api/v1/openapi.json", get(described))
        .merge(page::routes())
        .merge(api.layer(from_fn_with_state(seat.clone(), lead::tell)))
        .fallback(|| std::future::ready(Fault::UnknownPath))
        .method_not_allowed_fallback(|| std::future::ready(Fault::WrongMethod))
        .layer(from_fn_with_state(seat.clone(), guard::guard))
        .with_state(seat)
}

#[cfg(test)]
mod tests;
