//! An operator sees what waits and why, and steers, from the command line alone; and a script can tell
//! from the exit code what went wrong.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use weir_tests::{
    Call, Plan, Program, Stage, built,
    command::{Done, FAILED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, command, run, run_at},
    eventually,
};

/// A pod that runs one request at a time and takes no second one before its first token.
async fn narrow_stage() -> Stage {
    Plan::default().speed(1.0).seats(1).raise().await
}

/// The ids of what waits, the oldest first.
async fn waiting(stage: &Stage) -> Vec<String> {
    let page = run(stage, &["queue", "show", "-o", "json"]).await.json();
    let id = |request: &Value| request["request_id"].as_str().unwrap().to_owned();
    page["requests"].as_array().unwrap().iter().map(id).collect()
}

#[tokio::test]
async fn what_waits_is_listed_and_the_reason_is_said_pod_by_pod() {
    let mut stage = narrow_stage().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let held = stage.queue_up(3, &Call::chat(3)).await;

    let lanes = run(&stage, &["queue", "ls", "-o", "json"]).await.json();
    let depth: u64 = lanes["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| lane["depth"].as_u64().unwrap())
        .sum();
    assert_eq!(depth, 3, "{lanes}");
    let lane = lanes["queues"][0]["lane"].as_str().unwrap();
    let table = run(&stage, &["queue", "ls"]).await.out();
    assert!(table.starts_with("POOL") && table.contains(lane), "{table}");
    let yaml = run(&stage, &["queue", "ls", "-o", "yaml"]).await.out();
    assert_eq!(serde_yaml_ng::from_str::<Value>(&yaml).unwrap()["queues"][0]["lane"], lane);

    let ids = waiting(&stage).await;
    assert_eq!(ids.len(), 3);
    let page = run(&stage, &["queue", "show", "--lane", lane, "--limit", "1"]).await;
    assert!(page.out.contains(&ids[0]) && !page.out.contains(&ids[1]), "{page:?}");
    assert!(page.err.contains("--cursor"), "{page:?}");
    let all = run(&stage, &["queue", "show", "--limit", "1", "--all"]).await.out();
    assert!(ids.iter().all(|id| all.contains(id)), "{all}");

    for words in [["queue", "show", &ids[0]].as_slice(), &["explain", &ids[0]]] {
        let text = run(&stage, words).await.out();
        for part in [&ids[0], "waits for:", "pod-0", "WHY NOT"] {
            assert!(text.contains(part), "{part} is not said:\n{text}");
        }
    }
    let supposed = ["explain", "--input-tokens", "4000", "--ttft-ms", "2000"];
    let text = run(&stage, &supposed).await.out();
    assert!(text.contains("would:") && text.contains("pod-0"), "{text}");
    let frame = run(&stage, &["top", "--once"]).await.out();
    assert!(frame.contains(lane) && frame.contains("pod-0"), "{frame}");
    let decided = run(&stage, &["decisions"]).await.out();
    assert!(decided.contains("dispatch"), "{decided}");
    drop(held);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_request_is_cancelled_by_its_id_and_others_by_a_filter_that_was_tried_first() {
    let mut stage = narrow_stage().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let mut held = stage.queue_up(4, &Call::chat(3)).await;
    let ids = waiting(&stage).await;

    let done = run(&stage, &["queue", "cancel", &ids[0], "nobody"]).await;
    assert!(done.out.contains(&format!("{} cancelled", ids[0])), "{done:?}");
    done.assert_failed(NOT_FOUND, "nobody");
    let refused = held.join_next().await.unwrap().unwrap();
    refused.assert_error(503, "cancelled_by_operator");
    assert_eq!(refused.header("x-should-retry"), "false");
    stage.weir.waiting(3).await;

    run(&stage, &["queue", "cancel"]).await.assert_failed(USAGE, "--lane");
    let filter = ["queue", "cancel", "--older-than", "1ms"];
    let tried = run(&stage, &[filter.as_slice(), &["--dry-run"]].concat()).await.out();
    assert!(tried.starts_with("3 would be cancelled") && tried.contains(&ids[1]), "{tried}");
    let unasked = run(&stage, &filter).await;
    assert_eq!(unasked.code, USAGE, "nobody could be asked: {unasked:?}");
    stage.weir.waiting(3).await;
    let done = run(&stage, &[filter.as_slice(), &["--yes"]].concat()).await.out();
    assert!(done.starts_with("3 cancelled"), "{done}");
    stage.weir.waiting(0).await;
    drop(held);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_paused_lane_holds_what_arrives_until_it_is_resumed() {
    let mut stage = Stage::simple().await;
    run(&stage, &["queue", "pause"]).await.assert_failed(USAGE, "--yes");
    let said = run(&stage, &["queue", "pause", "--yes"]).await.out();
    assert!(said.starts_with("paused: "), "{said}");
    let address = stage.weir.api;
    let call = tokio::spawn(async move { Call::chat(3).to(address).await });
    stage.weir.waiting(1).await;
    let table = run(&stage, &["queue", "ls"]).await.out();
    assert!(table.contains("paused"), "{table}");
    let said = run(&stage, &["queue", "resume"]).await.out();
    assert_eq!(said, "nothing is paused\n");
    call.await.unwrap().assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn draining_a_pod_waits_for_its_streams_and_uncordoning_brings_it_back() {
    let mut stage = Plan::default().pods(2).speed(1.0).raise().await;
    let address = stage.weir.api;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..4 {
        streams.spawn(async move { Call::chat(400).to(address).await });
    }
    let busy = async || {
        let pods = run(&stage, &["pods", "ls", "-o", "json"]).await.json();
        let held = |pod: &&Value| pod["residents"].as_u64().unwrap() > 0;
        let pods = pods["pods"].as_array().unwrap();
        pods.iter()
            .find(held)
            .map(|pod| pod["pod"].as_str().unwrap().to_owned())
            .ok_or(pods.clone())
    };
    let pod = eventually("a pod serves", busy).await;

    let cordoned = run(&stage, &["pods", "cordon", &pod]).await.out();
    assert!(cordoned.starts_with(&format!("{pod} is cordoned")), "{cordoned}");
    let short = ["pods", "drain", &pod, "--wait", "--timeout", "1ms"];
    assert_eq!(run(&stage, &short).await.code, FAILED, "it was not done within 1 ms");
    let done = run(&stage, &["pods", "drain", &pod, "--wait"]).await;
    assert!(done.err.contains(&format!("{pod} drains: ")), "no progress: {done:?}");
    assert_eq!(done.out(), format!("{pod} is drained\n"));
    let shown = run(&stage, &["pods", "show", &pod, "-o", "json"]).await.json();
    assert_eq!((&shown["phase"], shown["residents"].as_u64()), (&json!("drained"), Some(0)));
    while let Some(reply) = streams.join_next().await {
        reply.unwrap().assert_whole();
    }

    let dispatched = shown["dispatched"].as_u64();
    for _ in 0..4 {
        stage.assert_serves().await;
    }
    let shown = run(&stage, &["pods", "show", &pod, "-o", "json"]).await.json();
    assert_eq!(shown["dispatched"].as_u64(), dispatched, "it was given something");
    let back = run(&stage, &["pods", "uncordon", &pod]).await.out();
    assert!(back.starts_with(&format!("{pod} is ready")), "{back}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_drain_is_waited_for_though_the_pod_is_taken_out_of_the_file() {
    let mut stage = Plan::default().pods(2).speed(1.0).raise().await;
    let mut live = Call::chat(400).open(stage.weir.api).await;
    live.first_token().await;
    let pod = live.headers["x-weir-pod"].to_str().unwrap().to_owned();
    let mut waiting = command(&["pods", "drain", &pod, "--wait"]);
    waiting.env("WEIR_ADMIN", stage.weir.admin.to_string());
    let waiting = tokio::spawn(waiting.output());
    let phase = async |phase: &str| {
        eventually(&format!("{pod} is {phase}"), async || {
            let shown = run(&stage, &["pods", "show", &pod, "-o", "json"]).await.json();
            if shown["phase"] == phase { Ok(()) } else { Err(shown) }
        })
        .await;
    };
    phase("draining").await;
    let file = stage.config();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let pods = config["pools"][0]["pods"].as_array_mut().unwrap();
    pods.retain(|one| one["name"] != *pod && !one["url"].as_str().unwrap().ends_with(&pod));
    assert_eq!(pods.len(), 1);
    std::fs::write(file.with_extension("new"), config.to_string()).unwrap();
    std::fs::rename(file.with_extension("new"), file).unwrap();
    phase("leaving").await;
    let listed = run(&stage, &["pods", "ls"]).await.out();
    let line = listed.lines().find(|line| line.contains(&pod)).unwrap();
    assert!(line.contains("leaving") && line.contains("1 left"), "{listed}");

    live.rest().await.assert_whole();
    let done = Done::of(waiting.await.unwrap().unwrap());
    assert!(done.out().starts_with(&format!("{pod} is gone: it has left the pool")));
    run(&stage, &["pods", "show", &pod]).await.assert_failed(NOT_FOUND, &pod);
    stage.assert_settled().await;
}

#[tokio::test]
async fn the_exit_code_says_what_went_wrong() {
    let mut stage = Stage::simple().await;
    run(&stage, &["queue", "show", "nobody"]).await.assert_failed(NOT_FOUND, "nobody");
    run(&stage, &["pods", "show", "pod-9"]).await.assert_failed(NOT_FOUND, "pod-9");
    run(&stage, &["pods", "drain", "pod-9"]).await.assert_failed(NOT_FOUND, "pod-9");
    run(&stage, &["queue", "show", "--lane", "no-lane"]).await.assert_failed(NOT_FOUND, "no-lane");
    assert_eq!(run(&stage, &["queue", "show", "--limit", "0"]).await.code, USAGE);
    assert_eq!(run(&stage, &["pods", "drain"]).await.code, USAGE);
    run(&stage, &["top"]).await.assert_failed(USAGE, "--once");
    // The address of the wrong listener, and one where nobody listens.
    run_at(stage.weir.api, &["queue", "ls"]).await.assert_failed(UNREACHABLE, "admin.listen");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run_at(free, &["queue", "ls"]).await.assert_failed(UNREACHABLE, "WEIR_ADMIN");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_token_that_may_only_look_may_not_change_and_one_is_needed_for_either() {
    let digest = |token: &str| {
        Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let tokens = json!([
        {"name": "watcher", "sha256": digest("may-look"), "scope": "read"},
        {"name": "on-call", "sha256": digest("may-change"), "scope": "write"},
    ]);
    let plan = Plan::default().config(json!({"admin": {"tokens": tokens}}));
    let file = plan.path("token");
    std::fs::write(&file, "may-change\n").unwrap();
    // The snapshot of the harness needs a token too.
    let stage = plan.start().await;
    let admin = stage.weir.admin.to_string();
    let with = async |token: Option<&str>, words: &[&str]| {
        let mut command = command(words);
        command.env("WEIR_ADMIN", &admin);
        if let Some(token) = token {
            command.env("WEIR_ADMIN_TOKEN", token);
        }
        Done::of(command.output().await.unwrap())
    };
    with(None, &["pods", "ls"]).await.assert_failed(REFUSED, "WEIR_ADMIN_TOKEN");
    with(Some("guessed"), &["pods", "ls"]).await.assert_failed(REFUSED, "admin.tokens");
    assert!(with(Some("may-look"), &["pods", "ls"]).await.out().contains("pod-0"));
    let cordon = ["pods", "cordon", "pod-0"];
    with(Some("may-look"), &cordon).await.assert_failed(REFUSED, "scope write");
    with(Some("may-change"), &cordon).await.out();
    let from_file = ["pods", "uncordon", "pod-0", "--token-file", file.to_str().unwrap()];
    with(Some("guessed"), &from_file).await.out();
}

#[tokio::test]
async fn without_a_file_weir_says_what_it_serves_and_what_to_do_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(built::binary("weir"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    let mut program = Program::start(command.current_dir(dir.path()), &dir.path().join("weir.log"));
    let line = |start: &'static str| {
        move |line: &str| line.trim_start().strip_prefix(start).map(|rest| rest.trim().to_owned())
    };
    let admin = program.says("it says where the admin side is", line("admin side")).await;
    let watch = program.says("it names the board and the page", line("watch")).await;
    assert!(watch.contains("weir top --admin 127.0.0.1:") && watch.contains(&admin), "{watch}");
    program.says("it says how to start the pod", line("start the pod")).await;
    let frame =
        run_at(admin.strip_prefix("http://").unwrap().parse().unwrap(), &["top", "--once"]).await;
    assert!(frame.out().contains("pod-0"), "the board shows the pod that is not there yet");
    program.terminate();
    assert!(program.exit().await.success());
}

#[tokio::test]
async fn weir_serves_though_nobody_reads_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (reader, said) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--admin-listen", &free.to_string()]).current_dir(dir.path()).stderr(said);
    let mut weir = command.spawn().unwrap();
    eventually("weir is alive", async || Call::get("/livez").try_open(free).await).await;
    let id = weir.id().unwrap().to_string();
    let told = std::process::Command::new("kill").args(["-TERM", &id]).status();
    assert!(told.unwrap().success());
    let ended = eventually("weir ends", async || weir.try_wait().unwrap().ok_or(())).await;
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn the_reference_that_is_shipped_is_the_programs() {
    let shipped = std::fs::read_to_string(built::root().join("docs/cli.md")).unwrap();
    let page = Done::of(command(&["reference"]).output().await.unwrap()).out();
    assert!(shipped == page, "write docs/cli.md with `weir reference`");
}
