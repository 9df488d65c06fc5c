use super::*;
use crate::api::config::RawApi;

fn objectives() -> Objectives {
    RawApi::default().check().unwrap().objectives
}

/// The terms of a request to a pool that says nothing.
fn terms(
    headers: &HeaderMap,
    service_tier: Option<&str>,
    key: Option<&Key>,
) -> Result<Terms, BadTerms> {
    objectives().terms(headers, service_tier, key, &House::default())
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
    terms(&headers(pairs), tier, key).unwrap().objective.to_string()
}

fn ms(value: u64) -> Option<Duration> {
    Some(Duration::from_millis(value))
}

#[test]
fn a_request_that_asks_for_nothing_gets_the_default() {
    let got = terms(&HeaderMap::new(), None, None).unwrap();
    let slo = Slo { ttft: ms(4000), tpot: ms(100) };
    let objective = Arc::from("standard");
    let want = Terms { objective, slo, band: Band(0), by_header: false, unknown: false };
    assert_eq!(got, want);
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
    assert_eq!(terms(&both, None, None).unwrap().slo.ttft, ms(20));
}

#[test]
fn an_objective_or_tier_that_is_not_configured_counts_as_not_asked_for() {
    assert_eq!(name(&[("x-llm-d-inference-objective", "gold")], Some("flex"), None), "batch");
    assert_eq!(name(&[], Some("scale"), None), "standard");
    for (asked, unknown) in [("gold", true), ("batch", false)] {
        let asked = headers(&[("x-llm-d-inference-objective", asked)]);
        assert_eq!(terms(&asked, None, None).unwrap().unknown, unknown);
        let untrusted = Key { trust_headers: false, ..key() };
        assert!(!terms(&asked, None, Some(&untrusted)).unwrap().unknown, "it does not count");
    }
}

#[test]
fn slo_headers_override_the_objective_one_by_one() {
    let asked = headers(&[("x-slo-tpot-ms", " 12.5 ")]);
    let slo = terms(&asked, None, None).unwrap().slo;
    assert_eq!(slo, Slo { ttft: ms(4000), tpot: Some(Duration::from_micros(12_500)) });
}

#[test]
fn an_slo_that_is_not_a_positive_number_is_refused_by_name() {
    for value in ["", "fast", "1s", "0", "-0", "-5", "NaN", "inf", "-inf", "infinity", "1e999"] {
        for name in ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"]
        {
            let asked = headers(&[(name, value)]);
            let refusal = terms(&asked, None, None).unwrap_err();
            assert_eq!(refusal, BadTerms::BadSlo(BadSlo(name)), "{value}");
            assert!(refusal.to_string().contains(name));
        }
    }
    let mut binary = HeaderMap::new();
    binary.insert("x-slo-ttft-ms", HeaderValue::from_bytes(b"1\xff").unwrap());
    assert!(terms(&binary, None, None).is_err());
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
    let got = terms(&asked, None, Some(&untrusted)).unwrap();
    assert_eq!((&*got.objective, got.slo.ttft), ("standard", ms(4000)));
    assert_eq!(tenant(&asked, Some(&untrusted)).as_deref(), Some("acme"));
}

