//! Who may look and who may change.

use super::*;

/// Each row: who asks, and what the probe, the page, /metrics, a look and a change answer.
#[tokio::test]
async fn who_may_look_and_who_may_change() {
    let (read, write) = (Some("Bearer t-read"), Some("bearer t-write"));
    let open = RawAdmin::default();
    let (closed, half) = (guarded(false), guarded(true));
    let table = [
        (&open, LOOPBACK, None, [200, 200, 200, 200, 200]),
        (&open, ANYWHERE, None, [200, 200, 200, 200, 403]),
        (&half, LOOPBACK, None, [200, 200, 200, 401, 401]),
        (&closed, ANYWHERE, None, [200, 200, 401, 401, 401]),
        (&closed, ANYWHERE, read, [200, 200, 200, 200, 403]),
        (&closed, ANYWHERE, write, [200, 200, 200, 200, 200]),
        (&closed, ANYWHERE, Some("Bearer nonsense"), [200, 200, 401, 401, 401]),
        (&closed, ANYWHERE, Some("Basic t-write"), [200, 200, 401, 401, 401]),
    ];
    for (raw, ip, token, want) in table {
        let side = side(raw, ip).await;
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        let mut got = Vec::new();
        for path in ["/livez", "/", "/metrics", "/api/v1/overview"] {
            got.push(side.ask(Method::GET, path, &headers, "").await.0.as_u16());
        }
        let pause = side.ask(Method::POST, "/api/v1/queues/pause", &headers, "{}").await;
        got.push(pause.0.as_u16());
        assert_eq!(got, want, "{raw:?} {ip:?} {token:?}: {}", pause.2);
        let done = if want[4] == 200 { ("pause", "ok") } else { ("denied", "refused") };
        assert_eq!(side.changes(done.0, done.1), 1, "{:?}", done);
        assert_eq!(side.hub().paused().len(), usize::from(want[4] == 200));
    }
}

#[tokio::test]
async fn an_error_says_which_right_is_missing() {
    let side = side(&guarded(true), LOOPBACK).await;
    let ask = async |token: Option<&str>, path: &str, method: Method| {
        let headers: Vec<_> = token.map(|token| ("authorization", token)).into_iter().collect();
        let (_, headers, body) = side.ask(method, path, &headers, "{}").await;
        let challenged = headers.contains_key("www-authenticate");
        (body["error"]["code"].as_str().unwrap().to_owned(), challenged)
    };
    let looks = ask(None, "/api/v1/pods", Method::GET).await;
    assert_eq!(looks, ("missing_token".to_owned(), true));
    let looks = ask(Some("Bearer x"), "/api/v1/pods", Method::GET).await;
    assert_eq!(looks, ("invalid_token".to_owned(), true));
    let changes = ask(Some("Bearer t-read"), "/api/v1/queues/pause", Method::POST).await;
    assert_eq!(changes, ("read_only".to_owned(), false));
    let explains = side
        .ask(
            Method::POST,
            "/api/v1/explain",
            &[("authorization", "Bearer t-read")],
            r#"{"input_tokens": 5}"#,
        )
        .await;
    assert_eq!(explains.0, 200, "to explain changes nothing");
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let own = format!("http://{}", side.address);
    let pause = async |headers: &[(&str, &str)]| {
        let (status, _, body) = side.ask(Method::POST, "/api/v1/queues/pause", headers, "{}").await;
        (status.as_u16(), body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    for headers in [
        &[("origin", "http://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(pause(headers).await, (403, "other_origin".to_owned()), "{headers:?}");
    }
    // A name of theirs that points here: its Origin and its Host agree.
    let rebound = [("origin", "http://evil.example"), ("host", "evil.example")];
    assert_eq!(pause(&rebound).await, (403, "other_host".to_owned()));
    let look = side.ask(Method::GET, "/api/v1/overview", &rebound[1..], "").await;
    assert_eq!(look.0, 403);
    let metrics = side.ask(Method::GET, "/metrics", &rebound[1..], "").await;
    assert_eq!(metrics.0, 403, "they name pods, tenants and models");
    for path in ["/livez", "/readyz?pods=0"] {
        assert_eq!(side.ask(Method::GET, path, &rebound[1..], "").await.0, 200, "{path}");
    }
    assert!(side.hub().paused().is_empty());
    assert_eq!(pause(&[("origin", &own)]).await.0, 200);
    assert_eq!(side.hub().paused(), ["pool"]);
}
