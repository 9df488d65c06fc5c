//! Clients that leave: nothing of them stays, here or at the pod.

use http_body_util::BodyExt;

use super::scene::{FakePod, ROLE, STREAM_HEAD, Scene, TOKEN, chunk};
use crate::hub::fixture::{assert_settled, until};

/// A pod that hears a request, says something, and tells when it is hung up on.
async fn pod_that_says(text: String) -> (FakePod, async_channel::Receiver<()>) {
    let (gone, sees) = async_channel::bounded(1);
    let pod = FakePod::new(move |mut line, _| {
        let (gone, text) = (gone.clone(), text.clone());
        async move {
            line.hear().await;
            line.say(&text).await;
            line.hung_up().await;
            let _ = gone.send(()).await;
        }
    })
    .await;
    (pod, sees)
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_costs_no_pod_anything() {
    let scene = Scene::new(&[]);
    tokio::select! {
        _ = scene.serve(scene.call(1)) => panic!("served"),
        () = until("the wait", || scene.hub.snapshot().waiting == 1) => {}
    }
    assert_settled(&scene.hub);
    assert_eq!(scene.hub.snapshot().counters.cancelled, 1);
    assert_eq!(scene.done("client_gone", "499"), 1);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_frees_the_pod() {
    // Streamed or not: while the pod has not said a word, and while it has said only a part.
    let part = format!("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}", "x".repeat(50));
    for text in [String::new(), STREAM_HEAD.to_owned(), part] {
        let (pod, sees) = pod_that_says(text).await;
        let scene = Scene::new(&[&pod.authority]);
        tokio::select! {
            _ = scene.serve(scene.unstreamed(1)) => panic!("served"),
            () = until("the pod", || pod.requests() == 1) => {}
        }
        assert_settled(&scene.hub);
        assert_eq!(scene.hub.snapshot().counters.client_gone, 1);
        assert_eq!(scene.done("client_gone", "499"), 1);
        sees.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_its_request_is_being_sent_frees_the_pod() {
    let (left, leaves) = async_channel::bounded::<()>(1);
    let (gone, sees) = async_channel::bounded(1);
    let pod = FakePod::new(move |mut line, _| {
        let (leaves, gone) = (leaves.clone(), gone.clone());
        async move {
            // Takes nothing until the client has left; then all there is.
            leaves.recv().await.unwrap();
            line.hung_up().await;
            gone.send(()).await.unwrap();
        }
    })
    .await;
    let scene = Scene::new(&[&pod.authority]);
    let mut call = scene.call(1);
    call.onward.body = vec![b'x'; 64 << 20].into();
    tokio::select! {
        _ = scene.serve(call) => panic!("served"),
        () = until("the pod", || pod.connections() == 1) => {}
    }
    assert_settled(&scene.hub);
    left.send(()).await.unwrap();
    sees.recv().await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_the_pod() {
    let (pod, sees) = pod_that_says(format!("{STREAM_HEAD}{}{}", chunk(ROLE), chunk(TOKEN))).await;
    let scene = Scene::new(&[&pod.authority]);
    let mut body = scene.serve(scene.call(1)).await.unwrap().into_body();
    let mut text = String::new();
    while !text.ends_with(TOKEN) {
        let frame = body.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    assert!(!scene.hub.idle());
    drop(body);
    assert_settled(&scene.hub);
    assert_eq!(scene.hub.snapshot().counters.client_gone, 1);
    assert_eq!(scene.done("client_gone", "200"), 1);
    sees.recv().await.unwrap();
}
