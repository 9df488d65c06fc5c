//! Faults that a pod shows on demand, one at a time: what it is told by `POST /fault`.
//!
//! | kind | what happens | until |
//! |---|---|---|
//! | `refuse` | the listener is closed and idle connections with it; running streams go on | cleared |
//! | `hang` | a new generation is accepted and never answered | `count` of them, else cleared |
//! | `die_mid_stream` | a new stream is cut after `after_tokens` tokens; an unstreamed answer before its head | same |
//! | `stall` | a new stream says nothing more after `after_tokens` tokens; clearing lets it go on | same |
//! | `status_500`, `status_503` | a new generation is answered with that status | same |
//! | `slow` | the engine takes `factor` times as long | cleared |
//! | `stale_metrics` | `/metrics` keeps its last text | cleared |
//! | `none` | clears | |
//!
//! Generations that run when a fault is posted are not touched by it. The connection that posted `refuse` stays open, so
//! that it can be cleared; `for_ms` clears any fault by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Kinds of fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// No fault.
    #[default]
    None,
    /// Connections are refused.
    Refuse,
    /// Generations are never answered.
    Hang,
    /// Streams are cut.
    DieMidStream,
    /// Streams fall silent.
    Stall,
    /// Generations are answered with 500.
    #[serde(rename = "status_500")]
    Status500,
    /// Generations are answered with 503.
    #[serde(rename = "status_503")]
    Status503,
    /// The engine is slower.
    Slow,
    /// Metrics do not change.
    StaleMetrics,
}

/// A fault as it is posted and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub kind: Kind,
    /// Tokens before a stream is cut or falls silent; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_tokens: Option<u32>,
    /// How many times slower; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Generations left that it happens to; absent is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Milliseconds after which it is cleared; absent is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// What a fault does to one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doom {
    Hang,
    Status(u16),
    CutAfter(u32),
    SilentAfter(u32),
}

const AFTER_TOKENS: u32 = 3;
const SLOW_FACTOR: f64 = 3.0;

impl Fault {
    /// Whether its numbers make sense, and why not.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let per_generation = self.doom().is_some();
        if self.factor.is_some_and(|factor| !factor.is_finite() || factor <= 0.0) {
            return Err("factor must be above zero");
        }
        if self.factor.is_some() && self.kind != Kind::Slow {
            return Err("factor belongs to slow");
        }
        if self.count.is_some() && !per_generation {
            return Err("count belongs to faults of single generations");
        }
        Ok(())
    }

    /// The factor on the engine's time.
    pub(super) fn slowness(&self) -> f64 {
        if self.kind == Kind::Slow { self.factor.unwrap_or(SLOW_FACTOR) } else { 1.0 }
    }

    /// How long it lasts, when that is limited.
    pub(super) fn lasts(&self) -> Option<Duration> {
        self.for_ms.map(Duration::from_millis)
    }

    /// What happens to the generation that starts now; uses up one of `count`.
    pub(super) fn strike(&mut self) -> Option<Doom> {
        let doom = self.doom()?;
        match &mut self.count {
            Some(0) => return None,
            Some(count) => *count -= 1,
            None => {}
        }
        Some(doom)
    }

    fn doom(&self) -> Option<Doom> {
        let after = self.after_tokens.unwrap_or(AFTER_TOKENS);
        match self.kind {
            Kind::Hang => Some(Doom::Hang),
            Kind::Status500 => Some(Doom::Status(500)),
            Kind::Status503 => Some(Doom::Status(503)),
            Kind::DieMidStream => Some(Doom::CutAfter(after)),
            Kind::Stall => Some(Doom::SilentAfter(after)),
            Kind::None | Kind::Refuse | Kind::Slow | Kind::StaleMetrics => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> Fault {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_fault_strikes_as_often_as_it_was_counted() {
        let mut two = fault(r#"{"kind":"status_503","count":2}"#);
        assert_eq!(
            [two.strike(), two.strike(), two.strike()],
            [Some(Doom::Status(503)), Some(Doom::Status(503)), None]
        );
        let mut always = fault(r#"{"kind":"stall","after_tokens":7}"#);
        assert_eq!([always.strike(), always.strike()], [Some(Doom::SilentAfter(7)); 2]);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        assert!(fault(r#"{"kind":"slow","factor":0}"#).check().is_err());
        assert!(fault(r#"{"kind":"hang","factor":2}"#).check().is_err());
        assert!(fault(r#"{"kind":"refuse","count":2}"#).check().is_err());
        assert!(fault(r#"{"kind":"slow","factor":2.5}"#).check().is_ok());
        assert!(serde_json::from_str::<Fault>(r#"{"kind":"explode"}"#).is_err());
        assert!(serde_json::from_str::<Fault>(r#"{"kind":"none","afterTokens":1}"#).is_err());
    }
}
