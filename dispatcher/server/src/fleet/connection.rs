//! One kept-alive connection to a pod's `/metrics`.
//!
//! Owned by the pod's watcher. A scrape that fails closes it; the next one opens another.
//!
//! A stock vLLM writes all of its metrics in Python, 90 kB in 5 ms, on the thread that streams tokens, and only those
//! that are asked for by name in a twentieth of that. So each connection asks by name first, unless the configuration says otherwise.
//! - `/metrics?name[]=...` is what Prometheus' client library knows. vLLM has a second route before that one, which writes
//!   everything whatever is asked for (vllm-project/vllm#53140).
//! - Then the connection asks `/metrics/?name[]=...` from the next scrape on, which only the library's route takes.
//! - Whoever is not understood by name is asked for everything, over another connection and for as long as that lasts:
//!   several of vLLM's API servers behind one port answer with nothing, other servers with an error.

use std::{net::SocketAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

use super::gauges::{self, GaugeError, Gauges};
use crate::{
    h1::{self, BadReply, Failed, PodRequest, To},
    tls::{Line, Secure, trust::greet},
};

/// Most bytes of an answer that are read. A busy vLLM writes 60 to 200 kB.
const MOST_BYTES: usize = 4 << 20;

/// How often it is looked up whether a pod's name leads elsewhere.
const LOOK_UP_EVERY: Duration = Duration::from_secs(30);

/// How often the counters are asked for that are not asked for each time.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Why a scrape brought no gauges.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// Nobody listens there, or who does is not who it should be.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection broke before anything was asked.
    #[error("connection failed: {0}")]
    Unsent(std::io::Error),
    /// The connection broke, or what came over it was no HTTP.
    #[error("connection failed: {0}")]
    Http(#[from] BadReply),
    /// The answer is larger than any sound one.
    #[error("answer has more than {MOST_BYTES} bytes")]
    TooLarge,
    /// The pod answered with another status than 200.
    #[error("answered with status {0}")]
    Status(StatusCode),
    /// It answered with something else than an engine's gauges.
    #[error(transparent)]
    Garbled(GaugeError),
}

/// What a connection's scrapes ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// The gauges alone.
    ByName,
    /// The same of the route below, for the first time.
    BelowOnTrial,
    /// The same, where that was understood.
    Below,
    /// Every metric.
    Whole,
}

/// The gauges by name over one route, without the counters and with them.
#[derive(Debug)]
struct ByName {
    gauges: PodRequest,
    counting: PodRequest,
}

impl ByName {
    const fn asks(&self, counts: bool) -> &PodRequest {
        if counts { &self.counting } else { &self.gauges }
    }
}

/// A connection, while there is one.
#[derive(Debug)]
pub struct Connection {
    by_name: ByName,
    below: ByName,
    whole: PodRequest,
    /// What a new connection asks first.
    first: Question,
    open: Option<(Line, Question)>,
    /// When the counters were asked for last.
    counted: Option<Instant>,
    /// How it was spoken to.
    secure: Option<Secure>,
    /// Bytes of all answers so far.
    read: u64,
    /// Where the pod was reached last.
    peer: Option<SocketAddr>,
    /// When its name was looked up last.
    looked_up: Instant,
}

impl Connection {
    /// A connection that is not open yet, and asks `by_name` first or for everything at once.
    pub fn new(by_name: bool) -> Self {
        let accept = ("accept", b"text/plain".as_slice());
        let get =
            |path: &str| PodRequest::new(&Method::GET, path, [accept].into_iter(), Bytes::new());
        let named = |names: &[&str]| {
            names.iter().map(|name| format!("name%5B%5D={name}")).collect::<Vec<_>>().join("&")
        };
        let gauges = named(&gauges::NAMES);
        let counting = format!("{gauges}&{}", named(&gauges::COUNTERS));
        let over = |route: &str| ByName {
            gauges: get(&format!("{route}?{gauges}")),
            counting: get(&format!("{route}?{counting}")),
        };
        Self {
            by_name: over("/metrics"),
            below: over("/metrics/"),
            whole: get("/metrics"),
            first: if by_name { Question::ByName } else { Question::Whole },
            open: None,
            counted: None,
            secure: None,
            read: 0,
            peer: None,
            looked_up: Instant::now(),
        }
    }

