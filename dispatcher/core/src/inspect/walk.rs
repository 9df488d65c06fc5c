//! What waits, in pages and in counts.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

use serde::Serialize;

use crate::{Band, Reason, RequestId, Time, queue::LaneKey};

/// A place in the order of arrivals; what comes behind it is the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Arrival of the request it stands at.
    pub arrived: Time,
    /// That request.
    pub id: RequestId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.arrived.as_micros(), self.id.0)
    }
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (arrived, id) = text.split_once('.').ok_or(NoCursor)?;
        let number = |text: &str| text.parse().map_err(|_| NoCursor);
        Ok(Self { arrived: Time::from_micros(number(arrived)?), id: RequestId(number(id)?) })
    }
}

/// Which waiting requests are meant; all of them when nothing is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of a lane.
    pub lane: Option<LaneKey>,
    /// Those of a band.
    pub band: Option<Band>,
    /// Those of a tenant.
    pub tenant: Option<Arc<str>>,
    /// Those that can, or can no longer, make it.
    pub late: Option<bool>,
    /// Those that have waited at least so long.
    pub older_than: Option<Duration>,
}

/// Some of what waits, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Them.
    pub requests: Vec<WaitingView>,
    /// Where to go on; `None`: that was all.
    pub next: Option<Cursor>,
    /// Requests that were looked at for it.
    pub scanned: usize,
}

/// A request that waits.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingView {
    /// Its number.
    pub id: RequestId,
    /// What its client calls it.
    pub request_id: Arc<str>,
    /// Its lane.
    pub lane: Arc<str>,
    /// Its band.
    pub band: Band,
    /// The LoRA adapter that it asks for.
    pub adapter: Option<Arc<str>>,
    /// Who sent it.
    pub tenant: Option<Arc<str>>,
    /// Time since its arrival.
    pub age_ms: f64,
    /// Time until its first token is due; negative once that has passed, `None` without an objective.
    pub deadline_ms: Option<f64>,
    /// That time less the best TTFT that any pod could give it; negative: it cannot be met.
    pub slack_ms: Option<f64>,
    /// Its objective for the time from arrival to the first token.
    pub ttft_slo_ms: Option<f64>,
    /// Its objective for the time per output token.
    pub tpot_slo_ms: Option<f64>,
    /// Input tokens, over all its sequences.
    pub input_tokens: u32,
    /// Output tokens predicted for each sequence.
    pub output_tokens: u32,
    /// Bytes of its body.
    pub body_bytes: u32,
    /// Whether it was put behind those that can still make it.
    pub late: bool,
    /// Why it waits.
    pub reason: Reason,
    /// Deliveries tried.
    pub attempts: u32,
    /// Whether its response is streamed.
    pub streamed: bool,
}

/// How many of some requests are how near to their objective.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// More than a quarter of the objective is left as slack, or there is none to meet.
    pub ok: usize,
    /// Less is left.
    pub tight: usize,
    /// Nothing is left.
    pub late: usize,
}

/// What a walk counted of some requests.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Count {
    /// Requests.
    pub depth: usize,
    /// Their body bytes.
    pub bytes: u64,
    /// Age of the oldest, in milliseconds.
    pub oldest_wait_ms: f64,
    /// How near they are to their objectives.
    pub risk: Risk,
}

/// Tenants counted apart; those beyond are counted together.
pub const TENANTS_COUNTED: usize = 1024;

/// Everything that waits, counted in a walk over it. What comes and goes meanwhile may be missed.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// By lane.
    pub lanes: BTreeMap<Arc<str>, Count>,
    /// By band.
    pub bands: BTreeMap<Band, Count>,
    /// By tenant, the first [`TENANTS_COUNTED`] that were met.
    pub tenants: BTreeMap<Arc<str>, Count>,
    /// Requests of the tenants beyond.
    pub other_tenants: Count,
    /// Requests whose tenant is not known.
    pub no_tenant: Count,
    /// Requests counted.
    pub counted: usize,
}
