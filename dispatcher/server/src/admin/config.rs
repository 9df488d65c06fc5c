//! The admin side's part of the configuration: [`RawAdmin`] as it is written, [`AdminConfig`] as it
//! is used.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::guard::{Token, TokenRing};
use crate::{
    config::{Problems, required, secret::Written},
    tls::RawTls,
};

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawAdmin {
    /// Address of probes, metrics, the page and the admin API. Keep it from clients.
    pub listen: String,
    /// Its certificate; absent: it is spoken to in the clear.
    pub tls: Option<RawTls>,
    /// Tokens of those who may look, and of those who may change something. Empty: everybody may
    /// look, and changes are open only while the listener is on a loopback address.
    pub tokens: Vec<RawToken>,
    /// Whether `/metrics` is open to everybody though there are tokens.
    pub open_metrics: bool,
}

impl Default for RawAdmin {
    fn default() -> Self {
        let listen = "127.0.0.1:8081".to_owned();
        Self { listen, tls: None, tokens: vec![], open_metrics: true }
    }
}

/// A token of the admin side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["name"]))]
pub struct RawToken {
    /// Who holds it; stands in the audit lines.
    pub name: String,
    /// SHA-256 of the token, in hexadecimal.
    pub sha256: String,
    /// Instead of `sha256`: the variable of the environment that holds the token.
    pub token_env: Option<String>,
    /// What it allows: read or write.
    pub scope: Scope,
}

/// What a token allows.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// To look.
    #[default]
    Read,
    /// To look and to change.
    Write,
}

/// What the admin side is told, as of the last reload.
pub type Rights = Arc<ArcSwap<AdminConfig>>;

/// What the admin side is told.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Who may look and change.
    pub tokens: TokenRing,
    /// Whether `/metrics` is open to everybody though there are tokens.
    pub open_metrics: bool,
}

impl AdminConfig {
    /// The same, for a reload to change.
    pub fn rights(self) -> Rights {
        Arc::new(ArcSwap::from_pointee(self))
    }
}

impl RawAdmin {
    /// Validates and converts all but the address.
    pub fn check(&self, problems: &mut Problems) -> AdminConfig {
        let mut tokens: Vec<Token> = Vec::new();
        for (index, raw) in self.tokens.iter().enumerate() {
            let path = format!("admin.tokens[{index}]");
            let Some(token) = raw.check(&path, problems) else { continue };
            let new = tokens.iter().all(|other| other.digest != token.digest);
            problems.require(new, &path, "is the token of another name too; give each its own");
            tokens.push(token);
        }
        AdminConfig { tokens: TokenRing::new(tokens), open_metrics: self.open_metrics }
    }

    /// What is noteworthy about an admin side at this address.
    pub fn note(&self, address: SocketAddr) -> Option<String> {
        let open = self.tokens.is_empty() && !address.ip().is_loopback();
        open.then(|| {
            format!(
                "admin.listen: {address} is reachable from elsewhere and there are no admin.tokens: \
                 everybody may look, and nobody may change anything"
            )
        })
    }
}

impl RawToken {
    fn check(&self, path: &str, problems: &mut Problems) -> Option<Token> {
        let sane = !self.name.is_empty() && self.name.bytes().all(|byte| byte.is_ascii_graphic());
        let why = "must be visible ASCII without spaces: it stands in the audit lines";
        problems.require(sane, &format!("{path}.name"), why);
        let env = self.token_env.as_deref();
        let written =
            Written { sha256: &self.sha256, env, env_key: "token_env", may_be_digest: true };
        let digest = written.digest(path, problems)?;
        Some(Token { name: self.name.as_str().into(), digest, scope: self.scope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(tokens: Vec<RawToken>) -> Vec<String> {
        let mut problems = Problems::default();
        RawAdmin { tokens, ..RawAdmin::default() }.check(&mut problems);
        problems.to_string().lines().map(str::to_owned).collect()
    }

    fn token(name: &str, sha256: &str, token_env: Option<&str>) -> RawToken {
        let (name, sha256) = (name.to_owned(), sha256.to_owned());
        RawToken { name, sha256, token_env: token_env.map(str::to_owned), scope: Scope::Write }
    }

    #[test]
    fn a_token_is_a_digest_or_a_variable() {
        let digest = "aB".repeat(32);
        assert!(problems(vec![token("ada", &digest, None)]).is_empty());
        // A variable that every test run has.
        assert!(problems(vec![token("ada", "", Some("PATH"))]).is_empty());
    }

    #[test]
    fn a_token_that_cannot_be_used_is_named() {
        let digest = "ab".repeat(32);
        let bad = [
            (token("", &digest, None), "admin.tokens[0].name"),
            (token("a b", &digest, None), "admin.tokens[0].name"),
            (token("ada", "", None), "admin.tokens[0].sha256"),
            (token("ada", "abc", None), "admin.tokens[0].sha256"),
            (token("ada", &digest, Some("PATH")), "admin.tokens[0]"),
            (token("ada", "", Some("WEIR_NO_SUCH_VARIABLE")), "admin.tokens[0].token_env"),
        ];
        for (token, key) in bad {
            let said = problems(vec![token]);
            assert!(said.len() == 1 && said[0].starts_with(key), "{key}: {said:?}");
        }
        let twice = problems(vec![token("ada", &digest, None), token("bob", &digest, None)]);
        assert!(twice.len() == 1 && twice[0].starts_with("admin.tokens[1]"), "{twice:?}");
    }

    #[test]
    fn an_admin_side_that_others_reach_without_tokens_is_noteworthy() {
        let raw = RawAdmin::default();
        assert_eq!(raw.note(([127, 0, 0, 1], 8081).into()), None);
        assert!(raw.note(([0, 0, 0, 0], 8081).into()).unwrap().contains("admin.tokens"));
        let guarded = RawAdmin { tokens: vec![token("ada", "", None)], ..raw };
        assert_eq!(guarded.note(([0, 0, 0, 0], 8081).into()), None);
    }
}
