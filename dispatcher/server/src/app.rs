//! The assembly: every part of the dispatcher, made and tied together in one visible sequence, and
//! taken apart again in the opposite one.
//!
//! Start-up waits for nothing outside this process: pods, libraries, bundles, folders and the trainer
//! may all be absent, and what is absent is said in a log line and a metric. Only an address that
//! cannot be listened on, or a system that gives no thread, ends it.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, mpsc},
    time::Duration,
};

use tokio::{sync::watch::channel, task::JoinSet, time::timeout};
use weir_core::{Event, Scheduler};
use weir_predict::{Chain, Slot};
use weir_schema::Predict;

use crate::{
    admin::{self, seat::Seat, settings::Settings},
    api::{self, Api, Listeners, Plane, PlaneConfig, models::NameTaken, plane::room},
    clock::{self, Clock},
    config::{
        Config, Origin, PoolConfig, Reloader,
        reload::{Parts, pools_of},
        watch,
    },
    descriptors,
    fleet::{
        self, Muster,
        config::{Members, ScrapeConfig},
        roster::Roster,
    },
    hub::{Hub, SampleSink, run_ticks},
    learn::{
        LearnConfig, Shelf,
        reload::{Bell, Reload},
        shelf::Counter,
        spool,
        trainer::{Launch, supervise},
    },
    memory,
    replicas::{self, Replicas},
    shutdown::{Life, ShutdownConfig, Signals, Stage, conduct},
    state::Keeper,
    telemetry::{
        Metrics, Watched,
        compat::{RawTelemetry, timed::Timed},
        spans::{Tracer, export},
    },
    worker::Worker,
};

/// Time for the last answers to be written after everything that waits was refused and what runs was ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Time that a background worker has to end.
const FAREWELL: Duration = Duration::from_secs(3);

/// Why the dispatcher did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The system gives no thread or no runtime.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// Two pools share a name.
    #[error(transparent)]
    Name(#[from] NameTaken),
    /// Two series share a name.
    #[error("cannot make the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A dispatcher that serves.
pub struct App {
    plane: Plane,
    admin: SocketAddr,
    watched: Watched,
    shutdown: ShutdownConfig,
    trainer: Option<Launch>,
    workers: Workers,
}

/// What runs beside the data plane.
struct Workers {
    config: Worker,
    fleet: Worker,
    loader: Worker,
    bell: Bell,
    /// Closed to end the spool's writer.
    sink: SampleSink,
    spool: Worker,
    admin: Worker,
    memory: Worker,
    clock: Worker,
    replicas: Option<Worker>,
    keeper: Option<Worker>,
    spans: Option<Worker>,
}

/// Serves until a signal says otherwise. `origin` is where the configuration came from: it is read again
/// when it changes, and handed to the trainer. `greet` is told the addresses of the API and the admin side
/// once they are listened on.
///
/// # Errors
/// When the dispatcher cannot start.
pub fn serve(
    config: Config,
    origin: &Origin,
    greet: impl FnOnce(SocketAddr, SocketAddr),
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = tokio::sync::Mutex::new(Signals::listen()?);
        let app = App::start(config, origin)?;
        let (api, admin) = app.addresses();
        greet(api, admin);
        app.run(|| async { signals.lock().await.next().await }).await;
        Ok(())
    })
}

