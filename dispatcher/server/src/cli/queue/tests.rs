use serde_json::{from_value, json};

use super::*;

#[test]
fn lanes_are_listed_with_risk_and_the_reason_of_the_head() {
    let lanes: Lanes = from_value(json!({"queues": [
        {"pool": "m", "lane": "b0/i512/o256", "pattern": "i512/o256", "band": 0, "depth": 213,
         "head_wait_ms": 1200.0, "drain_ms": null, "risk": {"ok": 180, "tight": 30, "late": 3},
         "reason": {"reason": "ttft_over_slo", "ttft_ms": 2440.0, "slo_ms": 2000.0}, "request_id": "r-1"},
        {"pool": "m", "lane": "b-10", "band": -10, "depth": 1, "paused": true},
    ]}))
    .unwrap();
    let text = lanes.sheet(false);
    let row = text.lines().nth(1).unwrap();
    for part in ["b0/i512/o256", "213", "1.2s", "3/30/180", "ttft_over_slo (slo 2.0s, ttft 2.4s)"] {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert!(text.lines().nth(2).unwrap().ends_with("paused"), "{text}");
    assert!(!text.contains("r-1") && lanes.sheet(true).contains("r-1"));
}

#[test]
fn one_request_shows_why_it_waits_and_every_pod() {
    let request: Request = from_value(json!({
        "state": "waiting", "id": 17, "request_id": "r-17", "pool": "m", "lane": "b0", "band": 0,
        "age_ms": 2600.0, "deadline_ms": -600.0, "late": true, "reason": {"reason": "late"},
        "explanation": "no pod can still make it",
        "pods": [{"pod": "pod-0", "fits": false, "ttft_ms": 2440.0, "headroom_ms": -440.0,
                  "verdict": {"reason": "ttft_over_slo", "ttft_ms": 2440.0, "slo_ms": 2000.0}}],
        "history": [{"at_ms": 2600.0, "what": "arrived"}],
    }))
    .unwrap();
    let text = request.sheet(false);
    for part in [
        "r-17 (number 17)",
        "waiting late",
        "600ms past its objective",
        "no pod can still make it",
        "pod-0",
        "-440ms",
        "2.6s ago  arrived",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn what_is_paused_is_said_whatever_its_form() {
    let paused: Paused =
        from_value(json!({"paused": ["b0/i512", {"pool": "m", "band": -10, "lane": null}]}))
            .unwrap();
    assert_eq!(paused.sheet(false), "paused: b0/i512\npaused: band -10, pool m\n");
    assert_eq!(Paused::default().sheet(false), "nothing is paused\n");
}
