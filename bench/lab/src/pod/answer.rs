//! The shapes that go out: vLLM's chunks and answers.
//!
//! As in vLLM, the role chunk of a chat comes with the first token, the chunk of the last token carries the finish reason,
//! and the token that stops a generation has no text.

use std::{fmt::Write, rc::Rc};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{ask::Endpoint, handover::PARAMS};

mod messages;

/// Why a generation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    Length,
}

impl Finish {
    pub(super) const ALL: [Self; 2] = [Self::Stop, Self::Length];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// The words that generated text cycles through, one per token, each as long as a token of a prompt is.
const WORDS: [&str; 8] = [" the", " pod", " can", " now", " get", " all", " its", " own"];

/// What every chunk of one answer repeats.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) endpoint: Endpoint,
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: Rc<str>,
    /// Tokens of it that the prompt ends with, for it goes on with an answer that another pod began.
    pub(super) said: u32,
}

/// Tokens of one answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) prompt: u32,
    pub(super) completion: u32,
}

/// The chunks of one choice that its every token would otherwise format.
#[derive(Debug)]
pub(super) struct Chunks {
    words: [Bytes; WORDS.len()],
}

impl Chunks {
    /// The chunk of the token of this index, counted from 1.
    pub(super) fn word(&self, index: u32) -> Bytes {
        let at = index.wrapping_sub(1) as usize % WORDS.len();
        self.words.get(at).cloned().unwrap_or_default()
    }
}

impl Shape {
    /// The chunks of a choice, built once.
    pub(super) fn chunks(&self, choice: usize) -> Chunks {
        let mut at = self.said;
        let words = WORDS.map(|_| {
            at += 1;
            self.chunk(choice, Delta::Word(word(at, Finish::Length)), None).into()
        });
        Chunks { words }
    }

    /// What a choice says before its first token: the role in a chat, the start of a message, else nothing.
    pub(super) fn opening(&self, choice: usize, prompt_tokens: u32) -> Option<Bytes> {
        match self.endpoint {
            Endpoint::Chat => Some(self.chunk(choice, Delta::Role, None).into()),
            Endpoint::Messages => Some(messages::opening(self, prompt_tokens)),
            _ => None,
        }
    }

    /// The chunk of a choice's last token.
    pub(super) fn last(&self, choice: usize, index: u32, finish: Finish) -> Bytes {
        let word = word(self.said.saturating_add(index), finish);
        self.chunk(choice, Delta::Word(word), Some(finish)).into()
    }

    /// The end of a stream: the usage chunk when it was asked for, and `[DONE]`.
    pub(super) fn closing(&self, usage: Option<Usage>, finish: Finish) -> Bytes {
        if let (Endpoint::Messages, Some(usage)) = (self.endpoint, usage) {
            return messages::closing(usage, finish);
        }
        let mut out = String::new();
        if let Some(usage) = usage {
            self.head(&mut out);
            let _ = write!(out, "\"choices\":[],\"usage\":{}}}\n\n", usage_json(usage));
        }
        out.push_str("data: [DONE]\n\n");
        out.into()
    }

    /// The whole answer of a call that is not streamed; each choice is its tokens and why it ended. What another pod is to
    /// be given comes with it.
    pub(super) fn whole(
        &self,
        choices: &[(u32, Finish)],
        usage: Usage,
        handed: Option<&Value>,
    ) -> String {
        let mut whole = match (self.endpoint, choices) {
            (Endpoint::Messages, [(tokens, finish)]) => {
                messages::whole(self, (*tokens, *finish), usage)
            }
            (endpoint, _) if endpoint.generates() => self.generated(choices, usage),
            _ => self.pooled(choices.len(), usage),
        };
        if let (Some(fields), Some(handed)) = (whole.as_object_mut(), handed) {
            fields.insert(PARAMS.to_owned(), handed.clone());
        }
        whole.to_string()
    }

