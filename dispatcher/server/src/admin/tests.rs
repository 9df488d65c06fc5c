//! The admin side over a real listener, in front of the real scheduler with a flat predictor.

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
    config::Problems,
    hub::{
        Hub, Ticket,
        fixture::{Fixture, pod, request},
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
        clock: hubs[0].clock(),
        hubs: hubs.clone(),
        metrics: Arc::new(Metrics::new().unwrap()),
        versions: Arc::default(),
        spool: Arc::default(),
        reload: Arc::default(),
        config: Arc::default(),
        shelf: Arc::new(shelf),
        trainer: Arc::default(),
        life: Life::default(),
    };
    let mut problems = Problems::default();
    let config = raw.check(&mut problems);
    assert_eq!(problems, Problems::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seat = Seat::new(watched, config, Settings::default(), (ip, 8081).into());
    let routes = routes(seat.clone()).into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Side { address, hubs, seat }
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

/// Each row: who asks, and what the probe, the page, /metrics, a look and a change answer.
#[tokio::test]
async fn who_may_look_and_who_may_change() {
    let (read, write) = (Some("Bearer t-read"), Some("bearer t-write"));
    let open = RawAdmin::default();
    let (closed, half) = (guarded(false), guarded(true));
    let table = [
        (&open, LOOPBACK, None, [200, 200, 200, 200, 200]),
        (&open, ANYWHERE, None, [200, 200, 200, 200, 403]),
        (&half, LOOPBACK, None, [200, 200, 200, 401, 401]),
        (&closed, ANYWHERE, None, [200, 200, 401, 401, 401]),
        (&closed, ANYWHERE, read, [200, 200, 200, 200, 403]),
        (&closed, ANYWHERE, write, [200, 200, 200, 200, 200]),
        (&closed, ANYWHERE, Some("Bearer nonsense"), [200, 200, 401, 401, 401]),
        (&closed, ANYWHERE, Some("Basic t-write"), [200, 200, 401, 401, 401]),
    ];
    for (raw, ip, token, want) in table {
        let side = side(raw, ip).await;
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        let mut got = Vec::new();
        for path in ["/livez", "/", "/metrics", "/api/v1/overview"] {
            got.push(side.ask(Method::GET, path, &headers, "").await.0.as_u16());
        }
        let pause = side.ask(Method::POST, "/api/v1/queues/pause", &headers, "{}").await;
        got.push(pause.0.as_u16());
        assert_eq!(got, want, "{raw:?} {ip:?} {token:?}: {}", pause.2);
        let done = if want[4] == 200 { ("pause", "ok") } else { ("denied", "refused") };
        assert_eq!(side.changes(done.0, done.1), 1, "{:?}", done);
        assert_eq!(side.hub().paused().len(), usize::from(want[4] == 200));
    }
}

#[tokio::test]
async fn an_error_says_which_right_is_missing() {
    let side = side(&guarded(true), LOOPBACK).await;
    let ask = async |token: Option<&str>, path: &str, method: Method| {
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        let (_, headers, body) = side.ask(method, path, &headers, "{}").await;
        let challenged = headers.contains_key("www-authenticate");
        (body["error"]["code"].as_str().unwrap().to_owned(), challenged)
    };
    let looks = ask(None, "/api/v1/pods", Method::GET).await;
    assert_eq!(looks, ("missing_token".to_owned(), true));
    let looks = ask(Some("Bearer x"), "/api/v1/pods", Method::GET).await;
    assert_eq!(looks, ("invalid_token".to_owned(), true));
    let changes = ask(Some("Bearer t-read"), "/api/v1/queues/pause", Method::POST).await;
    assert_eq!(changes, ("read_only".to_owned(), false));
    let explains = side
        .ask(
            Method::POST,
            "/api/v1/explain",
            &[("authorization", "Bearer t-read")],
            r#"{"input_tokens": 5}"#,
        )
        .await;
    assert_eq!(explains.0, 200, "to explain changes nothing");
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let own = format!("http://{}", side.address);
    let pause = async |headers: &[(&str, &str)]| {
        let (status, _, body) = side.ask(Method::POST, "/api/v1/queues/pause", headers, "{}").await;
        (status.as_u16(), body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    for headers in [
        &[("origin", "http://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(pause(headers).await, (403, "other_origin".to_owned()), "{headers:?}");
    }
    // A name of theirs that points here: its Origin and its Host agree.
    let rebound = [("origin", "http://evil.example"), ("host", "evil.example")];
    assert_eq!(pause(&rebound).await, (403, "other_host".to_owned()));
    let look = side.ask(Method::GET, "/api/v1/overview", &rebound[1..], "").await;
    assert_eq!(look.0, 403);
    assert!(side.hub().paused().is_empty());
    assert_eq!(pause(&[("origin", &own)]).await.0, 200);
    assert_eq!(side.hub().paused(), ["pool"]);
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_in_one_shape() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 1);
    let large = format!(r#"{{"tenant": "{}"}}"#, "x".repeat(take::BODY_BYTES));
    let get = [
        ("/api/v1/nothing", 404, "unknown_url"),
        ("/nothing", 404, "unknown_url"),
        ("/assets/nothing.js", 404, "unknown_url"),
        ("/api/v1/queues?pool=nobody", 404, "not_found"),
        ("/api/v1/queues?pol=nobody", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=0", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=1001", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=many", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=1&limit=2", 400, "invalid_parameter"),
        ("/api/v1/requests?band=300", 400, "invalid_parameter"),
        ("/api/v1/requests?late=perhaps", 400, "invalid_parameter"),
        ("/api/v1/requests?older_than_ms=-1", 400, "invalid_parameter"),
        ("/api/v1/requests?older_than_ms=NaN", 400, "invalid_parameter"),
        ("/api/v1/requests?cursor=next", 400, "invalid_parameter"),
        ("/api/v1/requests?lane=nowhere", 404, "not_found"),
        ("/api/v1/requests/%FF", 400, "invalid_parameter"),
        ("/api/v1/requests/req-9", 404, "not_found"),
        ("/api/v1/requests/99999999999999999999999", 404, "not_found"),
        ("/api/v1/pods/nobody", 404, "not_found"),
        ("/api/v1/models/seven", 400, "invalid_parameter"),
        ("/api/v1/models/7", 404, "not_found"),
        ("/api/v1/decisions?limit=257", 400, "invalid_parameter"),
        ("/api/v1/chart/pie.svg", 404, "not_found"),
        ("/api/v1/chart/ttft.svg?theme=blue", 400, "invalid_parameter"),
    ];
    for (path, status, code) in get {
        assert_eq!(side.refused(Method::GET, path, "").await, (status, code.to_owned()), "{path}");
    }
    let post = [
        ("/api/v1/queues/pause", "[]", 400, "invalid_parameter"),
        ("/api/v1/queues/pause", "{", 400, "invalid_parameter"),
        ("/api/v1/queues/pause", r#"{"lanes": "x"}"#, 400, "invalid_parameter"),
        ("/api/v1/queues/pause", r#"{"lane": "nowhere"}"#, 404, "not_found"),
        ("/api/v1/queues/pause", r#"{"lane": "b0/late", "band": 0}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", "{}", 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", r#"{"dry_run": true}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", r#"{"band": "0"}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", &large, 413, "request_too_large"),
        ("/api/v1/requests/req-9/cancel", "{}", 404, "not_found"),
        ("/api/v1/queues/pause", "", 400, "invalid_parameter"),
        ("/api/v1/requests/1/move", "{}", 400, "invalid_parameter"),
        ("/api/v1/requests/1/move", r#"{"band": 128}"#, 400, "invalid_parameter"),
        ("/api/v1/pods/nobody/drain", "{}", 404, "not_found"),
        ("/api/v1/models/pin", "{}", 400, "invalid_parameter"),
        ("/api/v1/models/rollback", "{}", 409, "conflict"),
        ("/api/v1/config/reload", "{}", 409, "conflict"),
        ("/api/v1/explain", "{}", 400, "invalid_parameter"),
        ("/api/v1/explain", r#"{"input_tokens": 5, "ttft_ms": 0}"#, 400, "invalid_parameter"),
        ("/api/v1/overview", "{}", 405, "method_not_allowed"),
        ("/livez", "{}", 405, "method_not_allowed"),
    ];
    for (path, body, status, code) in post {
        let got = side.refused(Method::POST, path, body).await;
        assert_eq!(got, (status, code.to_owned()), "{path} {body:.80}");
    }
    let (_, headers, _) = side.ask(Method::PUT, "/api/v1/overview", &[], "").await;
    assert_eq!(headers["allow"], "GET,HEAD");
    assert_eq!(side.hub().summary().waiting, 1, "nothing of that changed anything");
}

#[tokio::test]
async fn of_several_pools_one_must_be_named_where_one_is_meant() {
    let pool = |model: &str| {
        let config = weir_core::SchedulerConfig { model: model.into(), ..Default::default() };
        let scheduler = weir_core::Scheduler::new(config, Box::new(crate::hub::fixture::Flat));
        let (sink, _) = async_channel::bounded(1);
        Hub::new(scheduler, model.into(), crate::clock::Clock::new(), sink)
    };
    let side = side_of(&RawAdmin::default(), LOOPBACK, vec![pool("one"), pool("two")]).await;
    assert_eq!(side.get("/api/v1/overview").await["pools"].as_array().unwrap().len(), 2);
    let refused = side.refused(Method::GET, "/api/v1/requests", "").await;
    assert_eq!(refused, (400, "pool_required".to_owned()));
    side.get("/api/v1/requests?pool=two").await;
    side.hubs[1].add_pod(pod(7, "127.0.0.1:7"));
    assert_eq!(side.get("/api/v1/pods/pod-7").await["pool"], "two", "found by its name alone");
    side.hubs[0].add_pod(pod(7, "127.0.0.1:7"));
    let refused = side.refused(Method::GET, "/api/v1/pods/pod-7", "").await;
    assert_eq!(refused, (400, "pool_required".to_owned()));
}

#[tokio::test]
async fn what_waits_is_listed_page_by_page_and_cancelled_by_filter() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let mut tickets = waiting(side.hub(), 25);
    let (mut path, mut seen) = ("/api/v1/requests?limit=10".to_owned(), Vec::new());
    loop {
        let page = side.get(&path).await;
        let rows = page["requests"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["id"].as_u64().unwrap()));
        assert!(rows[0]["reason"]["reason"].is_string(), "{page}");
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/requests?limit=10&cursor={next}");
    }
    assert_eq!(seen, (1..=25).collect::<Vec<_>>(), "each once, oldest first");

    let queues = side.get("/api/v1/queues").await;
    let depth = |rows: &str| {
        let rows = queues[rows].as_array().unwrap().iter();
        rows.map(|row| row["depth"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(["queues", "bands", "tenants"].map(depth), [25; 3], "{queues}");
    assert_eq!(queues["tenants"][0]["tenant"], "zeta");

    let filter = json!({"tenant": "acme", "band": 0, "dry_run": true});
    let dry = side.post("/api/v1/requests/cancel", filter.clone()).await;
    assert_eq!((&dry["matched"], &dry["cancelled"]), (&4.into(), &0.into()), "{dry}");
    assert_eq!(dry["sample"], json!(["req-6", "req-12", "req-18", "req-24"]));
    assert_eq!(side.hub().summary().waiting, 25, "a dry run cancels nothing");
    let filter = json!({"tenant": "acme", "band": 0});
    assert_eq!(side.post("/api/v1/requests/cancel", filter).await["cancelled"], 4);
    assert_eq!(side.post("/api/v1/requests/req-1/cancel", json!({})).await["cancelled"], 1);
    assert_eq!(side.hub().summary().waiting, 20);
    let refusal = tickets[5].verdict().await.unwrap_err();
    assert_eq!(refusal.reason.name(), "cancelled_by_operator");
    let again = side.refused(Method::POST, "/api/v1/requests/req-1/cancel", "{}").await;
    assert_eq!(again, (409, "conflict".to_owned()));
    assert_eq!((side.changes("cancel", "ok"), side.changes("cancel", "refused")), (1, 1));
    assert_eq!(side.changes("cancel_many", "ok"), 1, "a dry run is no change");
}

#[tokio::test]
async fn a_waiting_request_says_why_and_can_be_moved() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 3);
    for path in ["/api/v1/requests/2", "/api/v1/requests/req-2?pool=default"] {
        let one = side.get(&path.replace("default", side.hub().model())).await;
        assert_eq!(
            (&one["state"], &one["id"], &one["band"]),
            (&"waiting".into(), &2.into(), &0.into())
        );
        assert!(one["explanation"].as_str().unwrap().contains("no pod"), "{one}");
    }
    let moved = side.post("/api/v1/requests/2/move", json!({"band": 7})).await;
    assert_eq!(moved["band"], 7);
    let page = side.get("/api/v1/requests?band=7").await;
    assert_eq!(page["requests"].as_array().unwrap().len(), 1);
    let decisions = side.get("/api/v1/decisions?request_id=req-2").await;
    assert_eq!(decisions["decisions"][0]["kind"], "move");
}

#[tokio::test]
async fn a_lane_a_band_and_the_pool_can_be_held() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let mut tickets = waiting(side.hub(), 2);
    let lanes = side.get("/api/v1/queues").await;
    let lane = lanes["queues"].as_array().unwrap().iter().find(|lane| lane["band"] == 0).unwrap();
    let held = side.post("/api/v1/queues/pause", json!({"lane": lane["lane"]})).await;
    assert_eq!(held["paused"], json!([lane["lane"]]));
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let first = tickets[0].verdict().await.unwrap();
    assert_eq!(side.hub().summary().waiting, 1, "band 0 is held, band 1 went");
    let held = side.get("/api/v1/requests/req-2").await;
    assert_eq!(held["reason"]["reason"], "paused", "{held}");
    let held = side.post("/api/v1/queues/pause", json!({"band": -1})).await;
    assert_eq!(held["paused"][0], "b-1");
    assert_eq!(side.post("/api/v1/queues/resume", json!({})).await["paused"], json!([]));
    drop((first, tickets[1].verdict().await.unwrap()));
}

#[tokio::test]
async fn a_pod_is_cordoned_drained_and_let_in_again() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let lease = side.hub().admit(request(side.hub(), 1)).verdict().await.unwrap();
    let phase = async |body: &Value| body["phase"].as_str().unwrap().to_owned();
    let cordoned = side.post("/api/v1/pods/pod-1/cordon", json!({})).await;
    assert_eq!(phase(&cordoned).await, "cordoned");
    let draining = side.post("/api/v1/pods/pod-1/drain", json!({})).await;
    assert_eq!(
        (phase(&draining).await.as_str(), &draining["drain"]["left"]),
        ("draining", &1.into())
    );
    assert_eq!(draining["requests"].as_array().unwrap().len(), 1);
    lease.end(weir_core::EndKind::Complete, None, None);
    let drained = side.get("/api/v1/pods/pod-1").await;
    assert_eq!((phase(&drained).await.as_str(), &drained["drain"]["left"]), ("drained", &0.into()));
    let back = side.post("/api/v1/pods/pod-1/uncordon", json!({})).await;
    assert_eq!((phase(&back).await.as_str(), &back["drain"]), ("ready", &Value::Null));
    assert_eq!(side.get("/api/v1/pods").await["pods"][0]["address"], "127.0.0.1:1");
}

#[tokio::test]
async fn a_hypothetical_request_is_explained_and_not_sent() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let ask = json!({"input_tokens": 1000, "output_tokens": 100, "ttft_ms": 2000});
    let alone = side.post("/api/v1/explain", ask.clone()).await;
    assert_eq!((&alone["would"], &alone["reason"]), (&"wait".into(), &"no_pod_ready".into()));
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let goes = side.post("/api/v1/explain", ask).await;
    assert_eq!((&goes["would"], &goes["pod"]), (&"dispatch".into(), &"pod-1".into()), "{goes}");
    assert_eq!(goes["pods"][0]["fits"], true);
    let summary = side.hub().summary();
    assert_eq!((summary.waiting, summary.in_flight), (0, 0));
}

#[tokio::test]
async fn boards_come_as_events_to_as_many_as_may_watch() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 4);
    tokio::spawn(events::broadcast(side.seat.clone()));
    let stream = side.open(Method::GET, "/api/v1/events", &[], "").await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let (mut body, mut text) = (stream.into_body(), String::new());
    // The first comes at once, the second when the next second is over.
    while text.matches("event: board\n").count() < 2 || !text.ends_with("\n\n") {
        let frame = tokio::time::timeout(Duration::from_secs(60), body.frame()).await;
        let frame = frame.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let board: Value = serde_json::from_str(data).unwrap();
    assert_eq!(board["overview"]["pools"][0]["waiting"], 4, "{board}");
    assert_eq!(board["queues"].as_array().unwrap().len(), 2);
    assert!(board["pods"].is_array() && board["decisions"].is_array());

    let mut others = Vec::new();
    for _ in 1..events::STREAMS {
        let other = side.open(Method::GET, "/api/v1/events", &[], "").await;
        assert_eq!(other.status(), 200);
        others.push(other);
    }
    let refused = side.refused(Method::GET, "/api/v1/events", "").await;
    assert_eq!(refused, (503, "too_many_streams".to_owned()));
    drop((others.pop(), body));
    // Their places come back when the server sees that they left.
    let back = async || side.open(Method::GET, "/api/v1/events", &[], "").await.status() == 200;
    let again = async {
        while !back().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.unwrap();
}

#[tokio::test]
async fn every_operation_is_described_once_and_the_page_is_there() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let description = side.get("/api/v1/openapi.json").await;
    let paths = description["paths"].as_object().unwrap();
    let operations: Vec<&Value> =
        paths.values().flat_map(|path| path.as_object().unwrap().values()).collect();
    let mut ids: Vec<_> = operations.iter().map(|of| of["operationId"].to_string()).collect();
    assert!(ids.len() >= 28 && paths.keys().all(|path| path.starts_with("/api/v1/")), "{ids:?}");
    ids.sort();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all, "no two operations share an id");
    for of in operations {
        assert!(of["summary"].is_string() || of["description"].is_string(), "{of}");
    }
    let (status, headers, page) = side.ask(Method::GET, "/", &[], "").await;
    assert!(status == 200 && page.as_str().unwrap().contains("<title>Weir"), "{page}");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
}

#[tokio::test(start_paused = true)]
async fn the_sampler_keeps_what_became_of_requests() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let sampler = tokio::spawn(history::sample(side.seat.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lease = side.hub().admit(request(side.hub(), 1)).verdict().await.unwrap();
    lease.end(weir_core::EndKind::Complete, None, Some(10));
    let mut kept = waiting(side.hub(), 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seconds = side.seat.history().seconds(0);
    assert_eq!(seconds.len(), 2, "{seconds:?}");
    let (first, last) = (&seconds[0], &seconds[1]);
    assert_eq!((first.ends.sent, last.ends.sent), (1, 0), "{seconds:?}");
    assert_eq!(last.in_flight, 2);
    let (window_s, bands) = side.seat.history().attained(0);
    assert_eq!((window_s, bands[&0].sent), (2.0, 1));
    sampler.abort();
    for ticket in &mut kept {
        drop(ticket.verdict().await.unwrap());
    }
}