    /// Bytes of all answers so far.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Asks for the gauges. Dropping the future closes the connection.
    ///
    /// # Errors
    /// When there is no usable answer with status 200.
    pub async fn scrape(
        &mut self,
        authority: &str,
        secure: Option<&Secure>,
    ) -> Result<Gauges, ScrapeError> {
        if self.secure.as_ref() != secure {
            (self.open, self.secure) = (None, secure.cloned());
        }
        // The pod may have closed a connection that was idle; that says nothing about it.
        if let Some((mut kept, question)) = self.open.take()
            && kept.is_quiet()
        {
            match self.ask(kept, question, authority).await {
                Err(ScrapeError::Unsent(_) | ScrapeError::Http(_)) => {}
                Err(ScrapeError::Status(_) | ScrapeError::Garbled(_))
                    if question == Question::BelowOnTrial =>
                {
                    return self.ask_anew(Question::Whole, (authority, secure)).await;
                }
                answer => return answer,
            }
        }
        match self.ask_anew(self.first, (authority, secure)).await {
            // Over another connection: not everybody says that an error is the last answer over one.
            Err(error)
                if self.first != Question::Whole && !matches!(error, ScrapeError::TooLarge) =>
            {
                self.ask_anew(Question::Whole, (authority, secure)).await
            }
            answer => answer,
        }
    }

    /// Whether the pod's name leads elsewhere now than to where it was asked last, which is looked up twice a minute: requests go
    /// there. A name that leads to several pods leads to this one, too, as long as it is one of them, and one that nobody can look
    /// up leads to where it did.
    pub async fn has_moved(&mut self, authority: &str, limit: Duration) -> bool {
        let Some(peer) = self.peer.filter(|_| self.looked_up.elapsed() >= LOOK_UP_EVERY) else {
            return false;
        };
        self.looked_up = Instant::now();
        if authority.parse::<SocketAddr>().is_ok() {
            return false;
        }
        let Ok(Ok(addresses)) = timeout(limit, lookup_host(authority)).await else { return false };
        let mut addresses = addresses.peekable();
        let moved = addresses.peek().is_some() && addresses.all(|address| address != peer);
        if moved {
            (self.open, self.peer) = (None, None);
        }
        moved
    }

    /// Over a connection of its own.
    async fn ask_anew(
        &mut self,
        question: Question,
        (authority, secure): (&str, Option<&Secure>),
    ) -> Result<Gauges, ScrapeError> {
        let fresh = TcpStream::connect(authority).await.map_err(ScrapeError::Connect)?;
        let _ = fresh.set_nodelay(true);
        self.peer = fresh.peer_addr().ok();
        let fresh = greet(fresh, secure).await.map_err(ScrapeError::Connect)?;
        self.ask(fresh, question, authority).await
    }

