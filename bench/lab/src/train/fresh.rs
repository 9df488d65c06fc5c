//! How soon a sample is in the model that serves: `weir serve` with its trainer, under load.
//!
//! The trainer dates a bundle by the start of its round and reads the spool right after. So a sample that was written the moment
//! after one round began is in the bundle of the next one: from the start of a round to the service of the bundle after it is
//! the longest that a sample can take, if no round between was held back because its model was worse.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::time::{Instant, sleep};
use weir_engine::{EngineConfig, hardware};
use weir_schema::{
    Manifest, Sample,
    manifest::{MANIFEST_FILE, bundle_name},
};

use super::samples::{GPU, now_unix_ms, spool};
use crate::{
    children::Child,
    demo::{Group, Place, Stage, class, local},
    http_get,
};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The first model comes within this, or never.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests per second, so that there are decisions to take a bundle and samples to make another worth it.
const RATE_RPS: u32 = 16;

/// What is measured with.
pub(super) struct Setup<'a> {
    pub interval: Duration,
    /// Bundles after the first.
    pub bundles: usize,
    /// First of four free ports.
    pub port: u16,
    pub folder: &'a Path,
}

/// What was seen of the bundles.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fresh {
    pub interval_s: f64,
    /// From the start of each round to the service of its bundle, in seconds.
    pub served_after_s: Vec<f64>,
    /// The longest that a sample took, for each bundle after the first that came of the very next round, in seconds.
    pub longest_s: Vec<f64>,
    /// The same for the others: a round between was held back because its model was worse on the newest samples than the
    /// one that served.
    pub held_back_s: Vec<f64>,
}

/// A bundle that came into service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// When its round began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// When it was seen to serve.
    pub served_unix_ms: u64,
    /// Rounds that had been held back by then.
    pub held_back: usize,
}

/// What the trainer says of such a round.
const HELD_BACK: &str = "not better; not published";

/// Serves, trains and watches.
pub(super) async fn fresh(samples: &[Sample], setup: &Setup<'_>) -> Result<Fresh> {
    let port = |number: u16| local(setup.port.saturating_add(number));
    let engine = EngineConfig::for_hardware(hardware(GPU).context("the pods are known")?);
    let group = Group { engine, pods: vec![port(2), port(3)] };
    let place = Place { api: port(0), admin: port(1), dir: setup.folder.to_owned(), seed: 1 };
    let yaml = |dir: &Path| yaml(&group, &place, setup.interval, dir);
    let mut stage = Stage::set(&place, std::slice::from_ref(&group), yaml).await?;
    spool(samples, &stage.dir.join("spool"), now_unix_ms())?;
    let seconds =
        (setup.bundles + 2) as f64 * setup.interval.as_secs_f64() * 3.0 + PATIENCE.as_secs_f64();
    let mut load = Command::new(std::env::current_exe()?);
    load.args(["load", "--mix", "demo", "--model", group.engine.hardware.model])
        .args(["--target", &format!("http://{}", place.api)])
        .args(["--rate", &RATE_RPS.to_string(), "--for", &format!("{seconds:.0}")]);
    let mut load = Child::start("weir-bench load", &mut load, &stage.dir.join("load.log"))?;
    let mut seen = Vec::new();
    let mut served = 0;
    let mut since = Instant::now();
    while seen.len() <= setup.bundles || Fresh::of(setup.interval, &seen).longest_s.is_empty() {
        stage.check()?;
        load.check()?;
        ensure!(since.elapsed() < PATIENCE, "no new model in {} s", PATIENCE.as_secs());
        let now = serving(&http_get::get(place.admin, "/metrics").await?);
        if now > served {
            let served_unix_ms = now_unix_ms();
            (served, since) = (now, Instant::now());
            let began_unix_ms = trained_at(&stage.dir.join("bundles"), now)?;
            let held_back =
                fs::read_to_string(stage.dir.join("weir.log"))?.matches(HELD_BACK).count();
            seen.push(Seen { began_unix_ms, served_unix_ms, held_back });
        }
        sleep(LOOK_AGAIN).await;
    }
    Ok(Fresh::of(setup.interval, &seen))
}

impl Fresh {
    /// From the bundles in the order of their service.
    pub(super) fn of(interval: Duration, seen: &[Seen]) -> Self {
        let s = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1000.0;
        let (mut longest_s, mut held_back_s) = (Vec::new(), Vec::new());
        for (before, next) in seen.iter().zip(seen.iter().skip(1)) {
            let took_s = s(before.began_unix_ms, next.served_unix_ms);
            let held_back = next.held_back > before.held_back;
            if held_back { &mut held_back_s } else { &mut longest_s }.push(took_s);
        }
        let served_after = seen.iter().map(|seen| s(seen.began_unix_ms, seen.served_unix_ms));
        let (interval_s, served_after_s) = (interval.as_secs_f64(), served_after.collect());
        Self { interval_s, served_after_s, longest_s, held_back_s }
    }
}

/// The version that serves, by the metrics' page; 0 is none.
pub(super) fn serving(page: &str) -> u64 {
    let line = page.lines().find(|line| line.starts_with("weir_model_version{"));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.unwrap_or_default() as u64
}

fn trained_at(bundles: &Path, version: u64) -> Result<u64> {
    let path: PathBuf = bundles.join(bundle_name(version)).join(MANIFEST_FILE);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_slice::<Manifest>(&bytes)?.trained_at_unix_ms)
}

fn yaml(group: &Group, place: &Place, interval: Duration, dir: &Path) -> String {
    let (bundles, spool) = (dir.join("bundles"), dir.join("spool"));
    let class_name = group.engine.hardware.name;
    let pods: Vec<String> = group
        .pods
        .iter()
        .map(|pod| format!("      - {{ url: \"http://{pod}\", class: {class_name} }}\n"))
        .collect();
    format!(
        "# Written by `weir-bench train`.
listen: {api}
admin: {{ listen: {admin} }}
classes:
{class}pools:
  - model: {model}
    pods:
{pods}model: {{ bundles: {bundles:?} }}
spool: {{ dir: {spool:?} }}
state: {{ dir: \"\" }}
trainer: {{ run: true, interval_s: {interval} }}
",
        api = place.api,
        admin = place.admin,
        class = class(group),
        model = group.engine.hardware.model,
        pods = pods.concat(),
        interval = interval.as_secs(),
    )
}
