//! Several ranks behind one port: who is served where, and what each counts.

use super::*;

const WAITING: &str = "vllm:num_requests_waiting";
const RUNNING: &str = "vllm:num_requests_running";
const REJECTED: &str = "vllm:admission_rejections_total";

fn of_ranks(ranks: u16) -> PodThread {
    with_engine(1, SPEED, |engine| engine.ranks = ranks)
}

/// A pod of two ranks where nothing gets on: whoever comes waits.
async fn standing() -> (PodThread, Client) {
    let pods = of_ranks(2);
    let mut client = Client::to(&pods).await;
    client.fault(&json!({"kind": "slow", "factor": 1e9})).await;
    (pods, client)
}

pub(super) async fn post_to(
    client: &mut Client,
    rank: &str,
    path: &str,
    body: &Value,
) -> Response<Incoming> {
    let request = Request::post(path)
        .header(header::HOST, "pod")
        .header("x-sim-output-tokens", client.output_tokens)
        .header("X-data-parallel-rank", rank)
        .body(Full::new(body.to_string().into()))
        .unwrap();
    client.sender.ready().await.unwrap();
    client.sender.send_request(request).await.unwrap()
}

/// A stream of 3,000 tokens that has begun; it lasts until it is dropped.
async fn begun(pods: &PodThread, rank: Option<&str>, more: Value) -> (Client, Response<Incoming>) {
    let mut client = Client::to(pods).await;
    client.output_tokens = 3000;
    let mut body = streamed();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let response = match rank {
        Some(rank) => post_to(&mut client, rank, CHAT, &body).await,
        None => client.post(CHAT, &body).await,
    };
    assert_eq!(response.status(), StatusCode::OK);
    (client, response)
}

/// What each of two ranks says of itself.
async fn each(client: &mut Client, name: &str) -> [f64; 2] {
    let of = |rank: u16| format!("{name}{{engine=\"{rank}\",");
    [client.metric(&of(0)).await, client.metric(&of(1)).await]
}

/// Returns once each of two ranks says so.
async fn until(client: &mut Client, name: &str, wanted: [f64; 2]) {
    let seen = async { while each(client, name).await != wanted {} };
    tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap();
}

/// Every series, by name and labels.
pub(super) async fn series(client: &mut Client) -> Vec<String> {
    let text = client.get("/metrics").await;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

#[tokio::test]
async fn the_header_says_which_rank_serves_and_that_one_counts() {
    let pods = of_ranks(2);
    let mut client = Client::to(&pods).await;
    for rank in ["1", "1", "+1", "001", "0"] {
        text(post_to(&mut client, rank, CHAT, &streamed()).await).await;
    }
    assert_eq!(each(&mut client, "vllm:prompt_tokens_total").await, [108.0, 4.0 * 108.0]);
    assert_eq!(each(&mut client, "vllm:generation_tokens_total").await, [5.0, 20.0]);
    let hits = each(&mut client, "vllm:prefix_cache_hits_total").await;
    assert_eq!(hits, [0.0, 3.0 * 96.0], "each rank has its own prefix cache");
    for (name, per_request) in [
        ("time_to_first_token_seconds", 1.0),
        ("inter_token_latency_seconds", 4.0),
        ("e2e_request_latency_seconds", 1.0),
        ("request_queue_time_seconds", 1.0),
    ] {
        let counted = each(&mut client, &format!("vllm:{name}_count")).await;
        assert_eq!(counted, [per_request, 4.0 * per_request], "{name}");
    }
    assert_eq!(client.metric("sim:starts_total").await, 5.0);
}

#[tokio::test]
async fn a_rank_that_there_is_not_is_refused() {
    let (two, one) = (of_ranks(2), pods(1));
    for (pods, ranks) in [
        (&two, &["2", "-1", "99999", "99999999999999999999", "-99999999999999999999"][..]),
        (&one, &["1"]),
    ] {
        let mut client = Client::to(pods).await;
        for rank in ranks {
            let refused = post_to(&mut client, rank, CHAT, &streamed()).await;
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{rank}");
            let error = parsed(refused).await["error"].take();
            assert_eq!((&error["code"], &error["type"]), (&json!(400), &json!("BadRequestError")));
            assert!(error["message"].as_str().unwrap().contains("out of range"), "{error}");
        }
        assert_eq!(client.metric("sim:starts_total").await, 0.0);
        assert_eq!(client.metric(&format!("{REJECTED}{{engine=\"0\"")).await, 0.0);
        assert_eq!(client.metric(WAITING).await, 0.0);
    }
    let message = ask(json!({"max_tokens": 2}));
    let refused = post_to(&mut Client::to(&two).await, "2", "/v1/messages", &message).await;
    assert_eq!(parsed(refused).await["type"], "error", "in the shape of its endpoint");
}

#[tokio::test]
async fn what_is_no_integer_is_ignored() {
    let (pods, mut client) = standing().await;
    let mut open = Vec::new();
    for (no_integer, waiting) in [
        ("one", [1.0, 0.0]),
        ("1.0", [1.0, 1.0]),
        ("", [2.0, 1.0]),
        ("0x1", [2.0, 2.0]),
        ("0,1", [3.0, 2.0]),
    ] {
        open.push(begun(&pods, Some(no_integer), json!({})).await);
        assert_eq!(each(&mut client, WAITING).await, waiting, "{no_integer:?}");
    }
}

#[tokio::test]
async fn without_a_header_two_long_requests_go_to_two_ranks() {
    let pods = of_ranks(2);
    let mut client = Client::to(&pods).await;
    let open = [begun(&pods, None, json!({})).await, begun(&pods, None, json!({})).await];
    until(&mut client, RUNNING, [1.0, 1.0]).await;
    drop(open);
    until(&mut client, RUNNING, [0.0, 0.0]).await;
    let text = client.get("/metrics").await;
    for rank in [0, 1] {
        let labels = format!("engine=\"{rank}\",finished_reason=\"abort\",model_name=\"m\"");
        assert!(text.contains(&format!("vllm:request_success_total{{{labels}}} 1\n")), "{text}");
    }
}

#[tokio::test]
async fn who_waits_weighs_four_times_what_runs() {
    let pods = with_engine(1, 1.0, |engine| engine.ranks = 2);
    let mut client = Client::to(&pods).await;
    let mut open = vec![begun(&pods, Some("1"), json!({"n": 3})).await];
    until(&mut client, RUNNING, [0.0, 3.0]).await;
    client.fault(&json!({"kind": "slow", "factor": 1e9})).await;
    open.push(begun(&pods, Some("0"), json!({})).await);
    for waiting in [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0]] {
        open.push(begun(&pods, None, json!({})).await);
        assert_eq!(each(&mut client, WAITING).await, waiting);
    }
}

