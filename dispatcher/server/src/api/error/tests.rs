use std::sync::Arc;

use http_body_util::BodyExt;
use weir_core::{Band, RequestId};

use super::*;

fn refusal(reason: RefusalReason, retry_after: Duration) -> Refusal {
    Refusal { id: RequestId(1), band: Band(0), reason, waited: Duration::ZERO, retry_after }
}

fn refused_for(reason: RefusalReason) -> ApiError {
    let refusal = refusal(reason, Duration::from_millis(2500));
    ApiError::Refused(refusal)
}

fn header<'a>(response: &'a Response<Full<Bytes>>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// The response's status and the four members of its error.
async fn told(error: ApiError) -> (u16, [Option<String>; 4]) {
    let response = error.response(0.0, Dialect::Other);
    assert_eq!(header(&response, "content-type"), Some("application/json"));
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 1);
    let error = json["error"].as_object().unwrap();
    assert_eq!(error.len(), 4);
    let members = ["message", "type", "param", "code"];
    (status, members.map(|name| error[name].as_str().map(str::to_owned)))
}

#[tokio::test]
async fn every_refusal_reason_has_its_answer() {
    use RefusalReason::*;
    let table = [
        (QueueFull, 429, "rate_limit_error", "slow_down", "rejected-saturated"),
        (QueueBytes, 429, "rate_limit_error", "slow_down", "rejected-saturated"),
        (PredictedWait, 429, "rate_limit_error", "slow_down", "rejected-saturated"),
        (Hopeless, 429, "rate_limit_error", "slow_down", "rejected-saturated"),
        (MaxWait, 429, "rate_limit_error", "slow_down", "rejected-ttl-expired"),
        (Ttl, 429, "rate_limit_error", "slow_down", "rejected-ttl-expired"),
        (Immediate, 429, "rate_limit_error", "slow_down", "rejected-saturated"),
        (NoPods, 503, "service_unavailable_error", "server_is_overloaded", "rejected-no-endpoints"),
        (
            Undeliverable,
            503,
            "service_unavailable_error",
            "server_is_overloaded",
            "rejected-no-endpoints",
        ),
        (
            Closing,
            503,
            "service_unavailable_error",
            "server_is_overloaded",
            "rejected-shutting-down",
        ),
        (
            Cancelled,
            503,
            "service_unavailable_error",
            "cancelled_by_operator",
            "rejected-cancelled",
        ),
    ];
    assert_eq!(table.map(|row| row.0), RefusalReason::ALL, "each reason is in the table");
    for (reason, status, kind, code, dropped) in table {
        let response = refused_for(reason).response(0.0, Dialect::Other);
        assert_eq!(header(&response, "x-llm-d-request-dropped-reason"), Some(dropped));
        assert_eq!(header(&response, "retry-after"), Some("3"));
        assert_eq!(header(&response, "retry-after-ms"), Some("2500"));
        assert_eq!(refused_for(reason).outcome(), "refused");
        let (found, [message, found_kind, param, found_code]) = told(refused_for(reason)).await;
        assert_eq!((found, found_kind.as_deref()), (status, Some(kind)));
        assert_eq!((param, found_code.as_deref()), (None, Some(code)));
        assert!(message.is_some_and(|message| !message.is_empty()));
    }
}

