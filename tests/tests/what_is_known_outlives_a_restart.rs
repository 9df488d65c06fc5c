//! What a dispatcher knows of its pool, and what an operator holds, outlives its process.

use futures_util::future::join_all;
use serde_json::{Value, json};
use weir_tests::{Call, Pair, Plan, Stage, Weir, eventually};

fn plan() -> Plan {
    Plan::default().pods(2).config(json!({"shutdown": {"drain_delay_s": 0}}))
}

/// Prompts whose beginning no other shares, long enough to be worth finding again.
fn prompts() -> Vec<Call> {
    (0..6).map(|number| Call::long_chat(2000, 40, &format!("prompt {number}"))).collect()
}

/// Makes the calls one after the other. Says which pod each went to.
async fn pods_of(stage: &Stage, calls: &[Call]) -> Vec<String> {
    let mut pods = Vec::new();
    for call in calls {
        let reply = stage.call(call).await;
        reply.assert_whole();
        pods.push(reply.header("x-weir-pod").to_owned());
    }
    pods
}

/// The same with two at a time, so that both pods get some.
async fn in_pairs(stage: &Stage, calls: &[Call]) -> Vec<String> {
    let mut pods = Vec::new();
    for pair in calls.chunks(2) {
        for reply in join_all(pair.iter().map(|call| stage.call(call))).await {
            reply.assert_whole();
            pods.push(reply.header("x-weir-pod").to_owned());
        }
    }
    assert!(pods.iter().any(|pod| Some(pod) != pods.first()), "{pods:?}");
    // It has a `usage`, by which it is learned that a template has tokens as well.
    stage.call(&Call::plain(3)).await.assert_whole();
    assert!(tokens_per_byte(&stage.weir).await > 0.25);
    pods
}

async fn tokens_per_byte(weir: &Weir) -> f64 {
    weir.metrics().await.sum("weir_tokens_per_byte", &[])
}

/// Another process in the place of the one that has ended, with its pods ready.
async fn start_again(stage: &mut Stage) {
    stage.weir = Weir::start(stage.config(), &stage.path("again.log")).await;
    stage.weir.ready().await;
    eventually("every pod is seen", async || {
        let ages = of_pods(stage, "scrape_age_ms").await;
        if ages.iter().all(Value::is_number) { Ok(()) } else { Err(ages) }
    })
    .await;
}

async fn end(stage: &mut Stage) {
    stage.weir.program.terminate();
    assert!(stage.weir.program.exit().await.success());
}

async fn recalled(stage: &Stage) -> f64 {
    stage.weir.metrics().await.sum("weir_state_pods_recalled_total", &[])
}

/// Prompt tokens that the pods have had cached.
async fn cached_tokens(stage: &Stage) -> f64 {
    let mut tokens = 0.0;
    for pod in &stage.pods {
        tokens += pod.metrics().await.sum("vllm:prompt_tokens_cached_total", &[]);
    }
    tokens
}

