//! Several ports of one engine, with some of its ranks behind each: who is served where, and what each port tells.

use std::net::{Ipv4Addr, TcpListener};

use super::{
    ranks::{post_to, series},
    *,
};

const RUNNING: &str = "vllm:num_requests_running";

/// Pods of so many ranks, so many behind each port.
fn plan(count: u16, ranks: u16, each: u16) -> PodPlan {
    let mut engine = EngineConfig::for_hardware(hardware("h100-llama-3.1-8b-tp1").unwrap());
    engine.ranks = ranks;
    let (port, ranks_per_port, model) = (0, Some(each), "m".to_owned());
    PodPlan {
        adapters: Vec::new(),
        count,
        port,
        ranks_per_port,
        model,
        engine,
        speed: SPEED,
        max_model_len: 4096,
    }
}

/// One pod of four ranks behind two ports, and a connection to each.
async fn two_of_two() -> (PodThread, [Client; 2]) {
    let pods = PodThread::start(plan(1, 4, 2)).unwrap();
    let clients = each(&pods).await.try_into().ok().unwrap();
    (pods, clients)
}

async fn each(pods: &PodThread) -> Vec<Client> {
    let mut clients = Vec::new();
    for address in pods.addresses() {
        clients.push(Client::open(*address).await);
    }
    clients
}

fn of(name: &str, rank: u16) -> String {
    format!("{name}{{engine=\"{rank}\",")
}

/// The ranks that a port's metrics tell of, and the blocks that each says there are.
async fn told(client: &mut Client) -> Vec<(String, String)> {
    let after = |series: &str, label: &str| {
        series.split_once(label).map(|(_, rest)| rest.split('"').next().unwrap().to_owned())
    };
    let series = series(client).await;
    let mut engines: Vec<_> = series.iter().filter_map(|one| after(one, "engine=\"")).collect();
    engines.sort();
    engines.dedup();
    let infos = series.iter().filter(|one| one.starts_with("vllm:cache_config_info"));
    let told: Vec<_> = infos
        .map(|info| (after(info, "engine=\"").unwrap(), after(info, "num_gpu_blocks=\"").unwrap()))
        .collect();
    assert!(engines.iter().eq(told.iter().map(|(engine, _)| engine)), "{engines:?} {told:?}");
    told
}

fn ranks(told: &[(&str, &str)]) -> Vec<(String, String)> {
    told.iter().map(|(rank, blocks)| ((*rank).to_owned(), (*blocks).to_owned())).collect()
}

#[tokio::test]
async fn the_header_counts_the_ranks_behind_its_port_and_metrics_those_of_all() {
    let (_pods, [mut first, mut second]) = two_of_two().await;
    text(post_to(&mut second, "1", CHAT, &streamed()).await).await;
    let generated = "vllm:generation_tokens_total";
    assert_eq!(second.metric(&of(generated, 3)).await, 5.0);
    assert_eq!(second.metric(&of(generated, 2)).await, 0.0);
    assert_eq!(first.metric(&of(generated, 1)).await, 0.0);
    assert_eq!(told(&mut first).await, ranks(&[("0", "54400"), ("1", "54400")]));
    assert_eq!(told(&mut second).await, ranks(&[("2", "54400"), ("3", "54400")]));
    for client in [&mut first, &mut second] {
        for none in ["2", "-1"] {
            let refused = post_to(client, none, CHAT, &streamed()).await;
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{none}");
            let message = parsed(refused).await["error"]["message"].take();
            assert!(message.as_str().unwrap().contains("there are 2"), "{message}");
        }
    }
}

#[tokio::test]
async fn without_a_header_a_port_gives_to_its_own_ranks_alone() {
    let (pods, [mut first, mut second]) = two_of_two().await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = Client::open(pods.addresses()[1]).await;
        client.output_tokens = 3000;
        open.push((client.post(CHAT, &streamed()).await, client));
    }
    let both = async {
        while second.metric(&of(RUNNING, 2)).await != 1.0 {}
        while second.metric(&of(RUNNING, 3)).await != 1.0 {}
    };
    tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    for rank in [0, 1] {
        assert_eq!(first.metric(&of(RUNNING, rank)).await, 0.0);
    }
}

#[tokio::test]
async fn what_is_of_the_engine_is_the_same_at_each_of_its_ports() {
    let (pods, [mut first, mut second]) = two_of_two().await;
    text(post_to(&mut second, "0", CHAT, &streamed()).await).await;
    assert_eq!(first.metric("sim:starts_total").await, 1.0);
    assert_eq!(first.get("/sim/starts").await, second.get("/sim/starts").await);
    let began = "process_start_time_seconds";
    assert_eq!(first.metric(began).await, second.metric(began).await);

    first.fault(&json!({"kind": "stale_metrics"})).await;
    let before = second.get("/metrics").await;
    text(post_to(&mut second, "0", CHAT, &streamed()).await).await;
    assert_eq!(second.get("/metrics").await, before);
    assert_eq!(told(&mut second).await, ranks(&[("2", "54400"), ("3", "54400")]));

    first.fault(&json!({"kind": "refuse"})).await;
    for address in pods.addresses() {
        while TcpStream::connect(address).await.is_ok() {}
    }
    first.fault(&json!({"kind": "none"})).await;
    for address in pods.addresses() {
        while TcpStream::connect(address).await.is_err() {}
    }
}

/// Pods from a port on that the system says is free; tried again where one after it is taken.
fn on_ports_of_its_own(mut plan: PodPlan) -> PodThread {
    let started = (0..100).find_map(|_| {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        plan.port = free.local_addr().unwrap().port();
        drop(free);
        PodThread::start(plan.clone()).ok()
    });
    started.unwrap()
}

#[tokio::test]
async fn a_rank_for_each_port_is_told_of_there_alone() {
    let pods = on_ports_of_its_own(plan(2, 2, 1));
    let ports: Vec<u16> = pods.addresses().iter().map(SocketAddr::port).collect();
    let first = ports[0];
    assert_eq!(ports, [first, first + 1, first + 2, first + 3]);
    for (place, mut client) in each(&pods).await.into_iter().enumerate() {
        let rank = place % 2;
        assert_eq!(told(&mut client).await, ranks(&[(&rank.to_string(), "27200")]));
        let served = post_to(&mut client, "0", CHAT, &streamed()).await;
        assert_eq!(served.status(), StatusCode::OK);
        text(served).await;
        let refused = post_to(&mut client, "1", CHAT, &streamed()).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        // One so far for each port of this pod.
        assert_eq!(client.metric("sim:starts_total").await, 1.0 + rank as f64);
    }
}

#[test]
fn ports_that_cannot_have_as_many_ranks_are_refused() {
    for each in [0, 3, 8] {
        let error = PodThread::start(plan(1, 4, each)).unwrap_err();
        assert!(format!("{error:#}").contains("4 ranks"), "{error:#}");
    }
}
