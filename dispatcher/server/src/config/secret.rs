//! Secrets: known by their SHA-256 in the file, or read from a variable of the environment, so that no
//! file has to hold one.

use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::Problems;

/// How a part of the file names its secret.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// Its SHA-256 in hexadecimal; empty when it is not given so.
    pub sha256: &'a str,
    /// The variable that holds it.
    pub env: Option<&'a str>,
    /// The key that names the variable, as in `key_env`.
    pub env_key: &'a str,
    /// Whether the part may hold a `sha256` in its place.
    pub may_be_digest: bool,
}

impl Written<'_> {
    /// The SHA-256 of the secret of the part at `path`.
    pub fn digest(&self, path: &str, problems: &mut Problems) -> Option<[u8; 32]> {
        let Self { sha256, env, env_key, may_be_digest } = *self;
        match env {
            Some(_) if !sha256.is_empty() => {
                problems.add(path, format!("has both sha256 and {env_key}; keep one"));
                None
            }
            Some(name) => {
                let or = if may_be_digest { ", or give sha256" } else { "" };
                let secret = held_by(name, or, &format!("{path}.{env_key}"), problems);
                secret.map(|secret| Sha256::digest(secret).into())
            }
            None => {
                let digest = from_hex(sha256);
                let why =
                    "must be 64 hexadecimal digits; make them with: printf %s \"$KEY\" | sha256sum";
                problems.require(digest.is_some(), &format!("{path}.sha256"), why);
                digest
            }
        }
    }
}

/// The header with the key that this variable holds, which `key` of the file names.
pub fn bearer(name: &str, key: &str, problems: &mut Problems) -> Option<HeaderValue> {
    let secret = held_by(name, "", key, problems)?;
    let header = HeaderValue::try_from(format!("Bearer {secret}"));
    let why = format!("the variable {name} holds what no header can say; export a key");
    problems.require(header.is_ok(), key, &why);
    let mut header = header.ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The secret that this variable holds.
fn held_by(name: &str, or: &str, key: &str, problems: &mut Problems) -> Option<String> {
    let value = std::env::var_os(name);
    let secret = value.as_ref().and_then(|value| of_text(value.to_str()?));
    if secret.is_none() {
        let is = match &value {
            None => "not set",
            Some(value) if value.to_str().is_none() => "no text",
            Some(_) => "empty",
        };
        problems.add(key, format!("the variable {name} is {is}; export it{or}"));
    }
    secret.map(str::to_owned)
}

/// Of what a variable holds: a file that became one ends its line, which no header can say.
fn of_text(text: &str) -> Option<&str> {
    let secret = text.trim_ascii();
    (!secret.is_empty()).then_some(secret)
}

fn from_hex(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(sha256: &str, env: Option<&str>) -> Result<[u8; 32], String> {
        let mut problems = Problems::default();
        let written = Written { sha256, env, env_key: "key_env", may_be_digest: true };
        let digest = written.digest("keys[0]", &mut problems);
        digest.ok_or_else(|| problems.to_string())
    }

    #[test]
    fn a_secret_is_what_a_header_can_say_of_a_variable() {
        for text in ["sk-1", "sk-1\n", " sk-1\r\n"] {
            assert_eq!(of_text(text), Some("sk-1"), "{text:?}");
        }
        assert_eq!([of_text(""), of_text("\n")], [None, None]);
    }

    #[test]
    fn a_key_for_others_is_said_in_a_header_and_in_no_log() {
        let mut problems = Problems::default();
        // A variable that every test run has.
        let header = bearer("PATH", "pools[0].pods_key_env", &mut problems).unwrap();
        assert_eq!(header, format!("Bearer {}", std::env::var("PATH").unwrap()));
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert_eq!(bearer("WEIR_NO_SUCH_VARIABLE", "pools[0].pods_key_env", &mut problems), None);
        let unset =
            "pools[0].pods_key_env: the variable WEIR_NO_SUCH_VARIABLE is not set; export it";
        assert_eq!(problems.to_string(), unset);
    }

    #[test]
    fn a_secret_is_a_digest_or_a_variable_but_not_both() {
        assert_eq!(digest(&"aB".repeat(32), None), Ok([0xab; 32]));
        // A variable that every test run has.
        let path: [u8; 32] = Sha256::digest(std::env::var("PATH").unwrap()).into();
        assert_eq!(digest("", Some("PATH")), Ok(path));
        assert!(digest("ab", Some("PATH")).unwrap_err().contains("keep one"));
        assert!(digest("", None).unwrap_err().contains("sha256sum"));
        let unset = digest("", Some("WEIR_NO_SUCH_VARIABLE")).unwrap_err();
        assert!(
            unset.starts_with("keys[0].key_env: the variable WEIR_NO_SUCH_VARIABLE"),
            "{unset}"
        );
        assert!(unset.ends_with("is not set; export it, or give sha256"), "{unset}");
    }

    #[test]
    fn a_digest_is_not_asked_for_where_there_is_no_place_for_it() {
        let env = Some("WEIR_NO_SUCH_VARIABLE");
        let written = Written { sha256: "", env, env_key: "secret_env", may_be_digest: false };
        let mut problems = Problems::default();
        assert_eq!(written.digest("replicas", &mut problems), None);
        let words = "replicas.secret_env: the variable WEIR_NO_SUCH_VARIABLE is not set; export it";
        assert_eq!(problems.to_string(), words);
    }
}
