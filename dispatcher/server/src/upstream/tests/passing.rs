//! What a pod says is what the client gets.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use http_body::Body;

use super::scene::{
    DONE, END, FakePod, ROLE, STREAM_HEAD, Scene, TOKEN, USAGE, chunk, nobody, read,
};
use crate::{
    h1::PodRequest,
    hub::fixture::assert_settled,
    telemetry::Metrics,
    upstream::{Call, Upstream},
};

fn stream() -> String {
    let parts = [ROLE, TOKEN, TOKEN, USAGE, DONE].map(chunk).concat();
    format!("{STREAM_HEAD}{parts}{END}")
}

#[tokio::test]
async fn a_stream_passes_byte_for_byte_and_is_measured() {
    let pod = FakePod::saying(stream()).await;
    let scene = Scene::new(&[&pod.authority]);
    let (text, error) = scene.relay(1).await;
    assert_eq!(text, [ROLE, TOKEN, TOKEN, USAGE, DONE].concat());
    assert_eq!(error, None);
    let sample = scene.samples.try_recv().unwrap();
    assert_eq!(sample.output_tokens, 5);
    assert!(sample.ttft_ms.is_some() && sample.tpot_ms.is_some());
    assert_settled(&scene.hub);
    assert_eq!(scene.done("ok", "200"), 1);
}

#[tokio::test]
async fn usage_and_the_end_are_read_wherever_the_chunks_are_cut() {
    let text = [ROLE, TOKEN, USAGE, DONE].concat();
    let parts: String =
        text.as_bytes().chunks(7).map(|part| chunk(std::str::from_utf8(part).unwrap())).collect();
    let pod = FakePod::saying(format!("{STREAM_HEAD}{parts}{END}")).await;
    let scene = Scene::new(&[&pod.authority]);
    assert_eq!(scene.relay(1).await, (text, None));
    assert_eq!(scene.samples.try_recv().unwrap().output_tokens, 5);
    assert_settled(&scene.hub);
}

#[tokio::test]
async fn a_comment_passes_when_it_comes() {
    const PING: &str = ": ping\n";
    let (go_on, goes_on) = async_channel::bounded::<()>(1);
    let pod = FakePod::new(move |mut line, _| {
        let goes_on = goes_on.clone();
        async move {
            line.hear().await.unwrap();
            line.say(&format!("{STREAM_HEAD}{}{}", chunk(TOKEN), chunk(PING))).await;
            goes_on.recv().await.unwrap();
            line.say(&format!("{}{END}", chunk(DONE))).await;
        }
    })
    .await;
    let scene = Scene::new(&[&pod.authority]);
    let mut body = scene.serve(scene.call(1)).await.unwrap().into_body();
    let mut text = String::new();
    while !text.ends_with(PING) {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    go_on.send(()).await.unwrap();
    assert_eq!(read(body).await, (DONE.to_owned(), None));
}

/// Two tokens at once and, a moment later, what stops the answer and this: the tokens counted, and the time per token.
async fn stopped_late(end: &'static [&'static str]) -> (u32, f32) {
    const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n";
    let (go_on, goes_on) = async_channel::bounded::<()>(1);
    let pod = FakePod::new(move |mut line, _| {
        let goes_on = goes_on.clone();
        async move {
            line.hear().await.unwrap();
            line.say(&format!("{STREAM_HEAD}{}", chunk(&[TOKEN, TOKEN].concat()))).await;
            goes_on.recv().await.unwrap();
            line.say(&chunk(STOP)).await;
            line.say(&format!("{}{END}", chunk(&end.concat()))).await;
        }
    })
    .await;
    let scene = Scene::new(&[&pod.authority]);
    let mut body = scene.serve(scene.call(1)).await.unwrap().into_body();
    http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    go_on.send(()).await.unwrap();
    assert_eq!(read(body).await.1, None);
    let sample = scene.samples.try_recv().unwrap();
    let metrics = scene.upstream.metrics().gather();
    let tpot = metrics.iter().find(|family| family.name() == "weir_tpot_seconds").unwrap();
    let counted_ms = tpot.get_metric()[0].get_histogram().get_sample_sum() * 1e3;
    let tpot_ms = sample.tpot_ms.unwrap();
    assert!((counted_ms - f64::from(tpot_ms)).abs() < 1.0, "{counted_ms}, {tpot_ms}");
    (sample.output_tokens, tpot_ms)
}

