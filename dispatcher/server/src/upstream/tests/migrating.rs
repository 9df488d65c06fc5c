//! Requests that go on at another pod when theirs is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use async_channel::Receiver;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use weir_core::RequestId;

use super::scene::{DONE, END, FakePod, SHORT, STREAM_HEAD, Scene, TOKEN, chunk, read};
use crate::{
    hub::fixture::{Fixture, assert_settled, pod, until},
    upstream::{Call, Fault, Migrates, Prefill, RelayBody, RelayError, Upstream},
};

const ASKED: &str = r#"{"messages":[{"role":"user","content":"q"}],"stream":true,"max_tokens":9}"#;

/// Between what a pod says at once and what it says later.
pub(super) const LATER: &str = "|later|";

/// Three pods of which the first request that comes to any of them gets the first of these answers, and so on. One that is no whole
/// response is broken off, or hangs if three dots say so.
pub(super) async fn pods(answers: &[String]) -> ([FakePod; 3], Receiver<Value>) {
    let (says, heard) = async_channel::bounded(16);
    let (answers, at): (Arc<[String]>, _) = (answers.into(), Arc::new(AtomicUsize::new(0)));
    let pod = || {
        let (says, answers, at) = (says.clone(), answers.clone(), at.clone());
        FakePod::new(move |mut line, _| {
            let (says, answers, at) = (says.clone(), answers.clone(), at.clone());
            async move {
                while let Some(request) = line.hear().await {
                    let (_, body) = request.split_once("\r\n\r\n").unwrap();
                    says.send(serde_json::from_str(body).unwrap()).await.unwrap();
                    let Some(answer) = answers.get(at.fetch_add(1, SeqCst)) else { return };
                    for part in answer.trim_end_matches("...").split(LATER) {
                        line.say(part).await;
                        tokio::time::sleep(SHORT / 6).await;
                    }
                    if answer.ends_with("...") {
                        return line.hung_up().await;
                    }
                    if !answer.ends_with(END) && !answer.contains("content-length") {
                        return;
                    }
                }
            }
        })
    };
    ([pod().await, pod().await, pod().await], heard)
}

/// A scene with them.
pub(super) async fn stage(answers: &[String]) -> (Scene, Receiver<Value>) {
    let (pods, heard) = pods(answers).await;
    let scene = Scene::with(&pods.each_ref().map(|pod| &*pod.authority), |config| {
        config.stall_timeout = 3 * SHORT;
    });
    (scene, heard)
}

/// A call that may go on so often.
pub(super) fn call(scene: &Scene, limit: u32) -> Call {
    let mut call = scene.call(1);
    call.onward = call.onward.with_body(ASKED.into());
    call.migrates = Some(Migrates { limit, first: RequestId(1001) });
    call
}

fn event(id: &str, choices: &Value) -> String {
    format!(
        "data: {}\n\n",
        json!({"id": id, "created": id.len(), "model": "m", "choices": choices})
    )
}

pub(super) fn role(id: &str) -> String {
    event(
        id,
        &json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
    )
}

pub(super) fn token(id: &str, text: &str) -> String {
    event(id, &json!([{"index": 0, "delta": {"content": text}, "finish_reason": null}]))
}

pub(super) fn last(id: &str) -> String {
    event(id, &json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
}

fn usage(id: &str, prompt: u32, completion: u32) -> String {
    let usage = json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
    });
    let event = json!({"id": id, "created": id.len(), "model": "m", "choices": [], "usage": usage});
    format!("data: {event}\n\n")
}

fn stream(events: &[String]) -> String {
    let chunks: String = events.iter().map(|event| chunk(event)).collect();
    format!("{STREAM_HEAD}{chunks}")
}

fn whole(events: &[String]) -> String {
    format!("{}{}{END}", stream(events), chunk(DONE))
}

fn migrated(scene: &Scene) -> [u64; 3] {
    ["again", "continued", "lost"]
        .map(|outcome| scene.counted("weir_migrations_total", &[("outcome", outcome)]))
}

async fn relayed(scene: &Scene, limit: u32) -> (String, Option<RelayError>) {
    read(scene.serve(call(scene, limit)).await.unwrap().into_body()).await
}

