//! A changed configuration is taken over while requests wait and run, and loses none of them.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_tests::{Call, Load, Plan, Pod, Stage, Weir, eventually};

/// Changes the configuration as an editor does: a new file in the place of the old one.
fn edit(file: &Path, change: impl FnOnce(&mut Value)) {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    change(&mut config);
    write(file, &config.to_string());
}

fn write(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, file).unwrap();
}

fn hang_up(weir: &Weir) {
    let sent = Command::new("kill").args(["-HUP", &weir.program.id().to_string()]).status();
    assert!(sent.unwrap().success(), "the signal was not sent");
}

/// Waits until a series has a value.
async fn until(weir: &Weir, series: &str, labels: &[(&str, &str)], value: f64) {
    eventually(&format!("{series} {labels:?} is {value}"), async || {
        let now = weir.metrics().await.sum(series, labels);
        if now == value { Ok(()) } else { Err(now) }
    })
    .await;
}

/// Waits until so many reloads came to `result`.
async fn reloads(weir: &Weir, result: &str, count: u32) {
    until(weir, "weir_config_reloads_total", &[("result", result)], f64::from(count)).await;
}

#[tokio::test]
async fn no_request_is_lost_over_reloads_under_load() {
    let mut stage = Plan::default().pods(2).raise().await;
    let third = Pod::start(&stage.path("pod-third.log"), &["--speed".into(), "10".into()]).await;
    let url = format!("http://{}", third.address);
    let mut load = Load::start(stage.weir.api, 12, |client, turn| match turn % 3 {
        0 => Call::chat(20).objective("interactive"),
        1 => Call::plain(5),
        _ => Call::long_chat(600, 8, &format!("{client}-{turn}")),
    });
    load.answers(20).await;
    let file = stage.config().clone();
    let changes: [&dyn Fn(&mut Value); 7] = [
        &|config| config["pools"][0]["pods"].as_array_mut().unwrap().push(json!({"url": url})),
        &|config| config["objectives"] = json!({"interactive": {"band": 2, "ttft_ms": 900}, "standard": {"ttft_ms": 5000}, "batch": {"band": -1}}),
        &|config| config["patterns"] = json!({"input_tokens": [100, 500], "output_tokens": [10]}),
        &|config| config["pools"][0]["policy"] = json!("flow-control"),
        &|config| drop(config["pools"][0]["pods"].as_array_mut().unwrap().remove(0)),
        &|config| config["pull"] = json!({"kv_limit": 0.9}),
        &|config| config["pools"][0]["policy"] = json!("weir"),
    ];
    for (number, change) in (1..).zip(changes) {
        edit(&file, change);
        reloads(&stage.weir, "applied", number).await;
        load.answers(15).await;
    }
    let pods = stage.weir.snapshot().await["pods"].take();
    assert_eq!(pods.as_array().unwrap().len(), 2, "one was added and one taken out: {pods}");
    let dispatched = |name: &str| {
        let pod = pods.as_array().unwrap().iter().find(|pod| pod["name"] == *name);
        pod.unwrap()["dispatched"].as_u64().unwrap()
    };
    assert!(dispatched(&third.address.to_string()) > 0, "the new pod was given requests");
    let replies = load.stop().await;
    println!("{} answers over 7 reloads, all whole", replies.len());
    for reply in &replies {
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    stage.pods.push(third);
    stage.assert_settled().await;
    assert_eq!(stage.weir.metrics().await.sum("weir_refused_total", &[]), 0.0);
}

#[tokio::test]
async fn what_waits_is_served_after_a_reload() {
    let stage = Plan::default().speed(4.0).pod_argument("--max-sequences", "1").config(json!({
        "classes": [{"name": "h100-qwen3-32b-tp2", "max_sequences": 1}],
        "objectives": {"standard": {"ttft_ms": 60000}, "interactive": {"band": 1, "ttft_ms": 60000}, "batch": {"band": -1}},
    }));
    let mut stage = stage.raise().await;
    let waiting = stage.queue_up(3, &Call::chat(800)).await;
    edit(stage.config(), |config| {
        config["patterns"] = json!({"input_tokens": [8], "output_tokens": []});
        config["queue"] = json!({"max_requests": 1});
        config["pools"][0]["policy"] = json!({"preset": "weir", "order": "fifo"});
    });
    reloads(&stage.weir, "applied", 1).await;
    for reply in waiting.join_all().await {
        reply.assert_whole();
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_changes_nothing_and_says_why() {
    let stage = Stage::simple().await;
    let (file, weir) = (stage.config().clone(), &stage.weir);
    let good = fs::read_to_string(&file).unwrap();
    let hash = weir.metrics().await.sum("weir_config_hash", &[]);
    write(&file, "pools:\n- model: qwen3-32b\n  pods:\n  - { url: ftp://x }\n");
    reloads(weir, "refused", 1).await;
    let metrics = weir.metrics().await;
    assert_eq!(metrics.sum("weir_config_failing", &[]), 1.0);
    assert_eq!(metrics.sum("weir_config_hash", &[]), hash);
    weir.program.logs("line 4: pools[0].pods[0].url").await;
    stage.assert_serves().await;
    // The same mistake is said once.
    hang_up(weir);
    reloads(weir, "refused", 2).await;
    write(&file, &good);
    until(weir, "weir_config_failing", &[], 0.0).await;
    reloads(weir, "unchanged", 1).await;
    stage.assert_serves().await;
}

#[tokio::test]
async fn a_pipe_in_the_place_of_the_file_stops_no_reload_after_it() {
    let stage = Stage::simple().await;
    let (file, weir) = (stage.config().clone(), &stage.weir);
    let good = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    hang_up(weir);
    until(weir, "weir_config_failing", &[], 1.0).await;
    weir.program.logs("is no regular file").await;
    fs::remove_file(&file).unwrap();
    write(&file, &good);
    until(weir, "weir_config_failing", &[], 0.0).await;
    stage.assert_serves().await;
}

#[tokio::test]
async fn what_needs_a_restart_is_named_and_the_rest_counts() {
    let stage = Stage::simple().await;
    edit(stage.config(), |config| {
        config["threads"] = json!(2);
        config["scrape"] = json!({"every_ms": 50, "stale_after_ms": 3000, "by_name": false});
        config["pull"] = json!({"kv_limit": 0.9});
        config["pools"][0]["aliases"] = json!(["gpt-4o"]);
    });
    reloads(&stage.weir, "applied", 1).await;
    let list = stage.call(&Call::get("/v1/models")).await;
    assert!(String::from_utf8_lossy(&list.body).contains("gpt-4o"));
    until(&stage.weir, "weir_config_needs_restart", &[], 4.0).await;
    let log = &stage.weir.program;
    log.logs("scrape.by_name, scrape.every_ms, scrape.stale_after_ms, threads").await;
    log.logs("pull.kv_limit: 0.98 -> 0.9").await;
}

#[tokio::test]
async fn tokens_and_the_log_level_count_without_a_restart() {
    let stage = Stage::simple().await;
    let tokens = |token: &str| {
        let sha256 = format!("{:x}", Sha256::digest(token));
        json!([{"name": "ada", "sha256": sha256, "scope": "write"}])
    };
    let status = async |token: Option<&str>| {
        let look = Call::get("/api/v1/overview");
        let shown = token.map(|token| format!("Bearer {token}"));
        let look = match &shown {
            Some(shown) => look.header("authorization", shown),
            None => look,
        };
        look.to(stage.weir.admin).await.status
    };
    assert_eq!(status(None).await, 200);
    edit(stage.config(), |config| {
        config["admin"]["tokens"] = tokens("old");
        config["log"]["level"] = json!("info,weir::request=debug");
    });
    reloads(&stage.weir, "applied", 1).await;
    assert_eq!([status(None).await, status(Some("old")).await], [401, 200]);
    stage.assert_serves().await;
    stage.weir.program.logs("DEBUG").await;

    edit(stage.config(), |config| config["admin"]["tokens"] = tokens("new"));
    reloads(&stage.weir, "applied", 2).await;
    assert_eq!([status(Some("old")).await, status(Some("new")).await], [401, 200], "revoked");

    edit(stage.config(), |config| config["admin"]["tokens"] = json!([]));
    reloads(&stage.weir, "refused", 1).await;
    assert_eq!(status(None).await, 401, "half a file does not open it");
    until(&stage.weir, "weir_config_needs_restart", &[], 0.0).await;
}

#[tokio::test]
async fn keys_and_rates_count_from_the_next_call_on() {
    let stage = Stage::simple().await;
    let key = format!("{:x}", Sha256::digest("sk-new"));
    edit(stage.config(), |config| {
        config["keys"] = json!([{"sha256": key, "tenant": "acme", "requests_per_minute": 2}]);
    });
    reloads(&stage.weir, "applied", 1).await;
    stage.call(&Call::chat(1)).await.assert_error(401, "invalid_api_key");
    let call = Call::chat(1).header("authorization", "Bearer sk-new");
    stage.call(&call).await.assert_whole();
    // What was counted is still counted after a reload that says nothing of it.
    edit(stage.config(), |config| config["default_objective"] = json!("batch"));
    reloads(&stage.weir, "applied", 2).await;
    stage.call(&call).await.assert_whole();
    stage.call(&call).await.assert_error(429, "rate_limit_exceeded");
    // Half a file lets nobody in.
    edit(stage.config(), |config| drop(config.as_object_mut().unwrap().remove("keys")));
    reloads(&stage.weir, "refused", 1).await;
    stage.call(&Call::chat(1)).await.assert_error(401, "invalid_api_key");
    stage.weir.program.logs("restart to open the API").await;
    assert!(!stage.weir.program.log().contains(&key), "a digest is no line of a log");
}

/// A folder as Kubernetes mounts a ConfigMap: the file is a link into `..data`, which is a link to a
/// folder with a time in its name.
struct Mount(PathBuf);

impl Mount {
    fn new(folder: &Path) -> Self {
        fs::create_dir(folder).unwrap();
        let mount = Self(folder.to_owned());
        symlink("..data/weir.yaml", folder.join("weir.yaml")).unwrap();
        mount
    }

    /// A new version: a new folder, and `..data` turned to it by a rename.
    fn update(&self, version: &str, text: &str) {
        let Self(folder) = self;
        let before = fs::read_link(folder.join("..data")).ok();
        fs::create_dir(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("weir.yaml"), text).unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        if let Some(before) = before {
            fs::remove_dir_all(folder.join(before)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_mounted_file_is_followed_when_kubernetes_turns_its_link() {
    let stage = Stage::simple().await;
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(stage.config()).unwrap()).unwrap();
    let mount = Mount::new(&stage.path("mount"));
    mount.update("..2026_01_01", &config.to_string());
    let weir = Weir::start(&mount.0.join("weir.yaml"), &stage.path("second.log")).await;
    for version in 2..4 {
        config["queue"] = json!({"max_wait_s": 30 + version});
        mount.update(&format!("..2026_01_0{version}"), &config.to_string());
        reloads(&weir, "applied", version - 1).await;
    }
    weir.program.logs("queue.max_wait_s: 120.0 -> 32.0").await;
    weir.program.logs("queue.max_wait_s: 32.0 -> 33.0").await;
}
