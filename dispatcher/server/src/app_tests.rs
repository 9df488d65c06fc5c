//! The whole dispatcher in one process, in front of a pod that answers by the book.

use axum::{Router, routing::get};
use http_body_util::BodyExt as _;
use tokio::{net::TcpListener, sync::Semaphore};

use std::path::Path;

use super::*;
use crate::{config::RawConfig, learn::profile::RawProfile};

const GAUGES: &str = "vllm:num_requests_running{engine=\"0\"} 0\n\
    vllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n";

/// A dispatcher in a folder of its own, with one pod at `pod`.
fn config(folder: &Path, pod: SocketAddr) -> Config {
    Config::check(&raw(folder, pod)).unwrap()
}

fn raw(folder: &Path, pod: SocketAddr) -> RawConfig {
    let mut raw = RawConfig { listen: "127.0.0.1:0".to_owned(), ..RawConfig::default() };
    raw.admin.listen = "127.0.0.1:0".to_owned();
    raw.pools[0].pods[0].url = format!("http://{pod}");
    raw.scrape.every_ms = 10;
    raw.spool.dir = folder.join("spool");
    raw.state.dir = folder.join("state");
    raw.model.bundles = folder.join("bundles");
    raw
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A GET over a fresh connection.
async fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", "localhost");
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Asks until the answer has the wanted status: each answer is an event, and the test's own time
/// limit ends it.
async fn ask_until(address: SocketAddr, path: &str, status: u16) -> String {
    loop {
        let (got, body) = ask(address, path).await;
        if got == status {
            return body;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn it_becomes_ready_with_its_first_pod_and_drains_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, pod) = listener().await;
    let app = App::start(config(folder.path(), pod), &Origin::default()).unwrap();
    let (api, admin) = app.addresses();
    let signals = Arc::new(Semaphore::new(0));
    let heard = signals.clone();
    let running = tokio::spawn(app.run(move || {
        let heard = heard.clone();
        async move { heard.acquire().await.unwrap().forget() }
    }));

    assert_eq!(ask(admin, "/livez").await, (200, "ok\n".to_owned()));
    // The pod's port is open, but nothing answers there yet.
    assert_eq!(ask(admin, "/readyz").await, (503, "no pod is ready\n".to_owned()));
    let held = ask(admin, "/readyz?pods=0").await;
    assert_eq!(held, (200, "ready\n".to_owned()), "it holds what comes");
    tokio::spawn(async move {
        axum::serve(listener, Router::new().route("/metrics", get(GAUGES))).await.unwrap();
    });
    ask_until(admin, "/readyz", 200).await;

    let (status, metrics) = ask(admin, "/metrics").await;
    assert_eq!(status, 200);
    for series in ["weir_pod_scrapes_total", "weir_pod_scrape_bytes_total"] {
        assert!(metrics.contains(&format!("{series}{{model=\"qwen3-32b\"")), "{metrics}");
    }
    let snapshot: serde_json::Value =
        serde_json::from_str(&ask(admin, "/snapshot").await.1).unwrap();
    assert_eq!(snapshot["draining"], false);
    assert!(snapshot["pools"][0]["snapshot"].is_object());
    assert!(snapshot["pools"][0]["model"]["versions"].is_array());
    assert_eq!(ask(api, "/v1/models").await.0, 200);

    signals.add_permits(1);
    running.await.unwrap();
    assert!(tokio::net::TcpStream::connect(api).await.is_err());
    assert!(tokio::net::TcpStream::connect(admin).await.is_err());
}

#[tokio::test]
async fn a_dispatcher_without_a_bundle_predicts_by_the_profile_of_its_class() {
    let folder = tempfile::tempdir().unwrap();
    let (_held, pod) = listener().await;
    let mut raw = raw(folder.path(), pod);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/profiles");
    let file = |kind| shipped.join(format!("h100-qwen3-32b-tp2.llumnix-{kind}.json"));
    raw.classes[0].profile = Some(RawProfile::Files(vec![file("ttft"), file("tpot")]));
    let app = App::start(Config::check(&raw).unwrap(), &Origin::default()).unwrap();
    let text = crate::telemetry::exposition::text(&app.watched).unwrap();
    for target in ["ttft", "tpot"] {
        let source = format!(
            "weir_predictor_source{{model=\"qwen3-32b\",source=\"profile\",target=\"{target}\"}} 1"
        );
        let serves = format!(
            "weir_profile_serves{{class=\"h100-qwen3-32b-tp2\",model=\"qwen3-32b\",target=\"{target}\"}} 1"
        );
        assert!(text.contains(&source) && text.contains(&serves), "{text}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_held, taken) = listener().await;
    let mut config = config(folder.path(), taken);
    config.admin = taken;
    let error = App::start(config, &Origin::default()).err().unwrap().to_string();
    assert!(error.contains(&format!("cannot listen on {taken}")), "{error}");
}
