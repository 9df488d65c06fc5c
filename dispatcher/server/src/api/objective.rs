//! On what terms a request is served: objective, SLO, band and tenant.
//!
//! Called once per request. Order of the sources, first one that says something:
//!
//! | what | sources |
//! |---|---|
//! | objective | trusted header, `service_tier` of the body, the key's objective, the model's, the default |
//! | slo | trusted headers, each over the objective's |
//! | band | the objective's, at most the key's `max_band` |
//! | tenant | trusted header, the key's tenant |
//! | policy | the pool's second one, if it has one and a trusted header asks for it |
//!
//! Headers are trusted when no keys are configured (then the gateway in front has authenticated) or
//! when the key says so; otherwise they are not even looked at. Each header has an old name, which
//! counts when the new one is absent. An objective or tier that is not configured counts as not
//! asked for, as in llm-d, and the header's is counted; an SLO that is not a positive number is refused, because a client that
//! asks for a latency must not silently get another.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use weir_core::{Band, Slo};

use super::{auth::Key, headers};

/// Names of one header, the new name first.
type Names = [&'static str; 2];

const OBJECTIVE: Names = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];
const FAIRNESS_ID: Names = ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];
const SLO_TTFT: Names = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];
const SLO_TPOT: Names = ["x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"];
/// The header that chooses between two policies of a pool, as in llm-d's SLO-aware routing.
const PREDICTION: &str = "x-prediction-based-scheduling";

/// Longest name of a tenant; longer ones are cut, for they are kept per tenant.
const TENANT_BYTES: usize = 128;

/// A class of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// Its name, a metric's label.
    pub name: Arc<str>,
    /// Its priority.
    pub band: Band,
    /// Its latency objectives.
    pub slo: Slo,
}

/// The terms of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Name of the objective it got.
    pub objective: Arc<str>,
    /// Its latency objectives.
    pub slo: Slo,
    /// Its priority.
    pub band: Band,
    /// Whether it goes by the pool's second policy.
    pub by_header: bool,
    /// Whether a header asked for an objective that is not configured.
    pub unknown: bool,
}

/// A header that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header {0} must be a positive number of milliseconds")]
pub struct BadSlo(pub &'static str);

/// A request without any latency objective of its own, to a model whose policy requires one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this model needs a latency objective: send the header {} or {}, or ask for an objective by {}",
    SLO_TTFT[0], SLO_TPOT[0], OBJECTIVE[0]
)]
pub struct MissingSlo;

impl MissingSlo {
    /// The header that is missing.
    pub const PARAM: &str = SLO_TTFT[0];
}

/// Why a request has no terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTerms {
    /// A header cannot be understood.
    #[error(transparent)]
    BadSlo(#[from] BadSlo),
    /// A latency objective is required and there is none.
    #[error(transparent)]
    MissingSlo(#[from] MissingSlo),
}

/// What a pool says of the terms of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct House {
    /// The objective of requests that ask for none; `None`: that of all pools.
    pub objective: Option<Arc<Objective>>,
    /// Whether requests must ask for a latency objective.
    pub require_slo: bool,
    /// The same for requests that ask for its second policy; `None`: it has none.
    pub second: Option<bool>,
}

/// The configured classes of service, and which request gets which.
#[derive(Clone, Debug)]
pub struct Objectives {
    by_name: HashMap<Arc<str>, Arc<Objective>>,
    by_tier: HashMap<String, Arc<Objective>>,
    default: Arc<Objective>,
}

impl Objectives {
    /// Objectives by name, by service tier, and the one of requests that ask for none.
    pub fn new(
        by_name: HashMap<Arc<str>, Arc<Objective>>,
        by_tier: HashMap<String, Arc<Objective>>,
        default: Arc<Objective>,
    ) -> Self {
        Self { by_name, by_tier, default }
    }