#[tokio::test]
async fn the_token_that_stops_an_answer_has_no_text_and_is_in_time_where_it_is_counted() {
    let (tokens, tpot_ms) = stopped_late(&[USAGE, DONE]).await;
    assert_eq!(tokens, 5);
    assert!(tpot_ms >= 10.0, "{tpot_ms}: four gaps, the last of them of 40 ms");
    // Who counts what came has one gap, which took no time.
    let (tokens, tpot_ms) = stopped_late(&[DONE]).await;
    assert_eq!(tokens, 2);
    assert!(tpot_ms < 10.0, "{tpot_ms}");
}

#[tokio::test]
async fn tokens_are_counted_when_the_pod_does_not_say() {
    let parts = [ROLE, TOKEN, TOKEN, TOKEN, DONE].map(chunk).concat();
    let pod = FakePod::saying(format!("{STREAM_HEAD}{parts}{END}")).await;
    let scene = Scene::new(&[&pod.authority]);
    scene.relay(1).await;
    assert_eq!(scene.samples.try_recv().unwrap().output_tokens, 3);
}

/// Eight streams tell of four tokens an event; the ninth is counted and judged by them, in its sample and in the metrics.
#[tokio::test]
async fn a_stream_without_usage_is_measured_like_those_with_it() {
    const TOKENS: &str = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":37}}\n\n";
    let says = |usage: &str| {
        let parts = [ROLE, &TOKEN.repeat(10), usage, DONE].map(chunk).concat();
        format!("{STREAM_HEAD}{parts}{END}")
    };
    let (with, without) = (says(TOKENS), says(": nothing\n\n"));
    let pod = FakePod::new(move |mut line, _| {
        let (with, without) = (with.clone(), without.clone());
        async move {
            for turn in 0.. {
                let Some(_) = line.hear().await else { return };
                line.say(if turn < 8 { &with } else { &without }).await;
            }
        }
    })
    .await;
    let mut scene = Scene::new(&[&pod.authority]);
    let metrics = Arc::new(Metrics::with_compat(100).unwrap());
    scene.upstream = Arc::new(Upstream::new(*scene.upstream.config(), metrics.clone()));
    for id in 1..=9 {
        scene.relay(id).await;
        assert_eq!(scene.samples.try_recv().unwrap().output_tokens, 37, "request {id}");
    }
    assert_eq!(pod.connections(), 1);
    let text = prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
    let names = "{model_name=\"default\",target_model_name=\"default\"}";
    let want = format!("inference_objective_output_tokens_sum{names} {}", 9 * 37);
    assert!(text.lines().any(|found| found == want), "no {want} in\n{text}");
    assert_eq!(scene.hub.snapshot().pods[0].tokens_per_event, 4.0);
}

#[tokio::test]
async fn the_request_ends_with_its_last_event_and_not_with_its_connection() {
    let parts = [TOKEN, DONE].map(chunk).concat();
    // The end of the chunked body never comes.
    let pod = FakePod::saying(format!("{STREAM_HEAD}{parts}")).await;
    let scene = Scene::new(&[&pod.authority]);
    let mut body = scene.serve(scene.call(1)).await.unwrap().into_body();
    let mut text = String::new();
    while !text.contains("[DONE]") {
        let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    assert_settled(&scene.hub);
    drop(body);
    assert_settled(&scene.hub);
    assert_eq!(scene.done("ok", "200"), 1);
}

#[tokio::test]
async fn a_client_is_spoken_to_in_our_version_whatever_the_pod_speaks() {
    let answer = "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    let pod = FakePod::saying(answer).await;
    let scene = Scene::new(&[&pod.authority]);
    let response = scene.serve(scene.call(1)).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_11));
}