#[tokio::test]
async fn another_pod_goes_on_where_one_was_lost_and_the_client_sees_one_stream() {
    // Lost between two events, in the middle of one, by an error of its own, because it is told to end, and by falling silent.
    let error = "data: {\"error\":{\"message\":\"engine dead\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let aborted = last("a").replace("stop", "abort") + &usage("a", 7, 2);
    let aborted = chunk(&aborted) + &chunk(DONE) + END;
    let (alone, _) = error.split_at(error.len() - DONE.len());
    let alone = chunk(alone) + END;
    for ending in [
        String::new(),
        chunk(&token("a", "lost")[..9]),
        chunk(error),
        chunk(error) + END,
        alone,
        aborted,
        "...".to_owned(),
    ] {
        let first = stream(&[role("a"), token("a", "one \"t"), token("a", "wo\" \u{e9}")]);
        let first = [&first, LATER, &ending].concat();
        let second = [role("bb"), token("bb", " three"), last("bb"), usage("bb", 9, 2)];
        let (scene, heard) = stage(&[first, whole(&second)]).await;
        let (text, error) = relayed(&scene, 1).await;
        let want = [
            role("a"),
            token("a", "one \"t"),
            token("a", "wo\" \u{e9}"),
            token("a", " three"),
            last("a"),
            usage("a", 7, 4),
            DONE.to_owned(),
        ];
        assert_eq!((text, error), (want.concat(), None), "{ending}");

        assert_eq!(heard.recv().await.unwrap(), serde_json::from_str::<Value>(ASKED).unwrap());
        let asked = heard.recv().await.unwrap();
        let said = json!({"role": "assistant", "content": "one \"two\" \u{e9}"});
        assert_eq!(asked["messages"], json!([{"role": "user", "content": "q"}, said]));
        assert_eq!(
            (&asked["continue_final_message"], &asked["max_tokens"]),
            (&true.into(), &7.into())
        );

        assert_settled(&scene.hub);
        let counters = scene.hub.snapshot().counters;
        // A pod that says that it failed has answered.
        let failed = u64::from(!ending.contains("engine"));
        assert_eq!((counters.arrived, counters.failed), (2, failed), "{counters:?}");
        assert_eq!((scene.done("ok", "200"), scene.stream_errors()), (1, 0));
        assert_eq!(migrated(&scene), [0, 1, 0]);
    }
}