    /// The objective of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Objective>> {
        self.by_name.get(name)
    }

    /// The terms of a request to a pool; see the module's table.
    ///
    /// # Errors
    /// Names the trusted SLO header that is not a positive number of milliseconds, or says that the
    /// pool requires an objective and the request asks for none.
    pub fn terms(
        &self,
        headers: &HeaderMap,
        service_tier: Option<&str>,
        key: Option<&Key>,
        house: &House,
    ) -> Result<Terms, BadTerms> {
        let trusted = trusted(headers, key);
        let named = trusted.and_then(|headers| text(headers, OBJECTIVE));
        let known = named.and_then(|name| self.named(name));
        let unknown = named.is_some() && known.is_none();
        let asked =
            known.or_else(|| self.by_tier.get(service_tier?)).or_else(|| key?.objective.as_ref());
        let own = match trusted {
            Some(headers) => {
                Slo { ttft: asked_slo(headers, SLO_TTFT)?, tpot: asked_slo(headers, SLO_TPOT)? }
            }
            None => Slo::default(),
        };
        let by_header = house.second.is_some() && trusted.is_some_and(asks_prediction);
        let require_slo = house.second.filter(|_| by_header).unwrap_or(house.require_slo);
        let stated = asked.is_some_and(|asked| asked.slo != Slo::default());
        if require_slo && own == Slo::default() && !stated {
            return Err(MissingSlo.into());
        }
        let objective = asked.or(house.objective.as_ref()).unwrap_or(&self.default);
        let slo =
            Slo { ttft: own.ttft.or(objective.slo.ttft), tpot: own.tpot.or(objective.slo.tpot) };
        let ceiling = key.and_then(|key| key.max_band).unwrap_or(Band(i8::MAX));
        let band = objective.band.min(ceiling);
        Ok(Terms { objective: objective.name.clone(), slo, band, by_header, unknown })
    }
}

/// Who a request is from; `None` when nothing says so.
pub fn tenant(headers: &HeaderMap, key: Option<&Key>) -> Option<Arc<str>> {
    trusted(headers, key)
        .and_then(|headers| find(headers, FAIRNESS_ID))
        .and_then(|(_, value)| match value.to_str() {
            Ok(name) => cut(name),
            Err(_) => cut(&beyond_ascii(value.as_bytes())),
        })
        .or_else(|| key.map(|key| key.tenant.clone()))
}

/// A tenant's name; `None` of a blank one.
fn cut(name: &str) -> Option<Arc<str>> {
    let name = name.trim();
    let end = name.floor_char_boundary(TENANT_BYTES);
    (!name.is_empty()).then(|| Arc::from(name.get(..end).unwrap_or(name)))
}

/// UTF-8, or else Latin-1, as headers once had, so that different values are different names. Characters that would steer a terminal
/// are replaced.
fn beyond_ascii(value: &[u8]) -> String {
    let one = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    match std::str::from_utf8(value) {
        Ok(utf8) => utf8.chars().map(one).collect(),
        Err(_) => value.iter().map(|byte| one(char::from(*byte))).collect(),
    }
}

/// Whether a request asks to be scheduled by prediction.
fn asks_prediction(headers: &HeaderMap) -> bool {
    let value = headers.get(PREDICTION).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// The headers, if they count and there is anything in them to be found.
fn trusted<'a>(headers: &'a HeaderMap, key: Option<&Key>) -> Option<&'a HeaderMap> {
    let counts = key.is_none_or(|key| key.trust_headers) && headers::steers(headers);
    counts.then_some(headers)
}

fn find(headers: &HeaderMap, names: Names) -> Option<(&'static str, &HeaderValue)> {
    names.into_iter().find_map(|name| Some((name, headers.get(name)?)))
}

/// A header's value if it is visible ASCII and not blank.
fn text(headers: &HeaderMap, names: Names) -> Option<&str> {
    let (_, value) = find(headers, names)?;
    value.to_str().ok().map(str::trim).filter(|value| !value.is_empty())
}

fn asked_slo(headers: &HeaderMap, names: Names) -> Result<Option<Duration>, BadSlo> {
    let Some((name, value)) = find(headers, names) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|value| value.trim().parse::<f64>().ok());
    number.and_then(slo_from_ms).map(Some).ok_or(BadSlo(name))
}

/// An SLO of this many milliseconds; `None` unless finite and positive. Held between a microsecond,
/// the resolution of time here, and a day, which no request outlives.
pub fn slo_from_ms(value_ms: f64) -> Option<Duration> {
    let positive = value_ms.is_finite() && value_ms > 0.0;
    positive.then(|| Duration::from_secs_f64(value_ms.clamp(0.001, 86_400_000.0) / 1000.0))
}

#[cfg(test)]
mod tests;
