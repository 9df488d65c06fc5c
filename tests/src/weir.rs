//! A dispatcher that runs: where it listens, and what it says of itself.

use std::{net::SocketAddr, path::Path, process::Command};

use serde_json::Value;

use crate::{Call, Program, Reply, built, eventually};

/// A running `weir serve`.
#[derive(Debug)]
pub struct Weir {
    /// Where clients call it.
    pub api: SocketAddr,
    /// Where probes, metrics and the snapshot are.
    pub admin: SocketAddr,
    /// Its process.
    pub program: Program,
}

impl Weir {
    /// Starts a dispatcher on a configuration that logs JSON, and waits until it is alive. It may not
    /// be ready: that depends on its pods.
    pub async fn start(config: &Path, log: &Path) -> Self {
        let mut program = Program::start(
            Command::new(built::binary("weir")).arg("serve").arg("--config").arg(config),
            log,
        );
        let [api, admin] = program.says("weir says where it listens", serving).await;
        let weir = Self { api, admin, program };
        eventually("weir is alive", async || Call::get("/livez").try_open(admin).await).await;
        weir
    }

    /// Waits until it has a pod that takes requests.
    pub async fn ready(&self) {
        eventually("weir is ready", async || {
            let reply = self.readyz().await;
            if reply.status == 200 { Ok(()) } else { Err(reply) }
        })
        .await;
    }

    /// Waits until no pod takes requests.
    pub async fn without_pods(&self) {
        eventually("weir has no pod", async || {
            let reply = self.readyz().await;
            if reply.body == "no pod is ready\n" { Ok(()) } else { Err(reply) }
        })
        .await;
    }

    /// What `/readyz` answers.
    pub async fn readyz(&self) -> Reply {
        Call::get("/readyz").to(self.admin).await
    }

    /// What `/snapshot` answers.
    ///
    /// # Panics
    /// When that is no JSON.
    pub async fn overview(&self) -> Value {
        serde_json::from_str(&read(self.admin, "/snapshot").await).expect("the snapshot is JSON")
    }

    /// The snapshot of its one pool.
    pub async fn snapshot(&self) -> Value {
        self.overview().await["pools"][0]["snapshot"].take()
    }

    /// What `/metrics` answers.
    pub async fn metrics(&self) -> Metrics {
        Metrics(read(self.admin, "/metrics").await)
    }

    /// What waits and what is in flight now.
    pub async fn open_requests(&self) -> Open {
        let snapshot = self.snapshot().await;
        let count = |name: &str| snapshot[name].as_u64().unwrap_or(0);
        Open { waiting: count("waiting"), in_flight: count("in_flight") }
    }

    /// Bytes of the machine's memory that are its own.
    ///
    /// # Panics
    /// When the system does not say.
    pub fn resident_bytes(&self) -> f64 {
        let path = format!("/proc/{}/status", self.program.id());
        let status = std::fs::read_to_string(path).expect("the program runs");
        let kb = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kb = kb.and_then(|kb| kb.split_ascii_whitespace().next()?.parse::<f64>().ok());
        kb.expect("Linux says how much memory is resident") * 1024.0
    }

    /// Waits until so many requests wait.
    pub async fn waiting(&self, count: u64) {
        eventually("so many wait", async || {
            let open = self.open_requests().await;
            if open.waiting == count { Ok(()) } else { Err(open) }
        })
        .await;
    }
}

/// Requests that arrived and are not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Those without a pod.
    pub waiting: u64,
    /// Those with one.
    pub in_flight: u64,
}

impl Open {
    /// All of them.
    pub const fn total(self) -> u64 {
        self.waiting + self.in_flight
    }
}

/// The body of a page that must be there.
pub(crate) async fn read(address: SocketAddr, path: &str) -> String {
    let reply = Call::get(path).to(address).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    String::from_utf8(reply.body.into()).expect("the page is text")
}

/// The addresses of the API and of the admin side in the log line "serving".
pub fn serving(line: &str) -> Option<[SocketAddr; 2]> {
    let line: Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| line[name].as_str()?.parse().ok();
    (line["message"] == "serving").then_some([address("api")?, address("admin")?])
}

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct Metrics(pub String);

impl Metrics {
    /// The sum of a series over all label values but the given ones; 0 when there is none.
    pub fn sum(&self, series: &str, labels: &[(&str, &str)]) -> f64 {
        self.values(series, labels).sum()
    }

    /// Whether there is such a series.
    pub fn has(&self, series: &str, labels: &[(&str, &str)]) -> bool {
        self.values(series, labels).next().is_some()
    }

    fn values<'a>(
        &'a self,
        series: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = f64> + 'a {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(series)?;
            let (names, value) = rest.rsplit_once(' ')?;
            let is_it = names.is_empty() || names.starts_with('{');
            let has = |(name, value): &(&str, &str)| names.contains(&format!("{name}=\"{value}\""));
            (is_it && labels.iter().all(has)).then(|| value.parse().ok())?
        })
    }
}
