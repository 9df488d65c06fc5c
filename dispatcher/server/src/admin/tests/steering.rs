//! What an operator does: list and cancel, move, hold, drain.

use super::*;

#[tokio::test]
async fn what_waits_is_listed_page_by_page_and_cancelled_by_filter() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let mut tickets = waiting(side.hub(), 25);
    let (mut path, mut seen) = ("/api/v1/requests?limit=10".to_owned(), Vec::new());
    loop {
        let page = side.get(&path).await;
        let rows = page["requests"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["id"].as_u64().unwrap()));
        assert!(rows[0]["reason"]["reason"].is_string(), "{page}");
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/requests?limit=10&cursor={next}");
    }
    assert_eq!(seen, (1..=25).collect::<Vec<_>>(), "each once, oldest first");

    let queues = side.get("/api/v1/queues").await;
    let depth = |rows: &str| {
        let rows = queues[rows].as_array().unwrap().iter();
        rows.map(|row| row["depth"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(["queues", "bands", "tenants"].map(depth), [25; 3], "{queues}");
    assert_eq!(queues["tenants"][0]["tenant"], "zeta");

    let filter = json!({"tenant": "acme", "band": 0, "dry_run": true});
    let dry = side.post("/api/v1/requests/cancel", filter.clone()).await;
    assert_eq!((&dry["matched"], &dry["cancelled"]), (&4.into(), &0.into()), "{dry}");
    assert_eq!(dry["sample"], json!(["req-6", "req-12", "req-18", "req-24"]));
    assert_eq!(side.hub().summary().waiting, 25, "a dry run cancels nothing");
    let filter = json!({"tenant": "acme", "band": 0});
    assert_eq!(side.post("/api/v1/requests/cancel", filter).await["cancelled"], 4);
    assert_eq!(side.post("/api/v1/requests/req-1/cancel", json!({})).await["cancelled"], 1);
    assert_eq!(side.hub().summary().waiting, 20);
    let refusal = tickets[5].verdict().await.unwrap_err();
    assert_eq!(refusal.reason.name(), "cancelled_by_operator");
    let again = side.refused(Method::POST, "/api/v1/requests/req-1/cancel", "{}").await;
    assert_eq!(again, (409, "conflict".to_owned()));
    assert_eq!((side.changes("cancel", "ok"), side.changes("cancel", "refused")), (1, 1));
    assert_eq!(side.changes("cancel_many", "ok"), 1, "a dry run is no change");
}

#[tokio::test]
async fn what_another_dispatcher_decides_is_not_changed_here() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let (errands, _asked) = async_channel::bounded(8);
    let lead = Lead::new("10.0.0.7:8082".to_owned(), errands);
    side.hub().follow(Some(lead));
    assert_eq!(side.get("/api/v1/overview").await["pools"][0]["decided_by"], "10.0.0.7:8082");
    let _tickets = waiting(side.hub(), 1);
    for (path, body) in [
        ("/api/v1/requests/req-1/cancel", "{}"),
        ("/api/v1/requests/req-1/move", "{\"band\": 3}"),
        ("/api/v1/requests/cancel", "{\"band\": 0}"),
        ("/api/v1/queues/pause", "{}"),
        ("/api/v1/queues/resume", "{}"),
        ("/api/v1/pods/pod-1/drain", "{}"),
    ] {
        let refused = side.refused(Method::POST, path, body).await;
        assert_eq!(refused, (409, "decided_elsewhere".to_owned()), "{path}");
    }
    assert_eq!((side.changes("pause", "ok"), side.changes("pause", "refused")), (0, 1));

    let explain = r#"{"input_tokens": 5}"#;
    let refused = side.refused(Method::POST, "/api/v1/explain", explain).await;
    assert_eq!(
        refused,
        (409, "decided_elsewhere".to_owned()),
        "nothing is known of the queue it would meet"
    );

    side.hub().follow(None);
    side.post("/api/v1/explain", json!({"input_tokens": 5})).await;
    assert_eq!(side.get("/api/v1/overview").await["pools"][0]["decided_by"], Value::Null);
    assert_eq!(side.hub().summary().in_flight, 1, "what it had not answered is decided here");
    side.post("/api/v1/pods/pod-1/drain", json!({})).await;
}

#[tokio::test]
async fn no_lane_has_more_at_risk_than_wait_now_though_they_were_counted_a_moment_ago() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 25);
    side.get("/api/v1/queues").await;
    side.post("/api/v1/requests/cancel", json!({"tenant": "zeta"})).await;
    let queues = side.get("/api/v1/queues").await;
    for of in ["queues", "bands"] {
        for queue in queues[of].as_array().unwrap() {
            let count = |name: &str| queue["risk"][name].as_u64().unwrap();
            let at_risk = count("late") + count("tight") + count("ok");
            assert!(at_risk <= queue["depth"].as_u64().unwrap(), "{queue}");
        }
    }
}

