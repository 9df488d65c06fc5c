//! What Weir reads of a body: a few facts, borrowed from the bytes, which go on unchanged.
//!
//! Bodies are JSON, but for those with a recording, which are forms.
//!
//! Refused is only what no engine could serve or what would let a client be judged by another value
//! than the engine uses: bodies that are not one JSON object, a key that Weir reads given twice (some
//! parsers take the first, some the last), and a model that is no string. Everything else is the engine's to refuse:
//! a value of the wrong kind counts as absent here, an absurd number is clamped in the estimate. No model
//! is none to choose from: engines take that, and an empty name, for the one that they serve.
//!
//! Of a client's `priority` and `kv_transfer_params` only their places are found. They have no effect on Weir; on vLLM the one has
//! under `--scheduling-policy priority`, and the other says where a prompt is loaded from, so that [`super::routes`] takes them out
//! unless the key allows them.
//!
//! Cost: one pass over the body, which is serde's where `members` does not see to it; what is skipped is not built, and
//! nesting, however deep, does not recurse.

mod attached;
mod form;
mod known;
mod lenient;
mod member;
mod members;
mod text;
mod turn;

use std::{borrow::Cow, ops::Range, sync::Arc};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use weir_core::{
    PromptSize,
    prefix::{Turn, block_hashes},
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::endpoint::Endpoint;

/// A body that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not one JSON object, or a key given twice.
    #[error("the body is not a JSON object that can be read: {0}")]
    Json(String),
    /// Not a form, or not one that all read alike.
    #[error("the body is not a multipart form that can be read")]
    Form,
    /// A form that has this field twice.
    #[error("the form has the field `{0}` twice; send it once")]
    Twice(&'static str),
    /// None where there are several.
    #[error("you must provide a model: a string that is not empty")]
    NoModel,
    /// A model that is not a string.
    #[error("`model` must be a string")]
    OddModel,
}

/// The facts of a body.
#[derive(Clone, Debug)]
pub struct Peek<'a> {
    /// The model it names, if any.
    pub model: Option<Cow<'a, str>>,
    /// Whether the response is to be streamed.
    pub streamed: bool,
    /// Size of the prompt, over all its sequences.
    pub prompt: PromptSize,
    /// Sequences that decode: prompts x n. Where nothing is generated none does, and it is one.
    pub sequences: u32,
    /// The client's bound on output tokens per sequence.
    pub max_output_tokens: Option<u32>,
    /// The tier it asks for.
    pub service_tier: Option<Cow<'a, str>>,
    /// The bytes of the body without which it has no `priority`.
    pub priority: Option<Range<usize>>,
    /// The same of its `kv_transfer_params`.
    pub kv_transfer: Option<Range<usize>>,
    /// What is the prompt for the engine, as one text.
    text: Cow<'a, [u8]>,
    /// Whether that ends in the messages of a conversation.
    talks: bool,
    /// Keeps apart what the engine's prefix cache keeps apart, besides the model.
    salt: Option<&'a str>,
}

