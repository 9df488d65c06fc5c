//! What cannot be used is refused, in one shape and with a code.

use super::*;

#[tokio::test]
async fn what_cannot_be_used_is_refused_in_one_shape() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 1);
    let large = format!(r#"{{"tenant": "{}"}}"#, "x".repeat(take::BODY_BYTES));
    let get = [
        ("/api/v1/nothing", 404, "unknown_url"),
        ("/nothing", 404, "unknown_url"),
        ("/assets/nothing.js", 404, "unknown_url"),
        ("/api/v1/queues?pool=nobody", 404, "not_found"),
        ("/api/v1/queues?pol=nobody", 400, "invalid_parameter"),
        ("/api/v1/overview?pool=nobody", 404, "not_found"),
        ("/api/v1/overview?limit=3", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=0", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=1001", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=many", 400, "invalid_parameter"),
        ("/api/v1/requests?limit=1&limit=2", 400, "invalid_parameter"),
        ("/api/v1/requests?band=300", 400, "invalid_parameter"),
        ("/api/v1/requests?late=perhaps", 400, "invalid_parameter"),
        ("/api/v1/requests?older_than_ms=-1", 400, "invalid_parameter"),
        ("/api/v1/requests?older_than_ms=NaN", 400, "invalid_parameter"),
        ("/api/v1/requests?cursor=next", 400, "invalid_parameter"),
        ("/api/v1/requests?lane=nowhere", 404, "not_found"),
        ("/api/v1/requests/%FF", 400, "invalid_parameter"),
        ("/api/v1/requests/req-9", 404, "not_found"),
        ("/api/v1/requests/99999999999999999999999", 404, "not_found"),
        ("/api/v1/pods/nobody", 404, "not_found"),
        ("/api/v1/models/seven", 400, "invalid_parameter"),
        ("/api/v1/models/7", 404, "not_found"),
        ("/api/v1/decisions?limit=257", 400, "invalid_parameter"),
        ("/api/v1/chart/pie.svg", 404, "not_found"),
        ("/api/v1/chart/ttft.svg?theme=blue", 400, "invalid_parameter"),
    ];
    for (path, status, code) in get {
        assert_eq!(side.refused(Method::GET, path, "").await, (status, code.to_owned()), "{path}");
    }
    let post = [
        ("/api/v1/queues/pause", "[]", 400, "invalid_parameter"),
        ("/api/v1/queues/pause", "{", 400, "invalid_parameter"),
        ("/api/v1/queues/pause", r#"{"lanes": "x"}"#, 400, "invalid_parameter"),
        ("/api/v1/queues/pause", r#"{"lane": "nowhere"}"#, 404, "not_found"),
        ("/api/v1/queues/pause", r#"{"lane": "b0/late", "band": 0}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", "{}", 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", r#"{"dry_run": true}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", r#"{"band": "0"}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", r#"{"tenant": null}"#, 400, "invalid_parameter"),
        ("/api/v1/requests/cancel", &large, 413, "request_too_large"),
        ("/api/v1/requests/req-9/cancel", "{}", 404, "not_found"),
        ("/api/v1/queues/pause", "", 400, "invalid_parameter"),
        ("/api/v1/requests/1/move", "{}", 400, "invalid_parameter"),
        ("/api/v1/requests/1/move", r#"{"band": 128}"#, 400, "invalid_parameter"),
        ("/api/v1/pods/nobody/drain", "{}", 404, "not_found"),
        ("/api/v1/models/pin", "{}", 400, "invalid_parameter"),
        ("/api/v1/models/rollback", "{}", 409, "conflict"),
        ("/api/v1/config/reload", "{}", 409, "conflict"),
        ("/api/v1/explain", "{}", 400, "invalid_parameter"),
        ("/api/v1/explain", r#"{"input_tokens": 5, "ttft_ms": 0}"#, 400, "invalid_parameter"),
        ("/api/v1/overview", "{}", 405, "method_not_allowed"),
        ("/livez", "{}", 405, "method_not_allowed"),
    ];
    for (path, body, status, code) in post {
        let got = side.refused(Method::POST, path, body).await;
        assert_eq!(got, (status, code.to_owned()), "{path} {body:.80}");
    }
    let changes =
        post.iter().filter(|(path, ..)| !["/api/v1/explain", "/livez"].contains(path)).count()
            as u64;
    let counted: u64 = [
        "cancel",
        "cancel_many",
        "drain",
        "move",
        "pause",
        "pin",
        "reload_config",
        "rollback",
        "unread",
    ]
    .map(|action| side.changes(action, "refused"))
    .iter()
    .sum();
    assert_eq!(counted, changes, "each is counted once");
    assert!(side.changes("unread", "refused") > 5);
    let (_, headers, _) = side.ask(Method::PUT, "/api/v1/overview", &[], "").await;
    assert_eq!(headers["allow"], "GET,HEAD");
    assert_eq!(side.hub().summary().waiting, 1, "nothing of that changed anything");
}

#[tokio::test]
async fn of_several_pools_one_must_be_named_where_one_is_meant() {
    let side = side_of(&RawAdmin::default(), LOOPBACK, vec![pool("one"), pool("two")]).await;
    assert_eq!(side.get("/api/v1/overview").await["pools"].as_array().unwrap().len(), 2);
    let refused = side.refused(Method::GET, "/api/v1/requests", "").await;
    assert_eq!(refused, (400, "pool_required".to_owned()));
    side.get("/api/v1/requests?pool=two").await;
    side.hubs[1].add_pod(pod(7, "127.0.0.1:7"));
    assert_eq!(side.get("/api/v1/pods/pod-7").await["pool"], "two", "found by its name alone");
    side.hubs[0].add_pod(pod(7, "127.0.0.1:7"));
    let refused = side.refused(Method::GET, "/api/v1/pods/pod-7", "").await;
    assert_eq!(refused, (400, "pool_required".to_owned()));
}