#[tokio::test]
async fn what_is_held_back_and_can_no_longer_be_in_time_is_late_wherever_that_is_said() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    side.post("/api/v1/queues/pause", json!({})).await;
    let hub = side.hub();
    let late = |id| {
        hub.admit(named(hub, id, |request| {
            request.slo.ttft = Some(Duration::ZERO);
        }))
    };
    let _tickets: Vec<_> = (1..=3).map(late).collect();
    let _in_time = hub.admit(named(hub, 4, |_| {}));
    let queues = side.get("/api/v1/queues").await;
    let lanes = queues["queues"].as_array().unwrap().iter();
    assert_eq!(lanes.map(|lane| lane["risk"]["late"].as_u64().unwrap()).sum::<u64>(), 3);
    assert_eq!(side.get("/api/v1/overview").await["pools"][0]["late"], 3);
    let found = side.get("/api/v1/requests?late=true").await;
    assert_eq!(found["requests"].as_array().unwrap().len(), 3, "{found}");
    let others = side.get("/api/v1/requests?late=false").await;
    assert_eq!(others["requests"].as_array().unwrap().len(), 1, "{others}");
    let dry = json!({"late": true, "dry_run": true});
    assert_eq!(side.post("/api/v1/requests/cancel", dry).await["matched"], 3);
}

#[tokio::test]
async fn a_waiting_request_says_why_and_can_be_moved() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 3);
    for path in ["/api/v1/requests/2", "/api/v1/requests/req-2?pool=default"] {
        let one = side.get(&path.replace("default", side.hub().model())).await;
        assert_eq!(
            (&one["state"], &one["id"], &one["band"]),
            (&"waiting".into(), &2.into(), &0.into())
        );
        assert!(one["explanation"].as_str().unwrap().contains("no pod"), "{one}");
    }
    let moved = side.post("/api/v1/requests/2/move", json!({"band": 7})).await;
    assert_eq!(moved["band"], 7);
    let page = side.get("/api/v1/requests?band=7").await;
    assert_eq!(page["requests"].as_array().unwrap().len(), 1);
    let decisions = side.get("/api/v1/decisions?request_id=req-2").await;
    assert_eq!(decisions["decisions"][0]["kind"], "move");
}

#[tokio::test]
async fn digits_are_what_a_client_calls_a_request_before_they_are_a_number() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let called = |id, name: &str| {
        side.hub().admit(named(side.hub(), id, |request| request.name = name.into()))
    };
    let _tickets = [called(1, "7"), called(2, "1"), called(3, "3")];
    let cancel = async |of: &str| {
        let path = format!("/api/v1/requests/{of}/cancel");
        let (status, _, answer) = side.ask(Method::POST, &path, &[], "{}").await;
        (status.as_u16(), answer)
    };
    assert_eq!(side.get("/api/v1/requests/1").await["id"], 2, "the name comes first");
    assert_eq!(side.get("/api/v1/requests/%231").await["request_id"], "7");
    assert_eq!(side.get("/api/v1/requests/2").await["request_id"], "1", "no request is called 2");
    let (status, answer) = cancel("1").await;
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(status == 409 && why.contains("say #2 or #1"), "{answer}");
    let moved = side.ask(Method::POST, "/api/v1/requests/1/move", &[], r#"{"band": 3}"#).await;
    assert_eq!((moved.0.as_u16(), side.hub().summary().waiting), (409, 3));
    assert_eq!(cancel("7").await.0, 200, "no request has this number");
    assert_eq!(side.get("/api/v1/requests/%231").await["state"], "recent");
    assert_eq!((cancel("3").await.0, cancel("%232").await.0), (200, 200), "each is one request");
    assert_eq!(side.hub().summary().waiting, 0);
}

#[tokio::test]
async fn a_name_that_several_waiting_requests_have_is_refused_with_their_numbers() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let called = |id, name: &str| {
        side.hub().admit(named(side.hub(), id, |request| request.name = name.into()))
    };
    let _tickets = [called(1, "dup"), called(2, "other"), called(3, "dup"), called(4, "4")];
    let steer = async |of: &str, how: &str| {
        let path = format!("/api/v1/requests/{of}/{how}");
        let body = if how == "move" { r#"{"band": 3}"# } else { "{}" };
        let (status, _, answer) = side.ask(Method::POST, &path, &[], body).await;
        (status.as_u16(), answer)
    };
    for how in ["cancel", "move"] {
        let (status, answer) = steer("dup", how).await;
        let why = "several waiting requests are called dup; say #3 or #1";
        assert_eq!((status, &answer["error"]["code"]), (409, &"conflict".into()), "{answer}");
        assert_eq!(answer["error"]["message"], why);
    }
    assert_eq!(side.hub().summary().waiting, 4, "nothing of that changed anything");
    let shown = side.get("/api/v1/requests/dup").await;
    assert_eq!(shown["id"], 3, "the youngest");
    let told = shown["explanation"].as_str().unwrap();
    assert!(told.ends_with(" Of those that wait, others are called so too: #1."), "{told}");
    assert_eq!(steer("%231", "move").await.1["id"], 1, "the one that was moved");
    assert_eq!(steer("%233", "cancel").await.0, 200);
    let shown = side.get("/api/v1/requests/dup").await;
    assert_eq!(shown["id"], 1, "the one that still waits");
    assert!(!shown["explanation"].as_str().unwrap().contains("called so"), "{shown}");
    assert_eq!(steer("dup", "cancel").await.0, 200, "one is left of that name");
    let again = steer("dup", "cancel").await;
    assert_eq!(again.0, 409, "{}", again.1);
    assert_eq!((steer("4", "cancel").await.0, side.hub().summary().waiting), (200, 1));
}

