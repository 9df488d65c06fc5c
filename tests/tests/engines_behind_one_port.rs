//! A server that has several engines behind one port is as many pods: Weir says which of them serves, and what an operator asks of the
//! server is asked of each.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use weir_tests::{Call, Live, Plan, Pod, Stage, eventually, served_by};

/// Servers of two engines each, whose class says that there are so many.
fn said_to_have(engines: u16) -> Plan {
    class(json!({"name": "h100-qwen3-32b-tp2", "data_parallel_size": engines}))
}

fn class(class: Value) -> Plan {
    Plan::default().pod_argument("--data-parallel-size", "2").config(json!({"classes": [class]}))
}

fn of_two() -> Plan {
    said_to_have(2)
}

/// What each of a server's engines has counted.
async fn counted(pod: &Pod, series: &str) -> [f64; 2] {
    let metrics = pod.metrics().await;
    ["0", "1"].map(|engine| metrics.sum(series, &[("engine", engine)]))
}

async fn ask(stage: &Stage, what: &str, name: &str) -> Value {
    let path = format!("/api/v1/pods/{name}/{what}");
    let reply = Call::post(&path, "{}").to(stage.weir.admin).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

async fn look(stage: &Stage, name: &str) -> Value {
    let path = format!("/api/v1/pods/{name}");
    let reply = Call::get(&path).to(stage.weir.admin).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

/// Waits until the admin side says so of a pod, or of a server; returns what it says. One that restarts is not there for a moment.
async fn phase(stage: &Stage, name: &str, phase: &str) -> Value {
    eventually(&format!("{name} is {phase}"), async || {
        let seen = Call::get(&format!("/api/v1/pods/{name}")).to(stage.weir.admin).await.json();
        if seen.get("phase").is_some_and(|is| is == phase) { Ok(seen) } else { Err(seen) }
    })
    .await
}

/// Streams that have begun, until each of these has one: its name and the stream.
async fn begun(stage: &Stage, call: &Call, pods: &[&str]) -> Vec<(String, Live)> {
    let mut streams: Vec<(String, Live)> = Vec::new();
    while pods.iter().any(|pod| streams.iter().all(|(name, _)| name != pod)) {
        assert!(streams.len() < 40, "not to each of {pods:?}: {streams:?}");
        let mut live = call.open(stage.weir.api).await;
        live.first_token().await;
        let name = live.headers.get("x-weir-pod").and_then(|name| name.to_str().ok());
        streams.push((name.unwrap_or_default().to_owned(), live));
    }
    streams
}

#[tokio::test]
async fn requests_are_spread_over_all_of_them_and_each_is_served_where_it_was_sent() {
    for together in ["server", "none"] {
        let steps = json!({"name": "h100-qwen3-32b-tp2", "data_parallel_size": 2, "steps_together": together});
        let mut stage = class(steps).raise().await;
        let replies = stage.at_once(40, &Call::chat(30)).await;
        assert_eq!(served_by(&replies), ["pod-0@0", "pod-0@1"].into());
        let of = |name: &str| {
            replies.iter().filter(|reply| reply.header("x-weir-pod") == name).count() as f64
        };
        let sent = ["pod-0@0", "pod-0@1"].map(of);
        assert!(sent[0].min(sent[1]) >= 10.0, "{sent:?}, steps together: {together}");
        let generated = counted(&stage.pods[0], "vllm:generation_tokens_total").await;
        assert_eq!(generated, sent.map(|sent| 30.0 * sent), "it serves where Weir said");
        let metrics = stage.weir.metrics().await;
        let told = ["pod-0@0", "pod-0@1"]
            .map(|pod| metrics.sum("weir_pod_dispatched_total", &[("pod", pod)]));
        assert_eq!(told, sent);
        stage.assert_settled().await;
    }
}

#[tokio::test]
async fn a_conversation_goes_back_to_the_engine_that_has_it() {
    const PROMPT: f64 = 4000.0;
    let mut stage = of_two().raise().await;
    let calls: Vec<Call> =
        (0..6).map(|number| Call::long_chat(4000, 20, &format!("talk {number}"))).collect();
    let mut before = Vec::new();
    // Two at a time, so that both engines get some.
    for pair in calls.chunks(2) {
        for reply in join_all(pair.iter().map(|call| stage.call(call))).await {
            reply.assert_whole();
            before.push(reply.header("x-weir-pod").to_owned());
        }
    }
    let engines: BTreeSet<&str> = before.iter().map(String::as_str).collect();
    assert_eq!(engines, ["pod-0@0", "pod-0@1"].into());
    let mut hits = counted(&stage.pods[0], "vllm:prefix_cache_hits_total").await;
    for (number, (call, engine)) in calls.iter().zip(&before).enumerate() {
        let reply = stage.call(call).await;
        reply.assert_whole();
        assert_eq!(reply.header("x-weir-pod"), engine, "talk {number} of {before:?}");
        let now = counted(&stage.pods[0], "vllm:prefix_cache_hits_total").await;
        let (this, other) = if engine == "pod-0@0" { (0, 1) } else { (1, 0) };
        assert!(now[this] - hits[this] > 0.9 * PROMPT, "talk {number}: {hits:?}, {now:?}");
        assert_eq!(now[other], hits[other]);
        // Somebody else's.
        stage.call(&Call::long_chat(3000, 5, &format!("other {number}"))).await.assert_whole();
        hits = counted(&stage.pods[0], "vllm:prefix_cache_hits_total").await;
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_rank_that_a_client_asks_for_decides_nothing() {
    let of_rank = |rank: &str| Call::chat(5).header("X-data-parallel-rank", rank);
    let mut stage = of_two().raise().await;
    let refused = of_rank("7").to(stage.pods[0].address).await;
    assert_eq!(refused.status, 400, "the server has no such engine: {refused:?}");
    for rank in ["7", "-1"] {
        stage.at_once(6, &of_rank(rank)).await;
    }
    ask(&stage, "cordon", "pod-0@1").await;
    let before = counted(&stage.pods[0], "vllm:generation_tokens_total").await;
    let replies = stage.at_once(6, &of_rank("1")).await;
    assert_eq!(served_by(&replies), ["pod-0@0"].into());
    let now = counted(&stage.pods[0], "vllm:generation_tokens_total").await;
    assert_eq!(now, [before[0] + 30.0, before[1]]);
    stage.assert_settled().await;

    // Of a server that counts as one pod the server says which.
    let mut stage = said_to_have(1).raise().await;
    let replies = stage.at_once(6, &of_rank("7")).await;
    assert_eq!(served_by(&replies), ["pod-0"].into());
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_server_with_fewer_engines_than_its_class_says_serves_with_those_it_has() {
    let mut stage = said_to_have(4).start().await;
    for engine in ["pod-0@0", "pod-0@1"] {
        phase(&stage, engine, "ready").await;
    }
    let replies = stage.at_once(40, &Call::chat(20)).await;
    assert_eq!(served_by(&replies), ["pod-0@0", "pod-0@1"].into());
    for missing in ["pod-0@2", "pod-0@3"] {
        let seen = look(&stage, missing).await;
        assert_eq!((&seen["phase"], &seen["dispatched"]), (&"broken".into(), &0.into()), "{seen}");
    }
    stage.weir.program.logs("another number of engines than its class says").await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_server_is_drained_once_all_of_its_engines_are_empty() {
    let mut stage = of_two().pods(2).speed(4.0).raise().await;
    // Long enough to be there until they are let go.
    let mut streams = begun(&stage, &Call::chat(3000), &["pod-0@0", "pod-0@1"]).await;
    let on = |streams: &[(String, Live)], pod: &str| {
        streams.iter().filter(|(name, _)| name == pod).count()
    };
    let most = on(&streams, "pod-0@0").max(on(&streams, "pod-0@1"));
    let draining = ask(&stage, "drain", "pod-0").await;
    assert_eq!(
        (&draining["phase"], &draining["drain"]["left"]),
        (&"draining".into(), &most.into())
    );
    for engine in ["pod-0@0", "pod-0@1"] {
        assert_eq!(look(&stage, engine).await["phase"], "draining");
    }
    let replies = stage.at_once(16, &Call::chat(5)).await;
    assert_eq!(served_by(&replies), ["pod-1@0", "pod-1@1"].into());

    streams.retain(|(name, _)| name != "pod-0@0");
    phase(&stage, "pod-0@0", "drained").await;
    let server = look(&stage, "pod-0").await;
    assert_eq!((&server["pod"], &server["phase"]), (&"pod-0@1".into(), &"draining".into()));
    streams.retain(|(name, _)| name != "pod-0@1");
    phase(&stage, "pod-0", "drained").await;
    for engine in ["pod-0@0", "pod-0@1"] {
        assert_eq!(look(&stage, engine).await["phase"], "drained");
    }
    let replies = stage.at_once(6, &Call::chat(5)).await;
    assert!(served_by(&replies).iter().all(|pod| pod.starts_with("pod-1@")));

    let back = ask(&stage, "uncordon", "pod-0").await;
    assert_eq!((&back["phase"], &back["drain"]), (&"ready".into(), &Value::Null));
    ask(&stage, "cordon", "pod-1").await;
    let replies = stage.at_once(16, &Call::chat(20)).await;
    assert_eq!(served_by(&replies), ["pod-0@0", "pod-0@1"].into());
    drop(streams);
    stage.assert_settled().await;
}

#[tokio::test]
async fn streams_on_a_drained_server_go_to_their_end() {
    let mut stage = of_two().speed(4.0).raise().await;
    let streams = begun(&stage, &Call::chat(200), &["pod-0@0", "pod-0@1"]).await;
    ask(&stage, "drain", "pod-0").await;
    for (name, live) in streams {
        let reply = live.rest().await;
        assert!(reply.is_whole(), "{name}: {reply:?}");
    }
    phase(&stage, "pod-0", "drained").await;
    ask(&stage, "uncordon", "pod-0").await;
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_server_that_was_killed_and_comes_back_is_each_of_its_engines_anew() {
    let mut stage = of_two().speed(4.0).raise().await;
    let known = Call::long_chat(4000, 5, "known");
    stage.at_once(1, &known).await;
    let streams = begun(&stage, &Call::chat(3000), &["pod-0@0", "pod-0@1"]).await;
    // Processes that begin within a second are taken for one: clocks are that exact.
    eventually("its server is older than that", async || {
        let up_s = stage.weir.metrics().await.sum("weir_uptime_seconds", &[]);
        if up_s > 1.5 { Ok(()) } else { Err(up_s) }
    })
    .await;
    stage.pods[0].kill();
    for (name, live) in streams {
        let reply = live.rest().await;
        assert_eq!(reply.error_code().as_deref(), Some("upstream_lost"), "{name}: {reply:?}");
        assert!(reply.broken && !reply.is_done(), "{name}: {reply:?}");
    }
    stage.weir.without_pods().await;
    stage.pods[0].restart().await;
    for engine in ["pod-0@0", "pod-0@1"] {
        let seen = phase(&stage, engine, "ready").await;
        let given = ["dispatched", "residents", "pending"].map(|name| seen[name].clone());
        assert_eq!(given, [0, 0, 0].map(Value::from), "{seen}");
    }
    // Of what was cached nothing is believed to be there.
    let reply = stage.call(&known).await;
    reply.assert_whole();
    let seen = look(&stage, reply.header("x-weir-pod")).await;
    assert_eq!((&seen["dispatched"], &seen["cached_tokens"]), (&1.into(), &0.into()), "{seen}");
    let replies = stage.at_once(20, &Call::chat(20)).await;
    assert_eq!(served_by(&replies), ["pod-0@0", "pod-0@1"].into());
    let generated = counted(&stage.pods[0], "vllm:generation_tokens_total").await;
    assert!(generated.iter().all(|tokens| *tokens > 0.0), "{generated:?}");
    stage.assert_settled().await;
}