    async fn ask(
        &mut self,
        stream: Line,
        question: Question,
        authority: &str,
    ) -> Result<Gauges, ScrapeError> {
        self.open = None;
        let counts = self.counted.is_none_or(|at| at.elapsed() >= COUNT_EVERY);
        if counts {
            self.counted = Some(Instant::now());
        }
        let request = match question {
            Question::ByName => self.by_name.asks(counts),
            Question::BelowOnTrial | Question::Below => self.below.asks(counts),
            Question::Whole => &self.whole,
        };
        let to = To { authority, rank: None, name: "" };
        let asked = h1::exchange(stream, to, request).await;
        let (head, mut reply) = asked.map_err(|failed| match failed {
            Failed::Unsent(error) => ScrapeError::Unsent(error),
            Failed::Lost(error) => ScrapeError::Http(error),
        })?;
        let mut text = BytesMut::new();
        while let Some(data) = reply.data().await.transpose()? {
            text.extend_from_slice(&data);
            self.read += data.len() as u64;
            if text.len() > MOST_BYTES {
                return Err(ScrapeError::TooLarge);
            }
        }
        let answer = match head.status {
            StatusCode::OK => gauges::parse(&text).map_err(ScrapeError::Garbled),
            status => Err(ScrapeError::Status(status)),
        };
        let next = match (&answer, question) {
            (Ok(gauges), Question::ByName) if !gauges.alone => Some(Question::BelowOnTrial),
            (Ok(_), Question::BelowOnTrial) => Some(Question::Below),
            // A server that fails whatever it is asked for may take names once it works: asked anew.
            (Err(ScrapeError::Status(status)), Question::Whole) if status.is_server_error() => None,
            _ => Some(question),
        };
        self.open = reply.into_connection().zip(next);
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    use axum::{
        Router,
        http::{Uri, header},
        response::{IntoResponse, Response},
    };
    use parking_lot::Mutex;
    use tokio::net::TcpListener;

    use super::*;
    use crate::tls::tests::Authority;

    const GAUGES: &str = "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n\
                          vllm:kv_cache_usage_perc 0.5\n";

    /// A server that answers each path and query as it is told to.
    struct Server {
        authority: String,
        /// The paths that it was asked for.
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        async fn that(answer: fn(&Uri) -> Response) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let authority = listener.local_addr().unwrap().to_string();
            let asked = Arc::new(Mutex::new(vec![]));
            let heard = asked.clone();
            let routes = Router::new().fallback(move |uri: Uri| {
                let query = if uri.query().is_some() { "?" } else { "" };
                heard.lock().push(format!("{}{query}", uri.path()));
                std::future::ready(answer(&uri))
            });
            tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
            Self { authority, asked }
        }

        /// The paths that it was asked for since the last time.
        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut self.asked.lock())
        }

        async fn scraped(&self, connection: &mut Connection) -> u32 {
            connection.scrape(&self.authority, None).await.unwrap().scrape.running
        }
    }

    /// What a server writes that writes everything.
    fn everything() -> Response {
        format!("{GAUGES}vllm:prompt_tokens_total 7\n").into_response()
    }

    async fn thrice(answer: fn(&Uri) -> Response, by_name: bool) -> Vec<String> {
        let (server, mut connection) = (Server::that(answer).await, Connection::new(by_name));
        for _ in 0..3 {
            assert_eq!(server.scraped(&mut connection).await, 3);
        }
        let asked = server.asked();
        // A new connection may be to another process.
        connection.open = None;
        assert_eq!(server.scraped(&mut connection).await, 3);
        assert_eq!(server.asked().first(), asked.first());
        asked
    }

    #[tokio::test]
    async fn the_gauges_alone_are_asked_for_and_counters_now_and_then() {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let answer: fn(&Uri) -> Response = |uri| {
            let query = uri.query().unwrap_or_default().replace("%5B%5D", "[]");
            let names = query.split('&').map(|pair| pair.strip_prefix("name[]=").unwrap());
            let counters = if TURN.fetch_add(1, Relaxed) == 0 { gauges::COUNTERS.len() } else { 0 };
            match names
                .eq(gauges::NAMES.into_iter().chain(gauges::COUNTERS.into_iter().take(counters)))
            {
                true => GAUGES.into_response(),
                false => StatusCode::IM_A_TEAPOT.into_response(),
            }
        };
        assert_eq!(thrice(answer, true).await, ["/metrics?"; 3]);
    }

    #[tokio::test]
    async fn who_writes_everything_all_the_same_is_asked_on_the_route_below() {
        let answer: fn(&Uri) -> Response = |uri| match uri.path() {
            "/metrics/" => GAUGES.into_response(),
            _ => everything(),
        };
        assert_eq!(thrice(answer, true).await, ["/metrics?", "/metrics/?", "/metrics/?"]);
        assert_eq!(thrice(answer, false).await, ["/metrics"; 3], "where names are not wanted");
    }

    #[tokio::test]
    async fn who_does_not_tell_them_by_name_is_asked_for_everything_from_then_on() {
        let answers: [fn(&Uri) -> Response; 3] = [
            |uri| if uri.query().is_some() { "".into_response() } else { everything() },
            |uri| match uri.query() {
                Some(_) => StatusCode::BAD_REQUEST.into_response(),
                None => everything(),
            },
            // Closed without a word, before anything of an answer.
            |uri| if uri.query().is_some() { panic!("no such path") } else { everything() },
        ];
        for answer in answers {
            assert_eq!(
                thrice(answer, true).await,
                ["/metrics?", "/metrics", "/metrics", "/metrics"]
            );
        }
    }

    #[tokio::test]
    async fn who_has_no_gauges_on_the_route_below_is_asked_for_everything_from_then_on() {
        let answers: [fn(&Uri) -> Response; 2] = [
            // vLLM with several API servers behind its port.
            |uri| if uri.path() == "/metrics/" { "".into_response() } else { everything() },
            |uri| match uri.path() {
                "/metrics" => everything(),
                _ => StatusCode::NOT_FOUND.into_response(),
            },
        ];
        for answer in answers {
            let asked = ["/metrics?", "/metrics/?", "/metrics", "/metrics"];
            assert_eq!(thrice(answer, true).await, asked);
        }
    }

    #[tokio::test]
    async fn one_bad_answer_of_a_pod_that_tells_them_by_name_changes_nothing() {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let answer: fn(&Uri) -> Response = |uri| match (TURN.fetch_add(1, Relaxed), uri.path()) {
            (2, _) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            (_, "/metrics/") => GAUGES.into_response(),
            _ => everything(),
        };
        let (server, mut connection) = (Server::that(answer).await, Connection::new(true));
        for turn in 0..4 {
            let answer = connection.scrape(&server.authority, None).await;
            assert_eq!(answer.is_err(), turn == 2, "{answer:?}");
        }
        assert_eq!(server.asked(), ["/metrics?", "/metrics/?", "/metrics/?", "/metrics/?"]);
    }

    #[tokio::test]
    async fn who_fails_at_first_is_asked_by_name_once_it_works() {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let answer: fn(&Uri) -> Response = |uri| match (TURN.fetch_add(1, Relaxed), uri.query()) {
            (0..2, _) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            (2, _) => GAUGES.into_response(),
            // Another time it is one that does not take names.
            (3..5, _) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            (_, Some(_)) => "".into_response(),
            (_, None) => everything(),
        };
        let (server, mut connection) = (Server::that(answer).await, Connection::new(true));
        let by_name_and_whole = ["/metrics?", "/metrics"];
        connection.scrape(&server.authority, None).await.unwrap_err();
        assert_eq!(server.asked(), by_name_and_whole);
        assert_eq!(server.scraped(&mut connection).await, 3);
        assert_eq!(server.asked(), ["/metrics?"]);
        connection.open = None;
        connection.scrape(&server.authority, None).await.unwrap_err();
        assert_eq!(server.asked(), by_name_and_whole);
        assert_eq!(server.scraped(&mut connection).await, 3);
        assert_eq!(server.asked(), by_name_and_whole);
    }

    #[tokio::test]
    async fn who_closes_after_each_answer_is_asked_once_for_each_scrape_if_it_is_understood() {
        let answer: fn(&Uri) -> Response =
            |_| ([(header::CONNECTION, "close")], everything()).into_response();
        assert_eq!(thrice(answer, true).await, ["/metrics?"; 3]);
    }

    #[tokio::test]
    async fn who_tells_no_gauges_at_all_is_not_understood() {
        let server = Server::that(|_| "sglang:num_running_reqs 1\n".into_response()).await;
        let mut connection = Connection::new(true);
        for _ in 0..2 {
            let error = connection.scrape(&server.authority, None).await.unwrap_err();
            assert!(matches!(error, ScrapeError::Garbled(GaugeError::Missing(_))), "{error}");
        }
        assert_eq!(server.asked(), ["/metrics?", "/metrics", "/metrics"]);
        assert!(connection.read() > 0);
    }

    #[tokio::test]
    async fn who_is_to_be_spoken_to_by_tls_now_is_asked_nothing_more_in_the_clear() {
        let (server, mut connection) =
            (Server::that(|_| GAUGES.into_response()).await, Connection::new(true));
        assert_eq!(server.scraped(&mut connection).await, 3);
        server.asked();
        let secure = Authority::new().client("pod").0;
        // Nobody greets there.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = (silent.local_addr().unwrap().to_string(), silent);
        let sealed = connection.scrape(&silent.0, Some(&secure));
        assert!(timeout(Duration::from_millis(50), sealed).await.is_err());
        assert!(server.asked().is_empty());
        assert_eq!(server.scraped(&mut connection).await, 3, "and the other way round");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_leads_elsewhere_is_noticed_and_one_that_still_leads_there_is_not() {
        let long = Duration::from_secs(60);
        let mut connection = Connection::new(true);
        let at = |address: &str| Some(address.parse::<SocketAddr>().unwrap());
        connection.peer = at("127.0.0.1:80");
        assert!(!connection.has_moved("localhost:80", long).await, "it was just looked up");
        tokio::time::advance(LOOK_UP_EVERY).await;
        assert!(!connection.has_moved("localhost:80", long).await, "it leads there");
        connection.peer = at("127.0.0.2:80");
        tokio::time::advance(LOOK_UP_EVERY).await;
        assert!(connection.has_moved("localhost:80", long).await);
        tokio::time::advance(LOOK_UP_EVERY).await;
        assert!(!connection.has_moved("localhost:80", long).await, "nobody was asked since");
        connection.peer = at("127.0.0.2:80");
        for name in ["127.0.0.1:80", "nobody.invalid:80"] {
            tokio::time::advance(LOOK_UP_EVERY).await;
            assert!(!connection.has_moved(name, long).await, "{name}");
        }
    }
}
