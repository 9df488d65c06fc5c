//! Requests whose prompt one pod computes and another one loads.

use std::sync::Arc;

use async_channel::Receiver;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use weir_core::{Bounds, Gate, RequestId};

use super::scene::{DONE, END, FakePod, STREAM_HEAD, Scene, TOKEN, chunk, nobody, read};
use crate::{
    hub::{
        Hub,
        fixture::{Fixture, assert_settled, pod, until},
        led::Lead,
    },
    upstream::{Call, Fault, Prefill},
};

/// Where an engine says that it keeps a prompt.
const PLACE: &str = r#"{"do_remote_prefill":true,"remote_block_ids":[3, 4],"remote_port":5600}"#;

/// Pods of which one heard everything that the test asks it for.
struct Heard {
    pod: FakePod,
    heard: Receiver<String>,
}

impl Heard {
    async fn saying(answer: String) -> Self {
        let (says, heard) = async_channel::bounded(16);
        let answer: Arc<str> = answer.into();
        let pod = FakePod::new(move |mut line, _| {
            let (says, answer) = (says.clone(), answer.clone());
            async move {
                while let Some(request) = line.hear().await {
                    says.send(request).await.unwrap();
                    line.say(&answer).await;
                }
            }
        })
        .await;
        Self { pod, heard }
    }

