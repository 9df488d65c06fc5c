//! The body by which a pod goes on with an answer that another one began: the prompt with what was said.
//!
//! Of a chat that is a last message of the assistant which is not closed (vLLM: `continue_final_message`), of a completion more of its
//! prompt. Nobody goes on with several answers, with one that has to have a form, whose grammar would begin anew, or with one that
//! shows the prompt.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{prefill::PARAMS, splice::without_mark};

/// Members that have to be absent, null, false, or this.
const ALONE: [(&str, &str); 13] = [
    ("n", "1"),
    ("best_of", "1"),
    ("use_beam_search", ""),
    ("echo", ""),
    ("suffix", ""),
    ("structured_outputs", ""),
    ("guided_json", ""),
    ("guided_regex", ""),
    ("guided_choice", ""),
    ("guided_grammar", ""),
    ("prompt_logprobs", ""),
    ("return_token_ids", ""),
    ("return_prompt_text", ""),
];

/// Bounds on how many tokens an answer has, of which some were said; at most, and at least.
const MOST: [&str; 2] = ["max_tokens", "max_completion_tokens"];
const LEAST: [&str; 2] = ["min_tokens", "min_completion_tokens"];

const GOES_ON: &str = "continue_final_message";
const BEGINS: &str = "add_generation_prompt";
const CONTENT: &str = "content";

type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The body of a call whose answer has begun with this text, as inside a string of JSON, of so many tokens. `None` where nobody can go
/// on with it.
pub(super) fn continued(body: &[u8], text: &str, tokens: u32) -> Option<Bytes> {
    let mut members: Members<'_> = serde_json::from_slice(without_mark(body)).ok()?;
    let is_alone = |(name, may): &(&str, &str)| {
        members
            .get(*name)
            .is_none_or(|own| matches!(own.get(), "null" | "false") || own.get() == *may)
    };
    if !ALONE.iter().all(is_alone) || !is_free(&members) {
        return None;
    }
    let asked = match members.get("messages") {
        Some(messages) => {
            let ends_open = members.get(GOES_ON).is_some_and(|own| own.get() == "true");
            ("messages", messages_with(messages, text, ends_open)?)
        }
        None => ("prompt", prompt_with(members.get("prompt")?, text)?),
    };
    let (yes, no) = (to_raw_value(&true).ok()?, to_raw_value(&false).ok()?);
    if asked.0 == "messages" {
        members.insert(GOES_ON.to_owned(), &yes);
        members.insert(BEGINS.to_owned(), &no);
    } else if members.get("logprobs").is_some_and(|own| own.get() != "null") {
        // They have places in the text.
        return None;
    }
    members.insert(asked.0.to_owned(), &asked.1);
    // What it says is kept elsewhere may be gone with the first pod.
    members.remove(PARAMS);
    let left = |name: &&str, least: u64| {
        let own: u64 = members.get(*name)?.get().parse().ok()?;
        Some((
            (*name).to_owned(),
            to_raw_value(&own.saturating_sub(tokens.into()).max(least)).ok()?,
        ))
    };
    let mut bounds: Vec<_> = MOST.iter().filter_map(|name| left(name, 1)).collect();
    bounds.extend(LEAST.iter().filter_map(|name| left(name, 0)));
    members.extend(bounds.iter().map(|(name, bound)| (name.clone(), &**bound)));
    serde_json::to_vec(&members).ok().map(Bytes::from)
}

/// Whether an answer may have any form.
fn is_free(members: &Members<'_>) -> bool {
    let value = |name| members.get(name).map_or("null", |own| own.get());
    let tool = value("tool_choice");
    let format: Option<Value> = serde_json::from_str(value("response_format")).ok();
    let kind = format.as_ref().and_then(|format| format.get("type")).and_then(Value::as_str);
    matches!(tool, "null" | "\"auto\"" | "\"none\"")
        && (format == Some(Value::Null) || kind == Some("text"))
}

/// Messages of which the last is the assistant's, with this text.
fn messages_with(messages: &RawValue, text: &str, ends_open: bool) -> Option<Box<RawValue>> {
    let mut all: Vec<&RawValue> = serde_json::from_str(messages.get()).ok()?;
    let last = if ends_open {
        let mut last: BTreeMap<String, &RawValue> = serde_json::from_str(all.pop()?.get()).ok()?;
        let content = string_with(last.get(CONTENT)?, text)?;
        last.insert(CONTENT.to_owned(), &content);
        to_raw_value(&last).ok()?
    } else {
        let open = format!("{{\"role\":\"assistant\",\"content\":\"{text}\"}}");
        RawValue::from_string(open).ok()?
    };
    all.push(&last);
    to_raw_value(&all).ok()
}

