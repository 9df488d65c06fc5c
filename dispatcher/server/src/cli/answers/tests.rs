use serde_json::{Value, from_value, json};

use super::*;

fn why(value: Value) -> String {
    from_value::<Why>(value).unwrap().to_string()
}

#[test]
fn a_reason_is_its_word_and_its_figures_with_units() {
    let over = json!({"reason": "ttft_over_slo", "slo_ms": 2000.0, "ttft_ms": 2440.0});
    assert_eq!(why(over), "ttft_over_slo (slo 2.0s, ttft 2.4s)");
    assert_eq!(
        why(json!({"reason": "pool_saturated", "saturation": 0.934})),
        "pool_saturated (saturation 0.93)"
    );
    assert_eq!(why(json!({"reason": "behind_head", "head": 17})), "behind_head (head 17)");
    assert_eq!(why(json!("paused")), "paused");
    assert_eq!(why(json!(null)), "");
    assert_eq!(why(json!({"new": {"nested": 1}, "reason": "late"})), "late");
}

#[test]
fn every_answer_may_lack_every_member_and_have_new_ones() {
    let new = json!({"a_member_of_tomorrow": [1, {"x": null}]});
    assert_eq!(from_value::<Overview>(new.clone()).unwrap(), Overview::default());
    assert_eq!(from_value::<Queues>(new.clone()).unwrap(), Queues::default());
    assert_eq!(from_value::<Requests>(new.clone()).unwrap(), Requests::default());
    assert_eq!(from_value::<Request>(new.clone()).unwrap(), Request::default());
    assert_eq!(from_value::<Pods>(new.clone()).unwrap(), Pods::default());
    assert_eq!(from_value::<Pod>(new.clone()).unwrap(), Pod::default());
    assert_eq!(from_value::<Models>(new.clone()).unwrap(), Models::default());
    assert_eq!(from_value::<Decisions>(new).unwrap(), Decisions::default());
}

#[test]
fn a_member_that_is_null_is_one_that_is_absent_wherever_it_is() {
    let answer =
        json!({"tenants": [{"tenant": null, "depth": 3, "oldest_wait_ms": null}], "bands": null});
    let queues: Queues = read(answer).unwrap();
    let tenant = queues.tenants.first().unwrap();
    assert_eq!((tenant.tenant.as_str(), tenant.depth, tenant.oldest_wait_ms), ("", 3, None));
}

#[test]
fn a_drained_pod_is_one_that_says_so() {
    let pod = |value| from_value::<Pod>(value).unwrap();
    assert!(pod(json!({"phase": "drained"})).is_drained());
    for (drain, awaited) in [
        (json!({"left": 2, "others": null}), "2 left"),
        (json!({"left": 0, "others": 3}), "3 on it that this dispatcher did not send"),
        (json!({"left": 0, "others": null}), "0 left, its next scrape tells whether more is on it"),
    ] {
        let pod = pod(json!({"phase": "draining", "drain": drain}));
        assert!(!pod.is_drained());
        assert_eq!(pod.awaited(), awaited);
    }
    assert!(!pod(json!({"phase": "draining", "residents": 0})).is_drained());
    assert!(!pod(json!({"phase": "ready"})).is_drained());
    let left = pod(json!({"residents": 3, "pending": 1})).left();
    assert_eq!(left, 4);
}

#[test]
fn the_pace_left_is_measured_against_the_tightest_objective() {
    let pod: Pod = from_value(json!({"step_ms": 40.0, "tightest_tpot_ms": 50.0})).unwrap();
    assert!((pod.pace_left().unwrap() - 0.2).abs() < 1e-9);
    assert_eq!(from_value::<Pod>(json!({"step_ms": 40.0})).unwrap().pace_left(), None);
}
