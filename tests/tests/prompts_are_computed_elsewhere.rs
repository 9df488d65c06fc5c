//! Pods that prefill compute prompts, and pods that answer load them: every request is answered, by whichever of them are there, and
//! none of them keeps anything.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use serde_json::{Value, json};
use weir_tests::{Call, MODEL, Plan, Pod, Stage, eventually};

/// The pool that prefills: nobody asks for it.
const PROMPTS: &str = "prompts";
/// Words of a prompt, a token each and some.
const LONG: usize = 4000;

/// Pods that prefill, and a dispatcher with pods that answer.
struct Split {
    prefill: Vec<Pod>,
    stage: Stage,
}

impl Split {
    /// So many of each.
    async fn raise(prefill: usize, answer: usize, more: Value) -> Self {
        let mut plan = Plan::default();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for number in 0..prefill + answer {
            let log = plan.path(&format!("pod-{number}.log"));
            let pod = Pod::start(&log, &["--speed".to_owned(), "10".to_owned()]).await;
            if number < prefill { first.push(pod) } else { second.push(pod) }
        }
        let pods = |of: &[Pod], name: &str| {
            let pod = |(number, pod): (usize, &Pod)| json!({"name": format!("{name}-{number}"), "url": format!("http://{}", pod.address)});
            of.iter().enumerate().map(pod).collect::<Vec<_>>()
        };
        let mut by = json!({"pool": PROMPTS});
        more.as_object().unwrap().iter().for_each(|(key, value)| by[key] = value.clone());
        let pools = json!([
            {"model": MODEL, "prefill": by, "pods": pods(&second, "answers")},
            {"model": PROMPTS, "pods": pods(&first, "prefills")},
        ]);
        plan = plan.upstream(second[0].address).config(json!({"pools": pools}));
        let mut stage = plan.raise().await;
        stage.pods = second;
        eventually("every pod is ready", async || {
            let overview = stage.weir.overview().await;
            let pools = overview["pools"].as_array().unwrap().iter();
            let mut pods = pools.flat_map(|pool| pool["snapshot"]["pods"].as_array().unwrap());
            if pods.all(|pod| pod["phase"] == "ready") { Ok(()) } else { Err(overview) }
        })
        .await;
        Self { prefill: first, stage }
    }

    /// Tokens of prompts that the pods that prefill have had.
    async fn prompt_tokens(&self) -> f64 {
        let mut tokens = 0.0;
        for pod in &self.prefill {
            tokens += pod.metrics().await.sum("vllm:prompt_tokens_total", &[]);
        }
        tokens
    }

    /// By where prompts were computed, as Weir counts it.
    async fn prefills(&self, by: &str) -> f64 {
        self.stage.weir.metrics().await.sum("weir_prefills_total", &[("outcome", by)])
    }

    /// Nothing waits or runs in either pool.
    async fn assert_idle(&mut self) {
        eventually("both pools are idle", async || {
            let overview = self.stage.weir.overview().await;
            let pools = overview["pools"].as_array().unwrap();
            let is_idle = |pool: &Value| {
                let seen = &pool["snapshot"];
                let pods = seen["pods"].as_array().unwrap();
                let free = |pod: &Value| pod["residents"] == 0 && pod["pending"] == 0;
                seen["waiting"] == 0 && seen["in_flight"] == 0 && pods.iter().all(free)
            };
            if pools.iter().all(is_idle) { Ok(()) } else { Err(overview) }
        })
        .await;
    }

    /// The same, and no pod that is there keeps anything.
    async fn assert_settled(&mut self) {
        self.assert_idle().await;
        for pod in self.prefill.iter_mut().chain(&mut self.stage.pods) {
            if pod.is_up() {
                eventually("no pod keeps a prompt", async || {
                    let kept = pod.metrics().await.sum("vllm:kv_cache_usage_perc", &[]);
                    if kept == 0.0 { Ok(()) } else { Err(kept) }
                })
                .await;
            }
        }
    }
}

#[tokio::test]
async fn one_pod_computes_the_prompt_and_another_one_answers() {
    let mut split = Split::raise(1, 2, json!({})).await;
    for turn in 0..6 {
        let reply = split.stage.call(&Call::long_chat(LONG, 30, &turn.to_string())).await;
        reply.assert_whole();
        assert_eq!(reply.header("x-weir-prefill-pod"), "prefills-0");
        assert!(reply.header("x-weir-pod").starts_with("answers-"));
    }
    let plain = json!({"model": MODEL, "prompt": "word ".repeat(LONG), "max_tokens": 7});
    let plain = Call::post("/v1/completions", plain.to_string()).header("x-sim-output-tokens", "7");
    let reply = split.stage.call(&plain).await;
    assert_eq!((reply.status, reply.header("x-weir-prefill-pod")), (200, "prefills-0"));
    assert_eq!(reply.json()["usage"]["completion_tokens"], 7);
    split.assert_settled().await;

    assert_eq!([split.prefills("prefill").await, split.prefills("local").await], [7.0, 0.0]);
    let tokens = split.prompt_tokens().await;
    assert!(tokens > 7.0 * LONG as f64, "{tokens}");
    let metrics = split.stage.weir.metrics().await;
    let ok = |model| metrics.sum("weir_requests_total", &[("model", model), ("outcome", "ok")]);
    assert_eq!([MODEL, PROMPTS].map(ok), [7.0, 7.0]);
    // Nobody is told of the pool that prefills, nor served by it.
    let list = split.stage.call(&Call::get("/v1/models")).await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    let body = json!({"model": PROMPTS, "messages": []}).to_string();
    split
        .stage
        .call(&Call::post("/v1/chat/completions", body))
        .await
        .assert_error(404, "model_not_found");
}

