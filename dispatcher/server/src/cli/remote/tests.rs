use super::{address::Address, path::Path, refusal, *};

fn address() -> Address {
    Address::parse("127.0.0.1:8081").unwrap()
}

fn refused(status: u16, body: &str, has_token: bool) -> Failure {
    refusal::failure(status, body.as_bytes(), has_token, &address())
}

fn error(code: &str) -> String {
    format!(r#"{{"error":{{"message":"said","type":"t","param":null,"code":"{code}"}}}}"#)
}

#[test]
fn an_address_may_be_a_host_and_port_or_an_url() {
    for (text, shown) in [
        ("127.0.0.1:9", "http://127.0.0.1:9"),
        ("weir.local", "http://weir.local:8081"),
        ("http://weir:81/", "http://weir:81"),
        ("http://gate/weir/", "http://gate:8081/weir"),
        ("[::1]:9", "http://[::1]:9"),
        ("[::1]", "http://[::1]:8081"),
    ] {
        assert_eq!(Address::parse(text).unwrap().to_string(), shown);
    }
}

#[test]
fn an_address_that_cannot_be_used_is_wrong_usage() {
    for text in ["", "ftp://a", "http://", "a b", "http://user@host", "http://h/?x=1"] {
        assert_eq!(Address::parse(text).unwrap_err().code(), 2, "{text}");
    }
    let ports = [
        "127.0.0.1:80811",
        "127.0.0.1:8o81",
        "127.0.0.1:-1",
        "127.0.0.1:",
        "[::1]:",
        "http://h:x/a",
    ];
    for text in ports {
        assert_eq!(Address::parse(text).unwrap_err().code(), 2, "{text}");
    }
}

#[test]
fn names_are_encoded_in_paths_and_queries() {
    let path = Path::new("/requests").segment("a b/c?ü").with("lane", Some("b0/i512/o256"));
    let path = path.with("late", None::<bool>).with("limit", Some(10));
    assert_eq!(path.as_str(), "/requests/a%20b%2Fc%3F%C3%BC?lane=b0%2Fi512%2Fo256&limit=10");
}

#[test]
fn every_refusal_has_its_exit_code_and_says_what_to_do() {
    for (status, code, has_token, exit, hint) in [
        (401, "missing_token", false, 77, "--token-file"),
        (401, "invalid_token", true, 77, "admin.tokens"),
        (403, "read_only", true, 77, "scope write"),
        (403, "no_tokens", false, 77, "admin.listen"),
        (404, "not_found", false, 66, "said"),
        (404, "unknown_url", false, 69, "admin.listen"),
        (404, "invalid_url", false, 69, "admin.listen"),
        (405, "method_not_allowed", false, 69, "admin.listen"),
        (400, "invalid_parameter", false, 2, "said"),
        (409, "conflict", false, 1, "said"),
        (503, "anything", false, 1, "said"),
    ] {
        let failure = refused(status, &error(code), has_token);
        assert_eq!(failure.code(), exit, "{status} {code}");
        assert!(failure.to_string().contains(hint), "{failure}");
    }
}

#[test]
fn without_tokens_it_is_the_listeners_address_that_counts() {
    let fault = crate::admin::fault::Fault::NoTokens.to_string();
    let body = serde_json::json!({"error": {"message": fault, "code": "no_tokens"}});
    let said = refused(403, &body.to_string(), false).to_string();
    let words = "changes need a token here: set admin.tokens, or bind admin.listen to 127.0.0.1";
    assert_eq!(said, words, "from where it is called makes no difference");
}

#[test]
fn a_refusal_names_its_parameter_and_pools_are_asked_for_by_their_option() {
    let said = |code, param: Option<&str>, message: &str| {
        let error = serde_json::json!({"message": message, "param": param, "code": code});
        let failure = refused(400, &serde_json::json!({"error": error}).to_string(), false);
        assert_eq!(failure.code(), 2, "{failure}");
        failure.to_string()
    };
    let range = "must be from 1 to 10000000";
    let named = said("invalid_parameter", Some("input_tokens"), range);
    assert_eq!(named, format!("input_tokens: {range}"));
    assert_eq!(said("invalid_parameter", None, range), range);
    let several = crate::admin::fault::Fault::PoolRequired("a, b".to_owned()).to_string();
    let pools = said("pool_required", Some("pool"), &several);
    assert_eq!(pools, "there are several pools; name one with --pool: a, b");
}

#[test]
fn what_is_not_there_is_looked_for_in_a_list() {
    for (message, list) in [
        ("there is no pod \"pod-9\"", "`weir pods ls`"),
        ("there is no pool \"m\"", "`weir pods ls`"),
        ("there is no lane \"b0\"", "`weir queue ls`"),
        ("there is no request \"r\"", "`weir queue show`"),
        ("there is no version \"9\"", "`weir model ls`"),
    ] {
        let body = serde_json::json!({"error": {"message": message, "code": "not_found"}});
        let said = refused(404, &body.to_string(), false).to_string();
        assert!(said.starts_with(message) && said.contains(list), "{said}");
    }
}

#[test]
fn an_answer_of_something_else_says_that_the_address_is_wrong() {
    for body in ["", "not found", "{}", r#"{"error":null}"#] {
        let failure = refused(404, body, false);
        assert_eq!(failure.code(), 69);
        assert!(failure.to_string().contains("admin.listen"), "{failure}");
    }
}

#[test]
fn every_problem_of_a_configuration_is_printed() {
    let body = r#"{"error":{"message":"not applied","code":"invalid","problems":["a: b","c: d"]}}"#;
    let failure = refused(400, body, false);
    assert_eq!((failure.code(), failure.to_string().as_str()), (64, "not applied:\na: b\nc: d"));
}

#[test]
fn a_token_file_is_trimmed_and_must_hold_one_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    assert_eq!(read_token(&file).unwrap_err().code(), 2);
    std::fs::write(&file, " s3cret\n").unwrap();
    assert_eq!(read_token(&file).unwrap(), "s3cret");
    for text in ["", "\n", "two tokens\n"] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(read_token(&file).unwrap_err().code(), 2, "{text:?}");
    }
}

