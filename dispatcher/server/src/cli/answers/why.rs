//! A reason: the word of the metrics and the docs, and the figures it was decided by.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::cli::output::figures;

/// A reason; empty when none is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Why {
    /// The word, such as `ttft_over_slo`.
    pub(crate) name: String,
    /// The figures, by name.
    members: Map<String, Value>,
}

impl Why {
    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.name.is_empty()
    }
}

impl<'de> Deserialize<'de> for Why {
    /// Takes `{"reason": "late", ..}`, `"late"` and `null`.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(from)? {
            Value::String(name) => Self { name, members: Map::new() },
            Value::Object(mut members) => {
                let name =
                    ["reason", "verdict", "kind"].iter().find_map(|key| members.remove(*key));
                let name = name.and_then(|name| name.as_str().map(str::to_owned));
                Self { name: name.unwrap_or_default(), members }
            }
            _ => Self::default(),
        })
    }
}

/// One figure, its unit taken from the end of its name.
fn figure(name: &str, value: &Value) -> Option<String> {
    let (name, value) = match (name.strip_suffix("_ms"), value) {
        (Some(name), value) => (name, figures::time(value.as_f64())),
        (None, Value::Number(number)) => (name, format!("{}", Rounded(number.as_f64()?))),
        (None, Value::String(text)) => (name, text.clone()),
        (None, Value::Bool(set)) => (name, set.to_string()),
        _ => return None,
    };
    Some(format!("{} {value}", name.replace('_', " ")))
}

struct Rounded(f64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 { write!(f, "{}", self.0) } else { write!(f, "{:.2}", self.0) }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let figures: Vec<_> =
            self.members.iter().filter_map(|(name, value)| figure(name, value)).collect();
        if figures.is_empty() { Ok(()) } else { write!(f, " ({})", figures.join(", ")) }
    }
}
