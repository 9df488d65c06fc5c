//! Of several dispatchers in front of the same pods one decides for all, and whichever of them is lost, nobody else's requests are.

use futures_util::future::join_all;
use serde_json::Value;
use tokio::task::JoinHandle;
use weir_tests::{
    Call, MODEL, Pair, Plan, Reply, Weir,
    command::{FAILED, NOT_FOUND, run_at},
    eventually,
};

/// Waits until that many are on pods and that many wait, as a dispatcher counts.
async fn open(weir: &Weir, waiting: u64, in_flight: u64) {
    eventually("they are where they should be", async || {
        let open = weir.open_requests().await;
        let there = (open.waiting, open.in_flight) == (waiting, in_flight);
        if there { Ok(()) } else { Err(open) }
    })
    .await;
}

/// Waits until that many of its clients have their whole answers, as it counts.
async fn answered(weir: &Weir, count: f64) {
    eventually("every answer is counted", async || {
        let ok = weir.metrics().await.sum("weir_requests_total", &[("outcome", "ok")]);
        if ok == count { Ok(()) } else { Err(ok) }
    })
    .await;
}

fn start(weir: &Weir, call: Call) -> JoinHandle<Reply> {
    let address = weir.api;
    tokio::spawn(async move { call.to(address).await })
}

#[tokio::test]
async fn what_comes_to_either_is_decided_by_one_and_counted_once() {
    let Pair { mut stage, second } = Plan::default().pods(2).raise_two().await;
    let calls: Vec<_> = (0..20)
        .map(|number| start(if number % 2 == 0 { &stage.weir } else { &second }, Call::chat(40)))
        .collect();
    for call in calls {
        call.await.unwrap().assert_whole();
    }
    open(&stage.weir, 0, 0).await;
    let counters = |snapshot: Value| snapshot["counters"].clone();
    assert_eq!(counters(stage.weir.snapshot().await)["completed"], 20);
    assert_eq!(counters(second.snapshot().await)["arrived"], 0);
    let metrics = second.metrics().await;
    assert_eq!(metrics.sum("weir_decides", &[]), 0.0);
    assert_eq!(metrics.sum("weir_replica_verdicts_total", &[("way", "heard")]), 10.0);
    answered(&second, 10.0).await;
    for pod in &mut stage.pods {
        let twice = pod.metrics().await.sum("sim:duplicate_starts_total", &[]);
        assert_eq!((pod.busy().await, twice), (0.0, 0.0));
    }
}

#[tokio::test]
async fn a_higher_band_goes_first_whichever_dispatcher_it_waits_at() {
    let Pair { stage, second } = Plan::default().seats(1).raise_two().await;
    let mut running = Call::chat(400).open(stage.weir.api).await;
    running.first_token().await;
    let batch = start(&stage.weir, Call::chat(200).objective("batch"));
    open(&stage.weir, 1, 1).await;
    let interactive = start(&second, Call::chat(5).objective("interactive"));
    open(&stage.weir, 2, 1).await;
    running.rest().await.assert_whole();
    interactive.await.unwrap().assert_whole();
    assert!(!batch.is_finished(), "it came first and goes last");
    batch.await.unwrap().assert_whole();
}

#[tokio::test]
async fn when_the_one_that_decides_is_killed_nobody_else_loses_a_request() {
    let Pair { mut stage, second } = Plan::default().seats(2).raise_two().await;
    let mut running = Call::chat(600).open(second.api).await;
    running.first_token().await;
    let mut its_own = Call::chat(600).open(stage.weir.api).await;
    its_own.first_token().await;
    let waiting: Vec<_> = (0..6).map(|_| start(&second, Call::chat(10))).collect();
    open(&stage.weir, 6, 2).await;
    stage.weir.program.kill();
    second.decided_by(None).await;
    assert!(its_own.rest().await.broken, "what went through it is lost, and looks it");
    running.rest().await.assert_whole();
    for call in waiting {
        call.await.unwrap().assert_whole();
    }
    open(&second, 0, 0).await;
    let counters = &second.snapshot().await["counters"];
    assert_eq!(counters["completed"], 7, "those that waited, and the one that ran on");
    assert_eq!(counters["adopted"], 1);
    answered(&second, 7.0).await;
    assert_eq!(second.metrics().await.sum("weir_lead_changes_total", &[]), 2.0);
}

#[tokio::test]
async fn an_upgrade_of_the_one_that_decides_loses_nothing() {
    let Pair { mut stage, second } = Plan::default().seats(2).raise_two().await;
    let mut running = Call::chat(300).open(stage.weir.api).await;
    running.first_token().await;
    let waiting: Vec<_> = (0..4).map(|_| start(&second, Call::chat(10))).collect();
    let mut asks = Call::chat(300).open(second.api).await;
    asks.first_token().await;
    stage.weir.program.terminate();
    second.decided_by(None).await;
    start(&second, Call::chat(5)).await.unwrap().assert_whole();
    running.rest().await.assert_whole();
    asks.rest().await.assert_whole();
    for call in waiting {
        call.await.unwrap().assert_whole();
    }
    assert_eq!(stage.weir.program.exit().await.code(), Some(0));
    open(&second, 0, 0).await;
}

