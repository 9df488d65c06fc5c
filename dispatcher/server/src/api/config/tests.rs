use super::*;

fn refusal(change: impl FnOnce(&mut RawApi)) -> String {
    let mut raw = RawApi::default();
    change(&mut raw);
    raw.check().unwrap_err().to_string()
}

fn key() -> RawKey {
    RawKey { sha256: "aB".repeat(32), tenant: "acme".into(), ..RawKey::default() }
}

#[test]
fn the_defaults_are_valid() {
    let config = RawApi::default().check().unwrap();
    assert!(config.keys.is_empty());
    assert_eq!(config.limits.max_body_bytes, 33_554_432);
    assert_eq!(config.limits.rate, None);
}

#[test]
fn a_refusal_names_the_key() {
    let cases: [(String, &str); 10] = [
        (refusal(|raw| raw.default_objective = "gold".into()), "default_objective: \"gold\""),
        (
            refusal(|raw| drop(raw.service_tiers.insert("flex".into(), "x".into()))),
            "service_tiers.flex: \"x\"",
        ),
        (
            refusal(|raw| raw.objectives.get_mut("batch").unwrap().tpot_ms = Some(0.0)),
            "objectives.batch.tpot_ms: must",
        ),
        (
            refusal(|raw| raw.objectives.get_mut("batch").unwrap().ttft_ms = Some(f64::NAN)),
            "objectives.batch.ttft_ms: must",
        ),
        (
            refusal(|raw| raw.keys = vec![RawKey { sha256: "abc".into(), ..key() }]),
            "keys[0].sha256: must",
        ),
        (refusal(|raw| raw.keys = vec![key(), key()]), "keys[1].sha256: is listed twice"),
        (
            refusal(|raw| raw.cors_origins = vec!["*".into(), "https://app.example/".into()]),
            "cors_origins[1]: must be * or",
        ),
        (
            refusal(|raw| raw.keys = vec![RawKey { objective: Some("x".into()), ..key() }]),
            "keys[0].objective: \"x\"",
        ),
        (
            refusal(|raw| raw.limits.requests_per_minute = Some(0)),
            "limits.requests_per_minute: must",
        ),
        (refusal(|raw| raw.limits.burst = Some(5)), "limits.burst: has no effect"),
    ];
    for (message, start) in cases {
        assert!(message.starts_with(start), "{message} does not start with {start}");
    }
}

#[test]
fn all_keys_that_cannot_be_used_are_named_at_once() {
    let text = refusal(|raw| {
        raw.default_objective = "gold".into();
        raw.service_tiers.insert("flex".into(), "x".into());
        raw.objectives.insert("no name".into(), RawObjective::default());
        let batch = raw.objectives.get_mut("batch").unwrap();
        (batch.ttft_ms, batch.tpot_ms) = (Some(-1.0), Some(f64::NAN));
        let bad = RawKey { sha256: "abc".into(), tenant: String::new(), ..key() };
        let burst = RawKey { burst: Some(0), objective: Some("y".into()), ..key() };
        raw.keys = vec![bad, burst, RawKey { burst: Some(2_000_000), ..key() }];
        raw.limits = RawLimits {
            max_header_bytes: 1,
            max_tenants: 0,
            body_timeout_ms: 0,
            idle_timeout_ms: u64::MAX,
            requests_per_minute: Some(0),
            ..RawLimits::default()
        };
    });
    let keys: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let want = [
        "objectives.batch.ttft_ms",
        "objectives.batch.tpot_ms",
        "objectives.no name",
        "default_objective",
        "service_tiers.flex",
        "keys[0].sha256",
        "keys[0].tenant",
        "keys[1].objective",
        "keys[1].burst",
        "keys[1].burst",
        "keys[2].burst",
        "keys[2].burst",
        "keys[2].sha256",
        "limits.max_header_bytes",
        "limits.max_tenants",
        "limits.body_timeout_ms",
        "limits.idle_timeout_ms",
        "limits.requests_per_minute",
    ];
    assert_eq!(keys, want, "{text}");
}

#[test]
fn an_objective_that_cannot_be_used_is_no_second_problem_where_it_is_named() {
    let text = refusal(|raw| raw.objectives.get_mut("standard").unwrap().ttft_ms = Some(0.0));
    assert_eq!(text, "objectives.standard.ttft_ms: must be a positive number");
}

#[test]
fn a_key_is_read_from_hexadecimal_of_either_case() {
    let raw = RawApi { keys: vec![key()], ..RawApi::default() };
    let ring = raw.check().unwrap().keys;
    assert_eq!(ring.iter().next().unwrap().digest, [0xab; 32]);
}

#[test]
fn a_burst_is_as_large_as_the_rate_unless_said() {
    let limits = RawLimits { requests_per_minute: Some(90), ..RawLimits::default() };
    let rate = limits.check(&mut Problems::default()).rate.unwrap();
    assert_eq!((rate.per_minute.get(), rate.burst.get()), (90, 90));
}
