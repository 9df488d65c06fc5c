//! An operator sees what decides: all of it, before the start and while it serves.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a scenario says what broke")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use weir_tests::{Echo, MODEL, Plan, built};

fn weir(arguments: &[&str]) -> String {
    let output = Command::new(built::binary("weir")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `weir check` prints for a file.
fn check(file: &Path) -> String {
    weir(&["check", "--config", file.to_str().unwrap()])
}

/// The schema of a policy that is written part by part.
fn schema() -> Value {
    let mut schema: Value = serde_json::from_str(&weir(&["schema"])).unwrap();
    schema["$defs"]["Policy"]["oneOf"][1]["properties"].take()
}

fn keys(of: &Value) -> BTreeSet<&str> {
    of.as_object().unwrap().keys().map(String::as_str).collect()
}

fn examples() -> Vec<PathBuf> {
    let folder = built::root().join("config/examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "yaml")).collect()
}

#[test]
fn check_prints_every_part_of_the_policies_of_every_example() {
    let schema = schema();
    let names: BTreeSet<&str> =
        schema["preset"]["enum"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut shown = BTreeSet::new();
    for file in examples() {
        let text = check(&file);
        let printed: Value = serde_yaml_ng::from_str(&text).unwrap();
        let stem = file.file_stem().unwrap().to_str().unwrap();
        for pool in printed["pools"].as_array().unwrap() {
            let policy = &pool["policy"];
            assert_eq!(keys(policy), keys(&schema), "{stem}: a part is missing:\n{text}");
            for part in ["admission", "affinity", "scorer", "picker"] {
                assert!(policy[part]["kind"].is_string(), "{stem}: {part}:\n{text}");
            }
            let preset = policy["preset"].as_str().unwrap();
            assert!(!names.contains(stem) || preset == stem, "{stem}: {preset}");
            shown.extend(names.get(preset));
        }
        // A part stands in a line of its own, so that a person can read it.
        assert!(text.lines().all(|line| line.len() < 100), "{text}");
        let again = dir.path().join("again.yaml");
        std::fs::write(&again, &text).unwrap();
        assert_eq!(check(&again), text, "{stem}: what is printed is not what it says");
    }
    assert_eq!(shown, names, "every preset has an example");
}

#[test]
fn check_prints_every_part_of_the_policy_by_header() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    let pool =
        json!({"model": MODEL, "policy_by_header": "slo-aware", "pods": [{"url": "http://h:1"}]});
    std::fs::write(&file, json!({"classes": [{"name": "a"}], "pools": [pool]}).to_string())
        .unwrap();
    let printed: Value = serde_yaml_ng::from_str(&check(&file)).unwrap();
    let policy = &printed["pools"][0]["policy_by_header"];
    assert_eq!(keys(policy), keys(&schema()), "{policy}");
    assert_eq!((&policy["preset"], &policy["require_slo"]), (&json!("slo-aware"), &json!(true)));
}

#[tokio::test]
async fn the_snapshot_shows_every_part_of_both_policies_of_a_pool() {
    let echo = Echo::start().await;
    let pods = json!([{"name": "the-pod", "url": echo.url()}]);
    let policy = json!({
        "preset": "predicted-latency",
        "picker": "best",
        "scorer": {"kind": "headroom", "strategy": "most"},
    });
    let pools = json!([
        {"model": MODEL, "policy": policy, "policy_by_header": "flow-control", "pods": pods},
        {"model": "other", "policy": "llumnix-slo", "pods": pods},
    ]);
    let plan = Plan::default().upstream(echo.address).config(json!({"pools": pools}));
    let mut stage = plan.raise().await;
    let overview = stage.weir.overview().await;
    let [first, second] = [0, 1].map(|pool| &overview["pools"][pool]["snapshot"]);

    let schema = schema();
    let mut parts = keys(&schema);
    parts.remove("preset");
    for rules in [&first["rules"], &first["rules_by_header"], &second["rules"]] {
        assert_eq!(keys(rules), parts, "{rules}");
    }
    assert_eq!(
        (&first["policy"], &second["policy"]),
        (&json!("predicted-latency"), &json!("llumnix-slo"))
    );
    assert_eq!(first["rules"]["picker"], json!({"kind": "best"}), "as it was replaced");
    assert_eq!(first["rules"]["scorer"]["strategy"], "most");
    assert_eq!(first["rules"]["scorer"]["ttft_weight"], 0.8, "as its source has it");
    assert_eq!(first["rules_by_header"]["order"], "slo-deadline");
    assert_eq!(second["rules"]["filters"][1]["ttft_dispatch_threshold"], 0.85);
    assert_eq!(second["rules_by_header"], Value::Null, "there is none");
    stage.assert_settled().await;
}
