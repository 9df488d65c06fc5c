//! The admin side over a real listener, in front of the real scheduler with a flat predictor.

mod looking;
mod refusals;
mod rights;
mod steering;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use weir_core::{Band, Request};

use super::*;
use crate::{
    admin::{
        config::{RawAdmin, RawToken, Scope},
        settings::Settings,
    },
    api::room::Room,
    config::Problems,
    hub::{
        Hub, Ticket,
        fixture::{Fixture, pod, request},
        led::Lead,
    },
    learn::{Shelf, reload::Bell},
    shutdown::Life,
    telemetry::{Metrics, Watched},
};

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const ANYWHERE: [u8; 4] = [0, 0, 0, 0];

/// An admin side that runs.
struct Side {
    address: SocketAddr,
    hubs: Vec<Arc<Hub>>,
    seat: Arc<Seat>,
}

fn token(name: &str, token: &str, scope: Scope) -> RawToken {
    let sha256 = format!("{:x}", Sha256::digest(token));
    RawToken { name: name.to_owned(), sha256, token_env: None, scope }
}

fn guarded(open_metrics: bool) -> RawAdmin {
    let tokens = vec![token("ada", "t-write", Scope::Write), token("bob", "t-read", Scope::Read)];
    RawAdmin { tokens, open_metrics, ..RawAdmin::default() }
}

/// One pool.
async fn side(raw: &RawAdmin, ip: [u8; 4]) -> Side {
    side_of(raw, ip, vec![Fixture::default().hub().0]).await
}

async fn side_of(raw: &RawAdmin, ip: [u8; 4], hubs: Vec<Arc<Hub>>) -> Side {
    // Nobody loads bundles here: orders are refused.
    let (shelf, _) = Shelf::new("no-such-folder".into(), Bell::new().0);
    let watched = Watched {
        circles: vec![],
        clock: hubs[0].clock(),
        hubs: hubs.clone(),
        metrics: Arc::new(Metrics::new().unwrap()),
        versions: Arc::default(),
        state: Arc::default(),
        spool: Arc::default(),
        reload: Arc::default(),
        config: Arc::default(),
        shelf: Arc::new(shelf),
        trainer: Arc::default(),
        spans: Arc::default(),
        identities: vec![],
        room: Room::of(1),
        life: Life::default(),
    };
    let mut problems = Problems::default();
    let config = raw.check(&mut problems);
    assert_eq!(problems, Problems::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seat = Seat::new(watched, config.rights(), Settings::default(), (ip, 8081).into());
    let routes = routes(seat.clone()).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Side { address, hubs, seat }
}

/// A pool of that name.
fn pool(model: &str) -> Arc<Hub> {
    let config = weir_core::SchedulerConfig { model: model.into(), ..Default::default() };
    let scheduler = weir_core::Scheduler::new(config, Box::new(crate::hub::fixture::Flat));
    let (sink, _) = async_channel::bounded(1);
    Hub::new(scheduler, model.into(), crate::clock::Clock::new(), sink)
}

impl Side {
    fn hub(&self) -> &Arc<Hub> {
        &self.hubs[0]
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> http::Response<Incoming> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = http::Request::builder().method(method).uri(path);
        if headers.iter().all(|(name, _)| *name != "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        sender.send_request(request.body(body).unwrap()).await.unwrap()
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (StatusCode, HeaderMap, Value) {
        let (head, body) = self.open(method, path, headers, body).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        (head.status, head.headers, value)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.ask(Method::GET, path, &[], "").await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, _, answer) = self.ask(Method::POST, path, &[], &body.to_string()).await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    /// The status and the code of an error.
    async fn refused(&self, method: Method, path: &str, body: &str) -> (u16, String) {
        let (status, _, answer) = self.ask(method, path, &[], body).await;
        let error = &answer["error"];
        for member in ["message", "type", "code"] {
            assert!(error[member].is_string(), "{path} {body}: {answer}");
        }
        assert!(error.as_object().unwrap().contains_key("param"), "{answer}");
        (status.as_u16(), error["code"].as_str().unwrap().to_owned())
    }

    fn changes(&self, action: &str, result: &str) -> u64 {
        let families = self.seat.watched().metrics.gather();
        let series = families.iter().find(|of| of.name() == "weir_admin_changes_total");
        let counts = series.map(|of| of.get_metric()).unwrap_or_default().iter();
        let mut of = counts.filter(|one| {
            let labels = one.get_label();
            labels.iter().any(|label| label.value() == action)
                && labels.iter().any(|label| label.value() == result)
        });
        of.next().map_or(0, |one| one.get_counter().get_value() as u64)
    }
}

fn named(hub: &Hub, id: u64, change: impl FnOnce(&mut Request)) -> Request {
    let mut request = request(hub, id);
    request.name = format!("req-{id}").into();
    change(&mut request);
    request
}

/// Requests that wait, since there is no pod: of two bands and two tenants.
fn waiting(hub: &Arc<Hub>, count: u64) -> Vec<Ticket> {
    let one = |id| {
        hub.admit(named(hub, id, |request| {
            request.band = Band((id % 2) as i8);
            request.tenant = Some(if id % 3 == 0 { "acme" } else { "zeta" }.into());
        }))
    };
    (1..=count).map(one).collect()
}