#[tokio::test]
async fn of_many_requests_of_one_name_a_few_are_listed() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let called =
        |id| side.hub().admit(named(side.hub(), id, |request| request.name = "dup".into()));
    let _tickets: Vec<_> = (1..=25).map(called).collect();
    let path = "/api/v1/requests/dup/cancel";
    let (_, _, answer) = side.ask(Method::POST, path, &[], "{}").await;
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.starts_with("several waiting requests are called dup; say #25 or #24 or"), "{why}");
    assert!(why.ends_with("#6 or another number"), "{why}");
    let shown = side.get("/api/v1/requests/dup").await;
    let told = shown["explanation"].as_str().unwrap();
    assert!(told.ends_with("called so too: #24, #23, #22, #21, #20."), "{told}");
}

#[tokio::test]
async fn a_request_that_is_called_cancel_is_shown_moved_and_cancelled() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let path = "/api/v1/requests/cancel";
    assert_eq!(side.refused(Method::GET, path, "").await, (404, "not_found".to_owned()));
    let _ticket = side.hub().admit(named(side.hub(), 1, |request| request.name = "cancel".into()));
    assert_eq!(side.get(path).await["request_id"], "cancel");
    assert_eq!(side.post(&format!("{path}/move"), json!({"band": 2})).await["band"], 2);
    assert_eq!(side.post(&format!("{path}/cancel"), json!({})).await["cancelled"], 1);
    assert_eq!(side.refused(Method::PUT, path, "").await.0, 405);
}

#[tokio::test]
async fn a_lane_a_band_and_the_pool_can_be_held() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let mut tickets = waiting(side.hub(), 2);
    let lanes = side.get("/api/v1/queues").await;
    let lane = lanes["queues"].as_array().unwrap().iter().find(|lane| lane["band"] == 0).unwrap();
    let held = side.post("/api/v1/queues/pause", json!({"lane": lane["lane"]})).await;
    assert_eq!(held["paused"], json!([lane["lane"]]));
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let first = tickets[0].verdict().await.unwrap();
    assert_eq!(side.hub().summary().waiting, 1, "band 0 is held, band 1 went");
    let held = side.get("/api/v1/requests/req-2").await;
    assert_eq!(held["reason"]["reason"], "paused", "{held}");
    let held = side.post("/api/v1/queues/pause", json!({"band": -1})).await;
    assert_eq!(held["paused"][0], "b-1");
    assert_eq!(side.post("/api/v1/queues/resume", json!({})).await["paused"], json!([]));
    drop((first, tickets[1].verdict().await.unwrap()));
}

#[tokio::test]
async fn a_pod_is_cordoned_drained_and_let_in_again() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let lease = side.hub().admit(request(side.hub(), 1)).verdict().await.unwrap();
    let phase = async |body: &Value| body["phase"].as_str().unwrap().to_owned();
    let cordoned = side.post("/api/v1/pods/pod-1/cordon", json!({})).await;
    assert_eq!(phase(&cordoned).await, "cordoned");
    let draining = side.post("/api/v1/pods/pod-1/drain", json!({})).await;
    assert_eq!(
        (phase(&draining).await.as_str(), &draining["drain"]["left"]),
        ("draining", &1.into())
    );
    assert_eq!(draining["requests"].as_array().unwrap().len(), 1);
    lease.end(weir_core::EndKind::Complete, None, None);
    let drained = side.get("/api/v1/pods/pod-1").await;
    assert_eq!((phase(&drained).await.as_str(), &drained["drain"]["left"]), ("drained", &0.into()));
    let back = side.post("/api/v1/pods/pod-1/uncordon", json!({})).await;
    assert_eq!((phase(&back).await.as_str(), &back["drain"]), ("ready", &Value::Null));
    assert_eq!(side.get("/api/v1/pods").await["pods"][0]["address"], "127.0.0.1:1");
}
