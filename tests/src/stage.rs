//! Pods, a configuration and a dispatcher, raised for one scenario.

use std::{net::SocketAddr, path::PathBuf};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{Call, MODEL, Pod, Reply, Weir, eventually};

/// Class of every pod.
const CLASS: &str = "h100-qwen3-32b-tp2";

/// What a stage is made of.
#[derive(Debug)]
pub struct Plan {
    dir: TempDir,
    pods: usize,
    arguments: Vec<String>,
    upstreams: Vec<SocketAddr>,
    aliases: Vec<String>,
    tls: Value,
    pool: Value,
    config: Value,
}

/// A stage that stands. Its dispatcher ends before its pods do.
#[derive(Debug)]
pub struct Stage {
    /// The dispatcher.
    pub weir: Weir,
    /// Its pods.
    pub pods: Vec<Pod>,
    config: PathBuf,
    dir: TempDir,
}

impl Default for Plan {
    /// One pod, ten times as fast as the real one, and Weir's own defaults.
    ///
    /// # Panics
    /// When no folder can be made.
    fn default() -> Self {
        let dir = tempfile::tempdir().expect("a folder can be made");
        Self {
            dir,
            pods: 1,
            arguments: Vec::new(),
            upstreams: Vec::new(),
            aliases: Vec::new(),
            tls: Value::Null,
            pool: json!({}),
            config: json!({}),
        }
        .speed(10.0)
    }
}

impl Plan {
    /// With so many simulated pods.
    #[must_use]
    pub fn pods(mut self, count: usize) -> Self {
        self.pods = count;
        self
    }

    /// With pods of another speed.
    #[must_use]
    pub fn speed(self, speed: f64) -> Self {
        self.pod_argument("--speed", &speed.to_string())
    }

    /// With pods that serve so many requests at once, and are known to: what waits behind them goes on waiting until one ends.
    #[must_use]
    pub fn seats(self, count: u32) -> Self {
        self.pod_argument("--max-sequences", &count.to_string())
            .config(json!({"classes": [{"name": "h100-qwen3-32b-tp2", "max_sequences": count}]}))
    }

