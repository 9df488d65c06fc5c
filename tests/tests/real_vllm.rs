//! What Weir says of vLLM holds for a real one: its answers pass as they are, its metrics are understood, and it does what it is asked to.
//!
//! `make vllm` installs one and runs these; without it each says that it is skipped.
#![expect(clippy::indexing_slicing, reason = "a scenario says what broke by panicking")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use weir_tests::{
    Call, Load, MODEL, Plan, Reply, eventually, served_by,
    vllm::{self, ADAPTERS, chat, chat_of, says, words},
};

/// Without what is another in each answer.
fn lasting(mut answer: Value) -> Value {
    match &mut answer {
        Value::Object(fields) => {
            let passing =
                ["id", "created", "created_at", "completed_at", "item_id", "sequence_number"];
            fields.retain(|name, _| !passing.contains(&name.as_str()));
            fields.values_mut().for_each(|value| *value = lasting(value.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = lasting(value.take())),
        _ => {}
    }
    answer
}

/// What an answer says: all of a body, or of a stream its text and the event before its end, for tokens that come at once may share one.
fn said(reply: &Reply) -> Vec<Value> {
    let text = String::from_utf8_lossy(&reply.body);
    if !reply.header("content-type").starts_with("text/event-stream") {
        return vec![lasting(serde_json::from_str(&text).unwrap_or_else(|_| json!(text)))];
    }
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> =
        events.filter_map(|line| serde_json::from_str(line).ok()).map(lasting).collect();
    let word = |event: &Value| {
        let choice = &event["choices"][0];
        let delta = &event["delta"];
        let words = [&choice["delta"]["content"], &choice["text"], &delta["text"], delta];
        words.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
    };
    let words: String = events.iter().map(word).collect();
    assert!(!words.is_empty(), "{text}");
    let last = events.last().cloned().unwrap_or_default();
    vec![json!(words), json!(text.ends_with("data: [DONE]\n\n")), last]
}

#[tokio::test]
async fn answers_pass_as_they_are() {
    let Some(installed) = vllm::installed() else { return };
    let (servers, mut stage) = vllm::raise(&installed, &[&[]], Plan::default()).await;
    let prompt = words(12, 0);
    let fixed = json!({"model": MODEL, "temperature": 0, "max_tokens": 9});
    let with = |more: Value| {
        let mut body = fixed.clone();
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        body
    };
    let usage = json!({"include_usage": true, "continuous_usage_stats": true});
    let asked = [
        (200, "/v1/chat/completions", with(json!({"messages": says(&prompt)}))),
        (
            200,
            "/v1/chat/completions",
            with(
                json!({"messages": says(&prompt), "n": 2, "temperature": 1, "seed": 7, "logprobs": true, "top_logprobs": 3}),
            ),
        ),
        (200, "/v1/chat/completions", with(json!({"messages": says(&prompt), "stream": true}))),
        (
            200,
            "/v1/chat/completions",
            with(json!({"messages": says(&prompt), "stream": true, "stream_options": usage})),
        ),
        (200, "/v1/completions", with(json!({"prompt": [prompt, words(5, 1)], "echo": true}))),
        (200, "/v1/completions", with(json!({"prompt": prompt, "stream": true}))),
        (
            200,
            "/v1/responses",
            json!({"model": MODEL, "temperature": 0, "max_output_tokens": 9, "input": prompt}),
        ),
        (
            200,
            "/v1/responses",
            json!({"model": MODEL, "temperature": 0, "max_output_tokens": 9, "input": prompt, "stream": true}),
        ),
        (200, "/v1/messages", with(json!({"messages": says(&prompt)}))),
        (200, "/v1/messages", with(json!({"messages": says(&prompt), "stream": true}))),
        (200, "/v1/messages/count_tokens", json!({"model": MODEL, "messages": says(&prompt)})),
        (200, "/tokenize", json!({"model": MODEL, "prompt": prompt})),
        (200, "/detokenize", json!({"model": MODEL, "tokens": [300, 301]})),
        (403, "/v1/chat/completions/render", with(json!({"messages": says(&prompt)}))),
        (400, "/v1/chat/completions", with(json!({"messages": says(&words(5000, 2))}))),
        (400, "/v1/chat/completions", with(json!({"messages": says(&prompt), "temperature": -1}))),
        (400, "/v1/completions", with(json!({"prompt": prompt, "max_tokens": 9999}))),
        (404, "/v1/embeddings", json!({"model": MODEL, "input": prompt})),
    ];
    for (status, path, body) in &asked {
        let call = Call::post(path, body.to_string());
        let [direct, through] = [servers[0].address, stage.weir.api].map(|to| call.to(to));
        let (direct, through) = (direct.await, through.await);
        assert_eq!((through.status, through.broken), (*status, false), "{path} {through:?}");
        assert_eq!(direct.status, *status, "{path} {direct:?}");
        let kinds = [&direct, &through].map(|reply| reply.header("content-type").to_owned());
        assert_eq!(kinds[0], kinds[1], "{path}");
        assert_eq!(said(&through), said(&direct), "{path} {body}");
    }
    let models = Call::get("/v1/models").to(stage.weir.api).await.json();
    assert_eq!(models["data"][0]["id"], MODEL, "{models}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn its_metrics_tell_how_much_it_caches_and_what_it_finds_again() {
    let Some(installed) = vllm::installed() else { return };
    let (servers, mut stage) = vllm::raise(&installed, &[&[]], Plan::default()).await;
    let direct = servers[0].metrics().await;
    let info = direct.0.lines().find(|line| line.starts_with("vllm:cache_config_info")).unwrap();
    let label = |name: &str| {
        let (_, rest) = info.split_once(&format!(",{name}=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let capacity: f64 = label("kv_cache_size_tokens").parse().unwrap();
    let metrics = stage.weir.metrics().await;
    assert_eq!(metrics.sum("weir_pod_kv_capacity_tokens", &[]), capacity, "{info}");
    assert_eq!(metrics.sum("weir_pod_scrapes_total", &[("result", "garbled")]), 0.0);

    // Conversations whose turns repeat what was said before.
    let mut said: Vec<Vec<Value>> = vec![Vec::new(); 4];
    for turn in 0..4 {
        for (number, messages) in said.iter_mut().enumerate() {
            let text = words(300, 10 * number + turn);
            messages.push(json!({"role": "user", "content": text}));
            let fields = json!({"messages": messages, "temperature": 0, "ignore_eos": true, "stream": false});
            let reply = stage.call(&Call::chat_with(40, &fields)).await;
            reply.assert_whole();
            messages.push(reply.json()["choices"][0]["message"].clone());
        }
    }
    let found = servers[0].metrics().await.sum("vllm:prefix_cache_hits_total", &[]);
    let believed = stage.weir.metrics().await.sum("weir_pod_prompt_tokens_cached_total", &[]);
    let all = servers[0].metrics().await.sum("vllm:prefix_cache_queries_total", &[]);
    println!("of {all} tokens of prompts {believed} were believed cached, {found} were found");
    assert!(found > 0.4 * all, "the engine caches: {found} of {all}");
    assert!((believed - found).abs() < 0.1 * all, "{believed} {found} of {all}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_client_who_leaves_frees_its_engine() {
    let Some(installed) = vllm::installed() else { return };
    let (servers, mut stage) = vllm::raise(&installed, &[&[]], Plan::default()).await;
    let mut live = chat(&words(20, 0), 3000).open(stage.weir.api).await;
    live.first_token().await;
    drop(live);
    // One that is not streamed has nobody who reads, until it is over.
    let waits = tokio::spawn({
        let (call, api) = (Call::plain(3000), stage.weir.api);
        async move { call.to(api).await }
    });
    eventually("both have reached it", async || {
        let open = stage.weir.open_requests().await;
        if open.in_flight == 1 { Ok(()) } else { Err(open) }
    })
    .await;
    waits.abort();
    eventually("nothing runs in the engine", async || {
        let told = servers[0].told(&["vllm:num_requests_running"]).await;
        let runs = told.sum("vllm:num_requests_running", &[]);
        if runs == 0.0 { Ok(()) } else { Err(runs) }
    })
    .await;
    let generated = servers[0].metrics().await.sum("vllm:generation_tokens_total", &[]);
    assert!(generated < 3000.0, "{generated} of 6000 tokens");
    stage.assert_settled().await;
}

/// Whether a stream is an adapter's answer.
fn reply_of(reply: &Reply, adapter: &str) -> bool {
    String::from_utf8_lossy(&reply.body).contains(&format!("\"model\":\"{adapter}\""))
}

#[tokio::test]
async fn adapters_take_turns_and_nobody_waits_for_another_inside_an_engine() {
    let Some(installed) = vllm::installed() else { return };
    let arguments = vllm::with_adapters(&installed, 1);
    let plan = Plan::default().pool(json!({"adapters": ADAPTERS}));
    let (servers, mut stage) = vllm::raise(&installed, &[&arguments, &arguments], plan).await;
    // Each tells of its slots from its first request for an adapter on.
    while !stage.weir.snapshot().await["pods"]
        .as_array()
        .unwrap()
        .iter()
        .all(|pod| pod["max_loras"] == 1)
    {
        let two = ADAPTERS.iter().take(2).map(|name| chat_of(name, "what", 60));
        join_all(two.map(|call| async move { call.to(stage.weir.api).await.assert_whole() })).await;
    }
    let (over, deferred) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let watch = {
        let (over, deferred) = (Arc::clone(&over), Arc::clone(&deferred));
        async move {
            while !over.load(Relaxed) {
                for server in &servers {
                    let told = server.told(&["vllm:num_requests_waiting_by_reason"]).await;
                    let now =
                        told.sum("vllm:num_requests_waiting_by_reason", &[("reason", "deferred")]);
                    deferred.fetch_max(now as usize, Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            servers
        }
    };
    let watch = tokio::spawn(watch);
    let mut load = Load::start(stage.weir.api, 9, |client, turn| {
        chat_of(ADAPTERS[client % 3], &words(20, 100 * client + turn), 40)
    });
    load.answers(60).await;
    let replies = load.stop().await;
    over.store(true, Relaxed);
    let servers = watch.await.unwrap();
    let mut by_adapter = BTreeMap::<&str, usize>::new();
    for reply in &replies {
        reply.assert_whole();
        let model = ADAPTERS.iter().find(|name| reply_of(reply, name)).unwrap();
        *by_adapter.entry(*model).or_default() += 1;
    }
    println!("answers by adapter: {by_adapter:?}");
    assert_eq!(deferred.load(Relaxed), 0, "requests that waited for another adapter in an engine");
    assert_eq!(by_adapter.len(), 3);
    assert_eq!(served_by(&replies).len(), servers.len());
    assert!(
        stage.weir.metrics().await.sum("weir_events_total", &[("event", "adapter_turns")]) > 0.0
    );
    stage.assert_settled().await;
}

#[tokio::test]
async fn engines_behind_one_port_serve_what_they_are_sent() {
    let Some(installed) = vllm::installed() else { return };
    let two = ["--data-parallel-size", "2"].map(str::to_owned);
    let plan = Plan::default()
        .config(json!({"classes": [{"name": "h100-qwen3-32b-tp2", "data_parallel_size": 2}]}));
    let (servers, mut stage) = vllm::raise(&installed, &[&two], plan).await;
    let call = Call::chat_with(20, &json!({"ignore_eos": true}));
    let replies = stage.at_once(12, &call).await;
    let sent = ["pod-0@0", "pod-0@1"].map(|name| {
        replies.iter().filter(|reply| reply.header("x-weir-pod") == name).count() as f64
    });
    assert!(sent[0] > 0.0 && sent[1] > 0.0, "{sent:?}");
    let told = servers[0].metrics().await;
    let served = ["0", "1"].map(|engine| {
        told.sum("vllm:request_success_total", &[("engine", engine), ("finished_reason", "length")])
    });
    assert_eq!(served, sent, "it serves where Weir said");
    let capacity = told.sum("vllm:kv_cache_usage_perc", &[]);
    assert_eq!(capacity, 0.0, "nothing is left in its caches");
    stage.assert_settled().await;
}

#[tokio::test]
async fn an_engine_whose_queue_is_bounded_loses_nothing() {
    let Some(installed) = vllm::installed() else { return };
    let arguments = ["--max-num-queued-reqs", "4"].map(str::to_owned);
    let (servers, mut stage) = vllm::raise(&installed, &[&arguments], Plan::default()).await;
    stage.at_once(24, &Call::chat_with(20, &json!({"ignore_eos": true}))).await;
    let told = servers[0].metrics().await;
    let rejected = told.sum("vllm:admission_rejections_total", &[]);
    let turned_away =
        stage.weir.metrics().await.sum("weir_events_total", &[("event", "turned_away")]);
    println!("{rejected} times it said that it takes no more");
    assert!(rejected > 0.0 && rejected == turned_away, "{rejected} {turned_away}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn engines_that_schedule_by_priority_take_that_of_weir() {
    let Some(installed) = vllm::installed() else { return };
    let arguments = ["--scheduling-policy", "priority"].map(str::to_owned);
    let plan = Plan::default().config(json!({"upstream": {"inject_priority": true}}));
    let (_servers, mut stage) = vllm::raise(&installed, &[&arguments], plan).await;
    for _ in 0..3 {
        stage.assert_serves().await;
    }
    stage.assert_settled().await;
}