#[tokio::test]
async fn headers_of_the_connection_stay_behind_and_ours_are_added() {
    let pod = FakePod::saying(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: keep-alive, x-private\r\n\
         x-private: 1\r\nx-engine: v\r\ntransfer-encoding: chunked\r\n\r\n{}{END}",
        chunk(DONE)
    ))
    .await;
    let scene = Scene::new(&[&pod.authority]);
    let response = scene.serve(scene.call(1)).await.unwrap();
    let headers = response.headers();
    let value = |name: &'static str| headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(value("x-weir-pod"), Some("pod-1"));
    assert_eq!(value("x-weir-queue-ms"), Some("0"));
    assert_eq!(value("cache-control"), Some("no-cache"));
    assert_eq!(value("x-accel-buffering"), Some("no"));
    assert_eq!(value("x-engine"), Some("v"));
    for gone in ["connection", "x-private", "transfer-encoding", "content-length"] {
        assert_eq!(value(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn the_pod_gets_the_body_unchanged_and_its_own_host() {
    let (heard, hears) = async_channel::bounded(1);
    let pod = FakePod::new(move |mut line, _| {
        let heard = heard.clone();
        async move {
            heard.send(line.hear().await.unwrap()).await.unwrap();
            line.say(&stream()).await;
        }
    })
    .await;
    let scene = Scene::new(&[&pod.authority]);
    let mut call = scene.call(1);
    let (client, body) = (("x-client", b"1".as_slice()), call.onward.body);
    call.onward =
        PodRequest::new(&Method::POST, "/v1/chat/completions", [client].into_iter(), body);
    scene.serve(call).await.unwrap();
    let request = hears.recv().await.unwrap();
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"stream\":true}"), "{request}");
    let host = format!("host: {}", pod.authority);
    for there in [&*host, "content-length: 15", "x-client: 1", "x-request-id: req-1"] {
        assert!(request.contains(&format!("{there}\r\n")), "{request}");
    }
}

/// What a pod hears of calls, one after the other; it hangs up on the first `deaf` without a word.
async fn heard(inject: bool, own_priority: bool, deaf: usize) -> (String, u64) {
    let (heard, hears) = async_channel::bounded(1);
    let pod = FakePod::new(move |mut line, _| {
        let heard = heard.clone();
        async move {
            heard.send(line.hear().await.unwrap()).await.unwrap();
            line.say(&stream()).await;
        }
    })
    .await;
    let mut pods = Vec::new();
    for _ in 0..deaf {
        pods.push(nobody().await);
    }
    pods.push(pod.authority.clone());
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let scene = Scene::with(&pods, |config| config.inject_priority = inject);
    let call = Call { own_priority, ..scene.call(1) };
    scene.serve(call).await.unwrap();
    (hears.recv().await.unwrap(), scene.hub.snapshot().counters.requeued)
}

#[tokio::test]
async fn a_priority_from_band_and_slack_is_written_into_the_body_when_asked_for() {
    let (request, _) = heard(true, false, 0).await;
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let priority = body.strip_prefix("{\"stream\":true,\"priority\":").unwrap();
    // Two seconds of TTFT objective less the 20 ms predicted, less what passed.
    let priority: i32 = priority.strip_suffix('}').unwrap().parse().unwrap();
    assert!((1..=1980).contains(&priority), "{priority}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
}

#[tokio::test]
async fn a_second_attempt_has_one_priority_as_the_first_had() {
    let (request, requeued) = heard(true, false, 1).await;
    assert_eq!((requeued, request.matches("priority").count()), (1, 1), "{request}");
}

#[tokio::test]
async fn no_priority_is_written_unless_asked_for_or_beside_a_clients_own() {
    for (inject, own) in [(false, false), (true, true)] {
        let (request, _) = heard(inject, own, 0).await;
        assert!(request.ends_with("\r\n\r\n{\"stream\":true}"), "{request}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_response_was_read_to_its_end() {
    let pod = FakePod::saying(stream()).await;
    let scene = Scene::new(&[&pod.authority]);
    for id in 1..=5 {
        assert_eq!(scene.relay(id).await.1, None);
        // Its driver learns of the end in its own turn.
        tokio::task::yield_now().await;
    }
    assert_eq!((pod.requests(), pod.connections()), (5, 1));
}

#[tokio::test]
async fn a_whole_response_has_its_length_and_its_usage_is_read() {
    let json = r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
    let pod = FakePod::saying(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}",
        json.len()
    ))
    .await;
    let scene = Scene::new(&[&pod.authority]);
    let response = scene.serve(scene.unstreamed(1)).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(json.len() as u64));
    assert_settled(&scene.hub);
    let (text, error) = read(response.into_body()).await;
    assert_eq!((text.as_str(), error), (json, None));
    let sample = scene.samples.try_recv().unwrap();
    assert_eq!((sample.output_tokens, sample.ttft_ms), (4, None));
}

#[tokio::test]
async fn a_response_too_long_to_be_held_back_passes_with_its_length() {
    let json = "x".repeat(300_000);
    let pod =
        FakePod::saying(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{json}", json.len()))
            .await;
    let scene = Scene::with(&[&pod.authority], |config| config.buffer_bytes = 1000);
    let response = scene.serve(scene.unstreamed(1)).await.unwrap();
    assert_eq!(response.body().size_hint().exact(), Some(300_000));
    assert!(!scene.hub.idle());
    let (text, error) = read(response.into_body()).await;
    assert_eq!((text, error), (json, None));
    assert_settled(&scene.hub);
    assert_eq!(scene.hub.snapshot().counters.completed, 1);
}

#[tokio::test]
async fn responses_are_held_until_their_clients_have_them_while_there_is_room_for_all() {
    let json = "x".repeat(300_000);
    let said = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{json}", json.len());
    let pod = FakePod::saying(said).await;
    let scene = Scene::with(&[&pod.authority], |config| config.max_buffered_bytes = 400_000);
    let held = scene.serve(scene.unstreamed(1)).await.unwrap().into_body();
    assert_settled(&scene.hub);
    let mut whole = Box::pin(held);
    let data = http_body_util::BodyExt::frame(&mut whole).await.unwrap().unwrap();
    drop(whole);
    // The server has it all, and its client nothing.
    let bytes = data.into_data().unwrap();
    let passed = scene.serve(scene.unstreamed(2)).await.unwrap().into_body();
    assert!(!scene.hub.idle(), "it is passed on as it comes");
    assert_eq!(passed.size_hint().exact(), Some(300_000));
    assert_eq!(read(passed).await, (json.clone(), None));
    assert_settled(&scene.hub);
    drop(bytes);
    assert_eq!(scene.upstream.memory().budget.bytes(), 0);
    let held = scene.serve(scene.unstreamed(3)).await.unwrap().into_body();
    assert_settled(&scene.hub);
    assert_eq!(read(held).await, (json, None));
    assert_eq!((scene.upstream.memory().budget.bytes(), scene.done("ok", "200")), (0, 3));
}

#[tokio::test]
async fn a_pods_own_error_passes_unchanged() {
    let json = r#"{"error":{"message":"too long"}}"#;
    for (status, outcome) in [("400 Bad Request", "bad_request"), ("500 Broken", "failed")] {
        let pod = FakePod::saying(format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}",
            json.len()
        ))
        .await;
        let scene = Scene::new(&[&pod.authority]);
        let response = scene.serve(scene.call(1)).await.unwrap();
        let code = StatusCode::from_bytes(&status.as_bytes()[..3]).unwrap();
        assert_eq!(response.status(), code);
        assert_eq!(read(response.into_body()).await, (json.to_owned(), None));
        assert_settled(&scene.hub);
        assert_eq!(scene.done(outcome, code.as_str()), 1);
        assert!(scene.samples.is_empty());
    }
}

#[tokio::test]
async fn a_stream_is_counted_under_the_other_systems_names_when_they_are_on() {
    let pod = FakePod::saying(stream()).await;
    let mut scene = Scene::new(&[&pod.authority]);
    let metrics = Arc::new(Metrics::with_compat(100).unwrap());
    scene.upstream = Arc::new(Upstream::new(*scene.upstream.config(), metrics.clone()));
    let (body, _) = scene.relay(1).await;
    let text = prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
    let names = "{model_name=\"default\",target_model_name=\"default\"}";
    for line in [
        format!("inference_objective_request_ttft_seconds_count{names} 1"),
        format!("inference_objective_request_tpot_seconds_count{names} 1"),
        format!("inference_objective_request_predicted_ttft_seconds_sum{names} 0.02"),
        format!("inference_objective_request_duration_seconds_count{names} 1"),
        format!("inference_objective_response_sizes_sum{names} {}", body.len()),
        format!("inference_objective_output_tokens_sum{names} 5"),
        "inference_objective_running_requests{model_name=\"default\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}
