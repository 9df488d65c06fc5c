//! The command line of `weir-bench decide`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;

use super::{
    drive::{Course, drive},
    evaluator::{Evaluator, train},
    queue::{self, Leaves},
    table::{self, Decided, Turned},
};
use crate::{
    bounds,
    results::{ResultFile, command, say},
};

/// Depths at which the board alone is measured.
const DEPTHS: [u64; 4] = [1000, 10_000, 100_000, 1_000_000];
/// Requests put into the board and taken out for one figure.
const TURNS: u64 = 200_000;
/// Samples that a bundle is trained on.
const SAMPLES: u64 = 12_000;

/// Measure what the decision costs: decisions per second of one core, their times, rows and allocations
#[derive(Clone, Debug, Args)]
pub struct DecideArgs {
    /// Pods
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10,100,1000", value_parser = bounds::pods())]
    pods: Vec<usize>,
    /// Requests per second, over all pods
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "10000",
        allow_negative_numbers = true
    )]
    qps: Vec<f64>,
    /// Kinds of requests
    #[arg(long, value_name = "K", default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    patterns: usize,
    /// How hard the pods work: 1 is what their objectives just allow
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, allow_negative_numbers = true)]
    load: f64,
    /// Share of requests whose response is not streamed
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    unstreamed: f64,
    /// Share of requests without objectives
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_negative_numbers = true)]
    unpromised: f64,
    /// Requests that wait and cannot go
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,100000")]
    depth: Vec<usize>,
    /// Who predicts
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        value_enum,
        default_value = "ort,forest"
    )]
    evaluator: Vec<Evaluator>,
    /// Decisions that are counted in each run
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    decisions: u64,
    /// Decides every draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Leave the board alone out
    #[arg(long)]
    no_queue: bool,
    /// Print the time by kind of event
    #[arg(long)]
    kinds: bool,
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder for the curves as SVG files
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

/// What the file holds.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: String,
    runs: &'a [Decided],
    queue: &'a [Turned],
}

impl DecideArgs {
    /// Measures and prints.
    ///
    /// # Errors
    /// When a bundle cannot be trained or loaded, or a file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        self.check()?;
        let json = ResultFile::asked(self.json.as_deref())?;
        let mut runs = Vec::new();
        for pods in &self.pods {
            for qps in &self.qps {
                self.measure(*pods, *qps, &mut runs)?;
            }
        }
        let depths = DEPTHS.iter().filter(|_| !self.no_queue);
        let turn = |depth: &u64| Turned {
            depth: *depth,
            turnover_us: self.turnover_us(*depth, Leaves::Anyone),
            head_us: self.turnover_us(*depth, Leaves::Head),
            longest_us: queue::longest_us(*depth, self.patterns),
        };
        let turned: Vec<Turned> = depths.map(turn).collect();
        json.json(&Report { command: command(), runs: &runs, queue: &turned })?;
        if let Some(folder) = &self.plots {
            table::plot(&runs, &turned, folder)?;
        }
        say!("{}", table::decisions(&runs))?;
        if !turned.is_empty() {
            say!("{}", table::queue(&turned))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// # Errors
    /// When a number makes no measurement.
    pub(super) fn check(&self) -> Result<()> {
        let sound = [self.load].iter().chain(&self.qps).all(|one| one.is_finite() && *one > 0.0);
        ensure!(sound, "--qps and --load must be above 0");
        ensure!((0.0..=1.0).contains(&self.unstreamed), "--unstreamed must be from 0 to 1");
        ensure!((0.0..=1.0).contains(&self.unpromised), "--unpromised must be from 0 to 1");
        Ok(())
    }

    fn turnover_us(&self, depth: u64, leaves: Leaves) -> f64 {
        queue::turnover_us(depth, self.patterns, (TURNS, leaves), true)
    }

    /// Every evaluator at every depth in front of these pods.
    fn measure(&self, pods: usize, qps: f64, runs: &mut Vec<Decided>) -> Result<()> {
        let of = |depth, warm_up, decisions| Course {
            pods,
            qps,
            patterns: self.patterns,
            load: self.load,
            unstreamed: self.unstreamed,
            unpromised: self.unpromised,
            depth,
            warm_up,
            decisions,
            seed: self.seed,
            is_timed: true,
            handicap: 0,
        };
        let folder = tempfile::tempdir().context("cannot make a folder for samples")?;
        if self.evaluator.iter().any(|one| *one != Evaluator::Prior) {
            let learning =
                drive(&of(0, 0, SAMPLES), Evaluator::Prior.predictor(folder.path())?, true);
            train(&learning.samples, folder.path())?;
        }
        for evaluator in &self.evaluator {
            for depth in &self.depth {
                let course = of(*depth, self.decisions / 2, self.decisions);
                let predictor = evaluator.predictor(&folder.path().join("bundles"))?;
                let driven = drive(&course, predictor, false);
                let decided = Decided::of(&course, evaluator.name(), driven);
                if self.kinds {
                    say!("{}", decided.kinds())?;
                }
                runs.push(decided);
            }
        }
        Ok(())
    }
}