#[test]
fn the_band_is_clamped_to_the_keys_ceiling_but_never_raised() {
    let low = Key { max_band: Some(Band(0)), ..key() };
    let band = |tier| terms(&HeaderMap::new(), Some(tier), Some(&low)).unwrap().band;
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

#[test]
fn a_tenant_may_have_a_name_beyond_ascii() {
    let named = |value: &[u8]| {
        let value = HeaderValue::from_bytes(value).unwrap();
        let asked =
            HeaderMap::from_iter([("x-llm-d-inference-fairness-id".parse().unwrap(), value)]);
        tenant(&asked, Some(&key())).unwrap().to_string()
    };
    assert_eq!(named(" Größe 部門 ".as_bytes()), "Größe 部門");
    assert_eq!(named(b"M\xfcller"), "Müller", "no UTF-8");
    assert_eq!([named("\u{9b}2J".as_bytes()), named(b"\x9b2J")], ["\u{fffd}2J"; 2]);
    assert_eq!(named("é".repeat(100).as_bytes()), "é".repeat(TENANT_BYTES / 2));
    assert_eq!(named(format!("x{}", "é".repeat(100)).as_bytes()).len(), TENANT_BYTES - 1);
    assert_eq!(named("\u{a0}".as_bytes()), "acme", "blank");
}

/// Seed 001: "we require all requests to provide an SLO, error if otherwise".
#[test]
fn a_pool_may_require_an_objective_of_every_request() {
    let house = House { require_slo: true, ..House::default() };
    let ask = |pairs: &[_], tier| objectives().terms(&headers(pairs), tier, None, &house);
    assert_eq!(ask(&[], None), Err(MissingSlo.into()));
    assert_eq!(ask(&[("x-llm-d-inference-objective", "gold")], None), Err(MissingSlo.into()));
    for stated in [
        ask(&[("x-slo-ttft-ms", "200")], None),
        ask(&[("x-llm-d-slo-tpot-ms", "50")], None),
        ask(&[("x-gateway-inference-objective", "batch")], None),
        ask(&[], Some("flex")),
    ] {
        assert!(stated.is_ok(), "{stated:?}");
    }
    let batch = objectives().named("batch").cloned();
    let key = Key { objective: batch, ..key() };
    assert!(objectives().terms(&headers(&[]), None, Some(&key), &house).is_ok());
}

#[test]
fn a_model_may_have_a_default_objective_of_its_own() {
    let objective = objectives().named("interactive").cloned();
    let house = House { objective, ..House::default() };
    let name = |tier| {
        let terms = objectives().terms(&headers(&[]), tier, None, &house).unwrap();
        terms.objective.to_string()
    };
    assert_eq!((name(None), name(Some("flex"))), ("interactive".into(), "batch".into()));
}

/// llm-d's header table (vectors, slo_deadline_header), and where Weir differs: it reads what its
/// predictor reads, and refuses what it cannot read instead of ignoring it.
#[test]
fn slo_headers_are_read_as_llm_d_reads_them_or_refused() {
    let Ok(folder) = std::env::var("WEIR_VECTORS") else {
        println!("skipped: WEIR_VECTORS does not name the folder of llmd_vectors.json");
        return;
    };
    let file = std::path::Path::new(&folder).join("llmd_vectors.json");
    let vectors = std::fs::read_to_string(file).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&vectors).unwrap();
    for case in vectors["slo_deadline_header"].as_array().unwrap() {
        let (value, theirs) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        let asked = headers(&[("x-slo-ttft-ms", value)]);
        let ours = terms(&asked, None, None).map(|terms| terms.slo.ttft);
        match (value.trim(), theirs) {
            // There the deadline ignores a fraction that the predictor reads.
            ("200.5", _) => assert_eq!(ours, Ok(Some(Duration::from_micros(200_500)))),
            // There an overflow is no deadline; here it is held at a day, which is none either.
            ("9223372036854775807", _) => assert_eq!(ours, Ok(ms(86_400_000))),
            // There zero jumps the queue.
            ("0", _) | (_, "no deadline") => assert!(ours.is_err(), "{value:?}: {ours:?}"),
            (number, _) => {
                assert_eq!(theirs, format!("arrival+{number}ms"));
                assert_eq!(ours, Ok(ms(number.parse().unwrap())), "{value:?}");
            }
        }
    }
    for (new, old) in vectors["header_aliases"].as_object().unwrap() {
        let known = [OBJECTIVE, FAIRNESS_ID, SLO_TTFT, SLO_TPOT];
        let alias = [new.as_str(), old.as_str().unwrap()];
        // Weir rewrites no model names.
        assert!(known.contains(&alias) || new == "x-llm-d-model-name-rewrite", "{alias:?}");
    }
}

/// Seeds 001 and 003: "Chooses the scheduling profile depending on the PredictionBasedRouting boolean
/// header value", `x-prediction-based-scheduling: true`.
#[test]
fn a_trusted_header_chooses_the_second_policy_of_a_pool_that_has_one() {
    let two = House { second: Some(true), ..House::default() };
    let ask = |value: &str, key: Option<&Key>, house: &House| {
        let headers = headers(&[("x-prediction-based-scheduling", value)]);
        objectives().terms(&headers, Some("priority"), key, house).unwrap().by_header
    };
    for (value, chosen) in [("true", true), (" True ", true), ("false", false), ("1", false)] {
        assert_eq!(ask(value, None, &two), chosen, "{value:?}");
    }
    assert!(ask("true", Some(&key()), &two));
    let untrusted = Key { trust_headers: false, ..key() };
    assert!(!ask("true", Some(&untrusted), &two), "its key does not allow it");
    assert!(!ask("true", None, &House::default()), "there is only one");
    let asked = headers(&[("x-prediction-based-scheduling", "true")]);
    let bare = objectives().terms(&asked, None, None, &two);
    assert_eq!(bare, Err(MissingSlo.into()), "the second one requires an objective");
    assert!(objectives().terms(&headers(&[]), None, None, &two).is_ok());
}
