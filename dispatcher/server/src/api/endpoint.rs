//! The calls that are served, by their paths: OpenAI's, and what vLLM offers beside them.

/// What a call asks a pod for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A chat.
    Chat,
    /// Several chats in one request, answered together.
    Chats,
    /// A text that goes on.
    Completions,
    /// A response of OpenAI's newer API.
    Responses,
    /// Tokens that go on, as tokens.
    Generate,
    /// A message of Anthropic's API.
    Messages,
    /// Vectors or classes of each input: prompts that nothing is generated from.
    Pooling,
    /// How well texts fit together. A text that is compared with several is computed beside each of them.
    Scores,
    /// A recording to text, in a form.
    Audio,
    /// Text to tokens, or back, or a chat to what its template makes of it. It takes nothing of a GPU.
    Tokens,
}

impl Endpoint {
    /// The call of a path, if it is one that is served; all are POSTs.
    pub fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/chat/completions/batch" => Self::Chats,
            "/v1/completions" => Self::Completions,
            "/inference/v1/generate" => Self::Generate,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/v1/embeddings" | "/v2/embed" | "/pooling" | "/classify" => Self::Pooling,
            "/v1/rerank"
            | "/v2/rerank"
            | "/rerank"
            | "/v1/score"
            | "/score"
            | "/generative_scoring" => Self::Scores,
            "/v1/audio/transcriptions" | "/v1/audio/translations" => Self::Audio,
            "/tokenize"
            | "/detokenize"
            | "/v1/messages/count_tokens"
            | "/v1/chat/completions/render"
            | "/v1/completions/render" => Self::Tokens,
            _ => return None,
        })
    }

    /// Whether one pod may compute the prompt and another answer.
    pub const fn answers_apart(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }

    /// Whether anything is generated.
    pub const fn generates(self) -> bool {
        match self {
            Self::Chat
            | Self::Chats
            | Self::Completions
            | Self::Generate
            | Self::Responses
            | Self::Messages
            | Self::Audio => true,
            Self::Pooling | Self::Scores | Self::Tokens => false,
        }
    }
}