#[tokio::test]
async fn all_of_a_request_is_where_the_header_says_and_else_each_is_placed_by_itself() {
    let (pods, mut client) = standing().await;
    let _named = begun(&pods, Some("1"), json!({"n": 3})).await;
    assert_eq!(each(&mut client, WAITING).await, [0.0, 3.0]);
    let _placed = begun(&pods, None, json!({"n": 4})).await;
    assert_eq!(each(&mut client, WAITING).await, [4.0, 3.0]);
    let prompts = json!({"model": "m", "prompt": ["abcd", "efgh"], "stream": true});
    let mut other = Client::to(&pods).await;
    let _prompts = other.post("/v1/completions", &prompts).await;
    assert_eq!(each(&mut client, WAITING).await, [5.0, 4.0]);
    let mut another = Client::to(&pods).await;
    let _named_prompts = post_to(&mut another, "1", "/v1/completions", &prompts).await;
    assert_eq!(each(&mut client, WAITING).await, [5.0, 6.0]);
}

#[tokio::test]
async fn what_a_rank_rejects_it_counts() {
    let pods = with_engine(1, SPEED, |engine| {
        engine.ranks = 2;
        engine.num_blocks = 10;
    });
    let mut client = Client::to(&pods).await;
    client.output_tokens = 100;
    let refused = post_to(&mut client, "1", CHAT, &streamed()).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "208 tokens do not fit into 144");
    assert_eq!(each(&mut client, REJECTED).await, [0.0, 1.0]);
}

#[tokio::test]
async fn what_vllm_has_per_engine_has_a_line_for_each_rank_and_the_blocks_are_those_of_all() {
    let (three, one) = (of_ranks(3), pods(1));
    let (of_three, of_one) =
        (series(&mut Client::to(&three).await).await, series(&mut Client::to(&one).await).await);
    let mut expected = Vec::new();
    for series in of_one {
        if !series.contains("engine=") {
            assert!(series.starts_with("sim:") || series == "process_start_time_seconds");
            expected.push(series);
            continue;
        }
        let all = series.replace("num_gpu_blocks=\"27200\"", "num_gpu_blocks=\"81600\"");
        assert!(all.contains("engine=\"0\""), "a single rank is the first: {all}");
        expected
            .extend((0..3).map(|rank| all.replace("engine=\"0\"", &format!("engine=\"{rank}\""))));
    }
    let sorted = |mut series: Vec<String>| {
        series.sort();
        series
    };
    assert_eq!(sorted(of_three.clone()), sorted(expected));
    let info = "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",engine=\"2\",kv_cache_size_tokens=\"435200\",model_name=\"m\",num_gpu_blocks=\"81600\"}";
    assert!(of_three.iter().any(|series| series == info));
}

#[tokio::test]
async fn a_rank_keeps_what_it_computed_for_another_pod_until_that_has_read_it() {
    let pods = with_engine(2, SPEED, |engine| engine.ranks = 2);
    let (mut prefill, mut decode) =
        (Client::to(&pods).await, Client::open(pods.addresses()[1]).await);
    let keep = json!({"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": true}});
    let kv = "vllm:kv_cache_usage_perc";
    let mut kept = Vec::new();
    for rank in ["1", "0"] {
        let whole = parsed(post_to(&mut prefill, rank, CHAT, &ask(keep.clone())).await).await;
        kept.push(whole["kv_transfer_params"].clone());
    }
    let held = each(&mut prefill, kv).await;
    assert!(held[0] > 0.0 && held[0] == held[1], "{held:?}");

    let load = ask(json!({"kv_transfer_params": kept[0]}));
    let whole = parsed(post_to(&mut decode, "0", CHAT, &load).await).await;
    assert_eq!(whole["usage"]["completion_tokens"], 5);
    until(&mut prefill, kv, [held[0], 0.0]).await;
    let other = json!({"remote_request_id": kept[1]["remote_request_id"]});
    let released = parsed(prefill.post("/kv_release", &other).await).await;
    assert_eq!(released, json!({"released": true}));
    assert_eq!(each(&mut prefill, kv).await, [0.0, 0.0]);
}
