//! A server whose engines are behind several ports: one port for each engine, or some engines behind the port of each node.

use std::{collections::BTreeSet, net::SocketAddr};

use serde_json::{Value, json};
use weir_tests::{Call, Plan, Pod, Stage, eventually, served_by, weir::Metrics};

const CLASS: &str = "h100-qwen3-32b-tp2";

/// A server of so many engines, of which so many are behind each of its ports.
async fn server(plan: &Plan, engines: u16, each: u16) -> Pod {
    let (engines, each) = (engines.to_string(), each.to_string());
    let arguments =
        ["--speed", "10", "--data-parallel-size", &engines, "--data-parallel-size-local", &each];
    Pod::start(&plan.path("server.log"), &arguments.map(str::to_owned)).await
}

/// The ports of a server.
fn ports(server: &Pod, count: u16) -> Vec<SocketAddr> {
    let first = server.address;
    (0..count).map(|more| SocketAddr::new(first.ip(), first.port() + more)).collect()
}

/// The dispatcher in front of a server of this class, which a pool finds so.
async fn raise(plan: Plan, server: Pod, class: Value, pool: Value) -> Stage {
    let mut stage = in_front(plan, class, pool).raise().await;
    stage.pods.push(server);
    stage
}

fn in_front(plan: Plan, class: Value, pool: Value) -> Plan {
    plan.pods(0).config(json!({"classes": [class]})).pool(pool)
}

/// What the engines behind some ports have generated, by their numbers.
async fn generated(ports: &[SocketAddr], engines: u16) -> Vec<f64> {
    let mut all = vec![0.0; engines.into()];
    for port in ports {
        let reply = Call::get("/metrics").to(*port).await;
        let metrics = Metrics(String::from_utf8_lossy(&reply.body).into_owned());
        for (engine, tokens) in all.iter_mut().enumerate() {
            let engine = engine.to_string();
            *tokens += metrics.sum("vllm:generation_tokens_total", &[("engine", &engine)]);
        }
    }
    all
}

/// Requests go to all of these pods, and each of them is the engine of its place.
async fn assert_spread(stage: &Stage, pods: &[String], ports: &[SocketAddr]) {
    let engines = pods.len() as u16;
    let before = generated(ports, engines).await;
    let replies = stage.at_once(20 * pods.len(), &Call::chat(30)).await;
    let wanted: BTreeSet<&str> = pods.iter().map(String::as_str).collect();
    assert_eq!(served_by(&replies), wanted);
    let of =
        |name: &String| replies.iter().filter(|reply| reply.header("x-weir-pod") == name).count();
    let sent = pods.iter().map(|name| 30.0 * of(name) as f64);
    let wanted: Vec<f64> = before.iter().zip(sent).map(|(before, sent)| before + sent).collect();
    assert_eq!(generated(ports, engines).await, wanted, "they serve where Weir said");
}

async fn phase(stage: &Stage, name: &str, phase: &str) {
    eventually(&format!("{name} is {phase}"), async || {
        let path = format!("/api/v1/pods/{name}");
        let seen = Call::get(&path).to(stage.weir.admin).await.json();
        if seen.get("phase").is_some_and(|is| is == phase) { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test]
async fn engines_with_a_port_each_are_pods_of_one_server() {
    let plan = Plan::default();
    let server = server(&plan, 3, 1).await;
    let (url, ports) = (format!("http://{}", server.address), ports(&server, 3));
    let class = json!({"name": CLASS, "data_parallel_size": 3, "data_parallel_multi_port": true});
    let pods = json!({"pods": [{"name": "s", "url": url}]});
    let mut stage = raise(plan, server, class, pods).await;
    let names = [0, 1, 2].map(|engine| format!("s@{engine}"));
    assert_spread(&stage, &names, &ports).await;

    // A rank that a client asks for would be one of those behind the port, of which there is one.
    let ranked = Call::chat(5).header("X-data-parallel-rank", "1");
    assert_eq!(ranked.to(ports[1]).await.status, 400);
    stage.at_once(6, &ranked).await;

    let drain = Call::post("/api/v1/pods/s/drain", "{}").to(stage.weir.admin).await;
    assert_eq!(drain.status, 200, "{drain:?}");
    for name in &names {
        phase(&stage, name, "drained").await;
    }
    let back = Call::post("/api/v1/pods/s/uncordon", "{}").to(stage.weir.admin).await;
    assert_eq!(back.status, 200, "{back:?}");
    assert_spread(&stage, &names, &ports).await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_server_that_was_found_by_name_has_a_pod_for_each_of_its_ports() {
    let plan = Plan::default();
    let server = server(&plan, 2, 1).await;
    let (at, ports) = (server.address, ports(&server, 2));
    let class = json!({"name": CLASS, "data_parallel_size": 2, "data_parallel_multi_port": true, "steps_together": "pool"});
    let found = json!({"pods": [], "dns": {"host": "127.0.0.1", "port": at.port(), "every_s": 1}});
    let mut stage = raise(plan, server, class, found).await;
    let names = [0, 1].map(|engine| format!("{at}@{engine}"));
    for name in &names {
        phase(&stage, name, "ready").await;
    }
    assert_spread(&stage, &names, &ports).await;

    // All of them come back with it.
    stage.pods[0].kill();
    stage.weir.without_pods().await;
    stage.pods[0].restart().await;
    for name in &names {
        phase(&stage, name, "ready").await;
    }
    assert_spread(&stage, &names, &ports).await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn engines_on_several_nodes_step_together_where_they_are_one_unit() {
    let plan = Plan::default();
    let server = server(&plan, 4, 2).await;
    let nodes = ports(&server, 2);
    let class = json!({"name": CLASS, "data_parallel_size": 2, "steps_together": "unit"});
    let node = |number: usize| json!({"name": format!("node-{number}"), "url": format!("http://{}", nodes[number]), "unit": "s"});
    let mut stage = raise(plan, server, class, json!({"pods": [node(0), node(1)]})).await;
    let names = ["node-0@0", "node-0@1", "node-1@0", "node-1@1"].map(str::to_owned);
    assert_spread(&stage, &names, &nodes).await;

    // One of them is taken out alone.
    let cordon = Call::post("/api/v1/pods/node-1/cordon", "{}").to(stage.weir.admin).await;
    assert_eq!(cordon.status, 200, "{cordon:?}");
    let replies = stage.at_once(30, &Call::chat(10)).await;
    assert_eq!(served_by(&replies), ["node-0@0", "node-0@1"].into());
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_port_with_more_engines_than_its_class_says_is_told_of() {
    let plan = Plan::default();
    // All behind one port, and a class that has a port for each.
    let server = server(&plan, 2, 2).await;
    let url = format!("http://{}", server.address);
    let class = json!({"name": CLASS, "data_parallel_size": 2, "data_parallel_multi_port": true});
    let pods = json!({"pods": [{"name": "s", "url": url}]});
    let mut stage = in_front(plan, class, pods).start().await;
    stage.pods.push(server);
    phase(&stage, "s@0", "ready").await;
    let replies = stage.at_once(6, &Call::chat(5)).await;
    assert_eq!(served_by(&replies), ["s@0"].into());
    phase(&stage, "s@1", "broken").await;
    stage.weir.program.logs("a port tells of several engines").await;
    stage.assert_settled().await;
}
