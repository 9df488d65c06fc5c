//! Pods that fail, each in its own way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use futures_util::future::join_all;
use http_body_util::BodyExt;
use weir_core::RefusalReason;

use super::scene::{DONE, END, FakePod, ROLE, SHORT, STREAM_HEAD, Scene, TOKEN, chunk, nobody};
use crate::{
    fleet::Pod,
    hub::fixture::{assert_settled, pod, until},
    upstream::{Call, Dialect, Fault, RelayError},
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

fn broken(code: &str, message: &str) -> String {
    format!(
        "data: {{\"error\":{{\"message\":\"{message}\",\"type\":\"server_error\",\"param\":null,\"code\":\"{code}\"}}}}\n\n"
    )
}

#[tokio::test]
async fn a_stream_that_dies_says_so_and_does_not_look_complete() {
    // The connection dies; or the pod ends its body properly, but without the last event.
    for ending in ["", END] {
        let failing = FakePod::new(move |mut line, _| async move {
            line.hear().await;
            line.say(&format!("{STREAM_HEAD}{}{}{ending}", chunk(ROLE), chunk(TOKEN))).await;
        })
        .await;
        let scene = Scene::new(&[&failing.authority]);
        let (text, error) = scene.relay(1).await;
        let last = broken("upstream_lost", "the pod was lost before the end of its response");
        assert_eq!(text, format!("{ROLE}{TOKEN}{last}"));
        assert_eq!(error, Some(RelayError::Lost));
        assert_settled(&scene.hub);
        assert_eq!(scene.hub.snapshot().counters.failed, 1);
        assert_eq!((scene.done("failed", "200"), scene.done("client_gone", "200")), (1, 0));
        assert_eq!(scene.stream_errors(), 1);
    }
}

/// What a client is given of a stream, by the parser of the HTML standard's section 9.2.6: the data of each event that is
/// dispatched. One that is open at the end is not.
fn dispatched(stream: &str) -> Vec<String> {
    let (mut events, mut data) = (Vec::new(), String::new());
    // A last line without its end is none.
    let lines = stream.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for line in lines.map(|line| line.trim_end_matches(['\r', '\n'])) {
        if line.is_empty() {
            if !data.is_empty() {
                events.push(std::mem::take(&mut data).trim_end_matches('\n').to_owned());
            }
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push_str(value.strip_prefix(' ').unwrap_or(value));
            data.push('\n');
        }
    }
    events
}

#[tokio::test]
async fn of_an_event_cut_in_two_the_client_is_given_nothing_but_the_one_that_reports_it() {
    let lines = "data: {\ndata: \"choices\": []\ndata: }\n\n";
    for event in [TOKEN, lines, &lines.replace('\n', "\r\n"), &format!(": ping\n\n{TOKEN}")] {
        // The last newline of the last two is not needed for a whole event to have been.
        let cuts = (1..event.len() - 2).map(async |cut| {
            // In one read with the event before it, or in one of its own.
            let (before, part) = (chunk(TOKEN), chunk(&event[..cut]));
            let failing = FakePod::new(move |mut line, number| {
                let (before, part) = (before.clone(), part.clone());
                async move {
                    line.hear().await;
                    if number == 0 {
                        return line.say(&format!("{STREAM_HEAD}{before}{part}")).await;
                    }
                    line.say(&format!("{STREAM_HEAD}{before}")).await;
                    tokio::task::yield_now().await;
                    line.say(&part).await;
                }
            })
            .await;
            let scene = Scene::new(&[&failing.authority]);
            for id in 1..=2 {
                let (text, error) = scene.relay(id).await;
                assert_eq!(error, Some(RelayError::Lost));
                let events = dispatched(&text);
                let parse = |event: &String| serde_json::from_str(event).unwrap();
                let parsed: Vec<serde_json::Value> = events.iter().map(parse).collect();
                assert_eq!(parsed.len(), 2, "{text}");
                assert_eq!(parsed[1]["error"]["code"], "upstream_lost", "{text}");
            }
        });
        join_all(cuts).await;
    }
}

#[tokio::test]
async fn an_event_that_comes_in_pieces_passes_unchanged() {
    let end = format!("{TOKEN}{TOKEN}{DONE}");
    for cut in 1..end.len() {
        let parts = [&end[..cut], &end[cut..]].map(chunk);
        let pod = FakePod::new(move |mut line, _| {
            let parts = parts.clone();
            async move {
                while line.hear().await.is_some() {
                    line.say(&format!("{STREAM_HEAD}{}", parts[0])).await;
                    tokio::task::yield_now().await;
                    line.say(&format!("{}{END}", parts[1])).await;
                }
            }
        })
        .await;
        let scene = Scene::new(&[&pod.authority]);
        assert_eq!(scene.relay(1).await, (end.clone(), None), "cut at {cut}");
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn a_stream_passes_to_its_last_byte_though_its_last_event_is_open() {
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}";
    for (text, dialect) in [
        ("data: {}\n\ndata: {}", Dialect::Other),
        ("data: {}\n\ndata: [DONE]", Dialect::Completions),
        (stop, Dialect::Messages),
    ] {
        let pod = FakePod::saying(format!("{STREAM_HEAD}{}{END}", chunk(text))).await;
        let scene = Scene::new(&[&pod.authority]);
        let call = Call { dialect, ..scene.call(1) };
        let body = scene.serve(call).await.unwrap().into_body();
        assert_eq!(super::scene::read(body).await, (text.to_owned(), None));
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn a_stream_that_stalls_is_broken_off() {
    for first in [TOKEN, ROLE] {
        let (gone, sees) = async_channel::bounded(1);
        let stalling = FakePod::new(move |mut line, _| {
            let gone = gone.clone();
            async move {
                line.hear().await;
                line.say(&format!("{STREAM_HEAD}{}", chunk(first))).await;
                line.hung_up().await;
                gone.send(()).await.unwrap();
            }
        })
        .await;
        let scene = Scene::with(&[&stalling.authority], |config| {
            config.stall_timeout = SHORT;
            config.first_token_timeout = 3 * SHORT;
        });
        let (text, error) = scene.relay(1).await;
        let last = broken("upstream_stalled", "the pod stopped sending");
        assert_eq!(text, format!("{first}{last}"));
        assert_eq!(error, Some(RelayError::Stalled));
        assert_settled(&scene.hub);
        sees.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_of_messages_is_whole_at_its_last_event_and_told_of_a_loss_by_name() {
    let text = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n";
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let refused = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n";
    let lost = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"the pod was lost before the end of its response\",\"code\":\"upstream_lost\"}}\n\n";
    for (end, told, error) in
        [(stop, "", None), ("", lost, Some(RelayError::Lost)), (refused, "", None)]
    {
        let said = format!("{text}{end}");
        let pod = FakePod::saying(format!("{STREAM_HEAD}{}{END}", chunk(&said))).await;
        let scene = Scene::new(&[&pod.authority]);
        let call = Call { dialect: Dialect::Messages, ..scene.call(1) };
        let body = scene.serve(call).await.unwrap().into_body();
        assert_eq!(super::scene::read(body).await, (format!("{said}{told}"), error));
        assert_eq!(scene.stream_errors(), u64::from(error.is_some()));
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn what_is_no_event_is_no_sign_of_life_of_a_stream() {
    // A server whose engine hangs, and an event that does not get to its end.
    for said in [": keep-alive\n\n", ": keep-alive\n", "event: x\n\n", "data: x"] {
        let hanging = FakePod::new(move |mut line, _| async move {
            line.hear().await;
            line.say(&format!("{STREAM_HEAD}{}", chunk(TOKEN))).await;
            for _ in 0..64 {
                line.say(&chunk(said)).await;
                tokio::time::sleep(SHORT / 4).await;
            }
            line.say(&format!("{}{END}", chunk(&format!("\n\n{DONE}")))).await;
        })
        .await;
        let scene = Scene::with(&[&hanging.authority], |config| config.stall_timeout = 2 * SHORT);
        let (text, error) = scene.relay(1).await;
        assert_eq!(error, Some(RelayError::Stalled), "{said:?}: {text}");
        assert!(text.ends_with(&broken("upstream_stalled", "the pod stopped sending")), "{text}");
        assert_settled(&scene.hub);
    }
}

#[tokio::test]
async fn an_event_too_long_to_be_kept_back_is_a_sign_of_life_while_it_grows() {
    let part = "x".repeat(300 << 10);
    let long = FakePod::new(move |mut line, _| {
        let part = chunk(&part);
        async move {
            line.hear().await;
            line.say(&format!("{STREAM_HEAD}{}{}", chunk(TOKEN), chunk("data: "))).await;
            for _ in 0..10 {
                line.say(&part).await;
                tokio::time::sleep(SHORT).await;
            }
            line.say(&format!("{}{END}", chunk(&format!("\n\n{DONE}")))).await;
        }
    })
    .await;
    let scene = Scene::with(&[&long.authority], |config| config.stall_timeout = 6 * SHORT);
    assert_eq!(scene.relay(1).await.1, None);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_stream_whose_events_come_before_its_answer_is_not_a_stalled_one() {
    let thinking = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.say(STREAM_HEAD).await;
        for _ in 0..8 {
            line.say(&chunk(ROLE)).await;
            tokio::time::sleep(SHORT).await;
        }
        line.say(&format!("{}{}{END}", chunk(TOKEN), chunk(DONE))).await;
    })
    .await;
    let scene = Scene::with(&[&thinking.authority], |config| {
        config.first_token_timeout = 2 * SHORT;
        config.stall_timeout = 6 * SHORT;
    });
    assert_eq!(scene.relay(1).await.1, None);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_slow_stream_is_not_a_stalled_one() {
    let slow = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.say(STREAM_HEAD).await;
        // Longer than a stall together, and each pause far shorter: a machine that stands still for a moment is none either.
        for _ in 0..8 {
            line.say(&chunk(TOKEN)).await;
            tokio::time::sleep(SHORT).await;
        }
        line.say(&format!("{}{END}", chunk(DONE))).await;
    })
    .await;
    let scene = Scene::with(&[&slow.authority], |config| config.stall_timeout = 6 * SHORT);
    assert_eq!(scene.relay(1).await.1, None);
}

#[tokio::test]
async fn a_whole_response_cut_short_is_a_fault_while_it_is_held_back() {
    let failing = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.say(&format!("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{}", "x".repeat(2000)))
            .await;
    })
    .await;
    let scene = Scene::new(&[&failing.authority]);
    let fault = scene.serve(scene.unstreamed(1)).await.unwrap_err();
    assert!(matches!(fault, Fault::PodLost { .. }), "{fault}");
    assert_settled(&scene.hub);

    let scene = Scene::with(&[&failing.authority], |config| config.buffer_bytes = 1000);
    let response = scene.serve(scene.unstreamed(1)).await.unwrap();
    let (text, error) = super::scene::read(response.into_body()).await;
    assert_eq!((text, error), ("x".repeat(2000), Some(RelayError::Lost)));
    assert_settled(&scene.hub);
    assert_eq!((scene.done("failed", "200"), scene.stream_errors()), (1, 0), "it is no stream");
}

#[tokio::test]
async fn a_stream_that_is_ended_before_its_pod_is_done_says_so() {
    let slow = FakePod::new(|mut line, _| async move {
        line.hear().await;
        line.say(&format!("{STREAM_HEAD}{}", chunk(TOKEN))).await;
        line.hung_up().await;
    })
    .await;
    let scene = Scene::new(&[&slow.authority]);
    let mut body = scene.serve(scene.call(1)).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), TOKEN);
    scene.upstream.closing().say();
    let (text, error) = super::scene::read(body).await;
    assert_eq!(text, broken("server_is_overloaded", "this server is shutting down"));
    assert_eq!(error, Some(RelayError::Closing));
    assert_eq!(scene.done("failed", "200"), 1);
    assert!(!scene.hub.pods()[0].breaker.is_open());
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_request_that_is_ended_before_its_pod_answers_is_a_fault() {
    // Nothing of an answer, and half of one.
    for said in ["", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"] {
        let silent = FakePod::new(move |mut line, _| async move {
            line.hear().await;
            line.say(said).await;
            line.hung_up().await;
        })
        .await;
        let scene = Scene::new(&[&silent.authority]);
        let mut served = Box::pin(scene.serve(scene.unstreamed(1)));
        tokio::select! {
            _ = &mut served => panic!("served"),
            () = until("the pod has it", || silent.requests() == 1) => {}
        }
        scene.upstream.closing().say();
        let fault = served.await.unwrap_err();
        assert!(matches!(fault, Fault::Closing { .. }), "{fault}");
        assert_settled(&scene.hub);
    }
}
