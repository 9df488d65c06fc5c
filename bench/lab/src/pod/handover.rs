//! KV that goes from one pod to another, as vLLM's NIXL connector does it: a pod that was asked to prefill for another one
//! keeps the prompt's blocks and says where they are; the pod that is given that loads them, computes one token of the
//! prompt, and tells the first that they have been read.
//!
//! Between simulated pods nothing is copied and one call is made, `POST /kv_release`: once, in a short time, and whatever
//! becomes of it. What nobody asks for is let go by the pod that keeps it, after vLLM's time.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::{net::TcpStream, sync::mpsc, task::JoinSet};
use weir_engine::SeqId;

use super::error::Refusal;

/// The field of a request, and of the answer to a prefill.
pub(super) const PARAMS: &str = "kv_transfer_params";
/// Where a pod is told that its blocks have been read.
pub(super) const RELEASE: &str = "/kv_release";

/// How long the call that says so may take.
const TELL: Duration = Duration::from_secs(2);
/// Such calls that wait to be made; one more is not made, and the blocks wait for their time.
const UNTOLD: usize = 1024;
/// Engine milliseconds that blocks are kept for somebody to read (vLLM's `VLLM_NIXL_ABORT_REQUEST_TIMEOUT`, 480 s).
const KEPT_MS: f64 = 480e3;

/// What a request's `kv_transfer_params` ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Handover {
    /// Nothing: all of it happens here.
    #[default]
    None,
    /// Keep the prompt's blocks for another pod.
    Keep,
    /// Load the prompt's KV from another pod.
    Load(Source),
}

/// Where KV is kept, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    host: String,
    port: u16,
    request_id: String,
}

/// The body of a release.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Release {
    /// What the answer to the prefill called `remote_request_id`.
    pub(super) remote_request_id: String,
}

impl Handover {
    /// Reads the field; keys that nothing here depends on are ignored.
    pub(super) fn read(params: Option<&Map<String, Value>>) -> Result<Self, Refusal> {
        let Some(params) = params else { return Ok(Self::None) };
        match (flag(params, "do_remote_decode")?, flag(params, "do_remote_prefill")?) {
            (false, false) => Ok(Self::None),
            (true, false) => Ok(Self::Keep),
            (false, true) => Source::read(params).map(Self::Load),
            (true, true) => Err(Refusal::BadRequest(format!(
                "{PARAMS}: do_remote_decode and do_remote_prefill exclude each other"
            ))),
        }
    }

    /// The loan that a request takes up.
    pub(super) fn loan(&self, teller: &Teller) -> Option<Loan> {
        match self {
            Self::Load(source) => Some(Loan { source: source.clone(), teller: teller.clone() }),
            Self::None | Self::Keep => None,
        }
    }
}

fn flag(params: &Map<String, Value>, name: &str) -> Result<bool, Refusal> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(unfit(name, "a boolean")),
    }
}

fn unfit(name: &str, wanted: &str) -> Refusal {
    Refusal::BadRequest(format!("{PARAMS}.{name} must be {wanted}"))
}

impl Source {
    fn read(params: &Map<String, Value>) -> Result<Self, Refusal> {
        let text = |name| {
            let text = params.get(name).and_then(Value::as_str);
            text.map(str::to_owned).ok_or_else(|| unfit(name, "a string"))
        };
        let port = params.get("remote_port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok());
        Ok(Self {
            host: text("remote_host")?,
            port: port.ok_or_else(|| unfit("remote_port", "a port"))?,
            request_id: text("remote_request_id")?,
        })
    }

    async fn release(self) -> Result<()> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let body = serde_json::to_vec(&Release { remote_request_id: self.request_id })?;
        let request = Request::post(RELEASE)
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))?;
        let answer = async {
            let status = sender.send_request(request).await?.status();
            ensure!(status.is_success(), "answers {status}");
            Ok(())
        };
        tokio::select! {
            answer = answer => answer,
            ended = connection => ended.context("connection ended"),
        }
    }
}

/// KV of another pod that is being loaded. That pod is told when this is dropped: at the first token, or when the request
/// is refused, aborted or over without one.
#[derive(Debug)]
pub(super) struct Loan {
    source: Source,
    teller: Teller,
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Err(error) = self.teller.0.try_send(self.source.clone()) {
            tracing::debug!(%error, "a pod is not told that its blocks have been read");
        }
    }
}

/// Where loans say that they are over; see [`tell`].
#[derive(Clone, Debug)]
pub(super) struct Teller(mpsc::Sender<Source>);

impl Teller {
    /// One for a pod, and what its [`tell`] reads.
    pub(super) fn new() -> (Self, mpsc::Receiver<Source>) {
        let (sender, over) = mpsc::channel(UNTOLD);
        (Self(sender), over)
    }
}

