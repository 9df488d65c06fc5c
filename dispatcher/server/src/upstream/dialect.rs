//! What the clients of a call read: how their streams end, and how an error is said to them.

use bytes::Bytes;

use super::RelayError;

/// Whose way of streaming and of saying errors a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's completions and chats: a stream ends with `data: [DONE]`.
    Completions,
    /// OpenAI's other calls, and what engines offer beside them: nothing says that a stream is whole but its end.
    Other,
    /// Anthropic's Messages: events have names, a stream ends with `message_stop`, and an error is an object of the type `error`.
    Messages,
}

impl Dialect {
    /// The dialect of a path, served or not.
    pub fn of(path: &str) -> Self {
        match path {
            "/v1/messages" | "/v1/messages/count_tokens" => Self::Messages,
            _ if path.ends_with("/completions") => Self::Completions,
            _ => Self::Other,
        }
    }

    /// Whether a stream that just ends is broken.
    pub(super) const fn says_the_end(self) -> bool {
        matches!(self, Self::Completions | Self::Messages)
    }

    /// The last event of a stream that could not be passed on. An event that is `torn`, for it was too long to be kept back,
    /// is closed first: some clients read this one then.
    pub(super) fn failure(self, error: RelayError, torn: bool) -> Bytes {
        let close = if torn { "\n\n" } else { "" };
        let code = error.code();
        Bytes::from(match self {
            Self::Completions | Self::Other => format!(
                "{close}data: {{\"error\":{{\"message\":\"{error}\",\"type\":\"server_error\",\"param\":null,\"code\":\"{code}\"}}}}\n\n"
            ),
            Self::Messages => format!(
                "{close}event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{}\",\"message\":\"{error}\",\"code\":\"{code}\"}}}}\n\n",
                if error == RelayError::Closing { "overloaded_error" } else { "api_error" }
            ),
        })
    }
}
