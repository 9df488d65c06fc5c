//! On what terms a request is served: objective, SLO, band and tenant.
//!
//! Called once per request. Order of the sources, first one that says something:
//!
//! | what | sources |
//! |---|---|
//! | objective | trusted header, `service_tier` of the body, the key's objective, the default |
//! | slo | trusted headers, each over the objective's |
//! | band | the objective's, at most the key's `max_band` |
//! | tenant | trusted header, the key's tenant |
//!
//! Headers are trusted when no keys are configured (then the gateway in front has authenticated) or
//! when the key says so; otherwise they are not even looked at. Each header has an old name, which
//! counts when the new one is absent. An objective or tier that is not configured counts as not
//! asked for, as in llm-d; an SLO that is not a positive number is refused, because a client that
//! asks for a latency must not silently get another.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use weir_core::{Band, Slo};

use super::auth::Key;

/// Names of one header, the new name first.
type Names = [&'static str; 2];

const OBJECTIVE: Names = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];
const FAIRNESS_ID: Names = ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];
const SLO_TTFT: Names = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];
const SLO_TPOT: Names = ["x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"];

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
}

/// A header that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header {0} must be a positive number of milliseconds")]
pub struct BadSlo(pub &'static str);

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

    /// The terms of a request; see the module's table.
    ///
    /// # Errors
    /// Names the trusted SLO header that is not a positive number of milliseconds.
    pub fn terms(
        &self,
        headers: &HeaderMap,
        service_tier: Option<&str>,
        key: Option<&Key>,
    ) -> Result<Terms, BadSlo> {
        let trusted = trusted(headers, key);
        let objective = trusted
            .and_then(|headers| text(headers, OBJECTIVE))
            .and_then(|name| self.named(name))
            .or_else(|| self.by_tier.get(service_tier?))
            .or_else(|| key?.objective.as_ref())
            .unwrap_or(&self.default);
        let mut slo = objective.slo;
        if let Some(headers) = trusted {
            slo.ttft = asked_slo(headers, SLO_TTFT)?.or(slo.ttft);
            slo.tpot = asked_slo(headers, SLO_TPOT)?.or(slo.tpot);
        }
        let ceiling = key.and_then(|key| key.max_band).unwrap_or(Band(i8::MAX));
        let band = objective.band.min(ceiling);
        Ok(Terms { objective: objective.name.clone(), slo, band })
    }
}

/// Who a request is from; `None` when nothing says so.
pub fn tenant(headers: &HeaderMap, key: Option<&Key>) -> Option<Arc<str>> {
    trusted(headers, key)
        .and_then(|headers| text(headers, FAIRNESS_ID))
        .map(|name| Arc::from(name.get(..TENANT_BYTES).unwrap_or(name)))
        .or_else(|| key.map(|key| key.tenant.clone()))
}

/// The headers, if they count.
fn trusted<'a>(headers: &'a HeaderMap, key: Option<&Key>) -> Option<&'a HeaderMap> {
    key.is_none_or(|key| key.trust_headers).then_some(headers)
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
mod tests {
    use super::*;
    use crate::api::config::RawApi;