impl App {
    /// Makes and starts everything but the timers and the trainer, which [`App::run`] drives.
    ///
    /// # Errors
    /// When an address cannot be listened on or the system gives no thread.
    pub fn start(config: Config, origin: &Origin) -> Result<Self, ServeError> {
        let listen = |address| move |error| ServeError::Listen { address, error };
        descriptors::raise();
        // First what may fail, so that nothing is left behind. Who comes before there is anybody to serve waits: once the admin side
        // says that this dispatcher is ready, nobody is refused.
        let listeners = Listeners::bind(config.listen, config.threads);
        let listeners = listeners.map_err(listen(config.listen))?;
        let door = admin::bind(config.admin).map_err(listen(config.admin))?;
        let admin = door.local_addr()?;
        let others = config.replicas.clone().map(|others| {
            let listener = replicas::bind(&others).map_err(listen(others.listen))?;
            Ok::<_, ServeError>((listener, others))
        });
        let others = others.transpose()?;
        let interval = config.learn.train.interval;
        let trainer = config.learn.run_trainer;
        let trainer = trainer.then(|| Launch::this_program(origin.file.as_deref(), interval));
        let most_tenants = config.telemetry.max_tenants;
        let compat = config.telemetry.compat_metrics;
        let metrics = if compat { Metrics::with_compat(most_tenants) } else { Metrics::new() };
        let metrics = Arc::new(metrics?);

        for note in config.notes() {
            tracing::warn!("{note}");
        }
        let clock = Clock::new();
        let (sink, samples) = async_channel::bounded(spool::SAMPLES_QUEUED);
        let (hubs, slots) = hubs(&config.pools, clock, &sink, &metrics);
        hubs.iter().for_each(|hub| metrics.expect_model(hub.model()));
        let (bell, heard) = Bell::new();
        let (shelf, counter) = Shelf::new(config.learn.bundles.clone(), bell.clone());
        let life = Life::default();
        let room = room(&config.api.limits);
        let others = others.map(|(listener, others)| Replicas::new(listener, others, &hubs, &life));
        let circles = others.as_ref().map(|others| others.circles().to_vec());
        let watched = Watched {
            hubs: hubs.clone(),
            circles: circles.unwrap_or_default(),
            metrics: metrics.clone(),
            versions: Arc::default(),
            state: Arc::default(),
            spool: Arc::default(),
            reload: Arc::default(),
            shelf: Arc::new(shelf),
            config: Arc::default(),
            trainer: Arc::default(),
            spans: Arc::default(),
            identities: [&config.tls, &config.admin_tls].into_iter().flatten().cloned().collect(),
            room: room.clone(),
            life,
            clock,
        };

        let pools = pools_of(&hubs, &config);
        let limits = config.api.limits;
        let api = Api::new(config.api.clone(), pools, clock, metrics)?;
        let (tracer, spans) = spans(&config.telemetry, &watched)?;
        let api = Arc::new(api.with_tracer(tracer));
        let (members, ordered) = channel::<Vec<Members>>(vec![]);
        let rights = config.seat.clone().rights();
        let parts = Parts { api: api.clone(), hubs: hubs.clone(), members, rights: rights.clone() };
        let reloader = Reloader::new(origin.clone(), &config, parts, clock, watched.config.clone());
        let reloader = Arc::new(reloader);
        let settings = Settings {
            written: config.raw.clone(),
            origin: origin.clone(),
            reloader: Some(reloader.clone()),
        };

        let spool = spool_writer(&config.learn, samples, &watched)?;
        let (loader, bell) = loader(&config.learn, slots, &watched, (counter, bell, heard))?;
        // Before there are pods, of which something may have been asked.
        let keeper = config.state.map(|state| Keeper::open(state, &hubs, watched.state.clone()));
        let keeper =
            keeper.map(|keeper| Worker::spawn_async("weir-state", move |stop| keeper.run(stop)));
        let keeper = keeper.transpose()?;
        let musters = musters(&hubs, config.pools, config.scrape);
        let scrape = config.scrape;
        let fleet = Worker::spawn_async("weir-fleet", move |stop| {
            fleet::run(musters, scrape, ordered, stop)
        })?;
        let changes = Worker::spawn_async("weir-config", move |stop| watch::watch(reloader, stop))?;
        let memory = Worker::spawn_async("weir-memory", memory::watch)?;
        let beats = Worker::spawn_async("weir-clock", move |stop| clock::beat(clock, stop))?;
        let replicas =
            others.map(|others| Worker::spawn_async("weir-replicas", move |stop| others.run(stop)));
        let replicas = replicas.transpose()?;
        let seat = Seat::new(watched.clone(), rights, settings, admin);
        let own = config.admin_tls;
        let side =
            Worker::spawn_async("weir-admin", move |stop| admin::run(door, own, seat, stop))?;

        // Last the door that requests come through.
        let plane = PlaneConfig { listeners, identity: config.tls, limits, room };
        let plane = api::start(plane, &api, config.upstream)?;
        tracing::info!(api = %plane.address(), %admin, "serving");
        let workers = Workers {
            config: changes,
            fleet,
            loader,
            bell,
            sink,
            spool,
            admin: side,
            memory,
            clock: beats,
            replicas,
            keeper,
            spans,
        };
        Ok(Self { plane, admin, watched, shutdown: config.shutdown, trainer, workers })
    }

    /// Where the API and the admin side listen.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.plane.address(), self.admin)
    }

    /// The hubs of its pools, in the configuration's order.
    pub fn hubs(&self) -> &[Arc<Hub>] {
        &self.watched.hubs
    }

    /// Serves until `signal` ends, then drains and takes everything apart.
    pub async fn run<S, N>(self, signal: S)
    where
        S: FnMut() -> N,
        N: Future<Output = ()>,
    {
        let mut tasks = JoinSet::new();
        for hub in &self.watched.hubs {
            tasks.spawn(run_ticks(hub.clone()));
        }
        if let Some(launch) = self.trainer.clone() {
            let tally = self.watched.trainer.clone();
            tasks.spawn(async move { supervise(&launch, &tally).await });
        }
        let life = &self.watched.life;
        let conducting = conduct(life, self.shutdown, signal, || self.plane.finished());
        let closing = async {
            life.reached(Stage::Draining).await;
            self.plane.drain();
            life.reached(Stage::Closing).await;
            self.plane.stop();
        };
        tokio::join!(conducting, closing);

        self.watched.hubs.iter().for_each(|hub| hub.post(Event::Close));
        self.plane.close();
        if timeout(LAST_WORDS, self.plane.finished()).await.is_err() {
            self.plane.abort();
            // What is cut gives its pods back before the pods go.
            let _ = timeout(LAST_WORDS, self.plane.finished()).await;
        }
        tasks.shutdown().await;
        self.workers.end();
        tracing::info!("closed");
    }
}

