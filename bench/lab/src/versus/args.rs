//! The command line of `weir-bench versus`, and the rounds.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, ensure};
use clap::Args;

use super::{
    standings::{Ran, Standings},
    way::{Way, ways},
};
use crate::{
    children::{INTERRUPTED, unless_interrupted},
    demo::percent,
    load::{Class, parse_classes},
    real::{self, Decides, Pods, RealArgs, Slice},
    results::{ResultFile, say},
    sim::Pool,
};

/// Send the same requests through Weir with one policy after the other, in front of the same pods, and compare
#[derive(Clone, Debug, Args)]
pub struct VersusArgs {
    /// Presets of Weir, and `direct`: one engine of your own, asked itself
    #[arg(
        long = "policy",
        value_parser = ways(),
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "weir,least-request,load-prefix,predicted-latency"
    )]
    ways: Vec<Way>,
    #[command(flatten)]
    real: RealArgs,
    /// Classes with their shares, as name:share; those of the demo's mix, or of a trace `interactive`, when left out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    classes: Vec<String>,
    /// Objectives of a class, as name=ttft_ms/tpot_ms, for Weir and for the verdict; Weir's defaults when left out
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "classes")]
    slo: Vec<String>,
    /// How often everybody runs, each time with other requests
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Folder for the configuration, logs, samples and bundles
    #[arg(long, default_value = "target/versus")]
    dir: PathBuf,
    /// File for the standings as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is to be run.
pub(super) struct Contest {
    pub(super) pool: Pool,
    /// A list of requests for each round.
    pub(super) slices: Vec<Slice>,
    pods: Pods,
}

impl VersusArgs {
    /// Runs everybody and prints the standings.
    ///
    /// # Errors
    /// When the arguments make no run, or one cannot be run.
    pub fn run(self) -> Result<ExitCode> {
        let contest = self.contest()?;
        let json = ResultFile::asked(self.json.as_deref())?
            .sparing([("--trace", self.real.trace.as_deref())])?;
        if let Some(slice) = contest.slices.first() {
            let (words, dir) = (self.real.words(&contest.pool, slice)?, self.dir.display());
            say!("{words} Logs are in {dir}, by policy.")?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = unless_interrupted(Box::pin(self.rounds(&contest)));
        let Some(standings) = runtime.block_on(run)? else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        json.json(&standings)?;
        say!("{}", standings.for_people())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Everything that can be wrong is, before anything is started.
    pub(super) fn contest(&self) -> Result<Contest> {
        let ways = &self.ways;
        for way in ways {
            let times = ways.iter().filter(|other| *other == way).count();
            ensure!(times == 1, "--policy names {} twice", way.name());
        }
        ensure!(
            !ways.contains(&Way::Direct) || self.real.engines.len() == 1,
            "direct is for one engine of your own (--engines): between several somebody has to decide"
        );
        let (pool, classes) = (self.real.pool()?, self.classes()?);
        let rounds = 0..self.rounds as usize;
        let slices = rounds.map(|round| self.real.slice(&pool, &classes, round));
        let slices = slices.collect::<Result<_>>()?;
        Ok(Contest { slices, pods: self.real.pods(&pool)?, pool })
    }

    fn classes(&self) -> Result<Vec<Class>> {
        match self.classes.as_slice() {
            [] => self.real.usual_classes(),
            named => parse_classes(named, &self.slo),
        }
    }

    async fn rounds(&self, contest: &Contest) -> Result<Standings> {
        let (ways, Contest { slices, pods, .. }) = (&self.ways, contest);
        let mut ran: Vec<Vec<Ran>> = ways.iter().map(|_| Vec::new()).collect();
        let first = self.real.first_words();
        for (round, slice) in slices.iter().enumerate() {
            for (turn, (seat, way)) in turns(ways, round).enumerate() {
                let slice = slice.apart(first.wrapping_add((round * ways.len() + turn) as u64));
                // Each has its logs and what it learned in a folder of its own.
                let place = self.real.place(&self.dir.join(way.name()));
                let gave = match way {
                    Way::Weir(policy) => {
                        let decides = Decides { policy, prediction: self.real.prediction };
                        real::run(&slice, pods, &place, decides).await?
                    }
                    Way::Direct => real::run_direct(&slice, pods).await?,
                };
                let one = Ran::of(&slice, gave);
                let (policy, share) = (way.name(), percent(Some(one.attained(&slice.classes))));
                say!("round {} of {}, {policy}: {share} in time", round + 1, slices.len())?;
                ran.get_mut(seat).into_iter().for_each(|rounds| rounds.push(one.clone()));
            }
        }
        Ok(Standings::of(slices, ways, &ran))
    }
}

/// Everybody once, the first of a round being the second of the one before.
pub(super) fn turns(ways: &[Way], round: usize) -> impl Iterator<Item = (usize, Way)> {
    let count = ways.len().max(1);
    let seats = ways.iter().copied().enumerate().cycle();
    seats.skip(round % count).take(ways.len())
}
