//! A pod that does what a test tells it, connection by connection, and what is needed around it.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_channel::Receiver;
use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use weir_schema::Sample;

use crate::{
    fleet::{
        config::{ScrapeConfig, Seat},
        roster::Roster,
    },
    h1::PodRequest,
    hub::{
        Hub,
        fixture::{Fixture, pod, request},
    },
    telemetry::Metrics,
    upstream::{
        Call, Dialect, Fault, RawUpstream, RelayBody, RelayError, Upstream, UpstreamConfig, serve,
    },
};

pub(super) const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
pub(super) const TOKEN: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
pub(super) const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":12,\"completion_tokens\":5}}\n\n";
pub(super) const DONE: &str = "data: [DONE]\n\n";
pub(super) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
pub(super) const END: &str = "0\r\n\r\n";

pub(super) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// One connection to a pod, from the pod's side.
pub(super) struct Line {
    pub socket: TcpStream,
    requests: Arc<AtomicUsize>,
}

impl Line {
    /// Reads one request, head and body; `None` when the other side hangs up.
    pub(super) async fn hear(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            let mut part = [0; 4096];
            let read = self.socket.read(&mut part).await.unwrap_or(0);
            if read == 0 {
                return None;
            }
            text.extend_from_slice(&part[..read]);
            let so_far = String::from_utf8_lossy(&text);
            let Some((head, body)) = so_far.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                self.requests.fetch_add(1, SeqCst);
                return Some(so_far.into_owned());
            }
        }
    }

    pub(super) async fn say(&mut self, text: &str) {
        let _ = self.socket.write_all(text.as_bytes()).await;
    }

    /// Ends the connection the hard way.
    pub(super) fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }

    /// Returns when the other side has hung up.
    pub(super) async fn hung_up(&mut self) {
        let mut rest = [0; 4096];
        while matches!(self.socket.read(&mut rest).await, Ok(1..)) {}
    }
}

/// A pod's address and what it has seen.
pub(super) struct FakePod {
    pub authority: String,
    pub connections: Arc<AtomicUsize>,
    pub requests: Arc<AtomicUsize>,
}

impl FakePod {
    /// Runs `play` for every connection, with the connection's number.
    pub(super) async fn new<F, P>(play: F) -> Self
    where
        F: Fn(Line, usize) -> P + Send + 'static,
        P: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let pod = Self {
            authority,
            connections: Arc::clone(&connections),
            requests: Arc::clone(&requests),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                let number = connections.fetch_add(1, SeqCst);
                tokio::spawn(play(Line { socket, requests: requests.clone() }, number));
            }
        });
        pod
    }

    /// Answers every request with `answer`, on as few connections as it gets.
    pub(super) async fn saying(answer: impl Into<String>) -> Self {
        let answer: Arc<str> = answer.into().into();
        Self::new(move |mut line, _| {
            let answer = answer.clone();
            async move {
                while line.hear().await.is_some() {
                    line.say(&answer).await;
                }
            }
        })
        .await
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

/// An address that refuses connections.
pub(super) async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A pool, a way to its pods and their metrics.
pub(super) struct Scene {
    pub hub: Arc<Hub>,
    pub upstream: Arc<Upstream>,
    pub samples: Receiver<Sample>,
}

impl Scene {
    pub(super) fn new(pods: &[&str]) -> Self {
        Self::with(pods, |_| {})
    }

    /// With pods as the fleet lets them join: the scheduler hears of their breakers.
    pub(super) fn of_fleet(pods: &[&FakePod]) -> Self {
        let scene = Self::new(&[]);
        let second = Duration::from_secs(1);
        let scrape =
            ScrapeConfig { by_name: true, every: None, timeout: second, stale_after: second };
        let rosters = Roster::for_each(std::slice::from_ref(&scene.hub), scrape);
        for pod in pods {
            let (name, authority) = (Arc::from(&*pod.authority), pod.authority.clone());
            let seat = Seat::of(name, authority, None, 0);
            rosters[0].join(&seat, Arc::default());
        }
        scene
    }

    pub(super) fn with(pods: &[&str], change: impl FnOnce(&mut UpstreamConfig)) -> Self {
        let (hub, samples) = Fixture::default().hub();
        for (id, authority) in (1..).zip(pods) {
            hub.add_pod(pod(id, authority));
        }
        let mut config = UpstreamConfig::try_from(RawUpstream::default()).unwrap();
        change(&mut config);
        let upstream = Arc::new(Upstream::new(config, Arc::new(Metrics::new().unwrap())));
        Self { hub, upstream, samples }
    }

    pub(super) fn call(&self, id: u64) -> Call {
        Call {
            onward: PodRequest::new(
                &Method::POST,
                "/v1/chat/completions",
                std::iter::empty(),
                Bytes::from_static(b"{\"stream\":true}"),
            ),
            dialect: Dialect::Completions,
            own_priority: false,
            request: request(&self.hub, id),
            known: crate::telemetry::trace::Known {
                request_id: Arc::from(format!("req-{id}")),
                trace: None,
            },
            objective: Arc::from("standard"),
            prefill: None,
            migrates: None,
        }
    }

    pub(super) fn unstreamed(&self, id: u64) -> Call {
        let mut call = self.call(id);
        call.request.streamed = false;
        call
    }

    pub(super) async fn serve(&self, call: Call) -> Result<Response<RelayBody>, Fault> {
        serve(&self.hub, &self.upstream, call).await.map_err(|unserved| unserved.fault)
    }

    /// Serves a streamed request to the end of its body.
    pub(super) async fn relay(&self, id: u64) -> (String, Option<RelayError>) {
        read(self.serve(self.call(id)).await.unwrap().into_body()).await
    }

    /// The value of `weir_requests_total` for an outcome and a status.
    pub(super) fn done(&self, outcome: &str, status: &str) -> u64 {
        self.counted("weir_requests_total", &[("outcome", outcome), ("status", status)])
    }

    /// The value of `weir_stream_errors_total`.
    pub(super) fn stream_errors(&self) -> u64 {
        self.counted("weir_stream_errors_total", &[])
    }

    pub(super) fn counted(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let families = self.upstream.metrics().gather();
        let named = families.iter().filter(|family| family.name() == name);
        let matching = named.flat_map(|family| family.get_metric()).filter(|metric| {
            labels.iter().all(|(name, value)| {
                metric.get_label().iter().any(|l| l.name() == *name && l.value() == *value)
            })
        });
        matching.map(|metric| metric.get_counter().get_value() as u64).sum()
    }
}

/// All bytes of a body, and the error it ended with.
pub(super) async fn read(mut body: RelayBody) -> (String, Option<RelayError>) {
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            Err(error) => return (text, Some(error)),
        }
    }
    (text, None)
}

pub(super) const SHORT: Duration = Duration::from_millis(60);
