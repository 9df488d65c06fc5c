use proptest::prelude::*;
use serde_json::json;

use super::*;

fn event(id: &str, delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
    format!("data: {}\n\n", json!({"id": id, "created": 7, "model": "m", "choices": [choice]}))
}

fn token(id: &str, text: &str) -> String {
    event(id, &json!({"content": text}), None)
}

fn role(id: &str) -> String {
    event(id, &json!({"role": "assistant", "content": ""}), None)
}

/// What is passed on of these.
fn pass(said: &mut Said, events: &str) -> String {
    match said.pass(Bytes::copy_from_slice(events.as_bytes()), false) {
        Passed::All(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Passed::UpTo(..) => panic!("nothing failed"),
    }
}

/// The text so far, if another pod may go on with it.
fn text(said: &Said) -> Option<String> {
    plain(said.text()?)
}

#[test]
fn the_text_of_a_chat_and_of_a_completion_is_kept() {
    let mut said = Said::default();
    let completion =
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\"a \\\"b\\u00e9\"}]}\r\n\r\n";
    for events in [role("a"), token("a", "x\n"), completion.to_owned(), ": ping\n\n".to_owned()] {
        assert_eq!(pass(&mut said, &events), events, "of the first pod nothing changes");
    }
    assert_eq!((text(&said).as_deref(), said.events), (Some("x\na \"b\u{e9}"), 2));
}

#[test]
fn what_is_more_than_a_text_closes_it() {
    for more in [
        event("a", &json!({"reasoning_content": "hm"}), None),
        event("a", &json!({"tool_calls": [{"index": 0}]}), None),
        event("a", &json!({"refusal": "no"}), None),
        event("a", &json!({}), Some("stop")),
        "data: [DONE]\n\n".to_owned(),
        "data: {\ndata: \"choices\":[]}\n\n".to_owned(),
        token("a", "b").replace("\"index\":0", "\"index\":1"),
        token("a", &"x".repeat(MOST + 1)),
    ] {
        let mut said = Said::default();
        assert_eq!(
            pass(&mut said, &token("a", "b")) + &pass(&mut said, &more),
            token("a", "b") + &more
        );
        assert_eq!(said.text(), None, "{more}");
    }
    for nothing in [
        event(
            "a",
            &json!({"content": null, "tool_calls": [], "reasoning": "", "refusal": null}),
            None,
        ),
        "data: {\"choices\":[],\"usage\":{\"completion_tokens\":1}}\n\n".to_owned(),
        "data: {}\n\n".to_owned(),
    ] {
        let mut said = Said::default();
        pass(&mut said, &token("a", "b"));
        pass(&mut said, &nothing);
        assert_eq!(text(&said).as_deref(), Some("b"), "{nothing}");
    }
}

#[test]
fn an_event_that_says_that_the_pod_failed_is_not_passed_on() {
    let failed = "event: error\ndata: {\"error\":{\"code\":500}}\n\n";
    let mut said = Said::default();
    let events = Bytes::from([&token("a", "b"), failed, "data: [DONE]\n\n"].concat());
    let passed = said.pass(events, true);
    let rest = Bytes::from([failed, "data: [DONE]\n\n"].concat());
    assert_eq!(passed, Passed::UpTo(token("a", "b").into(), rest));
    assert_eq!(text(&said).as_deref(), Some("b"));
}

#[test]
fn an_answer_that_its_pod_gives_up_is_not_passed_on_as_one_that_is_complete() {
    let aborted = event("a", &json!({}), Some("abort"));
    let mut said = Said::default();
    let events = Bytes::from(token("a", "b") + &aborted);
    let parted = Passed::UpTo(token("a", "b").into(), aborted.clone().into());
    assert_eq!(said.pass(events, false), parted);
    // Where nobody can go on it passes.
    said.pass(Bytes::from(event("a", &json!({"reasoning": "hm"}), None)), false);
    assert_eq!(pass(&mut said, &aborted), aborted);

    for (answer, is) in [
        (r#"{"choices":[{"finish_reason":"abort"}]}"#, true),
        (r#"{"choices":[{"finish_reason":"stop"},{"finish_reason" : "abort"}]}"#, true),
        (r#"{"choices":[{"finish_reason":"stop"}]}"#, false),
        (r#"{"choices":[{"text":"\"finish_reason\":\"abort\"","finish_reason":null}]}"#, false),
        ("", false),
    ] {
        assert_eq!(is_aborted(answer.as_bytes()), is, "{answer}");
    }
}

#[test]
fn a_usage_is_that_of_the_whole_answer() {
    let usage = |prompt: u32, completion: u32| json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 12, "x": {"y": 1}});
    let event = |id: &str, usage: &Value| {
        format!("data: {{\"id\":\"{id}\",  \"choices\":[], \"usage\" : {usage} }}\n\n")
    };
    let mut said = Said::default();
    pass(&mut said, &token("a", "b"));
    said.goes_on(3);
    let passed = pass(&mut said, &event("bb", &usage(10, 2)));
    assert_eq!(passed, event("a", &usage(7, 5)), "nothing else is written anew");
    assert_eq!(said.before(), 3);
}

proptest! {
    /// Wherever a stream is cut and however events come together, its text is that of all pods, said once, under one name.
    #[test]
    fn streams_of_several_pods_are_one(
        pods in prop::collection::vec(prop::collection::vec(".{1,6}", 0..6), 1..4),
        group in 1_usize..4,
        opens in prop::collection::vec(any::<bool>(), 4),
        crlf in any::<bool>(),
    ) {
        let (mut said, mut passed) = (Said::default(), String::new());
        for (number, words) in pods.iter().enumerate() {
            let name = ["first", "2", "the third"][number];
            let start = opens[number].then(|| role(name));
            let events: Vec<String> =
                start.into_iter().chain(words.iter().map(|word| token(name, word))).collect();
            for events in events.chunks(group) {
                let events = events.concat();
                let events = if crlf { events.replace('\n', "\r\n") } else { events };
                passed.push_str(&pass(&mut said, &events));
            }
            let whole = pods[..=number].concat().concat();
            prop_assert_eq!(text(&said), Some(whole));
            said.goes_on(1);
        }
        let events: Vec<Value> = passed
            .lines()
            .filter_map(|line| line.trim_end_matches('\r').strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let joined: String =
            events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        prop_assert_eq!(joined, pods.concat().concat());
        prop_assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
        let roles = events.iter().filter(|event| event["choices"][0]["delta"]["role"].is_string());
        prop_assert!(roles.count() <= 1);
    }
}
