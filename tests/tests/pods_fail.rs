//! Pods fail in every way; a request that can be served elsewhere is, and the others are told cleanly.

use std::{net::TcpListener, path::Path, process::Command, time::Duration};

use futures_util::future::join_all;
use serde_json::json;
use weir_tests::{Call, Plan, Program, Reply, Stage, Weir, built, eventually};

async fn at_once(stage: &Stage, calls: usize) -> Vec<Reply> {
    let call = Call::chat(5);
    join_all((0..calls).map(|_| stage.call(&call))).await
}

async fn refusals(stage: &Stage, reason: &str) -> f64 {
    stage.weir.metrics().await.sum("weir_refused_total", &[("reason", reason)])
}

#[tokio::test]
async fn requests_for_a_pod_that_refuses_connections_are_served_by_another() {
    let mut stage = Plan::default().pods(2).raise().await;
    stage.pods[0].kill();
    for reply in at_once(&stage, 20).await {
        reply.assert_whole();
        assert_eq!(reply.header("x-weir-pod"), "pod-1");
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_lines_and_nothing_else() {
    let mut stage = Plan::default().raise().await;
    // Addresses on which nobody listens now; which it takes by itself only its log would say.
    let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [api, admin] = free.each_ref().map(|port| port.local_addr().unwrap());
    drop(free);
    let full = Path::new("/dev/full");
    let mut serve = Command::new(built::binary("weir"));
    serve.arg("serve").arg("--config").arg(stage.config());
    serve.args(["--listen", &api.to_string(), "--admin-listen", &admin.to_string()]);
    let mut weir = Weir { api, admin, program: Program::start(&mut serve, full) };
    eventually("weir is alive", async || Call::get("/livez").try_open(admin).await).await;
    weir.ready().await;
    // Each change of a pod's phase is a line.
    stage.pods[0].kill();
    weir.without_pods().await;
    stage.pods[0].restart().await;
    weir.ready().await;
    Call::chat(3).to(api).await.assert_whole();
    let paused = Call::post("/api/v1/queues/pause", "{}").to(admin).await;
    assert_eq!(paused.status, 200, "{paused:?}");
    weir.program.terminate();
    assert!(weir.program.exit().await.success());
}

#[tokio::test]
async fn a_dispatcher_that_stood_still_does_not_take_its_pods_for_silent() {
    let timeouts =
        json!({"first_token_timeout_s": 1, "stall_timeout_s": 1, "unstreamed_timeout_s": 1});
    let config = json!({"upstream": timeouts});
    let mut stage = Plan::default().config(config).speed(2.0).raise().await;
    let call = Call::chat(300);
    let streams = (0..20).map(|_| call.open(stage.weir.api));
    let mut streams: Vec<_> = join_all(streams).await;
    for stream in &mut streams {
        stream.first_token().await;
    }
    // These have their answers while nobody looks.
    let api = stage.weir.api;
    let plain = (0..5).map(|_| tokio::spawn(async move { Call::plain(3).to(api).await }));
    let plain: Vec<_> = plain.collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    stage.weir.program.hang();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.weir.program.go_on();
    for reply in join_all(streams.into_iter().map(weir_tests::Live::rest)).await {
        reply.assert_whole();
    }
    for reply in join_all(plain).await {
        reply.unwrap().assert_whole();
    }
    let metrics = stage.weir.metrics().await;
    assert_eq!(metrics.sum("weir_pod_answers_total", &[("class", "cut")]), 0.0);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_hangs_delays_nobody_but_its_own_request_which_gets_a_clean_error() {
    let config = json!({"upstream": {"first_token_timeout_s": 1}});
    let mut stage = Plan::default().pods(2).config(config).raise().await;
    stage.pods[0].fault(json!({"kind": "hang", "count": 1})).await;
    let replies = at_once(&stage, 12).await;
    let (whole, hung): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.is_whole());
    assert_eq!((whole.len(), hung.len()), (11, 1), "{hung:#?}");
    hung[0].assert_error(504, "upstream_timeout");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_hangs_for_good_is_left_alone_and_the_others_serve() {
    let config = json!({"upstream": {"first_token_timeout_s": 1}});
    let mut stage = Plan::default().pods(2).config(config).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    // Some are lost to the pod until its breaker opens; none of the others waits for it.
    at_once(&stage, 12).await;
    eventually("the hung pod is left alone", async || {
        at_once(&stage, 4).await;
        let phase = stage.weir.snapshot().await["pods"][0]["phase"].clone();
        if phase == "broken" { Ok(()) } else { Err(phase) }
    })
    .await;
    for reply in at_once(&stage, 4).await {
        reply.assert_whole();
        assert_eq!(reply.header("x-weir-pod"), "pod-1");
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_dies_mid_stream_ends_the_stream_with_an_error_and_an_abnormal_close() {
    let mut stage = Stage::simple().await;
    stage.pods[0].fault(json!({"kind": "die_mid_stream", "after_tokens": 4, "count": 1})).await;
    let reply = stage.call(&Call::chat(50)).await;
    assert_eq!((reply.status, reply.words()), (200, 4), "{reply:?}");
    assert_eq!(reply.error_code().as_deref(), Some("upstream_lost"));
    assert!(reply.broken && !reply.is_done(), "{reply:?}");
    stage.assert_serves().await;
    stage.assert_settled().await;
    let metrics = stage.weir.metrics().await;
    assert_eq!(metrics.sum("weir_stream_errors_total", &[("code", "upstream_lost")]), 1.0);
}

#[tokio::test]
async fn a_pod_that_is_killed_mid_stream_ends_the_stream_with_an_error_too() {
    let mut stage = Plan::default().speed(1.0).raise().await;
    let mut live = Call::chat(2000).open(stage.weir.api).await;
    live.first_token().await;
    stage.pods[0].kill();
    let reply = live.rest().await;
    assert_eq!(reply.error_code().as_deref(), Some("upstream_lost"), "{reply:?}");
    assert!(reply.broken && !reply.is_done(), "{reply:?}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_dies_before_the_answer_of_a_call_that_is_not_streamed_is_a_bad_gateway() {
    let mut stage = Stage::simple().await;
    stage.pods[0].fault(json!({"kind": "die_mid_stream", "count": 1})).await;
    stage.call(&Call::plain(20)).await.assert_error(502, "upstream_lost");
    stage.call(&Call::plain(20)).await.assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_stream_that_stalls_is_ended_with_an_error() {
    let config = json!({"upstream": {"stall_timeout_s": 1}});
    let mut stage = Plan::default().config(config).raise().await;
    stage.pods[0].fault(json!({"kind": "stall", "after_tokens": 4, "count": 1})).await;
    let reply = stage.call(&Call::chat(50)).await;
    assert_eq!((reply.status, reply.words()), (200, 4), "{reply:?}");
    assert_eq!(reply.error_code().as_deref(), Some("upstream_stalled"));
    assert!(reply.broken, "{reply:?}");
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pods_own_server_errors_are_passed_on() {
    let mut stage = Stage::simple().await;
    // A 503 is one when it is said three times by a pod that has nothing else to do.
    for (status, times) in [(500_u16, 1), (503, 3)] {
        stage.pods[0].fault(json!({"kind": format!("status_{status}"), "count": times})).await;
        let reply = stage.call(&Call::chat(5)).await;
        assert_eq!((reply.status, reply.header("x-weir-pod")), (status, "pod-0"), "{reply:?}");
        assert!(reply.json()["error"].is_object(), "the body is the pod's: {reply:?}");
        stage.weir.ready().await;
        stage.assert_serves().await;
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn the_only_pod_stays_whatever_it_leaves_without_an_answer_and_goes_where_it_says_503() {
    let config = json!({"upstream": {"first_token_timeout_s": 1}});
    let mut stage = Plan::default().config(config).raise().await;
    stage.pods[0].fault(json!({"kind": "hang", "count": 4})).await;
    for reply in at_once(&stage, 4).await {
        reply.assert_error(504, "upstream_timeout");
    }
    assert_eq!(stage.weir.readyz().await.status, 200);
    stage.assert_serves().await;
    stage.pods[0].fault(json!({"kind": "status_503", "count": 3})).await;
    assert_eq!(stage.call(&Call::chat(5)).await.status, 503);
    stage.weir.without_pods().await;
    stage.weir.ready().await;
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_comes_back_is_served_from_again() {
    let mut stage = Stage::simple().await;
    stage.assert_serves().await;
    stage.pods[0].kill();
    stage.weir.without_pods().await;
    stage.pods[0].restart().await;
    stage.weir.ready().await;
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn without_any_pod_a_request_waits_and_is_refused_with_503() {
    let config = json!({"queue": {"max_wait_no_pods_s": 1}});
    let mut stage = Plan::default().pods(2).config(config).raise().await;
    stage.pods.iter_mut().for_each(weir_tests::Pod::kill);
    stage.weir.without_pods().await;
    let started = tokio::time::Instant::now();
    let reply = stage.call(&Call::chat(5)).await;
    assert!(started.elapsed() >= Duration::from_millis(900), "it did not wait: {reply:?}");
    reply.assert_error(503, "server_is_overloaded");
    assert_eq!(reply.header("x-llm-d-request-dropped-reason"), "rejected-no-endpoints");
    assert!((1..=60).contains(&reply.header("retry-after").parse::<u32>().unwrap()), "{reply:?}");
    assert_eq!(refusals(&stage, "no_pods").await, 1.0);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_request_that_waits_for_a_pod_is_served_when_one_comes_back() {
    let mut stage = Plan::default().pods(2).raise().await;
    stage.pods.iter_mut().for_each(weir_tests::Pod::kill);
    stage.weir.without_pods().await;
    let (call, address) = (Call::chat(5), stage.weir.api);
    let waiting = tokio::spawn(async move { call.to(address).await });
    stage.weir.waiting(1).await;
    stage.pods[1].restart().await;
    let reply = waiting.await.unwrap();
    reply.assert_whole();
    assert_eq!(reply.header("x-weir-pod"), "pod-1");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_dies_under_load_costs_only_what_it_had_begun() {
    let mut stage = Plan::default().pods(3).speed(4.0).raise().await;
    let load = weir_tests::Load::start(stage.weir.api, 12, |_, _| Call::chat(20));
    let mut load = load;
    load.answers(20).await;
    stage.pods[0].kill();
    load.answers(40).await;
    stage.pods[0].restart().await;
    eventually("the pod is used again", async || {
        let pods = stage.weir.snapshot().await["pods"].clone();
        let back = pods.as_array().unwrap().iter().find(|pod| pod["name"] == "pod-0").cloned();
        let used = back
            .as_ref()
            .is_some_and(|pod| pod["phase"] == "ready" && pod["dispatched"].as_u64() > Some(0));
        if used { Ok(()) } else { Err(pods) }
    })
    .await;
    load.answers(20).await;
    let replies = load.stop().await;
    let lost: Vec<&Reply> = replies.iter().filter(|reply| !reply.is_whole()).collect();
    // Twelve clients, each with one call: no more can have been on the pod when it died.
    assert!(lost.len() <= 12, "{} of {}: {lost:#?}", lost.len(), replies.len());
    for reply in lost {
        assert_eq!(reply.error_code().as_deref(), Some("upstream_lost"), "{reply:?}");
    }
    stage.assert_settled().await;
}