    fn objectives() -> Objectives {
        RawApi::default().check().unwrap().objectives
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn key() -> Key {
        Key {
            digest: [0; 32],
            tenant: Arc::from("acme"),
            objective: None,
            max_band: None,
            trust_headers: true,
            allow_priority: false,
            rate: None,
        }
    }

    fn name(pairs: &[(&'static str, &str)], tier: Option<&str>, key: Option<&Key>) -> String {
        objectives().terms(&headers(pairs), tier, key).unwrap().objective.to_string()
    }

    fn ms(value: u64) -> Option<Duration> {
        Some(Duration::from_millis(value))
    }

    #[test]
    fn a_request_that_asks_for_nothing_gets_the_default() {
        let terms = objectives().terms(&HeaderMap::new(), None, None).unwrap();
        let slo = Slo { ttft: ms(4000), tpot: ms(100) };
        assert_eq!(terms, Terms { objective: Arc::from("standard"), slo, band: Band(0) });
    }

    #[test]
    fn the_header_goes_before_the_tier_the_tier_before_the_key_and_the_key_before_the_default() {
        let batch = objectives().named("batch").unwrap().clone();
        let key = Key { objective: Some(batch), ..key() };
        let header = [("x-llm-d-inference-objective", "standard")];
        assert_eq!(name(&header, Some("priority"), Some(&key)), "standard");
        assert_eq!(name(&[], Some("priority"), Some(&key)), "interactive");
        assert_eq!(name(&[], None, Some(&key)), "batch");
        assert_eq!(name(&[], None, None), "standard");
    }

    #[test]
    fn the_new_name_of_a_header_goes_before_the_old_one() {
        let old = ("x-gateway-inference-objective", "batch");
        let new = ("x-llm-d-inference-objective", "interactive");
        assert_eq!(name(&[old], None, None), "batch");
        assert_eq!(name(&[old, new], None, None), "interactive");

        let both = headers(&[("x-slo-ttft-ms", "10"), ("x-llm-d-slo-ttft-ms", "20")]);
        assert_eq!(objectives().terms(&both, None, None).unwrap().slo.ttft, ms(20));
    }

    #[test]
    fn an_objective_or_tier_that_is_not_configured_counts_as_not_asked_for() {
        assert_eq!(name(&[("x-llm-d-inference-objective", "gold")], Some("flex"), None), "batch");
        assert_eq!(name(&[], Some("scale"), None), "standard");
    }

    #[test]
    fn slo_headers_override_the_objective_one_by_one() {
        let asked = headers(&[("x-slo-tpot-ms", " 12.5 ")]);
        let slo = objectives().terms(&asked, None, None).unwrap().slo;
        assert_eq!(slo, Slo { ttft: ms(4000), tpot: Some(Duration::from_micros(12_500)) });
    }

    #[test]
    fn an_slo_that_is_not_a_positive_number_is_refused_by_name() {
        for value in ["", "fast", "1s", "0", "-0", "-5", "NaN", "inf", "-inf", "infinity", "1e999"]
        {
            for name in
                ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"]
            {
                let asked = headers(&[(name, value)]);
                let refusal = objectives().terms(&asked, None, None).unwrap_err();
                assert_eq!(refusal, BadSlo(name), "{value}");
                assert!(refusal.to_string().contains(name));
            }
        }
        let mut binary = HeaderMap::new();
        binary.insert("x-slo-ttft-ms", HeaderValue::from_bytes(b"1\xff").unwrap());
        assert!(objectives().terms(&binary, None, None).is_err());
    }

    #[test]
    fn extreme_slos_are_held_where_no_arithmetic_overflows() {
        assert_eq!(slo_from_ms(1e300), Some(Duration::from_secs(86_400)));
        assert_eq!(slo_from_ms(1e-300), Some(Duration::from_micros(1)));
    }

    #[test]
    fn headers_of_an_untrusted_key_do_not_count_not_even_bad_ones() {
        let untrusted = Key { trust_headers: false, ..key() };
        let asked = headers(&[
            ("x-llm-d-inference-objective", "interactive"),
            ("x-slo-ttft-ms", "nonsense"),
            ("x-llm-d-inference-fairness-id", "someone-else"),
        ]);
        let terms = objectives().terms(&asked, None, Some(&untrusted)).unwrap();
        assert_eq!((&*terms.objective, terms.slo.ttft), ("standard", ms(4000)));
        assert_eq!(tenant(&asked, Some(&untrusted)).as_deref(), Some("acme"));
    }

    #[test]
    fn the_band_is_clamped_to_the_keys_ceiling_but_never_raised() {
        let low = Key { max_band: Some(Band(0)), ..key() };
        let band =
            |tier| objectives().terms(&HeaderMap::new(), Some(tier), Some(&low)).unwrap().band;
        assert_eq!(band("priority"), Band(0));
        assert_eq!(band("flex"), Band(-1));
    }

    #[test]
    fn the_tenant_is_the_trusted_header_or_else_the_keys() {
        let asked = headers(&[("x-gateway-inference-fairness-id", "team-7")]);
        assert_eq!(tenant(&asked, None).as_deref(), Some("team-7"));
        assert_eq!(tenant(&asked, Some(&key())).as_deref(), Some("team-7"));
        assert_eq!(tenant(&HeaderMap::new(), Some(&key())).as_deref(), Some("acme"));
        assert_eq!(tenant(&HeaderMap::new(), None), None);
        let long = headers(&[("x-llm-d-inference-fairness-id", &"t".repeat(5000))]);
        assert_eq!(tenant(&long, None).unwrap().len(), TENANT_BYTES);
    }
}
