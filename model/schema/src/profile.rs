//! Profile files: what pods of one class were measured to do before they serve.
//!
//! Two families of files are read as their tools write them: AIBrix's profile of patterns
//! ([`aibrix`]) and Llumnix's curves of TTFT and TPOT ([`llumnix`]). Which one a file is shows in
//! its keys. A [`Profile`] holds what is known of one pod class; the dispatcher reads capacities
//! from it and the profile evaluator latencies.
//!
//! A file is checked once, when it is read. One that would mislead is refused with the cell or the
//! point named; a cell that cannot be served under the profile's objective is marked infeasible and
//! noted. After that nothing fails: a reading outside the grid is that of its edge, and says so.
//!
//! # Layout
//! - [`aibrix`]: throughput and end-to-end latency by input and output tokens
//! - [`llumnix`]: TTFT by prompt tokens, TPOT by batch and context
//! - `axis`: places between grid points; `text`: JSON as Python writes it

pub mod aibrix;
mod axis;
pub mod llumnix;
mod text;

use std::sync::Arc;

use serde_json::Value;

pub use self::aibrix::{Cell, Infeasible, Objectives, PatternProfile};
pub use self::llumnix::{Batch, Percentile, Prefill, TpotGrid, TtftCurve};

/// Why a profile file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be parsed.
    #[error("is no JSON: {0}")]
    Json(String),
    /// None of the known keys is in it.
    #[error(
        "is neither an AIBrix profile (indexes, tputs, e2e) nor one of Llumnix's (results by \
         tokens_num, or by batch_size and tokens_per_request)"
    )]
    UnknownKind,
    /// A profile of this kind is there already.
    #[error("is a second {} for the class", .0.name())]
    Second(Kind),
    /// A part of it is missing or cannot be true.
    #[error("{part}: {why}")]
    Wrong {
        /// The key, the cell or the point.
        part: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ProfileError {
    fn wrong(part: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Wrong { part: part.into(), why: why.into() }
    }
}

/// What a profile file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An AIBrix profile.
    Patterns,
    /// Llumnix's TTFT results.
    Ttft,
    /// Llumnix's TPOT results.
    Tpot,
}

impl Kind {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Patterns => "AIBrix profile",
            Self::Ttft => "Llumnix TTFT profile",
            Self::Tpot => "Llumnix TPOT profile",
        }
    }

    fn of(value: &Value) -> Option<Self> {
        if value.get("tputs").is_some() || value.get("indexes").is_some() {
            return Some(Self::Patterns);
        }
        let point = value.get("results")?.as_array()?.first()?;
        if point.get("tokens_num").is_some() {
            return Some(Self::Ttft);
        }
        let tpot = point.get("batch_size").is_some() || point.get("tokens_per_request").is_some();
        tpot.then_some(Self::Tpot)
    }
}

/// A value read off a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading<T> {
    /// The value.
    pub value: T,
    /// Whether it was asked for inside the grid; otherwise it is that of the edge.
    pub inside: bool,
}

/// What is known of one pod class. Any part may be absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Capacities by pattern, and perhaps latencies.
    pub patterns: Option<Arc<PatternProfile>>,
    /// TTFT by prompt tokens.
    pub ttft: Option<TtftCurve>,
    /// TPOT by batch and context.
    pub tpot: Option<TpotGrid>,
}

impl Profile {
    /// Adds the text of one file. `percentile` is the statistic taken of Llumnix's; AIBrix's has one.
    ///
    /// # Errors
    /// When the text is no profile, is wrong, or the class has one of its kind.
    pub fn add(&mut self, text: &str, percentile: Percentile) -> Result<Kind, ProfileError> {
        let value = text::parse(text)?;
        let kind = Kind::of(&value).ok_or_else(|| match value.get("results") {
            Some(results) if results.as_array().is_some_and(Vec::is_empty) => {
                ProfileError::wrong("results", "has no point")
            }
            _ => ProfileError::UnknownKind,
        })?;
        let taken = match kind {
            Kind::Patterns => {
                let read = Arc::new(PatternProfile::from_json(&value)?);
                self.patterns.replace(read).is_some()
            }
            Kind::Ttft => self.ttft.replace(TtftCurve::from_json(&value, percentile)?).is_some(),
            Kind::Tpot => self.tpot.replace(TpotGrid::from_json(&value, percentile)?).is_some(),
        };
        if taken { Err(ProfileError::Second(kind)) } else { Ok(kind) }
    }

    /// What a reader of the files should know, a line each: infeasible and unusable cells.
    pub fn notes(&self) -> Vec<String> {
        self.patterns.iter().flat_map(|patterns| patterns.notes()).collect()
    }

    /// Whether nothing is known.
    pub const fn is_empty(&self) -> bool {
        self.patterns.is_none() && self.ttft.is_none() && self.tpot.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_kind_is_refused_with_the_kinds_there_are() {
        let mut profile = Profile::default();
        for text in ["{}", "[1]", r#"{"results": [{"batch": 1}]}"#, r#"{"results": 3}"#] {
            let error = profile.add(text, Percentile::P50).unwrap_err();
            assert_eq!(error, ProfileError::UnknownKind, "{text}");
        }
        let error = profile.add("{", Percentile::P50).unwrap_err().to_string();
        assert!(error.starts_with("is no JSON: "), "{error}");
        let error = profile.add(r#"{"results": []}"#, Percentile::P50).unwrap_err().to_string();
        assert_eq!(error, "results: has no point");
        assert!(profile.is_empty());
    }

    #[test]
    fn a_class_has_one_profile_of_each_kind() {
        let mut profile = Profile::default();
        let ttft = r#"{"results": [{"tokens_num": 128, "p50": 42.0}]}"#;
        assert_eq!(profile.add(ttft, Percentile::P50), Ok(Kind::Ttft));
        let error = profile.add(ttft, Percentile::P50).unwrap_err().to_string();
        assert_eq!(error, "is a second Llumnix TTFT profile for the class");
    }
}
