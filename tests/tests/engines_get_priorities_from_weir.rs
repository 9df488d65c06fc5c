//! The priority that an engine schedules by is the operator's affair: a client's own does not reach it
//! unless its key allows that, and Weir writes one when it is told to.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_tests::{Call, Echo, MODEL, Plan, Stage};

async fn stage(pod: &Echo, config: Value) -> Stage {
    Plan::default().upstream(pod.address).config(config).raise().await
}

/// A body that would change if it were written anew.
fn body(priority: &str) -> String {
    format!("{{ \"model\":\"{MODEL}\",{priority} \"messages\" : [ ],\"odd\":1.0 }}\n")
}

fn call(body: &str) -> Call {
    Call::post("/v1/chat/completions", body.to_owned())
}

#[tokio::test]
async fn a_clients_priority_is_cut_out_unless_its_key_allows_it() {
    let pod = Echo::start().await;
    let digest = |secret| format!("{:x}", Sha256::digest(secret));
    let keys = json!([
        {"sha256": digest("sk-plain"), "tenant": "a", "trust_headers": true},
        {"sha256": digest("sk-first"), "tenant": "b", "allow_priority": true},
    ]);
    let mut keyed = stage(&pod, json!({"keys": keys})).await;
    let mut open = stage(&pod, json!({})).await;
    let (sent, cut) = (body("\"priority\": -9,"), body(""));
    let under = |secret| call(&sent).header("authorization", &format!("Bearer {secret}"));
    assert_eq!(keyed.call(&under("sk-plain")).await.body, cut);
    assert_eq!(keyed.call(&under("sk-first")).await.body, sent);
    assert_eq!(open.call(&call(&sent)).await.body, cut);
    keyed.assert_settled().await;
    open.assert_settled().await;
}

#[tokio::test]
async fn weir_writes_a_priority_by_band_and_slack_when_told_to_and_changes_nothing_else() {
    let pod = Echo::start().await;
    let mut stage = stage(&pod, json!({"upstream": {"inject_priority": true}})).await;
    let mut priorities = Vec::new();
    for objective in ["interactive", "standard", "batch"] {
        for sent in [body(""), body("\"priority\": -9,")] {
            let seen = stage.call(&call(&sent).objective(objective)).await;
            let seen = std::str::from_utf8(&seen.body).unwrap().to_owned();
            let json: Value = serde_json::from_str(&seen).unwrap();
            let priority = json["priority"].as_i64().unwrap();
            let written = format!(",\"priority\":{priority}}}\n");
            assert_eq!(seen, body("").replace("}\n", &written));
            priorities.push(priority);
        }
    }
    // An objective's TTFT less what was predicted, below a million for each band.
    for (pair, (band, ttft_ms)) in priorities.chunks(2).zip([(1, 2000), (0, 4000), (-1, 30_000)]) {
        let slack = pair.iter().map(|priority| priority + 1_000_000 * band);
        assert!(slack.clone().all(|slack| slack > 0 && slack < ttft_ms), "{band}: {priorities:?}");
    }
    stage.assert_settled().await;
}