    fn generated(&self, choices: &[(u32, Finish)], usage: Usage) -> Value {
        let choices: Vec<Value> = choices
            .iter()
            .enumerate()
            .map(|(index, &(tokens, finish))| self.choice(index, tokens, finish))
            .collect();
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion",
            _ => "text_completion",
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model.as_ref(),
            "choices": choices, "usage": usage_json(usage),
        })
    }

    fn choice(&self, index: usize, tokens: u32, finish: Finish) -> Value {
        let text = text(self.said, tokens, finish);
        let mut choice = json!({
            "index": index, "logprobs": null, "finish_reason": finish.name(), "stop_reason": null,
        });
        if let Some(fields) = choice.as_object_mut() {
            match self.endpoint {
                Endpoint::Chat => {
                    let message = json!({"role": "assistant", "content": text, "tool_calls": []});
                    fields.insert("message".to_owned(), message)
                }
                _ => fields.insert("text".to_owned(), text.into()),
            };
        }
        choice
    }

    fn pooled(&self, count: usize, usage: Usage) -> Value {
        const VECTOR: [f32; 4] = [0.5, -0.5, 0.5, -0.5];
        let of = |index| match self.endpoint {
            Endpoint::Pooling => json!({"object": "pooling", "index": index, "data": VECTOR}),
            Endpoint::Classify => {
                json!({"index": index, "label": "LABEL_0", "probs": [0.5, 0.5], "num_classes": 2})
            }
            Endpoint::Score => json!({"object": "score", "index": index, "score": 0.5}),
            Endpoint::Rerank => json!({"index": index, "relevance_score": 0.5}),
            _ => json!({"object": "embedding", "index": index, "embedding": VECTOR}),
        };
        let data: Vec<Value> = (0..count).map(of).collect();
        let usage = json!({"prompt_tokens": usage.prompt, "total_tokens": usage.prompt});
        let model = self.model.as_ref();
        if self.endpoint == Endpoint::Rerank {
            return json!({"id": self.id, "model": model, "results": data, "usage": usage});
        }
        json!({"id": self.id, "object": "list", "model": model, "data": data, "usage": usage})
    }

    fn head(&self, out: &mut String) {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            _ => "text_completion",
        };
        let Self { id, created, model, .. } = self;
        let _ = write!(
            out,
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{},",
            Value::from(model.as_ref())
        );
    }

    fn chunk(&self, choice: usize, delta: Delta, finish: Option<Finish>) -> String {
        if let (Endpoint::Messages, Delta::Word(word)) = (self.endpoint, delta) {
            return messages::delta(word);
        }
        let mut out = String::with_capacity(256);
        self.head(&mut out);
        let _ = write!(out, "\"choices\":[{{\"index\":{choice},");
        let _ = match (self.endpoint, delta) {
            (Endpoint::Chat, Delta::Role) => {
                write!(out, "\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}}")
            }
            (Endpoint::Chat, Delta::Word(word)) => {
                write!(out, "\"delta\":{{\"content\":\"{word}\"}}")
            }
            (_, Delta::Word(word)) => write!(out, "\"text\":\"{word}\""),
            (_, Delta::Role) => write!(out, "\"text\":\"\""),
        };
        let _ = match finish {
            None => write!(out, ",\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"),
            Some(finish) => write!(
                out,
                ",\"logprobs\":null,\"finish_reason\":\"{}\",\"stop_reason\":null}}]}}\n\n",
                finish.name()
            ),
        };
        out
    }
}

#[derive(Clone, Copy)]
enum Delta {
    Role,
    Word(&'static str),
}

/// The text of so many tokens behind those that were said before.
pub(super) fn text(said: u32, tokens: u32, finish: Finish) -> String {
    let words = (1..tokens).map(|at| word(said.saturating_add(at), Finish::Length));
    words.chain([word(said.saturating_add(tokens), finish)]).collect()
}

/// The text of a token; the one that stops a generation has none.
fn word(index: u32, finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "",
        Finish::Length => {
            let at = index.wrapping_sub(1) as usize % WORDS.len();
            WORDS.get(at).copied().unwrap_or_default()
        }
    }
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt, "total_tokens": usage.prompt.saturating_add(usage.completion),
        "completion_tokens": usage.completion, "prompt_tokens_details": null,
    })
}