impl Workers {
    /// Ends them in the order in which they feed each other; the admin side answers to the last.
    fn end(self) {
        self.config.join(FAREWELL);
        self.memory.join(FAREWELL);
        self.clock.join(FAREWELL);
        self.replicas.map(|replicas| replicas.join(FAREWELL));
        // Before the pods leave, and with them what they have cached.
        self.keeper.map(|keeper| keeper.join(FAREWELL));
        self.fleet.join(FAREWELL);
        self.sink.close();
        self.spool.join(FAREWELL);
        self.loader.stop();
        self.bell.ring();
        self.loader.join(FAREWELL);
        self.spans.map(|spans| spans.join(FAREWELL));
        self.admin.join(FAREWELL);
    }
}

/// A hub for each pool, with the slot that its bundles come through.
fn hubs(
    pools: &[PoolConfig],
    clock: Clock,
    sink: &SampleSink,
    metrics: &Metrics,
) -> (Vec<Arc<Hub>>, Vec<Slot>) {
    let hub = |pool: &PoolConfig| {
        let slot = Slot::new();
        let buckets = &pool.scheduler.buckets;
        let mut chain =
            Chain::with_slot(slot.clone()).with_patterns(&buckets.input, &buckets.output);
        for (class, profile) in &pool.profiles {
            chain.set_profile(*class, profile.clone());
        }
        let model = pool.scheduler.model.clone();
        let predictor: Box<dyn Predict> = match metrics.compat() {
            Some(compat) => Box::new(Timed::new(chain, compat.clone(), model.clone())),
            None => Box::new(chain),
        };
        let scheduler = Scheduler::new(pool.scheduler.clone(), predictor);
        (Hub::new(scheduler, model, clock, sink.clone()), slot)
    };
    pools.iter().map(hub).unzip()
}

fn musters(hubs: &[Arc<Hub>], pools: Vec<PoolConfig>, scrape: ScrapeConfig) -> Vec<Muster> {
    let rosters = Roster::for_each(hubs, scrape).into_iter();
    rosters.zip(pools).map(|(roster, pool)| Muster::new(roster, pool.members)).collect()
}

fn spool_writer(
    learn: &LearnConfig,
    samples: async_channel::Receiver<weir_schema::Sample>,
    watched: &Watched,
) -> io::Result<Worker> {
    let (config, versions, tally) =
        (learn.spool.clone(), watched.versions.clone(), watched.spool.clone());
    Worker::spawn("weir-spool", move |_| spool::run(&config, &samples, &versions, &tally))
}

/// What finds the traces of requests, and what sends their spans, if they are sent anywhere.
fn spans(config: &RawTelemetry, watched: &Watched) -> io::Result<(Tracer, Option<Worker>)> {
    let tracer = Tracer::new(config.trace_context);
    let Some(collector) = config.spans.collector().ok().flatten() else {
        return Ok((tracer, None));
    };
    let tally = watched.spans.clone();
    let (tracer, over) = tracer.with_spans(config.spans.sample, watched.clock, tally.clone());
    let worker =
        Worker::spawn_async("weir-spans", move |stop| export::run(collector, over, tally, stop))?;
    Ok((tracer, Some(worker)))
}

fn loader(
    learn: &LearnConfig,
    slots: Vec<Slot>,
    watched: &Watched,
    (counter, bell, heard): (Counter, Bell, mpsc::Receiver<()>),
) -> io::Result<(Worker, Bell)> {
    let hubs = watched.hubs.clone();
    let serves = move || hubs.iter().map(|hub| hub.take_up_bundle()).collect();
    let hubs = watched.hubs.clone();
    let back_to = move || hubs.iter().filter_map(|hub| hub.predictor().predecessor).collect();
    let reload = Reload {
        bundles: learn.bundles.clone(),
        library: learn.onnxruntime.clone(),
        choice: learn.evaluator,
        classes: learn.train.classes.clone(),
        slots,
        take_up: Box::new(serves),
        go_back_to: Box::new(back_to),
        tally: watched.reload.clone(),
        counter,
    };
    let own = bell.clone();
    let worker = Worker::spawn("weir-loader", move |stop| {
        reload.run(own, &heard, || stop.is_requested());
    })?;
    Ok((worker, bell))
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
