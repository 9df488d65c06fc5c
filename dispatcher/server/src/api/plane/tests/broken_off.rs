//! Responses that do not come to their end.

use super::*;

/// Some of a response, and then its end, an error, or neither.
enum Part {
    Ends,
    Breaks,
    Hangs,
}

/// A body without a length.
struct Parts(Part, u32);

impl Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.1 += 1;
        match (self.1, &self.0) {
            (1, _) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part"))))),
            // What was written is sent before anything follows.
            (2, Part::Ends | Part::Breaks) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            (_, Part::Ends) => Poll::Ready(None),
            (_, Part::Breaks) => Poll::Ready(Some(Err("broken"))),
            (_, Part::Hangs) => Poll::Pending,
        }
    }

    /// As a response that is passed on: after its error nothing more comes.
    fn is_end_stream(&self) -> bool {
        self.1 > 2 && matches!(self.0, Part::Breaks)
    }
}

#[tokio::test]
async fn a_response_that_does_not_come_to_its_end_looks_finished_to_no_client() {
    let parts = async |request: Request<Incoming>| {
        let part = match request.uri().path() {
            "/ends" => Part::Ends,
            "/breaks" => Part::Breaks,
            _ => Part::Hangs,
        };
        Ok(Response::new(Parts(part, 0)))
    };
    let plane =
        Plane::start((config(1), Memory::of(0)), misread, move |_| service_fn(parts)).unwrap();
    let mut hanging = None;
    for (path, version) in
        [("ends", "1.0"), ("breaks", "1.0"), ("hangs", "1.0"), ("ends", "1.1"), ("breaks", "1.1")]
    {
        let mut client = connect(&plane).await;
        let close = "host: x\r\nconnection: close\r\n\r\n";
        let head = format!("GET /{path} HTTP/{version}\r\n{close}");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        while memchr::memmem::find(&text, b"part").is_none() {
            assert!(soon(client.read_buf(&mut text)).await.unwrap() > 0);
        }
        if path == "hangs" {
            hanging = Some(client);
            continue;
        }
        let rest = soon(client.read_to_end(&mut text)).await.map_err(|error| error.kind());
        match (path, version) {
            ("ends", "1.0") => assert_eq!(rest, Ok(0)),
            ("breaks", "1.0") => assert_eq!(rest, Err(io::ErrorKind::ConnectionReset)),
            (path, _) => {
                rest.unwrap();
                assert_eq!(text.ends_with(b"0\r\n\r\n"), path == "ends", "{text:?}");
            }
        }
    }
    plane.abort();
    let rest = soon(hanging.unwrap().read_u8()).await.map_err(|error| error.kind());
    assert_eq!(rest, Err(io::ErrorKind::ConnectionReset), "also where everything is cut");
}

/// Events of a response that breaks off behind them, as that of a pod that is lost does.
const EVENTS: usize = 200;
const EVENT: &str = "data: some of an answer, and more of it\n\n";

/// Answers with such a response a client over memory that takes little at once; says how long that took.
async fn breaks_off<F: Future<Output = ()>>(client: impl FnOnce(DuplexStream) -> F) -> Duration {
    let begun = tokio::time::Instant::now();
    let (mut near, far) = duplex(64);
    let (_open, phase) = watch::channel(Phase::Open);
    let answer = async |_: Request<Incoming>| {
        let event = || Ok(Frame::data(Bytes::from_static(EVENT.as_bytes())));
        let events = stream::iter(std::iter::repeat_with(event).take(EVENTS));
        let lost = stream::once(async {
            sleep(Duration::from_millis(20)).await;
            Err("lost")
        });
        Ok(Response::new(StreamBody::new(Box::pin(events.chain(lost)))))
    };
    let answers = (Rc::new(service_fn(answer)), Rc::new(misread) as Answer);
    let tasks = LocalSet::new();
    let server = tasks.spawn_local(converse((far, Arc::default()), terms(0), answers, phase));
    tasks.run_until(near.write_all(GET)).await.unwrap();
    tasks.run_until(client(near)).await;
    tasks.run_until(server).await.unwrap();
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_behind_gets_what_came_before_a_response_broke_off() {
    for pause in [0, 1, 5] {
        let took = breaks_off(async |mut client| {
            let mut text = String::new();
            let mut part = [0; 64];
            loop {
                sleep(Duration::from_millis(pause)).await;
                match client.read(&mut part).await.unwrap() {
                    0 => break,
                    read => text.push_str(std::str::from_utf8(&part[..read]).unwrap()),
                }
            }
            assert_eq!(text.matches(EVENT).count(), EVENTS, "{pause}");
            assert!(!text.ends_with("0\r\n\r\n"));
        })
        .await;
        assert!(took < limits().write_timeout);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_what_broke_off_holds_nothing_for_longer() {
    // Writes until nobody is there to read it.
    let took = breaks_off(async |mut client| {
        while client.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    let (limit, second) = (limits().write_timeout, Duration::from_secs(1));
    assert!((limit..=limit + second).contains(&took), "{took:?}");
    let took = breaks_off(async |client| drop(client)).await;
    assert!(took.is_zero(), "nor does one that leaves: {took:?}");
}