/// The keys that are read, each as its raw JSON; `None` also for null. serde refuses one given twice.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    model: Option<Raw<'a>>,
    #[serde(borrow)]
    stream: Option<Raw<'a>>,
    #[serde(borrow)]
    max_tokens: Option<Raw<'a>>,
    #[serde(borrow)]
    max_completion_tokens: Option<Raw<'a>>,
    #[serde(borrow)]
    max_output_tokens: Option<Raw<'a>>,
    #[serde(borrow)]
    n: Option<Raw<'a>>,
    #[serde(borrow)]
    best_of: Option<Raw<'a>>,
    #[serde(borrow)]
    service_tier: Option<Raw<'a>>,
    #[serde(borrow)]
    cache_salt: Option<Raw<'a>>,
    #[serde(borrow)]
    instructions: Option<Raw<'a>>,
    #[serde(borrow)]
    tools: Option<Raw<'a>>,
    #[serde(borrow)]
    functions: Option<Raw<'a>>,
    #[serde(borrow)]
    messages: Option<Raw<'a>>,
    #[serde(borrow)]
    prompt: Option<Raw<'a>>,
    #[serde(borrow)]
    input: Option<Raw<'a>>,
    #[serde(borrow)]
    system: Option<Raw<'a>>,
    #[serde(borrow)]
    token_ids: Option<Raw<'a>>,
    #[serde(borrow)]
    sampling_params: Option<Raw<'a>>,
    #[serde(borrow)]
    texts: Option<Raw<'a>>,
    #[serde(borrow)]
    inputs: Option<Raw<'a>>,
    #[serde(borrow)]
    query: Option<Raw<'a>>,
    #[serde(borrow)]
    queries: Option<Raw<'a>>,
    #[serde(borrow)]
    text_1: Option<Raw<'a>>,
    #[serde(borrow)]
    data_1: Option<Raw<'a>>,
    #[serde(borrow)]
    documents: Option<Raw<'a>>,
    #[serde(borrow)]
    items: Option<Raw<'a>>,
    #[serde(borrow)]
    text_2: Option<Raw<'a>>,
    #[serde(borrow)]
    data_2: Option<Raw<'a>>,
    // Also there when it is null.
    #[serde(borrow, deserialize_with = "present")]
    priority: Option<Raw<'a>>,
    #[serde(borrow, deserialize_with = "present")]
    kv_transfer_params: Option<Raw<'a>>,
}

impl<'a> Fields<'a> {
    /// Where the value of a key goes, if it is one that is read.
    fn slot(&mut self, key: &str) -> Option<&mut Option<Raw<'a>>> {
        Some(match key {
            "model" => &mut self.model,
            "stream" => &mut self.stream,
            "max_tokens" => &mut self.max_tokens,
            "max_completion_tokens" => &mut self.max_completion_tokens,
            "max_output_tokens" => &mut self.max_output_tokens,
            "n" => &mut self.n,
            "best_of" => &mut self.best_of,
            "service_tier" => &mut self.service_tier,
            "cache_salt" => &mut self.cache_salt,
            "instructions" => &mut self.instructions,
            "tools" => &mut self.tools,
            "functions" => &mut self.functions,
            "messages" => &mut self.messages,
            "prompt" => &mut self.prompt,
            "input" => &mut self.input,
            "system" => &mut self.system,
            "token_ids" => &mut self.token_ids,
            "sampling_params" => &mut self.sampling_params,
            "texts" => &mut self.texts,
            "inputs" => &mut self.inputs,
            "query" => &mut self.query,
            "queries" => &mut self.queries,
            "text_1" => &mut self.text_1,
            "data_1" => &mut self.data_1,
            "documents" => &mut self.documents,
            "items" => &mut self.items,
            "text_2" => &mut self.text_2,
            "data_2" => &mut self.data_2,
            "priority" => &mut self.priority,
            "kv_transfer_params" => &mut self.kv_transfer_params,
            _ => return None,
        })
    }
}

/// What bounds the output of a request in tokens, which has it in an object of its own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sampling<'a> {
    #[serde(borrow)]
    max_tokens: Option<Raw<'a>>,
    #[serde(borrow)]
    n: Option<Raw<'a>>,
}

impl<'a> Sampling<'a> {
    /// What is not understood bounds nothing.
    fn of(fields: &Fields<'a>) -> Self {
        let written = fields.sampling_params.and_then(|raw| serde_json::from_str(raw.0).ok());
        written.unwrap_or_default()
    }
}

/// A value as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Raw<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(raw.get()))
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Raw<'de>>, D::Error> {
    Raw::deserialize(deserializer).map(Some)
}

/// Most sequences counted for one request: the size of an engine's batch in the default pod class. The
/// engine refuses or queues what is beyond.
const MOST_SEQUENCES: u32 = 1024;

/// Largest bound on output that is believed; above any context, and no sum of such bounds overflows.
const MOST_OUTPUT_TOKENS: u32 = 1 << 20;