#[tokio::test]
async fn what_was_passed_on_before_its_text_began_is_not_passed_on_again() {
    for before in [vec![role("a")], vec![role("a"), token("a", "\n\n")]] {
        let answers = [stream(&before), whole(&[role("b"), token("b", "x"), last("b")])];
        let (scene, heard) = stage(&answers).await;
        let (text, error) = relayed(&scene, 1).await;
        let want = [before.concat(), token("a", "x"), last("a"), DONE.to_owned()];
        assert_eq!((text, error), (want.concat(), None));
        heard.recv().await.unwrap();
        let again = heard.recv().await.unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(ASKED).unwrap(), "nothing to go on from");
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn a_stream_goes_on_as_often_as_it_may_and_then_says_that_it_is_lost() {
    let answers = ["a", "b", "c"].map(|id| stream(&[role(id), token(id, id)]));
    for limit in [0, 1, 2, 3] {
        let mut answers = answers.to_vec();
        answers.push(whole(&[token("d", "d"), last("d")]));
        let (scene, heard) = stage(&answers).await;
        let (text, error) = relayed(&scene, limit).await;
        let said: String = ["a", "b", "c"][..3.min(limit as usize + 1)].concat();
        let passed: String = said.chars().map(|text| token("a", &text.to_string())).collect();
        assert!(text.starts_with(&(role("a") + &passed)), "{limit}: {text}");
        assert_eq!(error, (limit < 3).then_some(RelayError::Lost), "{limit}: {text}");
        assert_eq!(text.contains("upstream_lost"), limit < 3, "{limit}: {text}");
        for _ in 0..limit {
            heard.recv().await.unwrap();
        }
        let last = heard.recv().await.unwrap();
        let so_far: String = ["a", "b", "c"][..limit as usize].concat();
        let content = last["messages"][1]["content"].as_str().unwrap_or_default();
        assert_eq!(content, so_far, "{limit}");
        assert_eq!(migrated(&scene), [0, u64::from(limit), u64::from(limit < 3)], "{limit}");
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn where_the_next_pod_has_failed_too_the_one_after_it_goes_on() {
    let dead = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\ndead".to_owned();
    for (failing, limit) in [(dead.clone(), 2), (String::new(), 2), (dead, 1), (String::new(), 1)] {
        let answers = [stream(&[token("a", "x")]), failing, whole(&[token("b", "y"), last("b")])];
        let (scene, _heard) = stage(&answers).await;
        let (text, error) = relayed(&scene, limit).await;
        assert!(text.starts_with(&token("a", "x")), "{text}");
        assert_eq!((text.contains("\"y\""), error.is_none()), (limit == 2, limit == 2), "{text}");
        assert_eq!(migrated(&scene), [0, u64::from(limit == 2), u64::from(limit == 1)]);
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn what_nobody_can_go_on_with_ends_as_it_would_without() {
    let thought = event("a", &json!([{"index": 0, "delta": {"reasoning": "hm"}}]));
    let called = event("a", &json!([{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]));
    let other = event("a", &json!([{"index": 1, "delta": {"content": "b"}}]));
    for passed in [thought, called, other, last("a"), "data: {\"choices\"\n\n".to_owned()] {
        let (scene, _heard) = stage(&[stream(&[token("a", "x"), passed.clone()])]).await;
        let (text, error) = relayed(&scene, 3).await;
        assert_eq!(error, Some(RelayError::Lost), "{passed}");
        assert!(text.starts_with(&(token("a", "x") + &passed)), "{text}");
        assert!(text.contains("upstream_lost"), "{text}");
        assert_eq!(migrated(&scene), [0, 0, 1]);
        assert_settled(&scene.hub);
    }
    // Another pod's answer in place of a stream, and the first's own error, which nobody heals.
    let refused = "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}".to_owned();
    let (scene, _heard) = stage(&[stream(&[token("a", "x")]), refused.clone()]).await;
    let (text, error) = relayed(&scene, 3).await;
    assert!(
        error.is_some() && text.contains("upstream_lost") && text.starts_with(&token("a", "x"))
    );
    assert_settled(&scene.hub);
    let dead = "data: {\"error\":{\"message\":\"engine dead\",\"code\":500}}\n\n";
    let first = stream(&[token("a", "x"), dead.to_owned()]);
    let (scene, _heard) = stage(&[first, refused.clone()]).await;
    assert_eq!(relayed(&scene, 3).await, (token("a", "x") + dead, None));
    assert_eq!((scene.done("failed", "200"), migrated(&scene)), (1, [0, 0, 1]));
    assert_settled(&scene.hub);
    // What a pod says when it is told to end, to its last byte.
    let aborted = [token("a", "x"), last("a").replace("stop", "abort"), usage("a", 7, 2)];
    let (scene, _heard) = stage(&[whole(&aborted), refused]).await;
    assert_eq!(relayed(&scene, 3).await, (aborted.concat() + DONE, None));
    assert_eq!((scene.done("ok", "200"), migrated(&scene)), (1, [0, 0, 1]));
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn what_is_lost_before_its_answer_is_sent_again_as_it_came() {
    let dead = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\ndead".to_owned();
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab".to_owned();
    let cut = half.replace("content-length", "x-y: z\r\nContent-Length");
    let aborted = r#"{"choices":[{"finish_reason": "abort"}]}"#;
    let aborted = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{aborted}", aborted.len());
    let empty = STREAM_HEAD.to_owned() + END;
    for failing in [String::new(), cut.clone(), dead.clone(), aborted, empty] {
        let good = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood".to_owned();
        let (scene, heard) = stage(&[failing.clone(), good]).await;
        let (text, error) = relayed(&scene, 1).await;
        assert_eq!((&*text, error), ("good", None), "{failing}");
        assert_eq!(heard.recv().await.unwrap(), heard.recv().await.unwrap());
        assert_eq!((migrated(&scene), scene.done("ok", "200")), ([1, 0, 0], 1));
        assert_settled(&scene.hub);
    }
    // Both fail: the last one's answer, or that it is lost.
    let (scene, _heard) = stage(&[dead.clone(), dead]).await;
    assert_eq!(relayed(&scene, 1).await, ("dead".to_owned(), None));
    assert_eq!(scene.done("failed", "500"), 1);
    let (scene, heard) = stage(&[cut.clone(), cut]).await;
    let fault = scene.serve(call(&scene, 1)).await.unwrap_err();
    assert!(matches!(fault, Fault::PodLost { .. }), "{fault}");
    assert_eq!(heard.len(), 2);
    assert_settled(&scene.hub);
}

/// A stream whose pod was lost, and which another one has and does not go on with yet.
async fn waiting() -> (Scene, RelayBody) {
    let (scene, heard) = stage(&[stream(&[token("a", "x")]), "...".to_owned()]).await;
    let mut body = scene.serve(call(&scene, 1)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    heard.recv().await.unwrap();
    tokio::select! {
        frame = body.frame() => panic!("{frame:?}"),
        () = until("another pod has it", || !heard.is_empty()) => {}
    }
    (scene, body)
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_for_another_pod_leaves_nothing() {
    let (scene, body) = waiting().await;
    assert_eq!(scene.hub.snapshot().in_flight, 1);
    drop(body);
    assert_settled(&scene.hub);
    assert_eq!(scene.done("client_gone", "200"), 1);
}

#[tokio::test]
async fn a_process_that_ends_says_so_to_who_waits_for_another_pod() {
    let (scene, body) = waiting().await;
    scene.upstream.closing().say();
    let (text, error) = read(body).await;
    assert!(text.contains("server_is_overloaded"), "{text}");
    assert_eq!(error, Some(RelayError::Closing));
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn nobody_goes_on_where_the_configuration_does_not_say_so() {
    let (scene, heard) = stage(&[stream(&[TOKEN.to_owned()])]).await;
    let call = Call { migrates: None, ..call(&scene, 1) };
    let (text, error) = read(scene.serve(call).await.unwrap().into_body()).await;
    assert!(error.is_some() && text.contains("upstream_lost"));
    assert_eq!((heard.len(), migrated(&scene)), (1, [0, 0, 0]));
}

#[tokio::test]
async fn where_one_pod_computes_the_prompt_another_goes_on_with_both() {
    let place = r#"{"kv_transfer_params":{"remote_port":5600},"usage":{"prompt_tokens":100}}"#;
    let computed = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{place}", place.len());
    // The first pod that prefills is lost with the prompt, and the first that answers with its answer.
    let (first, asked) = pods(&[String::new(), computed]).await;
    let (hub, _) = Fixture::default().hub();
    (8..).zip(&first).for_each(|(id, at)| hub.add_pod(pod(id, &at.authority)));
    let second = [role("b"), token("b", " two"), last("b")];
    let (scene, heard) = stage(&[stream(&[role("a"), token("a", "one")]), whole(&second)]).await;
    let prefill = Arc::new(Prefill::new(hub.clone(), 0, true));
    let call = Call { prefill: Some((prefill, RequestId(501))), ..call(&scene, 1) };
    let (text, error) = read(scene.serve(call).await.unwrap().into_body()).await;
    let events = [role("a"), token("a", "one"), token("a", " two"), last("a")];
    assert_eq!((text, error), (events.concat() + DONE, None));
    assert_eq!(asked.recv().await.unwrap(), asked.recv().await.unwrap());
    let loads = heard.recv().await.unwrap();
    assert_eq!(loads["kv_transfer_params"]["remote_port"], 5600);
    let goes_on = heard.recv().await.unwrap();
    assert_eq!(goes_on["messages"][1]["content"], "one");
    assert!(goes_on.get("kv_transfer_params").is_none(), "it is gone with the first: {goes_on}");
    assert_eq!(migrated(&scene), [1, 1, 0]);
    assert_settled(&scene.hub);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_pod_that_is_out_and_silent_is_not_waited_for_where_another_can_go_on() {
    let hangs = "...".to_owned();
    let begun = stream(&[token("a", "x")]) + "...";
    let thought = event("a", &json!([{"index": 0, "delta": {"reasoning": "hm"}}]));
    let thought = stream(&[thought]) + "...";
    for (first, out, moves) in [
        (&hangs, true, true),
        (&begun, true, true),
        (&hangs, false, false),
        (&begun, false, false),
        (&thought, true, false),
    ] {
        let second = whole(&[token("b", "y"), last("b")]);
        let (mut scene, heard) = stage(&[first.clone(), second]).await;
        let mut config = *scene.upstream.config();
        config.stall_timeout = 40 * SHORT;
        config.first_token_timeout = 40 * SHORT;
        scene.upstream = Arc::new(Upstream::new(config, scene.upstream.metrics().clone()));
        let mut served = Box::pin(relayed(&scene, 1));
        tokio::select! {
            served = &mut served => panic!("{served:?}"),
            () = until("the pod has it", || heard.len() == 1) => {}
        }
        let seen = scene.hub.snapshot();
        let had = &seen.pods.iter().find(|pod| pod.residents + pod.pending > 0).unwrap().name;
        let pods = scene.hub.pods();
        let breaker = &pods.iter().find(|pod| *pod.name == **had).unwrap().breaker;
        for _ in 0..3 * u32::from(out) {
            breaker.scrape_failed();
        }
        let waited = tokio::time::timeout(30 * SHORT, &mut served).await;
        assert_eq!(waited.is_ok(), moves, "{first} {out}");
        if let Ok((text, error)) = waited {
            assert!(text.contains("\"y\"") && error.is_none(), "{text}");
            assert_settled(&scene.hub);
        }
    }
}
