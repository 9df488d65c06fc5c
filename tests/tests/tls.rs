//! Clients, pods and operators are spoken to by TLS where the configuration says so, and nothing else changes: streams flow,
//! nobody is lost, and a certificate is renewed beneath them.

use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use weir_tests::{
    Authority, Call, Plan, Pod, Program, Stage, built,
    command::{Done, UNREACHABLE, USAGE, command},
    eventually,
    weir::serving,
};

const NAME: &str = "weir.test";
/// Exit code: the configuration cannot be used.
const WRONG_CONFIGURATION: i32 = 64;

#[tokio::test]
async fn a_request_goes_through_sealed_on_both_sides() {
    let authority = Authority::default();
    let plan = Plan::default();
    let pods = [
        Pod::start(&plan.path("a.log"), &["--speed".to_owned(), "10".to_owned()]).await,
        Pod::start(&plan.path("b.log"), &["--speed".to_owned(), "10".to_owned()]).await,
    ];
    let mut plan = plan.https(authority.trusted("pods.test"));
    let mut fronts = Vec::new();
    for pod in &pods {
        let front = authority.seals(pod.address, "pods.test").await;
        plan = plan.upstream(front.address);
        fronts.push(front);
    }
    let shown = authority.certify("weir", NAME).shown();
    let mut stage = plan.config(json!({"tls": shown})).raise().await;
    let client = authority.unseals(stage.weir.api, NAME, None).await;

    for turn in 0..20 {
        Call::long_chat(500, 30, &turn.to_string()).to(client.address).await.assert_whole();
        let plain = Call::plain(5).to(client.address).await;
        assert_eq!(plain.status, 200, "{plain:?}");
    }
    // A client that leaves is noticed through both seals.
    let mut live = Call::chat(2000).open(client.address).await;
    live.first_token().await;
    drop(live);
    eventually("it is over", async || {
        let open = stage.weir.open_requests().await;
        if open.total() == 0 { Ok(()) } else { Err(open) }
    })
    .await;

    let in_the_clear = Call::get("/v1/models").try_open(stage.weir.api).await;
    assert!(in_the_clear.is_err(), "{in_the_clear:?}");
    let metrics = stage.weir.metrics().await;
    let of_api = [("listener", "api")];
    assert_eq!(metrics.sum("weir_tls_handshakes_failed_total", &of_api), 1.0);
    let ends = metrics.sum("weir_tls_certificate_expiry_timestamp_seconds", &of_api);
    assert!(ends > 1.8e9, "{ends}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_while_a_stream_flows() {
    let (authority, later) = (Authority::default(), Authority::default());
    let own = authority.certify("weir", NAME);
    let mut stage = Plan::default().speed(1.0).config(json!({"tls": own.shown()})).raise().await;
    let client = authority.unseals(stage.weir.api, NAME, None).await;
    let mut live = Call::chat(600).open(client.address).await;
    live.first_token().await;

    let renewed = later.certify("weir", NAME);
    std::fs::copy(renewed.key, &own.key).unwrap();
    std::fs::copy(renewed.certificate, &own.certificate).unwrap();
    let other = later.unseals(stage.weir.api, NAME, None).await;
    eventually("clients are shown the new one", async || {
        Call::get("/v1/models").try_open(other.address).await.map(|_| ())
    })
    .await;
    let metrics = stage.weir.metrics().await;
    assert!(metrics.sum("weir_tls_renewals_total", &[("outcome", "renewed")]) >= 1.0);
    live.rest().await.assert_whole();

    std::fs::write(&own.certificate, "half a file").unwrap();
    eventually("it is refused", async || {
        let metrics = stage.weir.metrics().await;
        let failing = metrics.sum("weir_tls_failing", &[("listener", "api")]);
        if failing >= 1.0 { Ok(()) } else { Err(failing) }
    })
    .await;
    Call::chat(3).to(other.address).await.assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn who_has_no_certificate_where_one_is_asked_for_gets_no_answer() {
    let (authority, clients) = (Authority::default(), Authority::default());
    let mut tls = authority.certify("weir", NAME).shown();
    tls["client_ca"] = json!(clients.ca());
    let mut stage = Plan::default().config(json!({"tls": tls})).raise().await;
    let stranger = authority.unseals(stage.weir.api, NAME, None).await;
    let answer = Call::get("/v1/models").try_open(stranger.address).await;
    assert!(answer.is_err(), "{answer:?}");
    let gateway = clients.certify("gateway", "gateway");
    let known = authority.unseals(stage.weir.api, NAME, Some(&gateway)).await;
    Call::chat(3).to(known.address).await.assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_is_not_who_it_should_be_gets_no_request() {
    let (authority, other) = (Authority::default(), Authority::default());
    let plan = Plan::default();
    let pod = Pod::start(&plan.path("pod.log"), &["--speed".to_owned(), "10".to_owned()]).await;
    let front = other.seals(pod.address, "pods.test").await;
    let plan = plan.https(authority.trusted("pods.test")).upstream(front.address);
    let mut stage = plan.config(json!({"queue": {"max_wait_no_pods_s": 0.2}})).start().await;
    let refused = stage.call(&Call::chat(3)).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    eventually("the reason is said", async || {
        let log = stage.weir.program.log();
        if log.contains("invalid peer certificate") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(pod.metrics().await.sum("vllm:request_success_total", &[]), 0.0);
    stage.assert_settled().await;
}

/// An admin side that speaks TLS, with the command line in front.
#[tokio::test]
async fn operators_reach_an_admin_side_that_is_sealed() {
    let (authority, other) = (Authority::default(), Authority::default());
    let stage = Stage::simple().await;
    let config = stage.path("sealed.yaml");
    let tls = authority.certify("weir", "127.0.0.1").shown();
    let written = json!({
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0", "tls": tls},
        "pools": [{"model": "m", "pods": [{"url": "http://127.0.0.1:9"}]}],
        "state": {"dir": stage.path("sealed-state")},
        "log": {"format": "json"},
    });
    std::fs::write(&config, written.to_string()).unwrap();
    let log = stage.path("sealed.log");
    let serve = &mut Command::new(built::binary("weir"));
    let mut weir = Program::start(serve.arg("serve").arg("--config").arg(&config), &log);
    let [_, admin] = weir.says("where it listens", serving).await;

    let at = format!("https://{admin}");
    let ask = async |ca: Option<&std::path::Path>| {
        let mut asked = command(&["pods", "ls", "-o", "json", "--admin", &at]);
        ca.map(|ca| asked.arg("--admin-ca").arg(ca));
        Done::of(asked.output().await.unwrap())
    };
    let pods = ask(Some(&authority.ca())).await.json();
    assert_eq!(pods["pods"][0]["pod"], "127.0.0.1:9", "{pods}");
    ask(Some(&other.ca())).await.assert_failed(UNREACHABLE, "invalid peer certificate");
    ask(None).await.assert_failed(UNREACHABLE, "invalid peer certificate");
    let none = stage.path("none.pem");
    ask(Some(&none)).await.assert_failed(USAGE, "--admin-ca: cannot read");

    let clear = authority.unseals(admin, "127.0.0.1", None).await;
    assert_eq!(Call::get("/livez").to(clear.address).await.status, 200);
    weir.terminate();
    assert_eq!(weir.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_load_reaches_who_is_sealed_and_asks_for_a_key() {
    let authority = Authority::default();
    let tls = authority.certify("weir", "127.0.0.1").shown();
    let sha256 = format!("{:x}", Sha256::digest("k-1"));
    let keys = json!([{"tenant": "acme", "sha256": sha256}]);
    let mut stage = Plan::default().config(json!({"tls": tls, "keys": keys})).raise().await;
    let load = async |key: &str| {
        let mut load = tokio::process::Command::new(built::binary("weir-bench"));
        load.args(["load", "--mix", "demo", "--for", "1", "--rate", "20"])
            .args(["--target", &format!("https://{}/v1", stage.weir.api), "--key-env", "KEY"])
            .arg("--ca")
            .arg(authority.ca())
            .env("KEY", key);
        Done::of(load.output().await.unwrap())
    };
    let (good, bad) = (load("k-1").await, load("k-2").await);
    assert_eq!((good.code, bad.code), (0, 1), "{good:?}, {bad:?}");
    let served = stage.weir.metrics().await;
    assert!(served.sum("weir_requests_total", &[("outcome", "ok")]) >= 5.0, "{served:?}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_trainer_trains_without_the_certificates_that_the_dispatcher_has() {
    let plan = Plan::default();
    let tls = json!({"certificate": "none.pem", "key": "none.key"});
    let config = json!({
        "tls": tls,
        "admin": {"tls": tls},
        "pools": [{"model": "m", "tls": {"ca": "none.pem"}, "pods": [{"url": "https://127.0.0.1:9"}]}],
        "model": {"bundles": plan.path("bundles")},
        "spool": {"dir": plan.path("spool")},
    });
    let file = plan.path("weir.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let run = async |words: &[&str]| {
        let words = [words, &["--config", &file]].concat();
        Done::of(command(&words).output().await.unwrap())
    };
    let trained = run(&["train", "--once"]).await;
    assert!(!trained.err.contains("none.pem"), "{trained:?}");
    assert_ne!(trained.code, WRONG_CONFIGURATION, "{trained:?}");
    let served = run(&["serve"]).await;
    assert_eq!(served.err.matches("cannot read none.pem").count(), 3, "{served:?}");
    assert_eq!(served.code, WRONG_CONFIGURATION);
}