/// Bytes of text whose blocks are named; a context of a million tokens. Bounds the memory of a
/// waiting request: the names take a sixteenth of the text.
const MOST_NAMED_BYTES: usize = 4 << 20;

/// What a recording is counted as: Whisper makes so many positions of each half minute.
const AUDIO_TOKENS: u32 = 1500;

/// Reads the facts of a body.
///
/// # Errors
/// See [`Unreadable`].
pub fn peek(endpoint: Endpoint, body: &[u8]) -> Result<Peek<'_>, Unreadable> {
    if endpoint == Endpoint::Audio {
        return audio(body);
    }
    let fields = read(body)?;
    let named = |model| lenient::string(model).ok_or(Unreadable::OddModel);
    let model = fields.model.map(named).transpose()?.filter(|model| !model.is_empty());
    let (text, shape, prompt) = prompt(endpoint, &fields);
    let span = |value: Raw<'_>| member::span(body, value.0.as_bytes());
    Ok(Peek {
        model,
        streamed: endpoint.generates() && fields.stream.is_some_and(lenient::truth),
        prompt,
        sequences: sequences(endpoint, &fields, shape.prompts),
        max_output_tokens: max_output_tokens(endpoint, &fields),
        service_tier: fields.service_tier.and_then(lenient::string),
        priority: fields.priority.and_then(span),
        kv_transfer: fields.kv_transfer_params.and_then(span),
        text,
        talks: matches!(endpoint, Endpoint::Chat | Endpoint::Responses | Endpoint::Messages),
        salt: fields.cache_salt.map(|salt| salt.0),
    })
}

/// The facts of a form with a recording. How long that is nobody knows before it is decoded.
fn audio(body: &[u8]) -> Result<Peek<'_>, Unreadable> {
    let [model, stream] = form::fields(body, ["model", "stream"])?;
    let model = model.map(str::trim).filter(|model| !model.is_empty());
    Ok(Peek {
        model: model.map(Cow::Borrowed),
        streamed: stream.is_some_and(|stream| stream.trim().eq_ignore_ascii_case("true")),
        prompt: PromptSize::Tokens(AUDIO_TOKENS),
        sequences: 1,
        max_output_tokens: None,
        service_tier: None,
        priority: None,
        kv_transfer: None,
        text: Cow::Borrowed(b""),
        talks: false,
        salt: None,
    })
}

impl Peek<'_> {
    /// Names of the prompt's blocks as the model called `model` caches them, and what it is to the turns of its conversation.
    pub fn named_as(&self, model: &str) -> (Arc<[u64]>, Turn) {
        let seed = xxh3_64(model.as_bytes());
        let seed = self.salt.map_or(seed, |salt| xxh3_64_with_seed(salt.as_bytes(), seed));
        let named = self.text.get(..MOST_NAMED_BYTES).unwrap_or(&self.text);
        let blocks: Arc<[u64]> = block_hashes(named, seed).collect();
        let one_answer = self.talks && self.sequences == 1;
        let turn = if one_answer { turn::of(named, &blocks, seed) } else { Turn::default() };
        (blocks, turn)
    }
}

fn read(body: &[u8]) -> Result<Fields<'_>, Unreadable> {
    // Python's JSON reader, and so every engine built on it, skips a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if let Some(fields) = members::read(body) {
        return Ok(fields);
    }
    // serde would also fill the fields from an array, in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Unreadable::Json("expected an object".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| Unreadable::Json(error.to_string()))
}

