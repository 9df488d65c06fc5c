//! Pods that do not let requests in.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use http::Method;
use tokio::sync::Notify;
use weir_core::Event;

use super::scene::{DONE, END, FakePod, STREAM_HEAD, Scene, TOKEN, chunk, nobody, read};
use crate::{
    h1::PodRequest,
    hub::fixture::{assert_settled, pod},
};

fn said(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 9\r\n\r\nnot here\n")
}

fn good() -> String {
    format!("{STREAM_HEAD}{}{}{END}", chunk(TOKEN), chunk(DONE))
}

#[tokio::test]
async fn what_one_pod_does_not_let_in_another_answers_and_the_first_is_taken_out() {
    for status in ["401 Unauthorized", "403 Forbidden", "404 Not Found"] {
        let closed = FakePod::saying(said(status)).await;
        let open = FakePod::saying(good()).await;
        let scene = Scene::of_fleet(&[&closed, &open]);
        for id in 1..=20 {
            let (text, error) = scene.relay(id).await;
            assert!(text.ends_with(DONE) && error.is_none(), "{status}: {text}");
        }
        assert_eq!((closed.requests(), open.requests()), (5, 20), "{status}");
        let pods = scene.hub.pods();
        let closed = pods.iter().find(|pod| *pod.name == *closed.authority).unwrap();
        assert!(closed.breaker.is_open(), "{status}");
        assert_eq!(closed.answers.refused.load(Relaxed), 5, "{status}");
        assert_eq!((scene.done("ok", "200"), scene.done("bad_request", "")), (20, 0), "{status}");
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn what_one_pod_takes_no_more_of_another_answers() {
    // vLLM says it with the status, or to those that come all at once in a stream.
    let event = "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n";
    let in_stream = format!("{STREAM_HEAD}{}{}{END}", chunk(event), chunk(DONE));
    for says in [said("503 Service Unavailable"), in_stream] {
        let full = FakePod::saying(says).await;
        let open = FakePod::saying(good()).await;
        let scene = Scene::of_fleet(&[&full, &open]);
        for id in 1..=10 {
            let (text, error) = scene.relay(id).await;
            assert!(text.ends_with(DONE) && error.is_none() && !text.contains("error"), "{text}");
        }
        assert_eq!((full.requests(), open.requests()), (1, 10), "it is left alone for a while");
        let pods = scene.hub.pods();
        let full = pods.iter().find(|pod| *pod.name == *full.authority).unwrap();
        assert_eq!((full.breaker.is_open(), full.answers.failed.load(Relaxed)), (false, 1));
        assert_eq!((scene.done("ok", "200"), scene.done("failed", "")), (10, 0));
        let counters = scene.hub.snapshot().counters;
        assert_eq!((counters.turned_away, counters.failed), (1, 0));
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn another_error_in_a_stream_is_the_answer() {
    let event = "data: {\"error\":{\"message\":\"broken\",\"code\":500}}\n\n";
    let pod = FakePod::saying(format!("{STREAM_HEAD}{}{}{END}", chunk(event), chunk(DONE))).await;
    let scene = Scene::of_fleet(&[&pod]);
    let (text, _) = scene.relay(1).await;
    assert!(text.contains("broken"), "{text}");
    assert_eq!((pod.requests(), scene.hub.snapshot().counters.turned_away), (1, 0));
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn what_no_pod_lets_in_is_the_requests_own_fault() {
    let pods = [
        FakePod::saying(said("404 Not Found")).await,
        FakePod::saying(said("404 Not Found")).await,
    ];
    let scene = Scene::of_fleet(&[&pods[0], &pods[1]]);
    for id in 1..=20 {
        let response = scene.serve(scene.call(id)).await.unwrap();
        assert_eq!(response.status(), 404);
        assert_eq!(read(response.into_body()).await.0, "not here\n");
    }
    assert_eq!((pods[0].requests(), pods[1].requests()), (20, 20));
    assert!(scene.hub.pods().iter().all(|pod| !pod.breaker.is_open()));
    let refused = scene.hub.pods().iter().map(|pod| pod.answers.refused.load(Relaxed)).sum::<u64>();
    assert_eq!((refused, scene.done("bad_request", "404")), (40, 20));
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_pool_of_one_pod_passes_its_answer_on_at_once() {
    let only = FakePod::saying(said("404 Not Found")).await;
    let scene = Scene::of_fleet(&[&only]);
    for id in 1..=10 {
        assert_eq!(scene.serve(scene.call(id)).await.unwrap().status(), 404);
    }
    assert_eq!(only.requests(), 10);
    assert!(!scene.hub.pods()[0].breaker.is_open());
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn where_the_next_pod_fails_nobody_is_blamed_for_what_the_first_said() {
    let closed = FakePod::saying(said("404 Not Found")).await;
    let failing = FakePod::saying(said("500 Internal Server Error")).await;
    let scene = Scene::of_fleet(&[&closed, &failing]);
    let response = scene.serve(scene.call(1)).await.unwrap();
    assert!(matches!(response.status().as_u16(), 404 | 500));
    let pods = scene.hub.pods();
    let closed = pods.iter().find(|pod| *pod.name == *closed.authority).unwrap();
    assert_eq!(closed.breaker.seen().traffic_failures, 0);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn what_another_pod_keeps_under_a_name_says_nothing_of_this_one() {
    let pods = [
        FakePod::saying(said("404 Not Found")).await,
        FakePod::saying(said("404 Not Found")).await,
    ];
    let scene = Scene::of_fleet(&[&pods[0], &pods[1]]);
    let mut call = scene.call(1);
    let (body, none) = (Bytes::from_static(b"{}"), std::iter::empty());
    call.onward = PodRequest::new(&Method::POST, "/v1/responses", none, body);
    assert_eq!(scene.serve(call).await.unwrap().status(), 404);
    assert_eq!(pods[0].requests() + pods[1].requests(), 1);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn where_the_process_ends_before_another_pod_is_asked_the_first_answer_counts() {
    let asked = Arc::new(Notify::new());
    let answers = Arc::new(Notify::new());
    let play = (asked.clone(), answers.clone());
    let closed = FakePod::new(move |mut line, _| {
        let (asked, answers) = play.clone();
        async move {
            while line.hear().await.is_some() {
                asked.notify_one();
                answers.notified().await;
                line.say(&said("404 Not Found")).await;
            }
        }
    })
    .await;
    let scene = Scene::of_fleet(&[&closed]);
    let served = scene.serve(scene.call(1));
    let ends = async {
        asked.notified().await;
        scene.hub.add_pod(pod(7, &nobody().await));
        scene.hub.post(Event::Close);
        answers.notify_one();
    };
    let (response, ()) = tokio::join!(served, ends);
    let response = response.unwrap();
    assert_eq!((response.status().as_u16(), scene.done("bad_request", "404")), (404, 1));
    assert_eq!(read(response.into_body()).await.0, "not here\n");
    assert_settled(&scene.hub);
}
