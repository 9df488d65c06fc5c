//! What Weir does between pods works with real ones: a prompt that one computes and another answers, and an answer that goes on elsewhere.
//!
//! `make vllm` installs vLLM and runs these; without it each says that it is skipped.
#![expect(clippy::indexing_slicing, reason = "a scenario says what broke by panicking")]

use std::{path::Path, time::Duration};

use futures_util::future::join_all;
use serde_json::json;
use weir_tests::{
    Call, MODEL, Plan, Reply, Stage, Vllm, eventually,
    vllm::{self, chat, words},
};

/// The pool that prefills: nobody asks for it.
const PROMPTS: &str = "prompts";

/// Arguments for a pod that hands its prompts on, or gets them.
fn with_nixl(role: &str) -> Vec<String> {
    let connector =
        json!({"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": "cpu"});
    vec!["--kv-transfer-config".to_owned(), connector.to_string()]
}

/// A pod that prefills, one that answers, and a dispatcher.
async fn divided(installed: &Path) -> (Vec<Vllm>, Stage) {
    let mut plan = Plan::default();
    let roles = [with_nixl("kv_producer"), with_nixl("kv_consumer")];
    let servers = Vllm::start(installed, &plan.path(""), &[&roles[0], &roles[1]]).await;
    let pod = |number: usize, name: &str| json!([{"name": name, "url": format!("http://{}", servers[number].address)}]);
    let pools = json!([
        {"model": MODEL, "prefill": {"pool": PROMPTS}, "pods": pod(1, "answers")},
        {"model": PROMPTS, "pods": pod(0, "prefills")},
    ]);
    plan = plan.upstream(servers[1].address).config(json!({"pools": pools}));
    let stage = plan.raise().await;
    eventually("the pod that prefills is ready", async || {
        let phase = stage.weir.overview().await["pools"][1]["snapshot"]["pods"][0]["phase"].clone();
        if phase == "ready" { Ok(()) } else { Err(phase) }
    })
    .await;
    (servers, stage)
}

#[tokio::test]
async fn a_prompt_that_another_pod_computed_is_answered_as_if_it_had_been_computed_there() {
    let Some(installed) = vllm::installed() else { return };
    let (servers, mut stage) = divided(&installed).await;
    // The first transfer between two pods makes them known to each other, which takes NIXL a moment.
    stage.call(&chat(&words(400, 99), 2)).await.assert_whole();
    let calls: Vec<Call> =
        (0..6).map(|number| chat(&words(400 + 50 * number, number), 30)).collect();
    let through: Vec<Reply> = {
        let mut replies = Vec::new();
        for call in &calls {
            replies.push(stage.call(call).await);
        }
        replies
    };
    let elsewhere = through.iter().filter(|reply| !reply.header("x-weir-prefill-pod").is_empty());
    println!("{} of {} prompts were computed elsewhere", elsewhere.count(), calls.len());
    let told = servers[1].metrics().await;
    let [got, computed] = ["external_kv_transfer", "local_compute"]
        .map(|source| told.sum("vllm:prompt_tokens_by_source_total", &[("source", source)]));
    println!("the pod that answers got {got} tokens of prompts and computed {computed}");
    for (call, reply) in calls.iter().zip(&through) {
        reply.assert_whole();
        let direct = call.to(servers[0].address).await;
        assert_eq!(reply.text(), direct.text());
        assert!(!reply.text().is_empty());
    }
    let metrics = stage.weir.metrics().await;
    let by = |outcome: &str| metrics.sum("weir_prefills_total", &[("outcome", outcome)]);
    assert!(by("prefill") >= 4.0, "{} {} {}", by("prefill"), by("local"), by("lost"));
    assert_eq!(by("lost"), 0.0, "every pod that prefilled said where the prompt is");
    assert!(got > 2.0 * computed, "{got} {computed}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn without_the_pod_that_prefills_the_other_one_computes_prompts() {
    let Some(installed) = vllm::installed() else { return };
    let (mut servers, stage) = divided(&installed).await;
    servers[0].kill();
    let call = chat(&words(500, 0), 10);
    let replies = join_all((0..3).map(|_| stage.call(&call))).await;
    replies.iter().for_each(Reply::assert_whole);
    assert!(replies.iter().all(|reply| reply.header("x-weir-pod") == "answers"));
}

#[tokio::test]
async fn an_answer_goes_on_at_another_pod_to_the_letter() {
    let Some(installed) = vllm::installed() else { return };
    let plan =
        Plan::default().config(json!({"upstream": {"stall_timeout_s": 5}})).migration_limit(2);
    let (mut servers, mut stage) = vllm::raise(&installed, &[&[], &[]], plan).await;
    for (number, end) in [Vllm::kill, |pod: &mut Vllm| pod.terminate()].into_iter().enumerate() {
        let call = chat(&words(30, number), 2000);
        let unbroken = stage.call(&call).await;
        unbroken.assert_whole();
        let mut live = call.open(stage.weir.api).await;
        live.first_token().await;
        let victim = usize::from(live.headers.get("x-weir-pod").is_some_and(|pod| pod == "pod-1"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        end(&mut servers[victim]);
        let reply = live.rest().await;
        reply.assert_whole();
        assert_eq!(reply.text(), unbroken.text());
        let continued =
            stage.weir.metrics().await.sum("weir_migrations_total", &[("outcome", "continued")]);
        assert_eq!(continued, 1.0 + number as f64);
        servers[victim].restart().await;
        eventually("it is taken back", async || {
            let phase = stage.weir.snapshot().await["pods"][victim]["phase"].clone();
            if phase == "ready" { Ok(()) } else { Err(phase) }
        })
        .await;
    }
    stage.assert_settled().await;
}
