//! The shapes of Anthropic's Messages API, as vLLM serves it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Finish, Shape, Usage, text};

/// The start of a stream: that of the message, and that of its text.
pub(super) fn opening(shape: &Shape, prompt_tokens: u32) -> Bytes {
    let counts = Usage { prompt: prompt_tokens, completion: 0 };
    let message = message(shape, &json!([]), None, counts);
    let block = json!({"type": "text", "text": ""});
    let start = event("message_start", &json!({"type": "message_start", "message": message}));
    let block = json!({"type": "content_block_start", "index": 0, "content_block": block});
    (start + &event("content_block_start", &block)).into()
}

/// A token; the one that stops an answer has no text and no event.
pub(super) fn delta(word: &str) -> String {
    if word.is_empty() {
        return String::new();
    }
    let delta = json!({"type": "text_delta", "text": word});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": delta});
    event("content_block_delta", &delta)
}

/// The end of a stream.
pub(super) fn closing(counts: Usage, finish: Finish) -> Bytes {
    let block = event("content_block_stop", &json!({"type": "content_block_stop", "index": 0}));
    let delta = json!({"stop_reason": stop_reason(finish), "stop_sequence": null});
    let delta = json!({"type": "message_delta", "delta": delta, "usage": usage(counts)});
    let stop = event("message_stop", &json!({"type": "message_stop"}));
    (block + &event("message_delta", &delta) + &stop).into()
}

/// The whole of an answer that is not streamed.
pub(super) fn whole(shape: &Shape, (tokens, finish): (u32, Finish), counts: Usage) -> Value {
    let content = json!([{"type": "text", "text": text(shape.said, tokens, finish)}]);
    message(shape, &content, Some(stop_reason(finish)), counts)
}

fn message(shape: &Shape, content: &Value, stop_reason: Option<&str>, counts: Usage) -> Value {
    json!({
        "id": shape.id, "type": "message", "role": "assistant", "content": content,
        "model": shape.model.as_ref(), "stop_reason": stop_reason, "stop_sequence": null,
        "usage": usage(counts),
    })
}

fn usage(counts: Usage) -> Value {
    json!({"input_tokens": counts.prompt, "output_tokens": counts.completion})
}

const fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
