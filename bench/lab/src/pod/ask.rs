//! What a client asks for: the fields of a body, OpenAI's or of what vLLM serves beside it, that a simulated pod acts on.
//!
//! Everything else is accepted and ignored (`stop` among it: simulated text never contains a stop string). Types are as
//! strict as vLLM's, and an absent or null option is its default.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{error::Refusal, handover::Handover, models::Models};
use crate::prompt;

/// Which endpoint was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completions,
    Messages,
    Embeddings,
    Pooling,
    Classify,
    Score,
    Rerank,
}

impl Endpoint {
    /// The endpoint of a path, if it is one that the engine works for.
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/messages" => Self::Messages,
            "/v1/embeddings" => Self::Embeddings,
            "/pooling" => Self::Pooling,
            "/classify" => Self::Classify,
            "/v1/score" | "/score" => Self::Score,
            "/v1/rerank" | "/v2/rerank" | "/rerank" => Self::Rerank,
            _ => return None,
        })
    }

    /// Whether anything is generated.
    pub(super) const fn generates(self) -> bool {
        matches!(self, Self::Chat | Self::Completions | Self::Messages)
    }
}

/// One call.
#[derive(Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) endpoint: Endpoint,
    /// The adapter that it is for.
    pub(super) adapter: Option<u32>,
    /// One per prompt, never empty.
    pub(super) prompts: Vec<Prompt>,
    /// Choices per prompt, at least 1.
    pub(super) n: u32,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) max_tokens: Option<u32>,
    pub(super) priority: i32,
    pub(super) handover: Handover,
    /// Tokens of the answer that the prompt ends with (vLLM's `continue_final_message`).
    pub(super) said: u32,
}

/// One prompt, reduced to what the engine needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) tokens: u32,
    pub(super) blocks: Vec<u64>,
    /// The text behind those.
    tail: Vec<u8>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    prompt: Option<Input<'a>>,
    #[serde(borrow)]
    input: Option<Input<'a>>,
    #[serde(borrow)]
    system: Option<Content<'a>>,
    #[serde(borrow, alias = "queries", alias = "text_1", alias = "data_1")]
    query: Option<Input<'a>>,
    #[serde(borrow, alias = "items", alias = "text_2", alias = "data_2")]
    documents: Option<Input<'a>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    priority: Option<i32>,
    kv_transfer_params: Option<Map<String, Value>>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Parts(#[serde(borrow)] Vec<Part<'a>>),
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Texts(#[serde(borrow)] Vec<Cow<'a, str>>),
    Ids(Vec<u32>),
    ManyIds(Vec<Vec<u32>>),
}

/// Most choices of one call; far above any client, far below what would exhaust memory.
const MOST_CHOICES: usize = 1024;

impl Ask {
    /// Reads a body.
    pub(super) fn read(
        endpoint: Endpoint,
        body: &[u8],
        models: &Models,
        block_tokens: u32,
    ) -> Result<Self, Refusal> {
        let body: Body<'_> =
            serde_json::from_slice(body).map_err(|error| Refusal::BadRequest(error.to_string()))?;
        let adapter = models.adapter(body.model.as_deref())?;
        let prompts = body.prompts(endpoint, block_tokens)?;
        let n = body.n.unwrap_or(1);
        if n == 0 || prompts.len().saturating_mul(n as usize) > MOST_CHOICES {
            return Err(Refusal::BadRequest(format!("n must be 1 to {MOST_CHOICES}, got {n}")));
        }
        let max_tokens = body.max_completion_tokens.or(body.max_tokens);
        if max_tokens == Some(0) {
            return Err(Refusal::BadRequest("max_tokens must be at least 1, got 0.".to_owned()));
        }
        let params = body.kv_transfer_params.as_ref().filter(|_| endpoint.generates());
        let handover = Handover::read(params)?;
        let said = body.said(endpoint)?;
        let options = body.stream_options;
        Ok(Self {
            endpoint,
            adapter,
            prompts,
            n: if matches!(endpoint, Endpoint::Chat | Endpoint::Completions) { n } else { 1 },
            stream: body.stream.unwrap_or(false) && endpoint.generates(),
            include_usage: endpoint == Endpoint::Messages
                || options.and_then(|options| options.include_usage).unwrap_or(false),
            max_tokens,
            priority: body.priority.unwrap_or(0),
            handover,
            said,
        })
    }

    /// Prompt tokens of all prompts.
    pub(super) fn prompt_tokens(&self) -> u32 {
        self.prompts.iter().map(|prompt| prompt.tokens).fold(0, u32::saturating_add)
    }
}

impl Body<'_> {
    /// Tokens of the last message where that is to go on.
    fn said(&self, endpoint: Endpoint) -> Result<u32, Refusal> {
        if endpoint != Endpoint::Chat || !self.continue_final_message.unwrap_or(false) {
            return Ok(0);
        }
        if self.add_generation_prompt.unwrap_or(true) {
            return Err(Refusal::BadRequest(
                "continue_final_message excludes add_generation_prompt, which is true unless it is said otherwise"
                    .to_owned(),
            ));
        }
        let last = self.messages.iter().flatten().next_back();
        match last.and_then(|last| last.content.as_ref()) {
            Some(Content::Text(text)) if !text.trim().is_empty() => {
                Ok(prompt::count_tokens(text.len()))
            }
            _ => Err(Refusal::BadRequest("the final message has no text to continue".to_owned())),
        }
    }

    fn prompts(&self, endpoint: Endpoint, block_tokens: u32) -> Result<Vec<Prompt>, Refusal> {
        let missing = |field: &str| Refusal::BadRequest(format!("Field required: {field}"));
        let prompts = match endpoint {
            Endpoint::Chat | Endpoint::Messages => {
                let messages = self.messages.as_ref().ok_or_else(|| missing("messages"))?;
                vec![Prompt::of_chat(self.system.as_ref(), messages, block_tokens)]
            }
            Endpoint::Completions => {
                self.prompt.as_ref().ok_or_else(|| missing("prompt"))?.prompts(block_tokens)
            }
            Endpoint::Score | Endpoint::Rerank => {
                let query = self.query.as_ref().ok_or_else(|| missing("query"))?;
                let documents = self.documents.as_ref().ok_or_else(|| missing("documents"))?;
                let (one, others) = (query.texts(), documents.texts());
                let pairs = others.iter().zip(one.iter().cycle());
                let text = |(other, one): (&&str, &&str)| [*one, *other].concat();
                pairs.map(|pair| Prompt::of_text(text(pair).as_bytes(), block_tokens)).collect()
            }
            Endpoint::Embeddings | Endpoint::Pooling | Endpoint::Classify => {
                self.input.as_ref().ok_or_else(|| missing("input"))?.prompts(block_tokens)
            }
        };
        if prompts.is_empty() {
            return Err(Refusal::BadRequest("the prompt must not be empty".to_owned()));
        }
        Ok(prompts)
    }
}