    /// With an argument for every pod; a later one replaces an earlier.
    #[must_use]
    pub fn pod_argument(mut self, name: &str, value: &str) -> Self {
        if let Some(at) = self.arguments.iter().position(|argument| argument == name) {
            self.arguments.drain(at..at + 2);
        }
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// With an argument of several values for every pod.
    #[must_use]
    pub fn pod_list(mut self, name: &str, values: &[&str]) -> Self {
        let list = std::iter::once(&name).chain(values).map(|one| (*one).to_owned());
        self.arguments.extend(list);
        self
    }

    /// With a server of the scenario's own in the place of simulated pods.
    #[must_use]
    pub fn upstream(mut self, address: SocketAddr) -> Self {
        self.upstreams.push(address);
        self.pods(0)
    }

    /// With pods that are spoken to by TLS, as the pool's `tls` says.
    #[must_use]
    pub fn https(mut self, tls: Value) -> Self {
        self.tls = tls;
        self
    }

    /// With requests that may go on at another pod so often.
    #[must_use]
    pub fn migration_limit(self, limit: u32) -> Self {
        self.pool(json!({"migration_limit": limit}))
    }

    /// With these keys of the pool over those set before.
    #[must_use]
    pub fn pool(mut self, keys: Value) -> Self {
        merge(&mut self.pool, keys);
        self
    }

    /// With another name for the model.
    #[must_use]
    pub fn alias(mut self, name: &str) -> Self {
        self.aliases.push(name.to_owned());
        self
    }

    /// With these keys of the configuration over those set before.
    #[must_use]
    pub fn config(mut self, over: Value) -> Self {
        merge(&mut self.config, over);
        self
    }

    /// A path in the stage's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Raises the stage and waits until every pod takes requests.
    pub async fn raise(self) -> Stage {
        let stage = self.start().await;
        eventually("every pod is ready", async || {
            let pods = stage.weir.snapshot().await["pods"].take();
            let mut phases = pods.as_array().into_iter().flatten().map(|pod| &pod["phase"]);
            if phases.all(|phase| phase == "ready") { Ok(()) } else { Err(pods) }
        })
        .await;
        stage.weir.ready().await;
        stage
    }

    /// Raises the stage without waiting for its pods to be seen.
    ///
    /// # Panics
    /// When the configuration cannot be written.
    pub async fn start(self) -> Stage {
        let mut pods = Vec::new();
        for number in 0..self.pods {
            let log = self.path(&format!("pod-{number}.log"));
            pods.push(Pod::start(&log, &self.arguments).await);
        }
        let addresses = pods.iter().map(|pod| pod.address).chain(self.upstreams.iter().copied());
        let addresses: Vec<SocketAddr> = addresses.collect();
        let config = self.path("weir.yaml");
        std::fs::write(&config, self.yaml(&addresses)).expect("the configuration can be written");
        let weir = Weir::start(&config, &self.path("weir.log")).await;
        Stage { weir, pods, config, dir: self.dir }
    }

    /// The configuration; JSON is YAML.
    fn yaml(&self, pods: &[SocketAddr]) -> String {
        let scheme = if self.tls.is_null() { "http" } else { "https" };
        let pod = |(number, address): (usize, &SocketAddr)| json!({"name": format!("pod-{number}"), "url": format!("{scheme}://{address}")});
        let pods: Vec<Value> = pods.iter().enumerate().map(pod).collect();
        let mut pool =
            json!({"model": MODEL, "aliases": self.aliases, "pods": pods, "tls": self.tls});
        merge(&mut pool, self.pool.clone());
        let mut config = json!({
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "classes": [{"name": CLASS}],
            "pools": [pool],
            "model": {"bundles": self.path("bundles")},
            "spool": {"dir": self.path("spool")},
            "state": {"dir": self.path("state")},
            "log": {"format": "json"},
        });
        merge(&mut config, self.config.clone());
        config.to_string()
    }
}

/// Puts `over` over `under`, key by key.
fn merge(under: &mut Value, over: Value) {
    match over {
        Value::Object(over) if under.is_object() => {
            for (key, value) in over {
                merge(&mut under[&key], value);
            }
        }
        over => *under = over,
    }
}

impl Stage {
    /// One pod and Weir's own defaults.
    pub async fn simple() -> Self {
        Plan::default().raise().await
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The configuration file.
    pub fn config(&self) -> &PathBuf {
        &self.config
    }

    /// Makes a call and reads the answer to its end.
    pub async fn call(&self, call: &Call) -> Reply {
        call.to(self.weir.api).await
    }

    /// Makes a call so often at once. Each is answered whole.
    pub async fn at_once(&self, calls: usize, call: &Call) -> Vec<Reply> {
        let replies = join_all((0..calls).map(|_| self.call(call))).await;
        replies.iter().for_each(Reply::assert_whole);
        replies
    }

    /// Makes a call again and again, each beside the others, until so many of them wait. They go on
    /// until the set is dropped, which is their clients' leaving.
    pub async fn queue_up(&self, waiting: u64, call: &Call) -> JoinSet<Reply> {
        let mut calls = JoinSet::new();
        let before = self.weir.open_requests().await;
        loop {
            let (call, address) = (call.clone(), self.weir.api);
            calls.spawn(async move { call.to(address).await });
            let arrived = before.total() + calls.len() as u64;
            let now_waiting = eventually("the call has arrived", async || {
                let now = self.weir.open_requests().await;
                if now.total() == arrived { Ok(now.waiting) } else { Err(now) }
            })
            .await;
            if now_waiting >= waiting {
                return calls;
            }
        }
    }

    /// Asserts that an ordinary call is served.
    pub async fn assert_serves(&self) {
        self.call(&Call::chat(3)).await.assert_whole();
    }
}
