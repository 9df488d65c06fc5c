//! Streams that break, stall or end too soon.

use futures_util::future::join_all;
use http_body_util::BodyExt;

use super::scene::{DONE, END, FakePod, ROLE, SHORT, STREAM_HEAD, Scene, TOKEN, chunk};
use crate::{
    hub::fixture::{assert_settled, until},
    upstream::{Call, Dialect, Fault, RelayError},
};

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