async fn change(stage: &Stage, path: &str, body: Value) {
    let path = format!("/api/v1{path}");
    let reply = Call::post(&path, body.to_string()).to(stage.weir.admin).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// What the snapshot says of each pod.
async fn of_pods(stage: &Stage, key: &str) -> Vec<Value> {
    let snapshot = stage.weir.snapshot().await;
    let pods = snapshot.get("pods").and_then(Value::as_array).into_iter().flatten();
    pods.map(|pod| pod.get(key).cloned().unwrap_or_default()).collect()
}

#[tokio::test]
async fn prompts_go_where_they_are_cached_and_answers_are_known() {
    let mut stage = plan().raise().await;
    let calls = prompts();
    let before = in_pairs(&stage, &calls).await;
    let known = tokens_per_byte(&stage.weir).await;
    end(&mut stage).await;
    start_again(&mut stage).await;
    assert_eq!(recalled(&stage).await, 2.0);
    assert_eq!(tokens_per_byte(&stage.weir).await, known);
    let cached = cached_tokens(&stage).await;
    assert_eq!(pods_of(&stage, &calls).await, before);
    let found = cached_tokens(&stage).await - cached;
    assert!(found > 6.0 * 1900.0, "{found} tokens");
    assert_eq!(stage.weir.metrics().await.sum("weir_state_errors_total", &[]), 0.0);
}

#[tokio::test]
async fn what_an_operator_holds_is_held_after_a_crash() {
    let mut stage = plan().raise().await;
    change(&stage, "/pods/pod-1/cordon", json!({})).await;
    change(&stage, "/queues/pause", json!({"band": -1})).await;
    eventually("both are written", async || {
        let held = std::fs::read_dir(stage.path("state")).into_iter().flatten().flatten();
        // What is still being written is not kept yet.
        let whole = held
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|is| is == "state"));
        let texts = whole.filter_map(|path| std::fs::read(path).ok());
        let text =
            texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect::<String>();
        if text.contains("b-1") && text.contains(&stage.pods[1].address.to_string()) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    stage.weir.program.kill();
    start_again(&mut stage).await;
    assert_eq!(of_pods(&stage, "phase").await, ["ready", "cordoned"]);
    let call = Call::chat(3);
    for _ in 0..6 {
        assert_eq!(stage.call(&call).await.header("x-weir-pod"), "pod-0");
    }
    let (held, address) = (Call::chat(3).objective("batch"), stage.weir.api);
    let held = tokio::spawn(async move { held.to(address).await });
    stage.weir.waiting(1).await;
    change(&stage, "/pods/pod-1/uncordon", json!({})).await;
    change(&stage, "/queues/resume", json!({"band": -1})).await;
    held.await.unwrap().assert_whole();
    assert_eq!(of_pods(&stage, "phase").await, ["ready", "ready"]);
}

#[tokio::test]
async fn a_pod_that_was_restarted_meanwhile_has_nothing() {
    let mut stage = plan().raise().await;
    pods_of(&stage, &prompts()).await;
    // Processes that begin within a second are taken for one: clocks are that exact.
    eventually("its pods are older than that", async || {
        let up_s = stage.weir.metrics().await.sum("weir_uptime_seconds", &[]);
        if up_s > 1.5 { Ok(()) } else { Err(up_s) }
    })
    .await;
    end(&mut stage).await;
    for pod in &mut stage.pods {
        pod.restart().await;
    }
    start_again(&mut stage).await;
    assert_eq!(recalled(&stage).await, 0.0);
    stage.assert_serves().await;
}

#[tokio::test]
async fn a_damaged_file_and_a_folder_that_refuses_are_said_and_cost_nothing_else() {
    let mut stage = plan().raise().await;
    pods_of(&stage, &prompts()[..2]).await;
    end(&mut stage).await;
    let folder = stage.path("state");
    let files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().flatten().map(|file| file.path()).collect();
    let file = files.iter().find(|path| path.extension().is_some_and(|end| end == "state"));
    let file = file.expect("it was written at the end");
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
    // Nothing can be put in its place either.
    std::fs::create_dir(file.with_extension("part")).unwrap();
    start_again(&mut stage).await;
    stage.assert_serves().await;
    change(&stage, "/pods/pod-1/cordon", json!({})).await;
    let errors = async |operation: &str| {
        let metrics = stage.weir.metrics().await;
        metrics.sum("weir_state_errors_total", &[("operation", operation)])
    };
    assert_eq!(errors("read").await, 1.0);
    eventually("it cannot be written", async || match errors("write").await {
        0.0 => Err(()),
        _ => Ok(()),
    })
    .await;
    let log = stage.weir.program.log();
    assert!(log.contains("it is cut off or damaged") && log.contains("state cannot be written"));
    stage.assert_serves().await;
}

#[tokio::test]
async fn without_a_folder_every_process_begins_anew() {
    let mut stage = plan().config(json!({"state": {"dir": ""}})).raise().await;
    pods_of(&stage, &prompts()[..2]).await;
    end(&mut stage).await;
    start_again(&mut stage).await;
    assert_eq!((recalled(&stage).await, stage.path("state").exists()), (0.0, false));
}

#[tokio::test]
async fn a_rolling_upgrade_knows_what_the_one_before_did() {
    let nothing_kept = json!({"state": {"dir": ""}});
    let Pair { mut stage, mut second } = plan().config(nothing_kept).raise_two().await;
    second.program.kill();
    let calls = prompts();
    let before = in_pairs(&stage, &calls).await;
    // One that joins now was told of none of these as they came.
    second = Weir::start(&stage.path("second.yaml"), &stage.path("joins.log")).await;
    second.ready().await;
    let known = tokens_per_byte(&stage.weir).await;
    eventually("it is told", async || match tokens_per_byte(&second).await {
        told if (told - known).abs() < 1e-9 => Ok(()),
        other => Err((other, known)),
    })
    .await;
    stage.weir.program.terminate();
    assert!(stage.weir.program.exit().await.success());
    stage.weir = second;
    let cached = cached_tokens(&stage).await;
    assert_eq!(pods_of(&stage, &calls).await, before);
    let found = cached_tokens(&stage).await - cached;
    assert!(found > 6.0 * 1900.0, "{found} tokens");
}
