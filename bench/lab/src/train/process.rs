//! A round by the program: `weir train --once`, its time on a processor and the most memory it held, which it says itself.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use weir_schema::Sample;

use super::{
    clock::Took,
    samples::{now_unix_ms, spool},
};

const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// What /proc counts time on a processor in, everywhere that Linux runs.
const TICKS_PER_S: f64 = 100.0;

/// What the process took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Process {
    /// From its start to its end, the loading of XGBoost with it.
    pub took: Took,
    /// The most memory it held at once (VmHWM), in MB of a million bytes.
    pub peak_mb: f64,
}

/// Trains once on these samples in this folder with the program `weir`.
pub(super) fn train(weir: &Path, samples: &[Sample], folder: &Path) -> Result<Process> {
    fs::create_dir_all(folder)?;
    spool(samples, &folder.join("spool"), now_unix_ms())?;
    let file = folder.join("weir.yaml");
    let (bundles, spool) = (folder.join("bundles"), folder.join("spool"));
    // Samples of pods of another class are nothing that it trains on.
    let class = samples.first().map_or("default", |sample| &*sample.pod_class);
    fs::write(
        &file,
        format!(
            "classes: [{{ name: {class} }}]\n\
             pools: [{{ model: m, pods: [{{ url: \"http://127.0.0.1:1\" }}] }}]\n\
             model: {{ bundles: {bundles:?} }}\nspool: {{ dir: {spool:?} }}\nlog: {{ format: json }}\n"
        ),
    )?;
    let mut command = Command::new(weir);
    command.args(["train", "--once", "--config"]).arg(&file).stdin(Stdio::null());
    let lines = folder.join("train.log");
    let log = fs::File::create(&lines)?;
    let started = Instant::now();
    let mut child = command
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {}", weir.display()))?;
    let mut cpu_s = 0.0_f64;
    // It stays readable as a zombie until it is waited for, so nothing of its time is missed.
    while let Some((state, seconds)) = stat(child.id()) {
        cpu_s = cpu_s.max(seconds);
        if state == 'Z' {
            break;
        }
        sleep(LOOK_AGAIN);
    }
    let wall_s = started.elapsed().as_secs_f64();
    let status = child.wait()?;
    let published = bundles.join(weir_schema::manifest::CURRENT_FILE).is_file();
    let said = fs::read_to_string(&lines)?;
    ensure!(status.success() && published, "weir train published nothing: {said}");
    let peak_mb = peak_mb(&said).context("weir train does not say how much memory it took")?;
    Ok(Process { took: Took { wall_s, cpu_s }, peak_mb })
}

/// Its state, and the seconds that it has been on a processor.
fn stat(id: u32) -> Option<(char, f64)> {
    parsed(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// The name of the program stands in brackets and may hold anything.
pub(super) fn parsed(stat: &str) -> Option<(char, f64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
    let seconds = (ticks(11)? + ticks(12)?) / TICKS_PER_S;
    Some((fields.first()?.chars().next()?, seconds))
}

/// The most memory that it held at once, by its log lines.
pub(super) fn peak_mb(log: &str) -> Option<f64> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let said = lines.filter_map(|line| line.get("peak_memory_mb")?.as_f64());
    said.reduce(f64::max)
}