/// One prompt that is a text, and this behind it.
fn prompt_with(prompt: &RawValue, text: &str) -> Option<Box<RawValue>> {
    let texts = serde_json::from_str::<Vec<&RawValue>>(prompt.get());
    match texts.as_deref() {
        Ok([one]) => string_with(one, text),
        Ok(_) => None,
        Err(_) => string_with(prompt, text),
    }
}

fn string_with(own: &RawValue, text: &str) -> Option<Box<RawValue>> {
    let inside = own.get().strip_prefix('"')?.strip_suffix('"')?;
    RawValue::from_string(["\"", inside, text, "\""].concat()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(body: &Value, text: &str, tokens: u32) -> Option<Value> {
        let body = continued(body.to_string().as_bytes(), text, tokens)?;
        Some(serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn a_chat_goes_on_with_a_message_that_is_not_closed() {
        let body = json!({
            "model": "m", "messages": [{"role": "user", "content": "a"}], "stream": true, "max_tokens": 9,
            "min_tokens": 2, "temperature": 0.5, "kv_transfer_params": {"do_remote_prefill": true},
        });
        let want = json!({
            "model": "m", "stream": true, "max_tokens": 6, "min_tokens": 0, "temperature": 0.5,
            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b \"c\" \u{e9}"}],
            "continue_final_message": true, "add_generation_prompt": false,
        });
        assert_eq!(with(&body, r#"b \"c\" \u00e9"#, 3), Some(want));
        let (empty, one) = (json!({"messages": []}), json!({"messages": [ {"role": "user"} ]}));
        let count = |body| with(body, "b", 1).unwrap()["messages"].as_array().unwrap().len();
        assert_eq!((count(&empty), count(&one)), (1, 2));
        let most = with(&json!({"messages": [], "max_completion_tokens": 3}), "b", 7).unwrap();
        assert_eq!(most["max_completion_tokens"], 1, "at least one is asked for");
    }

    #[test]
    fn a_message_that_was_open_before_goes_on() {
        let message = json!({"role": "assistant", "content": "once"});
        let body = json!({
            "messages": [{"role": "user", "content": "a"}, message], "continue_final_message": true,
            "add_generation_prompt": false,
        });
        let messages = &with(&body, " upon", 1).unwrap()["messages"];
        assert_eq!(messages[1], json!({"role": "assistant", "content": "once upon"}));
        assert_eq!(messages.as_array().unwrap().len(), 2);
        let parts =
            json!({"messages": [{"content": [{"type": "text"}]}], "continue_final_message": true});
        assert_eq!(with(&parts, "b", 1), None);
    }

    #[test]
    fn a_completion_goes_on_behind_its_prompt() {
        for prompt in [json!("once"), json!(["once"])] {
            let body = with(&json!({"prompt": prompt, "max_tokens": 4}), " upon", 1).unwrap();
            assert_eq!(body, json!({"prompt": "once upon", "max_tokens": 3}));
        }
        for other in [json!(["a", "b"]), json!([1, 2]), json!([[1]]), json!(null), json!([])] {
            assert_eq!(with(&json!({"prompt": other}), "b", 1), None, "{other}");
        }
        assert_eq!(with(&json!({"prompt": "a", "logprobs": 1}), "b", 1), None);
    }

    #[test]
    fn what_has_a_form_or_shows_more_is_not_gone_on_with() {
        let with = |name: &str, value: Value| {
            let mut body = json!({"messages": [{"role": "user", "content": "a"}]});
            body[name] = value;
            with(&body, "b", 1).is_some()
        };
        for (name, value) in [
            ("n", json!(2)),
            ("echo", json!(true)),
            ("response_format", json!({"type": "json_object"})),
            ("response_format", json!({"type": "json_schema", "json_schema": {}})),
            ("tool_choice", json!("required")),
            ("tool_choice", json!({"type": "function", "function": {"name": "f"}})),
            ("guided_regex", json!("a+")),
            ("structured_outputs", json!({"choice": ["a"]})),
            ("return_token_ids", json!(true)),
        ] {
            assert!(!with(name, value.clone()), "{name}: {value}");
        }
        for (name, value) in [
            ("n", json!(1)),
            ("n", json!(null)),
            ("echo", json!(false)),
            ("response_format", json!({"type": "text"})),
            ("response_format", json!(null)),
            ("tool_choice", json!("auto")),
            ("tools", json!([{"type": "function"}])),
            ("logprobs", json!(true)),
        ] {
            assert!(with(name, value.clone()), "{name}: {value}");
        }
        assert_eq!(continued(b"[]", "a", 1), None);
        assert_eq!(continued(b"{\"prompt\":", "a", 1), None);
    }
}
