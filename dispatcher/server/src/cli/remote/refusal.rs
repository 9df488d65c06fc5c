//! An error answer of the admin side, as a failure that says what to do.

use serde::Deserialize;

use super::{Failure, TOKEN_VARIABLE, address::Address};

/// The body of an error. All of it may be absent: something else may have answered.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    error: Option<Said>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    message: String,
    param: Option<String>,
    code: Option<String>,
    problems: Vec<serde_json::Value>,
}

/// What an answer means that is not the JSON that was asked for.
pub(super) fn failure(status: u16, body: &[u8], has_token: bool, address: &Address) -> Failure {
    let body: Body = serde_json::from_slice(body).unwrap_or_default();
    let Some(said) = body.error.filter(|said| !said.message.is_empty()) else {
        return Failure::Unreachable(format!(
            "{address} answers {status} and is not the admin side of this version: --admin or \
             WEIR_ADMIN must name weir's admin.listen, not the OpenAI API"
        ));
    };
    let message = said.message;
    match (status, said.code.as_deref()) {
        (401, _) if has_token => Failure::Refused(format!(
            "{message}: it is not one of admin.tokens of the configuration"
        )),
        (401, _) => Failure::Refused(format!(
            "a token is needed here: give --token-file, or set {TOKEN_VARIABLE}"
        )),
        (403, Some("read_only")) => {
            Failure::Refused(format!("{message}: use a token with scope write"))
        }
        (403, Some("no_tokens")) => {
            Failure::Refused(format!("{message}, or bind admin.listen to 127.0.0.1"))
        }
        (403, _) => Failure::Refused(message),
        (404, Some("not_found")) => {
            Failure::NotFound(format!("{message}{}", where_to_look(&message)))
        }
        // The OpenAI API says so too, Weir's and others'.
        (404 | 405, _) => Failure::Unreachable(format!(
            "{address} does not know this call: --admin or WEIR_ADMIN must name weir's admin.listen, not \
             the OpenAI API; or it is of another version than this program"
        )),
        (400, Some("pool_required")) => {
            Failure::Usage(message.replacen("name one:", "name one with --pool:", 1))
        }
        (400, _) if !said.problems.is_empty() => {
            let problem = |problem: &serde_json::Value| match problem {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let problems: Vec<_> = said.problems.iter().map(problem).collect();
            Failure::Config(format!("{message}:\n{}", problems.join("\n")))
        }
        (400 | 422, _) => Failure::Usage(match said.param {
            Some(param) => format!("{param}: {message}"),
            None => message,
        }),
        _ => Failure::Failed(message),
    }
}

/// Which command lists what there is of the kind that a message misses.
fn where_to_look(message: &str) -> &'static str {
    let lists = [
        ("there is no pool", "; `weir pods ls` lists them with their pods"),
        ("there is no pod", "; `weir pods ls` lists them"),
        ("there is no lane", "; `weir queue ls` lists those with something in them"),
        ("there is no request", "; `weir queue show` lists what waits"),
        ("there is no version", "; `weir model ls` lists them"),
    ];
    let of_kind = |(start, _): &&(&str, _)| {
        message.strip_prefix(start).is_some_and(|rest| rest.starts_with(' '))
    };
    lists.iter().find(of_kind).map_or("", |(_, list)| list)
}
