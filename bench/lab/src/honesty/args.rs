//! The command line of `weir-bench honesty`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Args;
use weir_core::Policy;

use super::{compare::Comparison, simulated};
use crate::{
    bounds,
    children::{INTERRUPTED, unless_interrupted},
    real::{self, Decides, Figures, Gave, RealArgs},
    results::{ResultFile, say},
};

/// Send the same requests through the real program and through the simulation, and compare
#[derive(Clone, Debug, Args)]
pub struct HonestyArgs {
    #[command(flatten)]
    pub(super) real: RealArgs,
    /// Simulations, each with noise of its own
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Folder for the configuration, logs, samples and bundles
    #[arg(long, default_value = "target/honesty")]
    dir: PathBuf,
    /// File for the comparison as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl HonestyArgs {
    /// Runs both and prints the comparison.
    ///
    /// # Errors
    /// When the arguments make no run, or one of the two cannot be run.
    pub fn run(self) -> Result<ExitCode> {
        let (asked, pool) = (&self.real, self.real.pool()?);
        let slice = asked.slice(&pool, &asked.usual_classes()?, 0)?.apart(asked.first_words());
        let json = ResultFile::asked(self.json.as_deref())?
            .sparing([("--trace", asked.trace.as_deref())])?;
        say!("{}", asked.words(&pool, &slice)?)?;
        let seeds: Vec<u64> = (asked.seed..).take(self.seeds as usize).collect();
        let simulated = simulated::run(&slice, &pool, asked.prediction, &seeds)?;
        let dir = self.dir.display();
        say!("Simulated {} times; now the real program, with its logs in {dir}.", seeds.len())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (pods, place) = (asked.pods(&pool)?, asked.place(&self.dir));
        let decides = Decides { policy: Policy::Weir, prediction: asked.prediction };
        let real = real::run(&slice, &pods, &place, decides);
        let real = runtime.block_on(unless_interrupted(Box::pin(real)))?;
        let Some(Gave { got: real, lag_p99_ms }) = real else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        let network_ms = slice.network_ms(&real, &simulated);
        let real = Figures::of(&slice, &real, 0.0);
        let simulated: Vec<Figures> =
            simulated.iter().map(|run| Figures::of(&slice, run, network_ms)).collect();
        let comparison = Comparison::new(&slice, &real, &simulated, (network_ms, lag_p99_ms));
        json.json(&comparison)?;
        say!("{}", comparison.for_people())?;
        Ok(ExitCode::from(u8::from(!comparison.holds)))
    }
}
