use super::super::{Endpoint, peek};
use super::*;

const SYSTEM: &str = r#"{"role":"system","content":"You are terse. You say no more than what was asked for, in one line, and you never say that you are sorry."}"#;
const QUESTION: &str = r#"{"role":"user","content":"What is the longest word that has all five vowels once, in their order? Say \"none\" if there is none."}"#;
const NEXT: &str = r#"{"role":"user","content":"And the shortest?"}"#;

fn turn_at(endpoint: Endpoint, members: &str) -> Turn {
    let body = format!(r#"{{"model":"m",{members}}}"#);
    peek(endpoint, body.as_bytes()).unwrap().named_as("m").1
}

fn chat(messages: &[&str]) -> Turn {
    turn_at(Endpoint::Chat, &format!(r#""messages":[{}]"#, messages.join(",")))
}

/// The reply in a prompt of these messages, of which this is the answer's place.
fn reply(before: &[&str], answer: &str, after: &[&str]) -> Option<Reply> {
    let all: Vec<&str> = before.iter().chain([&answer]).chain(after).copied().collect();
    chat(&all).reply
}

#[test]
fn the_next_turn_goes_on_from_the_answer_to_the_prompt_before() {
    let first = chat(&[SYSTEM, QUESTION]);
    assert!(first.name != 0 && first.reply.is_none());
    let from = (1 + SYSTEM.len() + 1 + QUESTION.len()) / BLOCK_BYTES;
    let long = "facetious, or so they say ".repeat(20);
    for answer in [
        format!(r#"{{"role":"assistant","content":"{long}"}}"#),
        format!(r#"{{ "role" : "assistant", "content": "{long}" }}"#),
        format!(r#"{{"content":"{long}","refusal":null,"role":"assistant","annotations":[]}}"#),
        format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"{long}"}}]}}"#),
        format!(r#"{{"content":[{{"text":"a"}},{{"text":"{long}"}}],"role":"assistant"}}"#),
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"1","function":{{"name":"f","arguments":"{long}"}}}}]}}"#
        ),
        format!(
            r#"{{"role":"assistant","content":"she wrote }},{{\"role\":\"assistant\" {long}"}}"#
        ),
    ] {
        for after in [&[NEXT][..], &[r#"{"role":"tool","tool_call_id":"1","content":"{}"}"#, NEXT]]
        {
            let found = reply(&[SYSTEM, QUESTION], &answer, after);
            let end = (1 + SYSTEM.len() + 1 + QUESTION.len() + 1 + answer.len()) / BLOCK_BYTES;
            let right = Reply { to: first.name, from: from as u32, end: end as u32 };
            assert_eq!(found, Some(right), "{answer}");
        }
    }
}

#[test]
fn of_several_answers_the_last_one_counts() {
    let said = r#"{"role":"assistant","content":"facetiously"}"#;
    let second = chat(&[SYSTEM, QUESTION, said, NEXT]);
    let third = chat(&[SYSTEM, QUESTION, said, NEXT, said, NEXT]);
    assert_eq!(third.reply.unwrap().to, second.name);
    assert_ne!(second.reply.unwrap().to, second.name);
}

/// However far from the end it stands, across the bounds of what is searched at a time too.
#[test]
fn the_last_role_is_found_wherever_it_stands() {
    let length = 16_000;
    let mut far = NEAR_BYTES;
    let mut places = vec![0, 1, length - ASSISTANT.len()];
    while far < length {
        places.extend(length - far - ASSISTANT.len() - 1..length - far + 2);
        far += far * FURTHER;
    }
    for place in places {
        let mut text = vec![b'x'; length];
        text[place..place + ASSISTANT.len()].copy_from_slice(ASSISTANT);
        assert_eq!(last_role(&text), Some(place));
        if let Some(earlier) = text.get_mut(..place).and_then(|text| text.last_chunk_mut()) {
            *earlier = *ASSISTANT.first_chunk::<11>().unwrap();
            assert_eq!(last_role(&text), Some(place));
        }
    }
    assert_eq!(last_role(&vec![b'x'; length]), None);
    assert_eq!(last_role(b""), None);
}

#[test]
fn white_space_between_messages_and_behind_them_changes_no_name_of_what_came_before() {
    let said = r#"{"role": "assistant", "content": "facetiously"}"#;
    let body = |messages: &[&str]| {
        turn_at(Endpoint::Chat, &format!(r#""messages": [{} ]"#, messages.join(", ")))
    };
    let next = body(&[SYSTEM, QUESTION, said, NEXT]);
    assert_eq!(next.reply.unwrap().to, body(&[SYSTEM, QUESTION]).name);
}

#[test]
fn anthropics_messages_and_the_items_of_responses_are_turns_too() {
    let said = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"facetiously"}]}"#;
    for (endpoint, before, array) in [
        (Endpoint::Messages, r#""system":"be terse""#, "messages"),
        (Endpoint::Responses, r#""instructions":"be terse""#, "input"),
    ] {
        let first = turn_at(endpoint, &format!(r#"{before},"{array}":[{QUESTION}]"#));
        let next = format!(r#"{before},"{array}":[{QUESTION},{said},{NEXT}]"#);
        assert_eq!(turn_at(endpoint, &next).reply.unwrap().to, first.name, "{endpoint:?}");
    }
}

#[test]
fn what_is_attached_elsewhere_hides_no_answer() {
    let image = format!(
        r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}]}}"#,
        "iVBORw0KGgo".repeat(300)
    );
    let said = r#"{"role":"assistant","content":"a cat"}"#;
    let next = chat(&[&image, said, &image]);
    assert_eq!(next.reply.unwrap().to, chat(&[&image]).name);
}

#[test]
fn names_differ_by_model_system_question_and_last_byte() {
    let names = [
        chat(&[SYSTEM, QUESTION]).name,
        chat(&[QUESTION]).name,
        chat(&[SYSTEM, NEXT]).name,
        chat(&[NEXT]).name,
        turn_at(Endpoint::Chat, &format!(r#""messages":[{NEXT}],"cache_salt":"x""#)).name,
    ];
    for (place, name) in names.iter().enumerate() {
        assert!(*name != 0 && !names[..place].contains(name));
    }
}

#[test]
fn what_is_no_conversation_has_no_answer() {
    let said = r#"{"role":"assistant","content":"facetiously"}"#;
    for messages in [
        &[said][..],
        &[said, NEXT],
        &[r#"{"role":"user","content":"say \"role\":\"assistant\""}"#],
        &[QUESTION, r#"{"role":"user","name":"assistant","content":"x"}"#],
        &[QUESTION, r#"{"role":"tool","of":{"role":"assistant"}}"#],
        &["{\"role\":\n\"assistant\"}", NEXT],
        &[QUESTION, r#"{"role":"assistant","content":}"#],
    ] {
        let text = format!("[{}]", messages.join(","));
        assert_eq!(of(text.as_bytes(), &[], 1).reply, None, "{text}");
    }
    for text in ["", "]", "[]", "hello", r#"["a"]"#, r#"[{"role":"user"}"#] {
        assert_eq!(of(text.as_bytes(), &[], 1), Turn::default(), "{text}");
    }
    let two = format!(r#""n":2,"messages":[{QUESTION}]"#);
    assert_eq!(turn_at(Endpoint::Chat, &two), Turn::default(), "which answer is not known");
    let text = format!(r#""prompt":[{QUESTION}]"#);
    assert_eq!(turn_at(Endpoint::Completions, &text), Turn::default());
}

proptest::proptest! {
    #[test]
    fn any_text_is_taken(text in r#"(\[|\]|\{|\}|,|:|"assistant"|"role"|"role":"assistant"|\{"|"\}|\\"|é| ){0,40}"#) {
        let text = format!("[{text}}}]");
        let turn = of(text.as_bytes(), &[], 1);
        if let Some(reply) = turn.reply {
            proptest::prop_assert!(reply.from <= reply.end);
        }
    }
}
