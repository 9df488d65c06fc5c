//! Where a response ends, and what is refused.

use http::{Method, StatusCode};

use super::{hear, hear_text};

const OK: &str = "HTTP/1.1 200 OK\r\n";

#[tokio::test]
async fn a_body_ends_where_its_framing_says() {
    for (text, body, kept) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\ncontent-length:5\r\n\r\nhello", "hello", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "hello",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a=\"b\"\r\nhe\r\n0003 \r\nllo\r\n000\r\nx: y\r\nz: 1\r\n\r\n",
            "hello",
            true,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "hello", false),
        ("HTTP/1.0 200 OK\r\n\r\nhello", "hello", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", false),
        (
            "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 5\r\n\r\nhello",
            "hello",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 5\r\n\r\nhello",
            "hello",
            false,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", "", true),
    ] {
        let heard = hear_text(text).await.unwrap();
        assert_eq!((heard.body.as_slice(), heard.kept), (body.as_bytes(), kept), "{text}");
    }
}

#[tokio::test]
async fn the_answer_to_head_has_no_body_whatever_it_says() {
    for framing in ["content-length: 5", "transfer-encoding: chunked"] {
        let text = format!("{OK}{framing}\r\n\r\n");
        let heard = hear(Method::HEAD, &[text.as_bytes()], false).await.unwrap();
        assert_eq!((heard.body.len(), heard.kept), (0, true), "{framing}");
    }
}

#[tokio::test]
async fn interim_responses_are_passed_over() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok";
    for cut in 1..text.len() {
        let (before, after) = text.as_bytes().split_at(cut);
        let heard = hear(Method::POST, &[before, after], false).await.unwrap();
        assert_eq!(
            (heard.parts.status, heard.body.as_slice()),
            (StatusCode::CREATED, b"ok".as_slice())
        );
        assert!(heard.parts.headers.get("link").is_none() && heard.kept);
    }
}

#[tokio::test]
async fn a_response_reads_the_same_wherever_it_is_cut() {
    let text = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata: \r\n3;x\r\n1\n\n\r\n0\r\nt: 1\r\n\r\n";
    for cut in 1..text.len() {
        let (before, after) = text.as_bytes().split_at(cut);
        let heard = hear(Method::POST, &[before, after], false).await.unwrap();
        assert_eq!((heard.body.as_slice(), heard.kept), (b"data: 1\n\n".as_slice(), true), "{cut}");
    }
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(hear(Method::POST, &bytes, false).await.unwrap().body, b"data: 1\n\n");
}

#[tokio::test]
async fn what_goes_with_each_chunk_of_a_long_body_adds_up_to_nothing() {
    for aside in [format!(";x={}", "y".repeat(1000)), " ".repeat(1000)] {
        let chunks = format!("1{aside}\r\na\r\n").repeat(100);
        let trailer = format!("x: {}\r\n", "y".repeat(10_000));
        let text =
            format!("{OK}transfer-encoding: chunked\r\n\r\n{chunks}0{aside}\r\n{trailer}\r\n");
        let heard = hear_text(&text).await.unwrap();
        assert_eq!((heard.body, heard.kept), (b"a".repeat(100), true));
    }
}

#[tokio::test]
async fn what_comes_behind_the_end_is_not_believed() {
    for framed in [
        "content-length: 5\r\n\r\nhello",
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let text = format!("{OK}{framed}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil");
        let heard = hear(Method::POST, &[text.as_bytes()], false).await.unwrap();
        assert_eq!((heard.body.as_slice(), heard.kept), (b"hello".as_slice(), false), "{framed}");
    }
    let both = format!(
        "{OK}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    );
    let heard = hear(Method::POST, &[both.as_bytes()], false).await.unwrap();
    assert_eq!((heard.body.as_slice(), heard.kept), (b"hello".as_slice(), false));
}

#[tokio::test]
async fn what_rfc_9112_forbids_is_an_error_and_never_an_end() {
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    for bad in [
        "content-length: 5, 6\r\n\r\nhello!",
        "content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "content-length: +5\r\n\r\nhello",
        "content-length: -5\r\n\r\nhello",
        "content-length: 5x\r\n\r\nhello",
        "content-length:\r\n\r\nhello",
        "content-length: 99999999999999999999\r\n\r\nhello",
        "transfer-encoding: gzip\r\n\r\nhello",
        "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "a: b\r\n c: d\r\n\r\n",
        &format!("{chunked}\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}0x5\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}-5\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}+5\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked} 5\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}g\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}5\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}5;x\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}5 x\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}5\t0\r\nhello\r\n0\r\n\r\n"),
        &format!("{chunked}5\r\rhello\r\n0\r\n\r\n"),
        &format!("{chunked}5\r\nhello\n0\r\n\r\n"),
        &format!("{chunked}5\r\nhelloo0\r\n\r\n"),
        &format!("{chunked}5\r\nhello\r\n0\r\nx: y\n\r\n"),
        &format!("{chunked}0\r\nx y: 1\r\n\r\n"),
        &format!("{chunked}0\r\n: 1\r\n\r\n"),
        &format!("{chunked}0\r\nx\r\n\r\n"),
        &format!("{chunked}0\r\nx: 1\r\n y\r\n\r\n"),
        &format!("{chunked}0\r\nx: \u{0}\r\n\r\n"),
        &format!("{chunked}10000000000000000\r\nhello"),
        &format!("{chunked}5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(17 << 10)),
        &format!("{chunked}0\r\nx: {}\r\n\r\n", "y".repeat(17 << 10)),
    ] {
        assert!(hear_text(&format!("{OK}{bad}")).await.is_err(), "{bad:?}");
    }
    for bad in [
        "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{0}",
    ] {
        assert!(hear_text(bad).await.is_err(), "{bad:?}");
    }
    let endless = format!("{OK}x: {}", "y".repeat(70 << 10));
    assert!(hear_text(&endless).await.is_err());
}

#[tokio::test]
async fn a_response_that_is_cut_short_is_an_error_at_every_byte() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        for cut in 0..text.len() {
            let cut_short = text.get(..cut).unwrap();
            assert!(hear_text(cut_short).await.is_err(), "{cut_short:?}");
        }
    }
}

#[tokio::test]
async fn headers_arrive_as_they_were_sent() {
    let text = "HTTP/1.1 200 Fine by me\r\nX-One:  a b \r\nx-one: \r\nX-Bytes: \u{e9}\r\ncontent-length: 0\r\n\r\n";
    let heard = hear_text(text).await.unwrap();
    let ones: Vec<_> = heard.parts.headers.get_all("x-one").iter().map(|v| v.as_bytes()).collect();
    assert_eq!(ones, [b"a b".as_slice(), b""]);
    assert_eq!(heard.parts.headers["x-bytes"].as_bytes(), "\u{e9}".as_bytes());
    let reason = heard.parts.extensions.get::<hyper::ext::ReasonPhrase>().unwrap();
    assert_eq!(reason.as_bytes(), b"Fine by me");
}

#[tokio::test]
async fn what_belongs_to_a_connection_stays_there() {
    let text = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Secret\r\nconnection: x-other\r\n\
                Keep-Alive: timeout=5\r\nX-Secret: 1\r\nx-other: 1\r\nTransfer-Encoding: chunked\r\n\
                x-kept: 1\r\n\r\n0\r\n\r\n";
    let heard = hear_text(text).await.unwrap();
    let left: Vec<_> = heard.parts.headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(left, ["x-kept"]);
}