#[tokio::test]
async fn every_other_error_has_its_answer() {
    let standing = Standing { limit: 60, remaining: 0, reset: Duration::from_millis(1500) };
    let exceeded = RateExceeded { standing, retry_after: Duration::from_millis(1) };
    let table = [
        (ApiError::NoSuchPath, 404, INVALID, None, "unknown_url"),
        (ApiError::WrongMethod("POST"), 405, INVALID, None, "method_not_allowed"),
        (InvalidKey.into(), 401, INVALID, None, "invalid_api_key"),
        (exceeded.into(), 429, RATE, None, "rate_limit_exceeded"),
        (ApiError::Hosts, 400, INVALID, None, "invalid_http"),
        (ApiError::Encoded, 415, INVALID, None, "unsupported_encoding"),
        (ApiError::TooLarge { max_bytes: 5 }, 413, INVALID, None, "request_too_large"),
        (ApiError::Late, 408, INVALID, None, "request_timeout"),
        (ApiError::Broken, 400, INVALID, None, "invalid_body"),
        (Unreadable::Json("x".into()).into(), 400, INVALID, None, "invalid_json"),
        (Unreadable::Form.into(), 400, INVALID, None, "invalid_form"),
        (Unreadable::Twice("model").into(), 400, INVALID, None, "invalid_form"),
        (Unreadable::NoModel.into(), 400, INVALID, Some("model"), "missing_required_parameter"),
        (Unreadable::OddModel.into(), 400, INVALID, Some("model"), "missing_required_parameter"),
        (ApiError::UnknownModel("x".into()), 404, INVALID, Some("model"), "model_not_found"),
        (
            MissingSlo.into(),
            400,
            INVALID,
            Some("x-llm-d-slo-ttft-ms"),
            "missing_required_parameter",
        ),
        (BadSlo("x-slo-ttft-ms").into(), 400, INVALID, Some("x-slo-ttft-ms"), "invalid_header"),
        (ApiError::PodLost, 502, SERVER, None, "upstream_lost"),
        (ApiError::PodSilent, 504, SERVER, None, "upstream_timeout"),
        (ApiError::Closing, 503, UNAVAILABLE, None, "server_is_overloaded"),
    ];
    for (error, status, kind, param, code) in table {
        let (found, [_, found_kind, found_param, found_code]) = told(error).await;
        assert_eq!((found, found_kind.as_deref()), (status, Some(kind)));
        assert_eq!((found_param.as_deref(), found_code.as_deref()), (param, Some(code)));
    }
}

#[test]
fn a_fault_of_the_pod_counts_as_failed_and_one_of_the_client_as_a_bad_request() {
    let pod: Arc<str> = Arc::from("pod-0");
    let lost = Fault::PodLost { pod: pod.clone(), reason: None };
    let silent = Fault::Timeout { pod, limit: Duration::from_secs(1) };
    for (fault, status) in [(lost, 502), (silent, 504)] {
        let error = ApiError::of_fault(&fault);
        assert_eq!((error.status().as_u16(), error.outcome()), (status, "failed"));
        assert!(!error.to_string().contains("pod-0"), "names of pods are not the client's affair");
    }
    assert_eq!(ApiError::Broken.outcome(), "bad_request");
}

#[test]
fn headers_say_what_to_do_next() {
    let method = ApiError::WrongMethod("GET").response(0.0, Dialect::Other);
    assert_eq!(header(&method, "allow"), Some("GET"));
    let key = ApiError::from(InvalidKey).response(0.0, Dialect::Other);
    assert_eq!(header(&key, "www-authenticate"), Some("Bearer"));
    let standing = Standing { limit: 60, remaining: 0, reset: Duration::from_millis(1500) };
    let exceeded = RateExceeded { standing, retry_after: Duration::from_millis(700) };
    let rate = ApiError::from(exceeded).response(0.0, Dialect::Other);
    assert_eq!(header(&rate, "x-ratelimit-limit-requests"), Some("60"));
    assert_eq!(header(&rate, "x-ratelimit-remaining-requests"), Some("0"));
    assert_eq!(header(&rate, "x-ratelimit-reset-requests"), Some("1500ms"));
    assert_eq!(header(&rate, "retry-after"), Some("1"));
    assert_eq!(header(&rate, "retry-after-ms"), Some("700"));
}

#[test]
fn retry_after_is_whole_seconds_from_one_to_a_minute_whatever_is_predicted() {
    for (predicted, seconds, ms) in [
        (Duration::ZERO, "1", "100"),
        (Duration::from_micros(1), "1", "100"),
        (Duration::from_millis(1001), "2", "1001"),
        (Duration::from_secs(600), "60", "60000"),
        (Duration::MAX, "60", "60000"),
    ] {
        let refusal = refusal(RefusalReason::QueueFull, predicted);
        let response = ApiError::Refused(refusal).response(0.0, Dialect::Other);
        assert_eq!(header(&response, "retry-after"), Some(seconds));
        assert_eq!(header(&response, "retry-after-ms"), Some(ms));
    }
}

