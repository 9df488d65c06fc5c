//! When the system gives no more files, new clients wait; nobody who is served notices, and nothing ends.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::process::Command;

use tokio::net::TcpStream;
use weir_tests::{Call, Plan, Stage, eventually};

/// Lets the dispatcher have so many more files than it has.
fn allow_more_files(stage: &Stage, more: usize) {
    let id = stage.weir.program.id().to_string();
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
    let limit = format!("--nofile={0}:{0}", open + more);
    assert!(Command::new("prlimit").args(["--pid", &id, &limit]).status().unwrap().success());
}

#[tokio::test]
async fn silent_connections_to_the_admin_listener_leave_files_for_clients_and_probes() {
    let mut stage = Plan::default().raise().await;
    // As many as the admin side keeps, one that comes, and some for clients and pods.
    allow_more_files(&stage, 64 + 1 + 16);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(stage.weir.admin).await.unwrap());
    }
    assert_eq!(Call::get("/livez").to(stage.weir.admin).await.status, 200);
    stage.call(&Call::chat(3)).await.assert_whole();
    let metrics = stage.weir.metrics().await;
    let displaced = metrics.sum("weir_connections_displaced_total", &[("listener", "admin")]);
    assert!(displaced >= 200.0 - 64.0, "{displaced}");
    assert_eq!(metrics.sum("weir_accept_failures_total", &[]), 0.0);
    drop(silent);
    stage.assert_settled().await;
}

#[tokio::test]
async fn clients_beyond_the_limit_wait_and_are_served_when_others_have_left() {
    let mut stage = Plan::default().speed(1.0).raise().await;
    let mut live = Call::chat(100).open(stage.weir.api).await;
    live.first_token().await;
    allow_more_files(&stage, 8);
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(stage.weir.api).await.unwrap());
    }
    let (call, address) = (Call::chat(3), stage.weir.api);
    let waiting = tokio::spawn(async move { call.to(address).await });
    live.rest().await.assert_whole();
    assert!(!waiting.is_finished(), "there was no file for it");
    drop(idle);
    waiting.await.unwrap().assert_whole();
    eventually("it is served as ever", async || {
        let reply = stage.call(&Call::chat(3)).await;
        if reply.is_whole() { Ok(()) } else { Err(reply) }
    })
    .await;
    stage.assert_settled().await;
}