#[tokio::test]
async fn a_short_prompt_and_the_next_turn_of_a_conversation_are_computed_where_they_are_answered() {
    let mut split = Split::raise(1, 1, json!({})).await;
    split.stage.call(&Call::chat(5)).await.assert_whole();
    let prompt = "word ".repeat(LONG);
    for more in ["", "and more"] {
        let text = format!("{prompt}{more}");
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"model": MODEL, "messages": messages, "max_tokens": 5});
        let reply = split.stage.call(&Call::post("/v1/chat/completions", body.to_string())).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    split.assert_settled().await;
    assert_eq!([split.prefills("prefill").await, split.prefills("local").await], [1.0, 2.0]);
}

#[tokio::test]
async fn more_prompts_than_one_pod_computes_overflow_to_those_that_answer() {
    let mut split = Split::raise(1, 3, json!({})).await;
    let calls: Vec<Call> =
        (0..40).map(|turn| Call::long_chat(LONG, 20, &format!("crowd {turn}"))).collect();
    let served = calls.iter().map(|call| split.stage.call(call));
    for reply in futures_util::future::join_all(served).await {
        reply.assert_whole();
    }
    split.assert_settled().await;
    let [prefill, local] = [split.prefills("prefill").await, split.prefills("local").await];
    assert!(prefill > 0.0 && local > 0.0 && prefill + local == 40.0, "{prefill} {local}");
}

#[tokio::test]
async fn whichever_pods_are_lost_and_come_back_the_others_serve() {
    let mut split = Split::raise(2, 2, json!({})).await;
    let ask = |name: &str| Call::long_chat(LONG, 10, name);
    // One that prefills hangs with a prompt, and is lost.
    split.prefill[0].hang();
    split.prefill[1].hang();
    let (api, lost) = (split.stage.weir.api, ask("lost"));
    let lost = tokio::spawn(async move { lost.to(api).await });
    eventually("a prompt is with it", async || {
        let overview = split.stage.weir.overview().await;
        let seen = overview["pools"][1]["snapshot"]["in_flight"].clone();
        if seen == 1 { Ok(()) } else { Err(seen) }
    })
    .await;
    split.prefill[0].kill();
    split.prefill[1].kill();
    lost.await.unwrap().assert_error(502, "upstream_lost");
    // Without any, those that answer do everything, once it is seen that nobody is there.
    for turn in 0..4 {
        split.stage.call(&ask(&format!("alone {turn}"))).await.assert_whole();
    }
    split.prefill[0].restart().await;
    eventually("prompts are computed there again", async || {
        let reply = split.stage.call(&ask(&format!("{:?}", std::time::Instant::now()))).await;
        reply.assert_whole();
        if reply.headers.contains_key("x-weir-prefill-pod") { Ok(()) } else { Err(reply.headers) }
    })
    .await;
    // One that answers is lost in the middle of a stream.
    let mut live = Call::long_chat(LONG, 3000, "cut").open(split.stage.weir.api).await;
    live.first_token().await;
    split.stage.pods[0].kill();
    split.stage.pods[1].kill();
    let cut = live.rest().await;
    assert_eq!(cut.error_code().as_deref(), Some("upstream_lost"), "{cut:?}");
    split.stage.pods[0].restart().await;
    eventually("it answers again", async || {
        let reply = split.stage.call(&ask("back")).await;
        if reply.status == 200 { Ok(()) } else { Err(reply.status) }
    })
    .await;
    split.assert_idle().await;
}

#[tokio::test]
async fn clients_that_leave_at_any_time_leave_nothing_behind() {
    let mut split = Split::raise(1, 1, json!({})).await;
    for turn in 0..30_u64 {
        let call = Call::long_chat(LONG, 200, &format!("leaves {turn}"));
        let patience = std::time::Duration::from_millis(3 * turn);
        let _ = tokio::time::timeout(patience, split.stage.call(&call)).await;
    }
    // Who leaves between the two pods leaves a prompt to the time that its engine keeps it.
    split.assert_idle().await;
    split.stage.call(&Call::long_chat(LONG, 5, "stays")).await.assert_whole();
    split.assert_idle().await;
}