/// What of the body is the prompt, its shape and its size. Of a chat that is also what the engine's template puts before the messages.
fn prompt<'a>(endpoint: Endpoint, fields: &Fields<'a>) -> (Cow<'a, [u8]>, text::Shape, PromptSize) {
    let (parts, prompts) = match endpoint {
        Endpoint::Chat => ([fields.tools, fields.functions, fields.messages], None),
        Endpoint::Chats => ([fields.tools, fields.messages, None], fields.messages),
        Endpoint::Generate => ([fields.token_ids, None, None], fields.token_ids),
        Endpoint::Responses => ([fields.instructions, fields.tools, fields.input], None),
        Endpoint::Messages => return message(fields),
        Endpoint::Completions => ([fields.prompt, None, None], fields.prompt),
        Endpoint::Pooling => {
            let input = fields.input.or(fields.texts).or(fields.inputs);
            ([input, fields.messages, None], input)
        }
        Endpoint::Scores => return compared(fields),
        Endpoint::Tokens | Endpoint::Audio => {
            return (Cow::Borrowed(b""), text::Shape::ONE, PromptSize::Tokens(1));
        }
    };
    let shape = prompts.map_or(text::Shape::ONE, |prompts| text::shape(prompts.0));
    let text = text::join(parts.into_iter().flatten().map(|part| part.0));
    let size =
        shape.tokens.map_or_else(|| PromptSize::Bytes(clamped(text.len())), PromptSize::Tokens);
    (text, shape, size)
}

/// A message of Anthropic's API.
fn message<'a>(fields: &Fields<'a>) -> (Cow<'a, [u8]>, text::Shape, PromptSize) {
    let part = |field: Option<Raw<'a>>| field.map_or("", |field| field.0);
    let [before, after] = text::without_attribution(part(fields.system));
    let parts = [part(fields.tools), before, after, part(fields.messages)];
    let text = text::join(parts.into_iter().filter(|part| !part.is_empty()));
    let size = PromptSize::Bytes(clamped(text.len()));
    (text, text::Shape::ONE, size)
}

/// What is compared with what: one text with each of the others, or each with its own.
fn compared<'a>(fields: &Fields<'a>) -> (Cow<'a, [u8]>, text::Shape, PromptSize) {
    let one = fields.query.or(fields.queries).or(fields.text_1).or(fields.data_1);
    let others = fields.documents.or(fields.items).or(fields.text_2).or(fields.data_2);
    let [firsts, seconds] =
        [one, others].map(|part| part.map_or(1, |part| text::shape(part.0).prompts));
    let shape = text::Shape { prompts: firsts.max(seconds), tokens: None };
    let times = if firsts > 1 { 1 } else { shape.prompts as usize };
    let [first, second] =
        [one, others].map(|part| text::join(part.iter().map(|part| part.0)).len());
    let bytes = first.saturating_mul(times).saturating_add(second);
    let text = text::join([one, others].into_iter().flatten().map(|part| part.0));
    (text, shape, PromptSize::Bytes(clamped(bytes)))
}

fn clamped(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn sequences(endpoint: Endpoint, fields: &Fields<'_>, prompts: u32) -> u32 {
    let count = |field: Option<Raw<'_>>| field.and_then(lenient::count).unwrap_or(1);
    let copies = match endpoint {
        Endpoint::Chat | Endpoint::Chats => count(fields.n),
        Endpoint::Generate => count(Sampling::of(fields).n),
        Endpoint::Completions => count(fields.n).max(count(fields.best_of)),
        Endpoint::Responses | Endpoint::Messages | Endpoint::Audio => 1,
        Endpoint::Pooling | Endpoint::Scores | Endpoint::Tokens => return 1,
    };
    prompts.saturating_mul(copies).clamp(1, MOST_SEQUENCES)
}

fn max_output_tokens(endpoint: Endpoint, fields: &Fields<'_>) -> Option<u32> {
    let bound = match endpoint {
        Endpoint::Chat | Endpoint::Chats => fields.max_completion_tokens.or(fields.max_tokens),
        Endpoint::Generate => Sampling::of(fields).max_tokens,
        Endpoint::Completions | Endpoint::Messages => fields.max_tokens,
        Endpoint::Responses => fields.max_output_tokens,
        Endpoint::Audio => return None,
        Endpoint::Pooling | Endpoint::Scores | Endpoint::Tokens => return Some(0),
    };
    bound.and_then(lenient::count).map(|tokens| tokens.min(MOST_OUTPUT_TOKENS))
}

#[cfg(test)]
mod tests;