    /// The body of the next request that it heard, as JSON.
    async fn body(&self) -> serde_json::Value {
        let request = self.heard.recv().await.unwrap();
        serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

fn whole(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn computed() -> String {
    let usage = r#""usage":{"prompt_tokens":100,"completion_tokens":1}"#;
    whole("200 OK", &format!(r#"{{"id":"x","kv_transfer_params":{PLACE},{usage}}}"#))
}

fn stream() -> String {
    format!("{STREAM_HEAD}{}{}{END}", chunk(TOKEN), chunk(DONE))
}

/// A pool that prefills, with this pod.
fn prefill(pod_at: &str) -> Arc<Hub> {
    let (hub, _) = Fixture::default().hub();
    hub.add_pod(pod(9, pod_at));
    hub
}

/// A pool with a pod that answers, of which an operator holds everything.
fn held(pod_at: &str) -> Scene {
    let scene = Scene::new(&[pod_at]);
    scene.hub.pause(Gate::Pool);
    scene
}

/// A call of 100 tokens, of which a pod that answers computes itself what is shorter than so many.
fn call(scene: &Scene, hub: &Arc<Hub>, local_tokens: u32) -> Call {
    let prefill = Arc::new(Prefill::new(hub.clone(), local_tokens, true));
    Call { prefill: Some((prefill, RequestId(1001))), ..scene.call(1) }
}

fn prefilled(scene: &Scene, by: &str) -> u64 {
    scene.counted("weir_prefills_total", &[("outcome", by)])
}

#[tokio::test]
async fn one_pod_computes_the_prompt_and_keeps_it_until_the_other_has_answered() {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    let response = scene.serve(call(&scene, &hub, 0)).await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("x-weir-pod"), header("x-weir-prefill-pod")),
        ("pod-1".into(), "pod-9".into())
    );
    assert!(header("x-weir-queue-ms").parse::<u64>().unwrap() < 1000);

    let asked = first.body().await;
    assert_eq!((&asked["max_tokens"], asked.get("stream")), (&1.into(), None));
    assert_eq!(asked["kv_transfer_params"]["do_remote_decode"], true);
    let told = second.body().await;
    assert_eq!(told["stream"], true);
    let place: serde_json::Value = serde_json::from_str(PLACE).unwrap();
    assert_eq!(told["kv_transfer_params"], place);

    // No token has been passed on yet.
    let seen = hub.snapshot();
    assert_eq!((seen.in_flight, seen.pods[0].residents), (1, 1), "{seen:?}");
    let mut body = response.into_body();
    let begun = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_settled(&hub);
    let (rest, error) = read(body).await;
    let text = [str::from_utf8(&begun).unwrap(), &rest].concat();
    assert!(text == [TOKEN, DONE].concat() && error.is_none(), "{text}");
    assert_settled(&scene.hub);
    assert_eq!((prefilled(&scene, "prefill"), scene.done("ok", "200")), (1, 2));
    let counters = scene.hub.snapshot().counters;
    assert_eq!((counters.completed, hub.snapshot().counters.completed), (1, 1));
}

#[tokio::test]
async fn a_response_that_is_not_streamed_lets_the_prompt_go_when_it_is_sent() {
    let answer = whole("200 OK", r#"{"usage":{"prompt_tokens":100,"completion_tokens":9}}"#);
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(answer).await);
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    let mut call = call(&scene, &hub, 0);
    call.request.streamed = false;
    let (text, _) = read(scene.serve(call).await.unwrap().into_body()).await;
    assert!(text.contains("completion_tokens\":9"));
    assert_settled(&hub);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn where_nobody_says_where_the_prompt_is_the_pod_that_answers_computes_it() {
    let (first, second) =
        (Heard::saying(whole("200 OK", "{}")).await, Heard::saying(stream()).await);
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    let response = scene.serve(call(&scene, &hub, 0)).await.unwrap();
    assert!(!response.headers().contains_key("x-weir-prefill-pod"));
    assert_settled(&hub);
    let told = second.body().await;
    assert_eq!(told, serde_json::json!({"stream": true}));
    assert!(read(response.into_body()).await.1.is_none());
    assert_settled(&scene.hub);
    assert_eq!((prefilled(&scene, "lost"), prefilled(&scene, "prefill")), (1, 0));
}

#[tokio::test]
async fn what_a_pod_that_prefills_answers_in_place_of_a_prompt_is_the_answer() {
    let said = r#"{"error":{"message":"too long","type":"invalid_request_error"}}"#;
    let first = Heard::saying(whole("400 Bad Request", said)).await;
    let second = Heard::saying(stream()).await;
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    let response = scene.serve(call(&scene, &hub, 0)).await.unwrap();
    assert_eq!(response.status(), 400);
    assert_eq!(read(response.into_body()).await.0, said);
    // As the client's, and as that of its prompt.
    assert_eq!((second.pod.requests(), scene.done("bad_request", "400")), (0, 2));
    assert_settled(&hub);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_pod_that_is_lost_with_a_prompt_is_answered_for_and_nobody_computes_it_again() {
    let first = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.reset();
    })
    .await;
    let second = Heard::saying(stream()).await;
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.authority));
    let fault = scene.serve(call(&scene, &hub, 0)).await.unwrap_err();
    assert!(matches!(fault, Fault::PodLost { .. }), "{fault}");
    assert_eq!((first.requests(), second.pod.requests()), (1, 0));
    assert_settled(&hub);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_short_prompt_and_one_that_nobody_can_compute_elsewhere_are_computed_where_they_are_answered()
 {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let scene = Scene::new(&[&second.pod.authority]);
    let (empty, _) = Fixture::default().hub();
    for (hub, local_tokens) in [(prefill(&first.pod.authority), 101), (empty, 0)] {
        let response = scene.serve(call(&scene, &hub, local_tokens)).await.unwrap();
        assert!(read(response.into_body()).await.1.is_none());
        assert_eq!(second.body().await, serde_json::json!({"stream": true}));
        assert_settled(&hub);
    }
    assert_eq!((first.pod.requests(), prefilled(&scene, "local")), (0, 2));
}

#[tokio::test]
async fn a_body_that_says_where_its_prompt_is_goes_on_as_it_is() {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    let mut call = call(&scene, &hub, 0);
    call.onward.body = format!(r#"{{"kv_transfer_params":{PLACE}}}"#).into();
    assert!(read(scene.serve(call).await.unwrap().into_body()).await.1.is_none());
    assert_eq!(second.body().await["kv_transfer_params"]["remote_port"], 5600);
    assert_eq!((first.pod.requests(), prefilled(&scene, "local")), (0, 1));
}

#[tokio::test]
async fn a_client_that_leaves_at_any_point_leaves_nothing_behind() {
    // While its prompt is computed.
    let silent = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.hung_up().await;
    })
    .await;
    let (scene, hub) = (held(&nobody().await), prefill(&silent.authority));
    tokio::select! {
        _ = scene.serve(call(&scene, &hub, 0)) => panic!("served"),
        () = until("the pod", || silent.requests() == 1) => {}
    }
    assert_settled(&hub);
    assert_settled(&scene.hub);
    assert_eq!(scene.done("client_gone", "499"), 2, "of both pools");

    // While it waits for a pod that answers, with its prompt kept.
    let first = Heard::saying(computed()).await;
    let (scene, hub) = (held(&nobody().await), prefill(&first.pod.authority));
    tokio::select! {
        _ = scene.serve(call(&scene, &hub, 0)) => panic!("served"),
        () = until("the second wait", || scene.hub.snapshot().waiting == 1) => {}
    }
    assert_settled(&hub);
    assert_settled(&scene.hub);
    assert_eq!(scene.done("client_gone", "499"), 1);
}

#[tokio::test]
async fn a_pod_that_answers_and_is_not_reached_leaves_the_prompt_to_the_next() {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let (scene, hub) =
        (Scene::new(&[&nobody().await, &second.pod.authority]), prefill(&first.pod.authority));
    for id in 1..=4 {
        let mut call = call(&scene, &hub, 0);
        call.request.id = RequestId(id);
        let response = scene.serve(call).await.unwrap();
        assert_eq!(response.headers()["x-weir-pod"], "pod-2");
        assert!(read(response.into_body()).await.1.is_none());
        assert_eq!(second.body().await["kv_transfer_params"]["remote_port"], 5600);
        assert_eq!(first.body().await["max_tokens"], 1);
    }
    assert_settled(&hub);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_prompt_that_nobody_takes_at_once_goes_whole_to_a_pod_that_answers_and_has_room() {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    hub.pause(Gate::Pool);
    let response = scene.serve(call(&scene, &hub, 0)).await.unwrap();
    assert!(!response.headers().contains_key("x-weir-prefill-pod"));
    assert!(read(response.into_body()).await.1.is_none());
    assert_eq!(second.body().await, serde_json::json!({"stream": true}));
    assert_settled(&hub);
    assert_settled(&scene.hub);
    assert_eq!((first.pod.requests(), prefilled(&scene, "local")), (0, 1));
    assert_eq!((scene.done("ok", "200"), scene.done("client_gone", "499")), (1, 0));
}

#[tokio::test]
async fn a_prompt_that_waits_in_both_queues_goes_to_whoever_is_first_and_leaves_the_other() {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let (scene, hub) = (held(&second.pod.authority), prefill(&first.pod.authority));
    hub.pause(Gate::Pool);
    let waits = |hub: &Hub| hub.snapshot().waiting;
    let served = async {
        let response = scene.serve(call(&scene, &hub, 0)).await.unwrap();
        assert_eq!(response.headers()["x-weir-prefill-pod"], "pod-9");
        assert!(read(response.into_body()).await.1.is_none());
    };
    let meanwhile = async {
        until("both waits", || (waits(&hub), waits(&scene.hub)) == (1, 1)).await;
        hub.resume(Gate::Pool);
        until("the prompt", || first.pod.requests() == 1).await;
        until("the second wait", || waits(&scene.hub) == 1).await;
        scene.hub.resume(Gate::Pool);
    };
    tokio::join!(served, meanwhile);
    assert_settled(&hub);
    assert_settled(&scene.hub);
    assert_eq!((prefilled(&scene, "prefill"), scene.done("ok", "200")), (1, 2));
}

#[tokio::test]
async fn a_client_that_leaves_both_queues_is_counted_once_for_each() {
    let first = Heard::saying(computed()).await;
    let (scene, hub) = (held(&nobody().await), prefill(&first.pod.authority));
    hub.pause(Gate::Pool);
    tokio::select! {
        _ = scene.serve(call(&scene, &hub, 0)) => panic!("served"),
        () = until("both waits", || hub.snapshot().waiting + scene.hub.snapshot().waiting == 2) => {}
    }
    assert_settled(&hub);
    assert_settled(&scene.hub);
    assert_eq!(scene.done("client_gone", "499"), 2);
}

#[tokio::test]
async fn where_one_of_the_two_refuses_the_other_serves_and_where_both_do_the_client_is_told_once() {
    let second = Heard::saying(stream()).await;
    let full = || Fixture {
        bounds: Bounds { max_requests: 0, ..Bounds::default() },
        ..Fixture::default()
    };
    let (hub, _) = full().hub();
    hub.add_pod(pod(9, nobody().await));
    let scene = Scene::new(&[&second.pod.authority]);
    hub.pause(Gate::Pool);
    let response = scene.serve(call(&scene, &hub, 0)).await.unwrap();
    assert!(read(response.into_body()).await.1.is_none());
    assert_settled(&scene.hub);

    let scene = Scene { hub: full().hub().0, ..Scene::new(&[]) };
    let fault = scene.serve(call(&scene, &hub, 0)).await.unwrap_err();
    assert!(matches!(fault, Fault::Refused(_)), "{fault}");
    assert_settled(&hub);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn without_overflow_a_prompt_waits_for_a_pod_that_prefills() {
    let (first, second) = (Heard::saying(computed()).await, Heard::saying(stream()).await);
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&first.pod.authority));
    hub.pause(Gate::Pool);
    let strict = Arc::new(Prefill::new(hub.clone(), 0, false));
    let call = Call { prefill: Some((strict, RequestId(1001))), ..scene.call(1) };
    tokio::select! {
        _ = scene.serve(call) => panic!("served"),
        () = until("the wait", || hub.snapshot().waiting == 1) => {}
    }
    assert_eq!((second.pod.requests(), scene.hub.snapshot().counters.arrived), (0, 0));
    assert_settled(&hub);
}

#[tokio::test]
async fn who_asks_another_dispatcher_for_both_kinds_of_pods_does_so_one_after_the_other() {
    let second = Heard::saying(stream()).await;
    let (scene, hub) = (Scene::new(&[&second.pod.authority]), prefill(&nobody().await));
    // One that never answers.
    let (errands, asked) = async_channel::bounded(16);
    hub.follow(Some(Lead::new("elsewhere".to_owned(), errands)));
    let mut served = Box::pin(scene.serve(call(&scene, &hub, 0)));
    assert!((&mut served).now_or_never().is_none());
    assert!(!asked.is_empty() && scene.hub.snapshot().counters.arrived == 0);
    let response = served.await.unwrap();
    assert!(read(response.into_body()).await.1.is_none());
    assert_settled(&scene.hub);
    assert_eq!(prefilled(&scene, "local"), 1);
}