#[test]
fn clients_that_were_refused_together_do_not_come_back_together() {
    let at = |jitter| refused_for(RefusalReason::QueueFull).response(jitter, Dialect::Other);
    assert_eq!(header(&at(0.5), "retry-after-ms"), Some("2813"));
    assert_eq!(header(&at(f64::NAN.max(1.0)), "retry-after-ms"), Some("3125"));
}

#[test]
fn the_client_of_a_cancelled_request_is_told_not_to_retry() {
    let response = refused_for(RefusalReason::Cancelled).response(0.0, Dialect::Other);
    assert_eq!(header(&response, "x-should-retry"), Some("false"));
}

#[test]
fn only_clients_of_sheddable_requests_are_told_not_to_retry() {
    for (band, told) in [(Band(-1), Some("false")), (Band(0), None)] {
        let refusal = refusal(RefusalReason::Hopeless, Duration::from_secs(1));
        let response = ApiError::Refused(Refusal { band, ..refusal }).response(0.0, Dialect::Other);
        assert_eq!(header(&response, "x-should-retry"), told);
    }
}

/// llm-d's mapping (vectors, flow_control_http), for every outcome that both know.
#[test]
fn refusals_answer_as_llm_ds_flow_control_does() {
    let Ok(folder) = std::env::var("WEIR_VECTORS") else {
        println!("skipped: WEIR_VECTORS does not name the folder of llmd_vectors.json");
        return;
    };
    let file = std::path::Path::new(&folder).join("llmd_vectors.json");
    let vectors: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let rows = vectors["flow_control_http"].as_array().unwrap();
    for (outcome, reasons) in [
        (
            "RejectedCapacity",
            &[
                RefusalReason::QueueFull,
                RefusalReason::QueueBytes,
                RefusalReason::PredictedWait,
                RefusalReason::Hopeless,
            ][..],
        ),
        ("RejectedNoEndpoints", &[RefusalReason::NoPods, RefusalReason::Undeliverable]),
        ("EvictedTTL (pool non-empty)", &[RefusalReason::MaxWait]),
        ("EvictedTTL (pool empty)", &[RefusalReason::NoPods]),
        ("EvictedNoEndpoints", &[RefusalReason::NoPods]),
        ("RejectedOther/EvictedOther shutting down", &[RefusalReason::Closing]),
    ] {
        let row = rows.iter().find(|row| row[0] == outcome).unwrap();
        for reason in reasons {
            let response = refused_for(*reason).response(0.0, Dialect::Other);
            assert_eq!(response.status().as_u16(), row[1], "{outcome}");
            let dropped = header(&response, "x-llm-d-request-dropped-reason");
            assert_eq!(dropped, row[2].as_str(), "{outcome}");
        }
    }
}

#[tokio::test]
async fn the_clients_of_the_messages_api_are_told_in_its_shape() {
    let unreadable = || ApiError::from(Unreadable::NoModel);
    for (error, status, kind) in [
        (ApiError::NoSuchPath, 404, "not_found_error"),
        (unreadable(), 400, "invalid_request_error"),
        (ApiError::from(InvalidKey), 401, "authentication_error"),
        (ApiError::TooLarge { max_bytes: 1 }, 413, "request_too_large"),
        (refused_for(RefusalReason::QueueFull), 429, "rate_limit_error"),
        (refused_for(RefusalReason::NoPods), 503, "overloaded_error"),
        (ApiError::PodSilent, 504, "timeout_error"),
        (ApiError::PodLost, 502, "api_error"),
    ] {
        let code = error.verdict().code;
        let (response, message) = (error.response(0.0, Dialect::Messages), error.to_string());
        assert_eq!(response.status(), status);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let said = |key| json["error"][key].as_str().unwrap();
        assert_eq!((json["type"].as_str(), said("type")), (Some("error"), kind));
        assert_eq!((said("message"), said("code")), (&*message, code));
    }
}
