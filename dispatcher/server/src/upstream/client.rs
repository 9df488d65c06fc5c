//! Connections to pods: one [`Upstream`] per data-plane thread.
//!
//! Each pod has its own stack of unused connections, so that one that hangs or resets harms nobody
//! else. Whether a request may be sent again is decided here: only when not a byte of it was
//! written.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use http::response::Parts;
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, error::Elapsed, sleep, timeout, timeout_at},
};
use weir_core::{PodId, spread::NumberMap};

use super::{Closing, UpstreamConfig};
use crate::{
    budget::Memory,
    descriptors,
    fleet::Pod,
    h1::{self, BadReply, Failed, PodRequest, To},
    patience::in_time,
    telemetry::Metrics,
    tls::{Line, trust::greet},
};

/// After this long without a word the system asks whether a pod's machine is still there, and again, so often.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// What was sent and not acknowledged for this long ends a connection: the system does not ask meanwhile. As long as its asking
/// takes.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// A name is looked up in at most this part of the time for a connection: what is left is the pod's, and is held against it.
const LOOKUP_PART: u32 = 3;

/// A response of a pod.
pub(super) type Reply = h1::Reply<Line>;

/// A thread's way to the pods.
pub struct Upstream {
    config: UpstreamConfig,
    metrics: Arc<Metrics>,
    closing: Closing,
    /// What responses take that are held until they are complete.
    memory: Memory,
    idle: Arc<Idle>,
    /// Where pods that are known by a host's name were reached last.
    found: Mutex<HashMap<String, SocketAddr>>,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing of the request was sent.
    Unsent(UnsentReason),
    /// The connection was lost after the request was sent, or the answer is not HTTP.
    Lost(BadReply),
    /// No response in time.
    Silent,
}

/// Why a request could not be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnsentReason {
    /// The pod's address does not answer.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// Its name does not resolve, and never did.
    #[error("cannot look up the address: {0}")]
    Lookup(io::Error),
    /// The connection was refused, or who answers is not who the certificate should be for.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// The connection ended before the request was written.
    #[error("connection closed before the request was written: {0}")]
    Closed(io::Error),
}

impl UnsentReason {
    /// Whether it says something of the pod: not where a name cannot be looked up, or this machine lacks something.
    pub(super) fn is_the_pods(&self) -> bool {
        match self {
            Self::Lookup(_) => false,
            Self::Connect(error) => !descriptors::is_short(error),
            Self::ConnectTimeout(_) | Self::Closed(_) => true,
        }
    }
}

impl Upstream {
    /// Without any connection.
    pub fn new(config: UpstreamConfig, metrics: Arc<Metrics>) -> Self {
        let memory = Memory::of(config.max_buffered_bytes);
        let (closing, idle, found) = (Closing::default(), Arc::default(), Mutex::default());
        Self { config, metrics, closing, memory, idle, found }
    }

    /// A name led there.
    #[cfg(test)]
    pub(super) fn found_at(&self, authority: &str, address: SocketAddr) {
        self.found.lock().insert(authority.to_owned(), address);
    }

    /// The same, whose requests end when this says so.
    #[must_use]
    pub fn until(self, closing: Closing) -> Self {
        Self { closing, ..self }
    }

    /// The same, which shares this with others.
    #[must_use]
    pub(crate) fn within(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// What responses take that are held.
    pub(super) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether what runs is to end.
    pub(super) const fn closing(&self) -> &Closing {
        &self.closing
    }

    /// Its timeouts and limits.
    pub fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    /// The metrics that its responses are counted in.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Sends a request by its name, over an unused connection if there is one. One that turns out to be dead is
    /// replaced by a new one, once.
    pub(super) async fn send(
        &self,
        (pod, name): (&Pod, &str),
        request: &PodRequest,
        now: Instant,
        deadline: Instant,
    ) -> Result<(Parts, Reply), Failure> {
        let to = To { authority: &pod.authority, rank: pod.rank, name };
        if let Some(kept) = self.idle.take(pod.id, now, self.config.idle_timeout) {
            match exchange(kept, to, request, deadline).await {
                Err(Failure::Unsent(_)) => {}
                answer => return answer,
            }
        }
        // Boxed, for it is large and rare.
        let fresh = Box::pin(self.connect(pod)).await.map_err(Failure::Unsent)?;
        exchange(fresh, to, request, deadline).await
    }

    /// What a response body needs to give its connection back.
    pub(super) fn way_back(&self, pod: PodId) -> WayBack {
        let most = self.config.max_idle_per_pod;
        WayBack { idle: self.idle.clone(), pod, most, timeout: self.config.idle_timeout }
    }

    async fn connect(&self, pod: &Pod) -> Result<Line, UnsentReason> {
        let authority = pod.authority.as_str();
        let limit = self.config.connect_timeout;
        let by = Instant::now() + limit;
        let late = |_: Elapsed| UnsentReason::ConnectTimeout(limit);
        let stream = if let Ok(address) = authority.parse::<SocketAddr>() {
            timeout_at(by, TcpStream::connect(address)).await.map_err(late)??
        } else {
            let addresses = self.places(authority, lookup_host(authority)).await?;
            let reach = TcpStream::connect(addresses.as_slice());
            let stream = timeout_at(by, reach).await.map_err(late)??;
            self.found.lock().insert(authority.to_owned(), stream.peer_addr()?);
            stream
        };
        // Small writes must not wait for the pod's delayed acknowledgements.
        stream.set_nodelay(true)?;
        // A machine that has vanished ends what waits for it within half a minute, whether it took the request before or not.
        let socket = SockRef::from(&stream);
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY);
        socket.set_tcp_keepalive(&probes.with_retries(PROBES))?;
        Ok(timeout_at(by, greet(stream, pod.secure.as_ref())).await.map_err(late)??)
    }

