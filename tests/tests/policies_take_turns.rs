//! Somebody compares policies on pods of their own with one command.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::path::Path;

use serde_json::Value;
use tokio::process::Command;
use weir_tests::{MODEL, Pod, built, command::Done, pair::free_address};

/// Runs `weir-bench versus` with these words, and ports and files of its own.
async fn versus(folder: &Path, words: &[&str]) -> (Done, Value) {
    let json = folder.join("standings.json");
    let ports = [(); 3].map(|()| free_address().port().to_string());
    let places = ["--port", &ports[0], "--admin-port", &ports[1], "--pod-port", &ports[2]];
    let mut command = Command::new(built::binary("weir-bench"));
    command
        .arg("versus")
        .args(words)
        .args(places)
        .arg("--dir")
        .arg(folder)
        .arg("--json")
        .arg(&json);
    let done = Done::of(command.kill_on_drop(true).output().await.unwrap());
    let standings = std::fs::read(json).map(|bytes| serde_json::from_slice(&bytes).unwrap());
    (done, standings.unwrap_or_default())
}

#[tokio::test]
async fn each_policy_serves_the_same_requests_by_objectives_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["--policy", "weir,least-request", "--pods", "1", "--for", "4", "--load", "0.6"];
    let classes = ["--classes", "chat:3,nightly:1", "--slo", "chat=5000/200,nightly=60000/500"];
    let (done, standings) = versus(folder.path(), &[&words[..], &classes].concat()).await;
    let table = done.out();
    assert!(
        table.contains("round 1 of 1, weir: ") && table.contains("| least-request |"),
        "{table}"
    );
    let rows = standings["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["requests"], rows[1]["requests"]);
    assert!(rows.iter().all(|row| row["not_served"] == 0), "{standings}");
    for policy in ["weir", "least-request"] {
        let yaml = std::fs::read_to_string(folder.path().join(policy).join("weir.yaml")).unwrap();
        assert!(yaml.contains(&format!("policy: {policy}\n")), "{yaml}");
        assert!(yaml.contains("ttft_ms: 5000"), "{yaml}");
    }
}

#[tokio::test]
async fn an_engine_of_ones_own_is_asked_with_weir_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let pod = Pod::start(&folder.path().join("pod.log"), &[]).await;
    let engine = pod.address.to_string();
    let words = ["--policy", "weir,direct", "--engines", &engine, "--model", MODEL, "--for", "4"];
    let (done, standings) = versus(folder.path(), &words).await;
    done.out();
    let rows = standings["rows"].as_array().unwrap();
    assert_eq!([&rows[0]["policy"], &rows[1]["policy"]], ["weir", "direct"]);
    assert!(rows.iter().all(|row| row["attained"].as_f64() > Some(0.5)), "{standings}");
    assert!(pod.metrics().await.sum("vllm:prompt_tokens_total", &[]) > 0.0);

    let other = ["--policy", "direct", "--engines", &engine, "--model", "another"];
    let (done, _) = versus(folder.path(), &other).await;
    done.assert_failed(2, &format!("{engine} serves {MODEL}, and not \"another\""));
    drop(pod);
    let (done, _) = versus(folder.path(), &words).await;
    done.assert_failed(2, &format!("http://{engine}/v1/models"));
}
