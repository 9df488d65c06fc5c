//! Listeners, connections and the thread around them.

use std::{
    cell::Cell,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    rc::Rc,
    sync::mpsc::sync_channel,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::{JoinSet, LocalSet},
};
use weir_engine::{EngineConfig, SeqId};

use super::{
    handover::{Source, Teller, tell},
    models::Models,
    server::Pod,
    sim::Sim,
};

/// An idle connection is closed after this, as uvicorn does for vLLM (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`, 5 s).
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long a listener waits before it tries to bind its port again.
const REBIND: Duration = Duration::from_millis(50);
/// Rows of ports that are tried where the system chooses the first one.
const CHOICES: u32 = 100;

/// Which pods to host.
#[derive(Clone, Debug)]
pub struct PodPlan {
    /// How many.
    pub count: u16,
    /// First port of the first one on 127.0.0.1, the others follow; 0 lets the system choose the first of each.
    pub port: u16,
    /// Ranks of an engine behind each of its ports; all of them behind one when absent.
    pub ranks_per_port: Option<u16>,
    /// The model they serve.
    pub model: String,
    /// LoRA adapters of it that they serve beside it, by their names.
    pub adapters: Vec<String>,
    /// Their engine; pod n runs with its seed plus n.
    pub engine: EngineConfig,
    /// Engine milliseconds per millisecond.
    pub speed: f64,
    /// Longest sequence, in tokens.
    pub max_model_len: u32,
}

impl PodPlan {
    /// A port, counted from 0 over all pods; 0 lets the system choose.
    ///
    /// # Errors
    /// When there is no such port.
    pub(super) fn port_of(&self, number: usize) -> Result<u16> {
        let (first, count) = (self.port, self.count);
        let beyond = || format!("{count} pods from port {first} on go beyond {}", u16::MAX);
        if first == 0 {
            return Ok(0);
        }
        let number = u16::try_from(number).ok();
        number.and_then(|number| first.checked_add(number)).with_context(beyond)
    }

    /// The ranks behind each port of a pod; there are as many as the engine has, which is at least one.
    ///
    /// # Errors
    /// When the ports cannot have equally many.
    pub(super) fn ranks_by_port(&self) -> Result<Vec<Range<u16>>> {
        let ranks = self.engine.ranks.clamp(1, SeqId::MOST_RANKS);
        let each = self.ranks_per_port.unwrap_or(ranks);
        ensure!(
            ranks.is_multiple_of(each),
            "of {ranks} ranks there cannot be {each} behind each port"
        );
        let firsts = (0..ranks).step_by(usize::from(each));
        Ok(firsts.map(|first| first..first + each).collect())
    }
}

/// Pods whose ports are bound.
pub struct Pods {
    pods: Vec<Bound>,
}

/// One of them.
struct Bound {
    ports: Vec<Port>,
    sim: Rc<Sim>,
    /// What it will tell other pods.
    over: mpsc::Receiver<Source>,
}

/// A port and the ranks behind it.
struct Port {
    listener: TcpListener,
    address: SocketAddr,
    ranks: Range<u16>,
}

impl Port {
    async fn bind(port: u16, ranks: Range<u16>) -> Result<Self> {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let bound = TcpListener::bind(address).await;
        let listener = bound.with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, ranks })
    }

    /// The ports of a pod, one after another.
    async fn bind_row(first: u16, ranks_by_port: &[Range<u16>]) -> Result<Vec<Self>> {
        let mut ports: Vec<Self> = Vec::new();
        for ranks in ranks_by_port {
            let port = match ports.last() {
                Some(last) => last.address.port().checked_add(1).context("no port is left")?,
                None => first,
            };
            ports.push(Self::bind(port, ranks.clone()).await?);
        }
        Ok(ports)
    }
}

impl Bound {
    /// The pod of that number; what its engine keeps for other pods is read at its first port.
    fn new(plan: &PodPlan, number: u16, ports: Vec<Port>) -> Result<Self> {
        let first = ports.first().context("a pod without ports")?;
        let mut engine = plan.engine.clone();
        engine.seed = engine.seed.wrapping_add(u64::from(number));
        let (teller, over) = Teller::new();
        let limits = (plan.max_model_len, plan.speed);
        let engine = (engine, first.ranks.len());
        let models = Models::new(&plan.model, &plan.adapters);
        let sim = Rc::new(Sim::new(engine, models, limits, (first.address, teller))?);
        Ok(Self { ports, sim, over })
    }
}

impl Pods {
    /// Binds every port.
    ///
    /// # Errors
    /// When a port is taken, or there is no such port, which the message names; or when the ports of a pod cannot have
    /// equally many ranks.
    pub async fn bind(plan: &PodPlan) -> Result<Self> {
        let ranks_by_port = plan.ranks_by_port()?;
        let mut pods = Vec::new();
        for number in 0..plan.count {
            let first = plan.port_of(usize::from(number) * ranks_by_port.len())?;
            let mut ports = Port::bind_row(first, &ranks_by_port).await;
            // Another program may have a port after the one that the system chose.
            let mut choices = if first == 0 { CHOICES } else { 0 };
            while ports.is_err() && choices > 0 {
                choices -= 1;
                ports = Port::bind_row(first, &ranks_by_port).await;
            }
            pods.push(Bound::new(plan, number, ports?)?);
        }
        Ok(Self { pods })
    }

    /// Where they listen: all ports of the first, then those of the next.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.pods.iter().flat_map(|pod| &pod.ports).map(|port| port.address).collect()
    }

    /// Serves until it is dropped.
    pub async fn serve(self) {
        let local = LocalSet::new();
        let mut tasks = JoinSet::new();
        for Bound { ports, sim, over } in self.pods {
            tasks.spawn_local_on(tell(over), &local);
            tasks.spawn_local_on(Rc::clone(&sim).drive(), &local);
            let pod = Rc::new(Pod::new(sim));
            for port in ports {
                tasks.spawn_local_on(listen(Rc::clone(&pod), port), &local);
            }
        }
        local.run_until(async move { while tasks.join_next().await.is_some() {} }).await;
    }
}

/// Accepts connections, except while a fault refuses them.
async fn listen(pod: Rc<Pod>, Port { listener, address, ranks }: Port) {
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
                Ok(stream) => {
                    let served = connection(Rc::clone(&pod), ranks.clone(), stream);
                    connections.spawn_local(served);
                }
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

async fn connection(pod: Rc<Pod>, ranks: Range<u16>, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let control = Rc::new(Cell::new(false));
    let service = {
        let (pod, control) = (Rc::clone(&pod), Rc::clone(&control));
        service_fn(move |request| {
            Rc::clone(&pod).answer(ranks.clone(), Rc::clone(&control), request)
        })
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

    /// Where they listen: all ports of the first, then those of the next.
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