/// Tells other pods that their blocks have been read.
pub(super) async fn tell(mut over: mpsc::Receiver<Source>) {
    let mut calls = JoinSet::new();
    loop {
        tokio::select! {
            source = over.recv() => match source {
                Some(source) => { calls.spawn_local(tokio::time::timeout(TELL, source.release())); }
                None => return,
            },
            Some(told) = calls.join_next() => {
                if !matches!(told, Ok(Ok(Ok(())))) {
                    tracing::debug!(?told, "a pod may not know that its blocks have been read");
                }
            }
        }
    }
}

/// What a pod keeps for others, in order of time.
#[derive(Debug)]
pub(super) struct Kept {
    /// Where the pod listens.
    address: SocketAddr,
    jobs: VecDeque<Job>,
}

#[derive(Debug)]
struct Job {
    request_id: String,
    id: SeqId,
    until_ms: f64,
}

impl Kept {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, jobs: VecDeque::new() }
    }

    /// Notes a job that ended at `now_ms` and keeps so many blocks. Returns what to give to the pod that will read them.
    pub(super) fn add(&mut self, id: SeqId, answer_id: &str, blocks: u32, now_ms: f64) -> Value {
        let request_id = format!("{answer_id}-{:x}", id.0);
        let params = json!({
            "do_remote_prefill": true, "do_remote_decode": false,
            "remote_engine_id": self.address.to_string(), "remote_request_id": request_id,
            "remote_block_ids": (1..=blocks).collect::<Vec<_>>(),
            "remote_host": self.address.ip().to_string(), "remote_port": self.address.port(),
        });
        self.jobs.push_back(Job { request_id, id, until_ms: now_ms + KEPT_MS });
        params
    }

    /// The job of that name, which is kept no longer.
    pub(super) fn take(&mut self, request_id: &str) -> Option<SeqId> {
        let at = self.jobs.iter().position(|job| job.request_id == request_id)?;
        self.jobs.remove(at).map(|job| job.id)
    }

    /// A job that nobody asked for in time, which is kept no longer.
    pub(super) fn overdue(&mut self, now_ms: f64) -> Option<SeqId> {
        self.next_ms().filter(|until_ms| *until_ms <= now_ms)?;
        self.jobs.pop_front().map(|job| job.id)
    }

    /// When one will be overdue.
    pub(super) fn next_ms(&self) -> Option<f64> {
        self.jobs.front().map(|job| job.until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: Value) -> Result<Handover, Refusal> {
        Handover::read(params.as_object())
    }

    #[test]
    fn what_is_given_back_is_what_another_pod_reads() {
        let mut kept = Kept::new("127.0.0.1:18001".parse().unwrap());
        let params = kept.add(SeqId(26), "cmpl-a", 3, 0.0);
        assert_eq!(params["remote_block_ids"], json!([1, 2, 3]));
        let (host, request_id) = ("127.0.0.1".to_owned(), "cmpl-a-1a".to_owned());
        assert_eq!(read(params), Ok(Handover::Load(Source { host, port: 18001, request_id })));
    }

    #[test]
    fn flags_that_are_absent_or_null_are_false() {
        for params in [json!({}), json!({"do_remote_decode": null, "remote_port": "x"})] {
            assert_eq!(read(params), Ok(Handover::None));
        }
        let keep = json!({"do_remote_decode": true, "remote_host": null, "unheard_of": [1]});
        assert_eq!(read(keep), Ok(Handover::Keep));
        assert_eq!(Handover::read(None), Ok(Handover::None));
    }

    #[test]
    fn a_job_is_kept_until_it_is_taken_or_its_time_is_over() {
        let mut kept = Kept::new("127.0.0.1:1".parse().unwrap());
        for (id, at_ms) in [(1, 0.0), (2, 10.0), (3, 20.0)] {
            kept.add(SeqId(id), "a", 1, at_ms);
        }
        assert_eq!(
            (kept.take("a-2"), kept.take("a-2"), kept.take("b-1")),
            (Some(SeqId(2)), None, None)
        );
        assert_eq!((kept.overdue(479_999.0), kept.next_ms()), (None, Some(480_000.0)));
        assert_eq!((kept.overdue(480_000.0), kept.overdue(480_000.0)), (Some(SeqId(1)), None));
        assert_eq!((kept.overdue(1e9), kept.next_ms()), (Some(SeqId(3)), None));
    }

    #[test]
    fn a_loan_says_once_that_it_is_over() {
        let (teller, mut over) = Teller::new();
        let source = Source { host: "h".to_owned(), port: 1, request_id: "r".to_owned() };
        let loan = Handover::Load(source.clone()).loan(&teller);
        assert!(Handover::Keep.loan(&teller).is_none() && over.try_recv().is_err());
        drop(loan);
        assert_eq!((over.try_recv(), over.try_recv().is_err()), (Ok(source), true));
    }
}
