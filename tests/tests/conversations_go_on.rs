//! A pod keeps what it generated, and the next turn of a conversation has it in its prompt: Weir believes the answer cached where it
//! was given, as far as the pod finds it there.

use serde_json::{Value, json};
use weir_tests::{Call, MODEL, Plan, Stage};

const TURNS: usize = 4;

/// Tokens of a question.
const QUESTION: usize = 500;

/// Tokens of an answer.
const ANSWER: u32 = 600;

fn user(turn: usize) -> Value {
    let text: String = format!("{turn} is the turn. ").chars().cycle().take(4 * QUESTION).collect();
    json!({"role": "user", "content": text})
}

fn call(messages: &[Value]) -> Call {
    let body = json!({"model": MODEL, "messages": messages, "max_tokens": ANSWER}).to_string();
    Call::post("/v1/chat/completions", body)
        .header("x-sim-output-tokens", &ANSWER.to_string())
        .objective("batch")
}

/// A conversation, in which every answer is sent back as `said` has it.
async fn talk(stage: &Stage, said: impl Fn(&Value) -> Value) {
    let mut messages = Vec::new();
    for turn in 0..TURNS {
        messages.push(user(turn));
        let reply = stage.call(&call(&messages)).await;
        let json = reply.json();
        messages.extend(json.pointer("/choices/0/message").map(&said));
    }
}

/// Prompt tokens in all, those that Weir believed cached, and those that the pods found.
async fn tokens(stage: &Stage) -> [f64; 3] {
    let weir = stage.weir.metrics().await;
    let [all, believed] = ["weir_pod_prompt_tokens_total", "weir_pod_prompt_tokens_cached_total"]
        .map(|series| weir.sum(series, &[]));
    let mut found = 0.0;
    for pod in &stage.pods {
        found += pod.metrics().await.sum("vllm:prefix_cache_hits_total", &[]);
    }
    [all, believed, found]
}

#[tokio::test]
async fn the_answer_that_a_turn_goes_on_from_is_believed_cached_where_it_was_given() {
    let mut stage = Plan::default().pods(2).speed(20.0).start().await;
    talk(&stage, Value::clone).await;
    let [all, believed, found] = tokens(&stage).await;
    // Each turn but the first has everything before its question in the cache of its pod.
    let before: usize = (1..TURNS).map(|turn| turn * (QUESTION + ANSWER as usize)).sum();
    assert!((found / before as f64 - 1.0).abs() < 0.05, "found {found} of {before}");
    assert!((believed / found - 1.0).abs() < 0.05, "believed {believed}, found {found} of {all}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn an_answer_that_comes_back_without_what_was_thought_is_not_believed_cached() {
    let mut stage = Plan::default().pods(1).speed(20.0).start().await;
    let end = |message: &Value| {
        let text = message["content"].as_str().unwrap();
        json!({"role": "assistant", "content": text[..text.len() / 5]})
    };
    talk(&stage, end).await;
    let [all, believed, _] = tokens(&stage).await;
    // Of each turn its prompt alone, with the ends of answers that were in that.
    let turn = QUESTION + ANSWER as usize / 5;
    let before: usize = (0..TURNS - 1).map(|turns| turns * turn + QUESTION).sum();
    assert!(
        (believed / before as f64 - 1.0).abs() < 0.06,
        "believed {believed} of {before}, {all}"
    );
    stage.assert_settled().await;
}
