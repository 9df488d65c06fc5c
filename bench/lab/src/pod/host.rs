//! Listeners, connections and the thread around them.

use std::{
    cell::Cell,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::mpsc::sync_channel,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::{JoinSet, LocalSet},
};
use weir_engine::EngineConfig;

use super::{
    handover::{Source, Teller, tell},
    server::Pod,
    sim::Sim,
};

/// An idle connection is closed after this, as uvicorn does for vLLM (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`, 5 s).
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long a listener waits before it tries to bind its port again.
const REBIND: Duration = Duration::from_millis(50);

/// Which pods to host.
#[derive(Clone, Debug)]
pub struct PodPlan {
    /// How many.
    pub count: u16,
    /// Port of the first one on 127.0.0.1, the others follow; 0 lets the system choose each.
    pub port: u16,
    /// The model they serve.
    pub model: String,
    /// Their engine; pod n runs with its seed plus n.
    pub engine: EngineConfig,
    /// Engine milliseconds per millisecond.
    pub speed: f64,
    /// Longest sequence, in tokens.
    pub max_model_len: u32,
}

impl PodPlan {
    /// The port of a pod, counted from 0; 0 lets the system choose.
    ///
    /// # Errors
    /// When there is no such port.
    pub(super) fn port_of(&self, number: u16) -> Result<u16> {
        let (first, count) = (self.port, self.count);
        let port = if first == 0 { Some(0) } else { first.checked_add(number) };
        port.with_context(|| format!("{count} pods from port {first} on go beyond {}", u16::MAX))
    }
}

/// Pods whose ports are bound.
pub struct Pods {
    pods: Vec<Bound>,
}

/// One of them.
struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    sim: Rc<Sim>,
    /// What it will tell other pods.
    over: mpsc::Receiver<Source>,
}

impl Pods {
    /// Binds every port.
    ///
    /// # Errors
    /// When a port is taken, or there is no such port; the message names it.
    pub async fn bind(plan: &PodPlan) -> Result<Self> {
        let mut pods = Vec::new();
        for number in 0..plan.count {
            let port = plan.port_of(number)?;
            let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            let bound = TcpListener::bind(address).await;
            let listener = bound.with_context(|| format!("cannot listen on {address}"))?;
            let address = listener.local_addr()?;
            let mut engine = plan.engine.clone();
            engine.seed = engine.seed.wrapping_add(u64::from(number));
            let (teller, over) = Teller::new();
            let limits = (plan.max_model_len, plan.speed);
            let sim = Rc::new(Sim::new(engine, &plan.model, limits, (address, teller))?);
            pods.push(Bound { listener, address, sim, over });
        }
        Ok(Self { pods })
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.pods.iter().map(|pod| pod.address).collect()
    }

    /// Serves until it is dropped.
    pub async fn serve(self) {
        let local = LocalSet::new();
        let mut tasks = JoinSet::new();
        for Bound { listener, address, sim, over } in self.pods {
            tasks.spawn_local_on(tell(over), &local);
            tasks.spawn_local_on(Rc::clone(&sim).drive(), &local);
            tasks.spawn_local_on(listen(Rc::new(Pod::new(sim)), listener, address), &local);
        }
        local.run_until(async move { while tasks.join_next().await.is_some() {} }).await;
    }
}

/// Accepts connections, except while a fault refuses them.
async fn listen(pod: Rc<Pod>, listener: TcpListener, address: SocketAddr) {
    let mut posted = pod.watch();
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        if pod.refuses() {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        tokio::select! {
            accepted = accept(listener.as_ref(), pod.refuses()) => match accepted {
                Ok(stream) => { connections.spawn_local(connection(Rc::clone(&pod), stream)); }
                Err(error) => {
                    tracing::debug!(%error, %address, "no connection");
                    tokio::time::sleep(REBIND).await;
                }
            },
            _ = posted.changed() => {}
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>, refuses: bool) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None if refuses => std::future::pending().await,
        None => Err(io::ErrorKind::AddrInUse.into()),
    }
}

async fn connection(pod: Rc<Pod>, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let control = Rc::new(Cell::new(false));
    let service = {
        let (pod, control) = (Rc::clone(&pod), Rc::clone(&control));
        service_fn(move |request| Rc::clone(&pod).answer(Rc::clone(&control), request))
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut posted = pod.watch();
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            Ok(()) = posted.changed() => {
                if pod.refuses() && !control.get() {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Pods on a thread of their own, for tests and for programs that do something else; dropping it ends them.
#[derive(Debug)]
pub struct PodThread {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PodThread {
    /// Starts them and returns when every port is bound.
    ///
    /// # Errors
    /// When a port is taken or the thread cannot start.
    pub fn start(plan: PodPlan) -> Result<Self> {
        let (bound, addresses) = sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("pods".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let pods = Pods::bind(&plan).await;
                let addresses = pods.as_ref().map(Pods::addresses);
                let sent = bound.send(addresses.map_err(|error| format!("{error:#}")));
                if let (Ok(pods), Ok(())) = (pods, sent) {
                    tokio::select! {
                        () = pods.serve() => {}
                        _ = stopped => {}
                    }
                }
            });
        })?;
        let addresses = addresses.recv().context("the pods' thread ended")?;
        let addresses = addresses.map_err(anyhow::Error::msg)?;
        Ok(Self { addresses, stop: Some(stop), thread: Some(thread) })
    }

    /// Where they listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for PodThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the pods' thread panicked");
        }
    }
}