#[tokio::test]
async fn one_that_hangs_is_not_waited_for() {
    let Pair { stage, second } = Plan::default().seats(2).raise_two().await;
    let mut running = Call::chat(1000).open(second.api).await;
    running.first_token().await;
    stage.weir.program.hang();
    let waiting = start(&second, Call::chat(10));
    second.decided_by(None).await;
    waiting.await.unwrap().assert_whole();
    running.rest().await.assert_whole();
    stage.weir.program.go_on();
    eventually("the first decides again, for it has the first rank", async || {
        let metrics = second.metrics().await;
        if metrics.sum("weir_decides", &[]) == 0.0 { Ok(()) } else { Err(()) }
    })
    .await;
    start(&second, Call::chat(10)).await.unwrap().assert_whole();
    open(&stage.weir, 0, 0).await;
    open(&second, 0, 0).await;
}

#[tokio::test]
async fn one_that_asks_and_is_stopped_finishes_what_it_has() {
    let Pair { stage, mut second } = Plan::default().seats(1).raise_two().await;
    let mut running = Call::chat(300).open(second.api).await;
    running.first_token().await;
    let waiting: Vec<_> = (0..4).map(|_| start(&second, Call::chat(10))).collect();
    open(&stage.weir, 4, 1).await;
    second.program.terminate();
    running.rest().await.assert_whole();
    for call in waiting {
        call.await.unwrap().assert_whole();
    }
    assert_eq!(second.program.exit().await.code(), Some(0));
    open(&stage.weir, 0, 0).await;
    assert_eq!(stage.weir.snapshot().await["counters"]["completed"], 5);
}

#[tokio::test]
async fn a_change_is_made_where_it_counts_and_refused_elsewhere() {
    let Pair { stage, second } = Plan::default().raise_two().await;
    let pause = || Call::post("/api/v1/queues/pause", "{\"band\":0}");
    let refused = pause().to(second.admin).await;
    refused.assert_admin_error(409, "decided_elsewhere");
    let cordon = || Call::post("/api/v1/pods/pod-0/cordon", "{}");
    cordon().to(second.admin).await.assert_admin_error(409, "decided_elsewhere");
    assert_eq!(cordon().to(stage.weir.admin).await.status, 200);
    let held = start(&second, Call::chat(3));
    open(&stage.weir, 1, 0).await;
    let free = Call::post("/api/v1/pods/pod-0/uncordon", "{}").to(stage.weir.admin).await;
    assert_eq!(free.status, 200);
    held.await.unwrap().assert_whole();
}

#[tokio::test]
async fn whoever_asks_the_one_that_does_not_decide_is_told_which_one_does() {
    let Pair { stage, second } = Plan::default().seats(1).raise_two().await;
    let seen = Call::get("/api/v1/overview").to(second.admin).await.json();
    let first = seen["pools"][0]["decided_by"].as_str().expect("the first decides").to_owned();
    let notice = format!("weir: {first} decides for {MODEL}; what waits is told there\n");
    let empty = run_at(second.admin, &["queue", "ls"]).await;
    assert_eq!((empty.code, &empty.err), (0, &notice), "{empty:?}");
    let gone = run_at(second.admin, &["queue", "show", "nobody"]).await;
    assert_eq!(gone.code, NOT_FOUND);
    assert!(gone.err.starts_with(&notice), "{gone:?}");
    let explain = ["explain", "--input-tokens", "5"];
    run_at(second.admin, &explain).await.assert_failed(FAILED, &first);
    let decider = run_at(stage.weir.admin, &explain).await;
    assert_eq!((decider.code, decider.err.as_str()), (0, ""), "{decider:?}");
}

#[tokio::test]
async fn a_stream_whose_pod_dies_goes_on_whichever_dispatcher_relays_it() {
    let mut pair = Plan::default().pods(2).speed(2.0).migration_limit(1).raise_two().await;
    let unbroken = pair.stage.call(&Call::chat(60)).await.text();
    let relays = [pair.stage.weir.api, pair.second.api];
    let call = Call::chat(60);
    let mut streams = join_all(relays.map(|api| call.open(api))).await;
    for stream in &mut streams {
        stream.first_token().await;
    }
    pair.stage.pods[0].kill();
    let replies = join_all(streams.into_iter().map(weir_tests::Live::rest)).await;
    for reply in &replies {
        reply.assert_whole();
        assert_eq!(reply.text(), unbroken);
    }
    let lost = replies.iter().filter(|reply| reply.header("x-weir-pod") == "pod-0").count();
    let mut continued = 0.0;
    for weir in [&pair.stage.weir, &pair.second] {
        let outcome = [("outcome", "continued")];
        continued += weir.metrics().await.sum("weir_migrations_total", &outcome);
    }
    assert_eq!(continued, lost as f64);
    assert!(lost > 0, "{replies:?}");
}
