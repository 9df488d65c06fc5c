//! One kept-alive connection to a pod's `/metrics`.
//!
//! Owned by the pod's watcher. A scrape that fails closes it; the next one opens another.
//!
//! A stock vLLM writes all of its metrics in Python, 90 kB in 5 ms, on the thread that streams tokens, and only those
//! that are asked for by name in a twentieth of that. So each connection asks by name first. Whoever is not understood then
//! is asked for everything, over another connection and for as long as that lasts: several of vLLM's API servers behind one
//! port answer with nothing, other servers with an error.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use tokio::net::TcpStream;

use super::gauges::{self, GaugeError, Gauges};
use crate::h1::{self, BadReply, Failed, PodRequest};

/// Most bytes of an answer that are read. A busy vLLM writes 60 to 200 kB.
const MOST_BYTES: usize = 4 << 20;

/// Why a scrape brought no gauges.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// Nobody listens there.
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
    Garbled(#[from] GaugeError),
}

/// What a connection's scrapes ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// The gauges alone.
    ByName,
    /// Every metric.
    Whole,
}

/// A connection, while there is one.
#[derive(Debug)]
pub struct Connection {
    by_name: PodRequest,
    whole: PodRequest,
    open: Option<(TcpStream, Question)>,
    /// Bytes of all answers so far.
    read: u64,
}

impl Default for Connection {
    fn default() -> Self {
        let accept = ("accept", b"text/plain".as_slice());
        let get =
            |path: &str| PodRequest::new(&Method::GET, path, [accept].into_iter(), Bytes::new());
        // Some versions of vLLM have two routes: without the slash all is written, whatever is asked for.
        let by_name = gauges::NAMES.map(|name| format!("name%5B%5D={name}")).join("&");
        let by_name = get(&format!("/metrics/?{by_name}"));
        Self { by_name, whole: get("/metrics"), open: None, read: 0 }
    }
}

impl Connection {
    /// Bytes of all answers so far.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Asks for the gauges. Dropping the future closes the connection.
    ///
    /// # Errors
    /// When there is no usable answer with status 200.
    pub async fn scrape(&mut self, authority: &str) -> Result<Gauges, ScrapeError> {
        // The pod may have closed a connection that was idle; that says nothing about it.
        if let Some((kept, question)) = self.open.take().filter(|(kept, _)| h1::is_quiet(kept)) {
            match self.ask(kept, question, authority).await {
                Err(ScrapeError::Unsent(_) | ScrapeError::Http(_)) => {}
                answer => return answer,
            }
        }
        match self.ask(connect(authority).await?, Question::ByName, authority).await {
            answer @ (Ok(_) | Err(ScrapeError::Connect(_) | ScrapeError::TooLarge)) => answer,
            // Over another connection: not everybody says that an error is the last answer over one.
            Err(_) => self.ask(connect(authority).await?, Question::Whole, authority).await,
        }
    }

    async fn ask(
        &mut self,
        stream: TcpStream,
        question: Question,
        authority: &str,
    ) -> Result<Gauges, ScrapeError> {
        self.open = None;
        let request = match question {
            Question::ByName => &self.by_name,
            Question::Whole => &self.whole,
        };
        let asked = h1::exchange(stream, (authority, ""), request).await;
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
        self.open = reply.into_connection().map(|kept| (kept, question));
        if head.status == StatusCode::OK {
            Ok(gauges::parse(&text)?)
        } else {
            Err(ScrapeError::Status(head.status))
        }
    }
}

async fn connect(authority: &str) -> Result<TcpStream, ScrapeError> {
    let fresh = TcpStream::connect(authority).await.map_err(ScrapeError::Connect)?;
    let _ = fresh.set_nodelay(true);
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{
        Router,
        http::{Uri, header},
        response::{IntoResponse, Response},
    };
    use parking_lot::Mutex;
    use tokio::net::TcpListener;

    use super::*;

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
                heard.lock().push(uri.path().to_owned());
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
            connection.scrape(&self.authority).await.unwrap().scrape.running
        }
    }

    #[tokio::test]
    async fn the_gauges_alone_are_asked_for() {
        let server = Server::that(|uri| {
            let query = uri.query().unwrap_or_default().replace("%5B%5D", "[]");
            let mut names: Vec<_> =
                query.split('&').map(|pair| pair.strip_prefix("name[]=").unwrap()).collect();
            let mut read = gauges::NAMES.to_vec();
            names.sort_unstable();
            read.sort_unstable();
            if names == read {
                GAUGES.into_response()
            } else {
                StatusCode::IM_A_TEAPOT.into_response()
            }
        });
        let (server, mut connection) = (server.await, Connection::default());
        for _ in 0..3 {
            assert_eq!(server.scraped(&mut connection).await, 3);
        }
        assert_eq!(server.asked(), ["/metrics/"; 3]);
        assert_eq!(connection.read(), 3 * GAUGES.len() as u64);
    }

    #[tokio::test]
    async fn who_does_not_tell_them_by_name_is_asked_for_everything_from_then_on() {
        let answers: [fn(&Uri) -> Response; 3] = [
            // vLLM with several API servers behind its port.
            |uri| if uri.query().is_some() { "" } else { GAUGES }.into_response(),
            |uri| match uri.path() {
                "/metrics" => GAUGES.into_response(),
                _ => StatusCode::NOT_FOUND.into_response(),
            },
            |uri| match uri.query() {
                Some(_) => StatusCode::BAD_REQUEST.into_response(),
                None => GAUGES.into_response(),
            },
        ];
        for answer in answers {
            let (server, mut connection) = (Server::that(answer).await, Connection::default());
            for _ in 0..3 {
                assert_eq!(server.scraped(&mut connection).await, 3);
            }
            assert_eq!(server.asked(), ["/metrics/", "/metrics", "/metrics", "/metrics"]);
            // A new connection may be to another process.
            connection.open = None;
            assert_eq!(server.scraped(&mut connection).await, 3);
            assert_eq!(server.asked(), ["/metrics/", "/metrics"]);
        }
    }

    #[tokio::test]
    async fn who_closes_after_each_answer_is_asked_twice_for_each_scrape() {
        let answers: [fn(&Uri) -> Response; 2] = [
            |uri| {
                let text = if uri.query().is_some() { "" } else { GAUGES };
                ([(header::CONNECTION, "close")], text).into_response()
            },
            // Closed without a word, before anything of an answer.
            |uri| match uri.query() {
                Some(_) => panic!("no such path"),
                None => ([(header::CONNECTION, "close")], GAUGES).into_response(),
            },
        ];
        for answer in answers {
            let (server, mut connection) = (Server::that(answer).await, Connection::default());
            for _ in 0..2 {
                assert_eq!(server.scraped(&mut connection).await, 3);
                assert_eq!(server.asked(), ["/metrics/", "/metrics"]);
            }
        }
    }

    #[tokio::test]
    async fn who_tells_no_gauges_at_all_is_not_understood() {
        let (server, mut connection) = (
            Server::that(|_| "sglang:num_running_reqs 1\n".into_response()).await,
            Connection::default(),
        );
        for _ in 0..2 {
            let error = connection.scrape(&server.authority).await.unwrap_err();
            assert!(matches!(error, ScrapeError::Garbled(GaugeError::Missing(_))), "{error}");
        }
        assert_eq!(server.asked(), ["/metrics/", "/metrics", "/metrics"]);
    }
}