#[test]
fn an_admin_side_that_is_not_there_is_unreachable() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let admin = format!("127.0.0.1:{port}");
    let admin = Admin::new(&RemoteArgs { admin, admin_ca: None, token_file: None }).unwrap();
    let failure = admin.get("/overview").unwrap_err();
    assert_eq!(failure.code(), 69);
    assert!(failure.to_string().contains("WEIR_ADMIN"), "{failure}");
}

#[test]
fn a_call_carries_host_token_and_body_and_returns_the_answer() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut piece = [0; 1024];
        while !seen.ends_with(b"{\"band\":3}") {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the call ends before its body");
            seen.extend_from_slice(&piece[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{\"a\": 1}").unwrap();
        String::from_utf8(seen).unwrap()
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let args = RemoteArgs { admin: address.to_string(), admin_ca: None, token_file: Some(file) };
    let admin = Admin::new(&args).unwrap();
    let path = Path::new("/requests").segment("7").segment("move");
    let answer = admin.post(path.as_str(), &serde_json::json!({"band": 3})).unwrap();
    assert_eq!(answer["a"], 1);
    let seen = server.join().unwrap();
    assert!(seen.starts_with("POST /api/v1/requests/7/move HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {address}\r\n")), "{seen}");
    assert!(seen.contains("authorization: Bearer s3cret\r\n"), "{seen}");
}

#[test]
fn events_are_taken_one_by_one_and_comments_are_passed_over() {
    let mut text = bytes::BytesMut::from(
        ": alive\n\nevent: board\ndata: {\"a\": 1}\n\nevent: board\ndata: {\"a\":\ndata: 2}\n\ndata: {\"a\"",
    );
    let mut next = || http::take_event(&mut text).map(|event| event["a"].clone());
    assert_eq!([next(), next(), next()], [Some(1.into()), Some(2.into()), None]);
    text.extend_from_slice(b": 3}\n\n");
    assert_eq!(http::take_event(&mut text).unwrap()["a"], 3);
    assert!(text.is_empty());
}

#[test]
fn a_stream_of_events_can_be_waited_for_in_pieces_and_its_end_is_a_failure() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (go, wait) = std::sync::mpsc::sync_channel::<()>(0);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        stream.write_all(b"a\r\ndata: {\"a\"\r\n").unwrap();
        wait.recv().unwrap();
        stream.write_all(b"6\r\n: 1}\n\n\r\n0\r\n\r\n").unwrap();
    });
    let args = RemoteArgs { admin: address.to_string(), admin_ca: None, token_file: None };
    let admin = Admin::new(&args).unwrap();
    let mut events = admin.listen("/events").unwrap();
    let short = Duration::from_millis(20);
    assert_eq!(admin.next(&mut events, short).unwrap(), None);
    go.send(()).unwrap();
    let long = Duration::from_secs(20);
    assert_eq!(admin.next(&mut events, long).unwrap().unwrap()["a"], 1);
    assert_eq!(admin.next(&mut events, long).unwrap_err().code(), 69);
    server.join().unwrap();
}
