//! Pods that fail, each in its own way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use weir_core::RefusalReason;

use super::scene::{DONE, END, FakePod, SHORT, STREAM_HEAD, Scene, TOKEN, chunk, nobody};
use crate::{
    fleet::Pod,
    hub::fixture::{assert_settled, pod, until},
    upstream::Fault,
};

#[tokio::test]
async fn a_pod_that_refuses_connections_is_passed_over() {
    let scene = Scene::new(&[&nobody().await]);
    let alive = FakePod::saying(format!("{STREAM_HEAD}{}{END}", chunk(DONE))).await;
    let served = scene.serve(scene.call(1));
    let help = async {
        until("the first attempt", || scene.hub.snapshot().counters.requeued == 1).await;
        scene.hub.add_pod(pod(2, &alive.authority));
    };
    let (response, ()) = tokio::join!(served, help);
    assert_eq!(response.unwrap().headers()["x-weir-pod"], "pod-2");
    assert_eq!(alive.requests(), 1);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_request_that_nobody_takes_is_refused_after_its_attempts() {
    let (a, b, c) = (nobody().await, nobody().await, nobody().await);
    let scene = Scene::new(&[&a, &b, &c]);
    let Err(Fault::Refused(refusal)) = scene.serve(scene.call(1)).await else { panic!("served") };
    assert_eq!(refusal.reason, RefusalReason::Undeliverable);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn three_refused_connections_open_the_breaker() {
    let scene = Scene::with(&[&nobody().await], |_| {});
    let pod = scene.hub.pods()[0].clone();
    for id in 1..=3 {
        assert!(!pod.breaker.is_open());
        let mut served = Box::pin(scene.serve(scene.call(id)));
        tokio::select! {
            _ = &mut served => panic!("served"),
            () = until("the attempt", || scene.hub.snapshot().counters.requeued == id) => {}
        }
    }
    assert!(pod.breaker.is_open());
    assert_settled(&scene.hub);
}

/// An answer without a body.
fn bare(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
}

/// Answers that an engine which fails at once gives to whatever it is asked: errors, streams that are cut, and streams that
/// consist of an error.
fn bad_answers() -> [String; 4] {
    let error = "data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n";
    [
        bare("500 Internal Server Error"),
        bare("502 Bad Gateway"),
        format!("{STREAM_HEAD}{}{END}", chunk(TOKEN)),
        format!("{STREAM_HEAD}{}{}{END}", chunk(error), chunk(DONE)),
    ]
}

#[tokio::test]
async fn a_pod_that_fails_at_once_does_not_take_the_traffic() {
    for answer in bad_answers() {
        let failing = FakePod::saying(answer.clone()).await;
        let good =
            FakePod::saying(format!("{STREAM_HEAD}{}{}{END}", chunk(TOKEN), chunk(DONE))).await;
        let scene = Scene::of_fleet(&[&failing, &good]);
        for id in 1..=20 {
            scene.relay(id).await;
        }
        assert_eq!((failing.requests(), good.requests()), (5, 15), "{answer}");
        let pods = scene.hub.pods();
        let counted = |id: u32| &pods.iter().find(|pod| pod.id.0 == id).unwrap().answers;
        assert_eq!(counted(1).failed.load(Relaxed) + counted(1).cut.load(Relaxed), 5, "{answer}");
        assert_eq!(counted(2).good.load(Relaxed), 15);
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn what_every_pod_answers_badly_closes_no_pool() {
    for answer in bad_answers() {
        let pods = [FakePod::saying(answer.clone()).await, FakePod::saying(answer).await];
        let scene = Scene::of_fleet(&[&pods[0], &pods[1]]);
        for id in 1..=40 {
            scene.relay(id).await;
            let open = scene.hub.pods().iter().filter(|pod| pod.breaker.is_open()).count();
            assert!(open < 2, "after {id}");
        }
        assert_eq!(pods[0].requests() + pods[1].requests(), 40);
    }
}

#[tokio::test]
async fn what_a_pod_refuses_is_a_good_answer() {
    let error = "data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\n";
    for answer in [
        bare("400 Bad Request"),
        bare("429 Too Many Requests"),
        format!("{STREAM_HEAD}{}{}{END}", chunk(error), chunk(DONE)),
    ] {
        let pods = [FakePod::saying(answer.clone()).await, FakePod::saying(answer).await];
        let scene = Scene::of_fleet(&[&pods[0], &pods[1]]);
        for id in 1..=10 {
            scene.relay(id).await;
        }
        assert!(scene.hub.pods().iter().all(|pod| !pod.breaker.is_open()));
        let refused = |pod: &Arc<Pod>| pod.answers.refused.load(Relaxed);
        assert_eq!(scene.hub.pods().iter().map(refused).sum::<u64>(), 10);
    }
}

#[tokio::test]
async fn a_pod_that_points_elsewhere_has_served_nothing_and_is_not_blamed() {
    let pod = FakePod::saying(bare("307 Temporary Redirect")).await;
    let scene = Scene::of_fleet(&[&pod]);
    for id in 1..=9 {
        assert_eq!(scene.serve(scene.call(id)).await.unwrap().status(), 307);
    }
    let answers = &scene.hub.pods()[0].answers;
    assert_eq!((answers.good.load(Relaxed), answers.failed.load(Relaxed)), (0, 9));
    assert_eq!((scene.done("failed", "307"), scene.hub.pods()[0].breaker.is_open()), (9, false));
    assert_settled(&scene.hub);
}

fn error_event(code: u16) -> String {
    format!("data: {{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}\n\n")
}

/// A stream that consists of an error with this code.
fn error_of(code: u16) -> String {
    format!("{STREAM_HEAD}{}{}{END}", chunk(&error_event(code)), chunk(DONE))
}

#[tokio::test]
async fn an_error_in_a_stream_is_counted_by_its_own_status() {
    for (code, outcome) in [(400, "bad_request"), (500, "failed")] {
        let pod = FakePod::saying(error_of(code)).await;
        let scene = Scene::new(&[&pod.authority]);
        assert_eq!(scene.relay(1).await.1, None);
        assert_eq!((scene.done(outcome, "200"), scene.stream_errors()), (1, 0), "{code}");
        let all = ["ok", "bad_request", "failed"].map(|outcome| scene.done(outcome, "200"));
        assert_eq!(all.iter().sum::<u64>(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_ends_with_an_error_of_the_pods_is_whole_without_a_word_of_its_end() {
    for (code, outcome) in [(400, "bad_request"), (500, "failed")] {
        let event = error_event(code);
        let chunked = format!("{STREAM_HEAD}{}{END}", chunk(&event));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";
        let sized = format!("{head}\r\ncontent-length: {}\r\n\r\n{event}", event.len());
        for said in [chunked, sized] {
            let pod = FakePod::saying(said).await;
            let scene = Scene::of_fleet(&[&pod]);
            for id in 1..=9 {
                assert_eq!(scene.relay(id).await, (event.clone(), None));
            }
            assert_eq!((scene.done(outcome, "200"), scene.stream_errors()), (9, 0), "{code}");
            let cut = scene.hub.pods()[0].answers.cut.load(Relaxed);
            assert_eq!((cut, pod.connections()), (0, 1), "{code}");
            assert_settled(&scene.hub);
        }
    }
}

#[tokio::test]
async fn a_refusal_inside_a_stream_makes_up_for_no_failure() {
    let said = Arc::new(AtomicUsize::new(0));
    let failing = FakePod::new(move |mut line, _| {
        let said = said.clone();
        async move {
            while line.hear().await.is_some() {
                let refuses = said.fetch_add(1, Relaxed) == 3;
                line.say(&error_of(if refuses { 400 } else { 500 })).await;
            }
        }
    })
    .await;
    let good = FakePod::saying(format!("{STREAM_HEAD}{}{}{END}", chunk(TOKEN), chunk(DONE))).await;
    let scene = Scene::of_fleet(&[&failing, &good]);
    for id in 1..=20 {
        scene.relay(id).await;
    }
    assert_eq!((failing.requests(), good.requests()), (6, 14));
}

/// A name in a zone that is never resolved (RFC 6761).
const NOWHERE: &str = "nowhere.invalid:80";

#[tokio::test]
async fn a_name_that_cannot_be_looked_up_says_nothing_of_the_pod() {
    let scene = Scene::with(&[NOWHERE], |_| {});
    let pod = scene.hub.pods()[0].clone();
    for id in 1..=3 {
        let mut served = Box::pin(scene.serve(scene.call(id)));
        tokio::select! {
            _ = &mut served => panic!("served"),
            () = until("the attempt", || scene.hub.snapshot().counters.requeued == id) => {}
        }
    }
    assert!(!pod.breaker.is_open());
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn while_names_are_not_looked_up_a_pod_is_where_it_was() {
    let alive = FakePod::saying(format!("{STREAM_HEAD}{}{END}", chunk(DONE))).await;
    let scene = Scene::with(&[NOWHERE], |_| {});
    scene.upstream.found_at(NOWHERE, alive.authority.parse().unwrap());
    assert_eq!(scene.serve(scene.call(1)).await.unwrap().status(), 200);
    assert_settled(&scene.hub);
}

/// The pod's side runs on its own thread, and this one does not let its connections run while the
/// pod hangs up: so the connection still looks alive when it is taken.
#[tokio::test]
async fn a_kept_connection_that_has_died_is_replaced_without_a_fault() {
    let (hang_up, hears_hang_up) = async_channel::bounded::<()>(1);
    let (hung_up, saw_hang_up) = std::sync::mpsc::sync_channel::<()>(1);
    let (address, addressed) = std::sync::mpsc::sync_channel(1);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let pod = FakePod::new(move |mut line, number| {
                let (hears, hung_up) = (hears_hang_up.clone(), hung_up.clone());
                async move {
                    while line.hear().await.is_some() {
                        line.say(&format!("{STREAM_HEAD}{}{END}", chunk(DONE))).await;
                        if number == 0 {
                            hears.recv().await.unwrap();
                            drop(line);
                            return hung_up.send(()).unwrap();
                        }
                    }
                }
            })
            .await;
            address.send((pod.authority.clone(), Arc::clone(&pod.requests))).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let (authority, requests) = addressed.recv().unwrap();
    let scene = Scene::new(&[&authority]);
    assert_eq!(scene.relay(1).await.1, None);
    tokio::task::yield_now().await;

    hang_up.try_send(()).unwrap();
    saw_hang_up.recv().unwrap();
    assert_eq!(scene.relay(2).await.1, None);
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 2);
    assert_eq!(scene.hub.snapshot().counters.requeued, 0);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_pod_lost_after_the_request_was_sent_is_a_fault_and_no_second_try() {
    let failing = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.reset();
    })
    .await;
    let scene = Scene::new(&[&failing.authority, &failing.authority]);
    let fault = scene.serve(scene.call(1)).await.unwrap_err();
    assert!(matches!(fault, Fault::PodLost { .. }), "{fault}");
    assert_eq!(failing.requests(), 1);
    assert_settled(&scene.hub);
    assert_eq!(scene.hub.snapshot().counters.failed, 1);
    // The caller counts a fault, with the status that it chooses.
    assert_eq!(scene.done("failed", "499") + scene.done("client_gone", "499"), 0);
}

#[tokio::test]
async fn a_pod_lost_between_its_head_and_its_first_bytes_is_a_fault() {
    for ending in ["", END] {
        let failing = FakePod::new(move |mut line, _| async move {
            line.hear().await;
            line.say(STREAM_HEAD).await;
            line.say(ending).await;
        })
        .await;
        let scene = Scene::new(&[&failing.authority]);
        let fault = scene.serve(scene.call(1)).await.unwrap_err();
        assert!(matches!(fault, Fault::PodLost { .. }), "{fault}");
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn a_pod_that_takes_a_request_and_keeps_silent_runs_into_its_limit() {
    for head in ["", STREAM_HEAD] {
        let (gone, sees) = async_channel::bounded(1);
        let silent = FakePod::new(move |mut line, _| {
            let gone = gone.clone();
            async move {
                line.hear().await;
                line.say(head).await;
                line.hung_up().await;
                gone.send(()).await.unwrap();
            }
        })
        .await;
        let scene = Scene::with(&[&silent.authority], |c| c.first_token_timeout = SHORT);
        let fault = scene.serve(scene.call(1)).await.unwrap_err();
        assert!(matches!(fault, Fault::Timeout { limit: SHORT, .. }), "{fault}");
        assert_settled(&scene.hub);
        sees.recv().await.unwrap();
    }
}
