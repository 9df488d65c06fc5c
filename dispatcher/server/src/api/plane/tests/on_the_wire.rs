//! Heads, framing and silence, over a stream in memory.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_a_client_does_not_take_is_read_to_its_end_where_there_is_memory() {
    const PART: usize = 1000;
    let whole = 300;
    for (most, end) in [(0, false), (whole * PART, true)] {
        let (mut near, far) = duplex(1024);
        let (_open, phase) = watch::channel(Phase::Open);
        let given = Rc::new(std::cell::Cell::new(0));
        let count = given.clone();
        let answer = move |_: Request<Incoming>| {
            let count = count.clone();
            let parts = std::iter::repeat_with(move || {
                count.set(count.get() + 1);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; PART])))
            });
            let body = StreamBody::new(stream::iter(parts.take(whole)));
            std::future::ready(Ok(Response::new(body)))
        };
        let answers = (Rc::new(service_fn(answer)), Rc::new(misread) as Answer);
        let (terms, tasks) = (terms(most), LocalSet::new());
        let budget = terms.memory.budget.clone();
        tasks.spawn_local(converse((far, Arc::default()), terms, answers, phase));
        let client = async {
            near.write_all(GET).await.unwrap();
            sleep(limits().write_timeout / 2).await;
            assert_eq!(given.get() == whole, end, "{} were read", given.get());
            assert!(given.get() * PART >= 64 << 10, "{} were read", given.get());
            assert_eq!(budget.bytes() > 0, end);
            let mut text = Vec::new();
            while !text.ends_with(b"0\r\n\r\n") {
                near.read_buf(&mut text).await.unwrap();
            }
            assert_eq!(text.iter().filter(|byte| **byte == b'x').count(), whole * PART);
            assert_eq!((given.get(), budget.bytes()), (whole, 0));
        };
        tasks.run_until(client).await;
    }
}

#[tokio::test]
async fn a_head_may_be_as_large_as_the_limit_says() {
    let roomy = Limits { max_header_bytes: 1 << 20, ..limits() };
    let plane = start_echo(PlaneConfig { limits: roomy, ..config(1) });
    for (fields, status) in [(10, b"HTTP/1.1 200"), (12, b"HTTP/1.1 431")] {
        let mut client = connect(&plane).await;
        let field = format!("x: {}\r\n", "y".repeat(100_000));
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", field.repeat(fields));
        // The server may close before it has taken everything.
        let _ = client.write_all(head.as_bytes()).await;
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, status);
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let plane = start_echo(config(1));
    for header in [format!("x: {}", "y".repeat(100_000)), "x: y\r\n".repeat(200)] {
        let mut client = connect(&plane).await;
        // The server may close before it has taken everything.
        let head = format!("GET / HTTP/1.1\r\n{header}\r\n\r\n");
        let _ = client.write_all(head.as_bytes()).await;
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 431");
    }
}

#[tokio::test]
async fn what_is_no_request_is_answered_by_who_was_given_for_it() {
    let roomy = Limits { max_header_bytes: 1 << 20, ..limits() };
    let plane = start_echo(PlaneConfig { limits: roomy, ..config(1) });
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(65_600));
    let table =
        [("nonsense\r\n\r\n", "400"), ("GET / HTTP/1.1\r\na b: c\r\n\r\n", "400"), (&long, "414")];
    for (sent, status) in table {
        // Behind a request that was answered, too, also to a client of HTTP/1.0.
        let old = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
        for before in [&b""[..], GET, old] {
            let mut client = connect(&plane).await;
            client.write_all(before).await.unwrap();
            if !before.is_empty() {
                client.read_u8().await.unwrap();
            }
            client.write_all(sent.as_bytes()).await.unwrap();
            let text = read_to_end(client).await;
            let expected = format!("content-length: 3\r\n\r\n{status}");
            let minor = u8::from(before != old);
            let line = format!("HTTP/1.{minor} {status} ");
            assert!(text.contains(&line) && text.ends_with(&expected), "{text}");
        }
    }
}

#[tokio::test]
async fn contradicting_framing_does_not_smuggle_a_request() {
    let plane = start_echo(config(1));
    let smuggled = "GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n";
    let twice =
        format!("POST / HTTP/1.1\r\ncontent-length: 4\r\ncontent-length: 40\r\n\r\n{smuggled}");
    let both = format!(
        "POST / HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
         {:x}\r\n{smuggled}\r\n0\r\n\r\n",
        smuggled.len(),
    );
    for (request, status) in [(twice, "HTTP/1.1 400"), (both, "HTTP/1.1 200")] {
        let mut client = connect(&plane).await;
        client.write_all(request.as_bytes()).await.unwrap();
        let text = read_to_end(client).await;
        assert!(text.starts_with(status), "{text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "one request, one answer: {text}");
    }
}

/// A conversation over memory, so that time can be paused.
async fn over_memory<F: Future<Output = ()>>(client: impl FnOnce(DuplexStream) -> F) {
    over_memory_after(b"", client).await;
}

/// The same where something was sent before the server first looks.
async fn over_memory_after<F: Future<Output = ()>>(
    sent: &[u8],
    client: impl FnOnce(DuplexStream) -> F,
) {
    let (mut near, far) = duplex(1024);
    near.write_all(sent).await.unwrap();
    let (_open, phase) = watch::channel(Phase::Open);
    let answer = async |_: Request<Incoming>| {
        sleep(Duration::from_millis(1)).await;
        Ok(Response::new(Full::<Bytes>::from("hi")))
    };
    let answers = (Rc::new(service_fn(answer)), Rc::new(misread) as Answer);
    let tasks = LocalSet::new();
    // A task of its own, which is woken for nothing that only its client does.
    let server = tasks.spawn_local(converse((far, Arc::default()), terms(0), answers, phase));
    tasks.run_until(client(near)).await;
    tasks.run_until(server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drips_its_head_is_cut_off() {
    over_memory(async |mut client| {
        let drip = async {
            while client.write_all(b"G").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(limits().header_timeout + Duration::from_secs(1), drip).await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_lives_longer_than_a_gateways_and_then_ends() {
    over_memory(async |mut client| {
        for _ in 0..2 {
            client.write_all(GET).await.unwrap();
            let mut head = [0; 15];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            let mut rest = Vec::new();
            let quiet = timeout(Duration::from_secs(120), client.read_to_end(&mut rest)).await;
            assert!(quiet.is_err(), "the connection is kept");
        }
        let mut rest = Vec::new();
        timeout(limits().idle_timeout, client.read_to_end(&mut rest)).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_came_with_its_request_ends_when_it_is_idle() {
    over_memory_after(GET, async |mut client| {
        let begun = tokio::time::Instant::now();
        let mut rest = Vec::new();
        let limit = limits().idle_timeout;
        timeout(limit * 2, client.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.starts_with(b"HTTP/1.1 200 OK"));
        assert_eq!(begun.elapsed().as_secs(), limit.as_secs());
    })
    .await;
}