    /// Where a name leads by the `answer`, and while that fails or is not there in time where it led last.
    async fn places<A>(
        &self,
        authority: &str,
        answer: impl Future<Output = io::Result<A>>,
    ) -> Result<Vec<SocketAddr>, UnsentReason>
    where
        A: Iterator<Item = SocketAddr>,
    {
        let limit = self.config.connect_timeout / LOOKUP_PART;
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        match timeout(limit, answer).await.unwrap_or_else(late) {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => {
                let known = self.found.lock().get(authority).copied();
                Ok(vec![known.ok_or(UnsentReason::Lookup(error))?])
            }
        }
    }
}

async fn exchange(
    stream: Line,
    to: To<'_>,
    request: &PodRequest,
    deadline: Instant,
) -> Result<(Parts, Reply), Failure> {
    match in_time(deadline, h1::exchange(stream, to, request)).await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(Failed::Unsent(error))) => Err(Failure::Unsent(UnsentReason::Closed(error))),
        Some(Err(Failed::Lost(error))) => Err(Failure::Lost(error)),
        None => Err(Failure::Silent),
    }
}

/// Where a connection goes after its response was read to the end.
pub(super) struct WayBack {
    idle: Arc<Idle>,
    pod: PodId,
    most: usize,
    timeout: Duration,
}

impl WayBack {
    /// Keeps the connection of a response for the pod's next request, if it may be used for one.
    pub(super) fn give(&self, reply: Reply) {
        if let Some(stream) = reply.into_connection() {
            self.idle.put(self.pod, stream, self.most);
            Idle::watch(&self.idle, self.timeout);
        }
    }
}

/// Unused connections by pod, oldest first.
#[derive(Default)]
struct Idle {
    // A lock and not a cell, so that futures stay Send; only one thread uses it.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_pod: NumberMap<PodId, VecDeque<(Instant, Line)>>,
    /// Whether somebody comes to cut those that are not used any more.
    watched: bool,
}

impl Idle {
    /// The one used last, which is the least likely to be closed by now, if it is still as it was
    /// left. A pod that has closed it, or speaks unasked, would lose the request.
    fn take(&self, pod: PodId, now: Instant, timeout: Duration) -> Option<Line> {
        let mut kept = self.kept.lock();
        let streams = kept.by_pod.get_mut(&pod)?;
        while let Some((since, mut stream)) = streams.pop_back() {
            if now.duration_since(since) < timeout && stream.is_quiet() {
                return Some(stream);
            }
        }
        None
    }

    fn put(&self, pod: PodId, stream: Line, most: usize) {
        let mut kept = self.kept.lock();
        let streams = kept.by_pod.entry(pod).or_default();
        streams.push_back((Instant::now(), stream));
        if streams.len() > most {
            streams.pop_front();
        }
    }

    /// Sees to it that connections unused for `timeout` are cut, of any pod: one that left the pool is
    /// never asked for again. Ends when none is left.
    fn watch(this: &Arc<Self>, timeout: Duration) {
        if std::mem::replace(&mut this.kept.lock().watched, true) {
            return;
        }
        let this = Arc::downgrade(this);
        tokio::spawn(async move {
            loop {
                sleep(timeout).await;
                if this.upgrade().is_none_or(|idle| idle.cut(timeout)) {
                    return;
                }
            }
        });
    }

    /// Cuts those unused for `timeout`; says whether none is left.
    fn cut(&self, timeout: Duration) -> bool {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.by_pod.retain(|_, streams| {
            while streams.front().is_some_and(|(since, _)| now.duration_since(*since) >= timeout) {
                streams.pop_front();
            }
            !streams.is_empty()
        });
        kept.watched = !kept.by_pod.is_empty();
        !kept.watched
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, iter::Empty};

    use super::*;
    use crate::upstream::RawUpstream;

    const NAME: &str = "pod.cluster:80";

    fn upstream() -> Upstream {
        let config = UpstreamConfig::try_from(RawUpstream::default()).unwrap();
        Upstream::new(config, Arc::new(Metrics::new().unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_server_that_takes_too_long_leaves_time_for_the_pod() {
        let (upstream, begun) = (upstream(), Instant::now());
        let late = || pending::<io::Result<Empty<SocketAddr>>>();
        let reason = upstream.places(NAME, late()).await.unwrap_err();
        assert!(matches!(reason, UnsentReason::Lookup(_)) && !reason.is_the_pods(), "{reason}");
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        upstream.found_at(NAME, address);
        assert_eq!(upstream.places(NAME, late()).await.unwrap(), [address]);
        assert!(begun.elapsed() < upstream.config.connect_timeout);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_a_pods_machine_does_not_acknowledge_ends_its_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let pod = Pod::new(PodId(1), "pod-0".into(), address, 0);
        let line = upstream().connect(&pod).await.unwrap();
        let socket = SockRef::from(line.socket().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
        assert!(socket.keepalive().unwrap());
    }
}