impl Input<'_> {
    /// Its texts; token ids are none.
    fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts.iter().map(|text| &**text).collect(),
            Self::Ids(_) | Self::ManyIds(_) => Vec::new(),
        }
    }

    fn prompts(&self, block_tokens: u32) -> Vec<Prompt> {
        match self {
            Self::Text(text) => vec![Prompt::of_text(text.as_bytes(), block_tokens)],
            Self::Texts(texts) => {
                texts.iter().map(|text| Prompt::of_text(text.as_bytes(), block_tokens)).collect()
            }
            Self::Ids(ids) => vec![Prompt::of_ids(ids, block_tokens)],
            Self::ManyIds(many) => {
                many.iter().map(|ids| Prompt::of_ids(ids, block_tokens)).collect()
            }
        }
    }
}

impl Prompt {
    fn of_text(text: &[u8], block_tokens: u32) -> Self {
        Self {
            tokens: prompt::count_tokens(text.len()).max(1),
            blocks: prompt::block_hashes(text, block_tokens),
            tail: prompt::partial_block(text, block_tokens).to_vec(),
        }
    }

    /// The blocks that it fills with what is generated to it: the next turn of a conversation has both in its prompt.
    pub(super) fn blocks_with(&self, answer: &str, block_tokens: u32) -> Vec<u64> {
        let mut blocks = self.blocks.clone();
        let tail = [&self.tail, answer.as_bytes()].concat();
        prompt::append_hashes(&mut blocks, &tail, block_tokens);
        blocks
    }

    /// Token ids count as they are; their bytes are what is hashed.
    fn of_ids(ids: &[u32], block_tokens: u32) -> Self {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        Self::of_text(&bytes, block_tokens)
    }

    fn of_chat(system: Option<&Content<'_>>, messages: &[Message<'_>], block_tokens: u32) -> Self {
        let mut text = String::new();
        let contents = messages.iter().map(|message| message.content.as_ref());
        for content in [system].into_iter().chain(contents) {
            match content {
                Some(Content::Text(part)) => text.push_str(part),
                Some(Content::Parts(parts)) => {
                    parts
                        .iter()
                        .filter_map(|part| part.text.as_deref())
                        .for_each(|part| text.push_str(part));
                }
                None => {}
            }
        }
        let prompt = Self::of_text(text.as_bytes(), block_tokens);
        Self { tokens: prompt.tokens + prompt::TEMPLATE_TOKENS, ..prompt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: Endpoint, body: &str) -> Result<Ask, Refusal> {
        Ask::read(endpoint, body.as_bytes(), &Models::new("m", &["a".to_owned()]), 16)
    }

    #[test]
    fn the_text_of_all_messages_and_parts_is_counted_together() {
        let ask = read(
            Endpoint::Chat,
            r#"{"model":"m","messages":[{"role":"system","content":"abcdef"},{"role":"assistant","content":null},
               {"role":"user","content":[{"type":"text","text":"gh"},{"type":"image_url","image_url":{"url":"x"}}]}]}"#,
        )
        .unwrap();
        assert_eq!(ask.prompt_tokens(), 2 + prompt::TEMPLATE_TOKENS);
        assert!(!ask.stream && !ask.include_usage && ask.n == 1 && ask.max_tokens.is_none());
    }

    #[test]
    fn options_are_read_and_null_is_absent() {
        let ask = read(
            Endpoint::Chat,
            r#"{"model":"m","messages":[{"content":"a\nb"}],"stream":true,"stream_options":{"include_usage":true},
               "n":2,"max_tokens":9,"max_completion_tokens":7,"stop":["x"],"temperature":null,"priority":-1}"#,
        )
        .unwrap();
        assert!(ask.stream && ask.include_usage);
        assert_eq!((ask.n, ask.max_tokens, ask.priority), (2, Some(7), -1));
    }

    #[test]
    fn a_prompt_may_be_a_text_texts_ids_or_lists_of_ids() {
        for (input, tokens) in [
            (r#""abcde""#, vec![2]),
            (r#"["abcd","abcdefgh"]"#, vec![1, 2]),
            ("[1,2,3]", vec![3]),
            ("[[1,2],[3]]", vec![2, 1]),
        ] {
            for (endpoint, field) in
                [(Endpoint::Completions, "prompt"), (Endpoint::Embeddings, "input")]
            {
                let ask =
                    read(endpoint, &format!("{{\"model\":\"m\",\"{field}\":{input}}}")).unwrap();
                let found: Vec<u32> = ask.prompts.iter().map(|prompt| prompt.tokens).collect();
                assert_eq!(found, tokens, "{input}");
            }
        }
    }

    #[test]
    fn who_names_no_model_means_the_one_there_is() {
        for model in ["", r#""model":null,"#, r#""model":"","#, r#""model":"m","#] {
            let body = format!("{{{model}\"messages\":[]}}");
            assert_eq!(read(Endpoint::Chat, &body).unwrap().adapter, None, "{body}");
        }
        let ask = read(Endpoint::Chat, r#"{"model":"a","messages":[]}"#).unwrap();
        assert_eq!(ask.adapter, Some(0));
    }

    #[test]
    fn an_answer_goes_on_from_the_last_message_where_no_new_one_begins() {
        let said = |rest: &str| {
            let messages = r#""messages":[{"content":"question"},{"content":" the pod"}]"#;
            read(Endpoint::Chat, &format!("{{{messages}{rest}}}")).map(|ask| ask.said)
        };
        assert_eq!(said(""), Ok(0));
        let both = r#","continue_final_message":true,"add_generation_prompt":false"#;
        assert_eq!(said(both), Ok(2));
        assert_eq!(said(r#","continue_final_message":true"#).unwrap_err().status(), 400);
        let nothing =
            r#"{"messages":[],"continue_final_message":true,"add_generation_prompt":false}"#;
        assert_eq!(read(Endpoint::Chat, nothing).unwrap_err().status(), 400);
    }

    #[test]
    fn what_vllm_would_refuse_is_refused() {
        let refused = |body| read(Endpoint::Chat, body).unwrap_err();
        assert_eq!(
            refused(r#"{"model":"x","messages":[]}"#),
            Refusal::UnknownModel("x".to_owned())
        );
        for body in [
            "nonsense",
            r#"{"model":"m"}"#,
            r#"{"model":"m","messages":[],"n":0}"#,
            r#"{"model":"m","messages":[],"n":100000}"#,
            r#"{"model":"m","messages":[],"max_tokens":0}"#,
            r#"{"model":"m","messages":[],"max_tokens":-5}"#,
        ] {
            assert_eq!(refused(body).status(), 400, "{body}");
        }
    }
}
