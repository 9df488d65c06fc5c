//! An evaluator whose model is trained while virtual time passes.

use std::{
    fmt,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use tempfile::TempDir;
use weir_core::Time;
use weir_predict::{Bundle, Chain, Offer, Runtime, Slot};
use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Row, Sample, Status, StepTime, Stride,
    manifest::current_bundle, spool::segment_name,
};
use weir_train::{Round, TrainConfig, Trainer};

use super::Clock;

/// When there is a round, and what one costs, in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Pause between two rounds.
    pub interval: Duration,
    /// From the start of a round until its bundle can be taken.
    pub takes: Duration,
    /// How a model is learned; its folders are not used.
    pub learn: TrainConfig,
}

impl Default for Training {
    /// The trainer's own interval. A round over some ten thousand samples, with the verification of its bundle, was measured
    /// at one to two seconds of one core.
    fn default() -> Self {
        let learn = TrainConfig::default();
        Self { interval: learn.interval, takes: Duration::from_secs(2), learn }
    }
}

/// A chain, and the trainer that feeds it.
pub struct Trained {
    chain: Chain,
    slot: Slot,
    runtime: Runtime,
    trainer: Trainer,
    clock: Clock,
    training: Training,
    spool: BufWriter<File>,
    /// The last line of it.
    line: Vec<u8>,
    next_round: Time,
    /// A bundle, and when it can be taken.
    made: Option<(Time, Bundle)>,
    /// Why the last round, or the spool, failed.
    failure: Option<String>,
    bundles: PathBuf,
    /// Ends with the rest.
    _folder: TempDir,
}

impl fmt::Debug for Trained {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Trained").field("chain", &self.chain).finish_non_exhaustive()
    }
}

impl Trained {
    /// Knows nothing yet, and learns by the time on `clock`.
    ///
    /// # Errors
    /// When a native library is missing, or the folder of the spool cannot be made.
    pub fn new(training: &Training, clock: Clock) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for samples")?;
        let (spool, bundles) = (folder.path().join("spool"), folder.path().join("bundles"));
        fs::create_dir(&spool)?;
        let first = BufWriter::new(File::create(spool.join(segment_name(1)))?);
        let config = TrainConfig { spool, bundles: bundles.clone(), ..training.learn.clone() };
        let slot = Slot::new();
        Ok(Self {
            chain: Chain::with_slot(slot.clone()),
            slot,
            runtime: Runtime::load(None)?,
            trainer: Trainer::open(config)?,
            next_round: clock.now().plus(training.interval),
            clock,
            training: training.clone(),
            spool: first,
            line: Vec::new(),
            made: None,
            failure: None,
            bundles,
            _folder: folder,
        })
    }

    /// Does what is due by now.
    fn keep_time(&mut self) {
        let now = self.clock.now();
        if self.made.as_ref().is_some_and(|(at, _)| *at <= now)
            && let Some((_, bundle)) = self.made.take()
        {
            self.slot.publish(Offer::Bundle(Box::new(bundle)));
        }
        if now >= self.next_round {
            self.next_round = now.plus(self.training.interval);
            self.failure = self.round(now).err().map(|error| format!("{error:#}"));
            if let Some(error) = &self.failure {
                tracing::warn!(error, "a round of training failed");
            }
        }
    }

    fn round(&mut self, now: Time) -> Result<()> {
        self.spool.flush()?;
        if let Round::Published { .. } = self.trainer.run_at(self.clock.unix_ms())? {
            let dir = current_bundle(&self.bundles)?.context("a published bundle is not there")?;
            let bundle = Bundle::load(&self.runtime, &dir)?;
            self.made = Some((now.plus(self.training.takes), bundle));
        }
        Ok(())
    }

    fn record(&mut self, sample: &Sample) -> Result<()> {
        let sample = Sample { at_unix_ms: self.clock.unix_ms(), ..sample.clone() };
        self.line.clear();
        sample.write_line(&mut self.line);
        Ok(self.spool.write_all(&self.line)?)
    }
}

impl Predict for Trained {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.keep_time();
        self.chain.predict(rows, out)
    }

    fn take_up(&mut self) {
        self.chain.take_up();
    }

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.chain.step_time(pod_class)
    }

    fn observe_stride(&mut self, stride: &Stride) {
        self.chain.observe_stride(stride);
    }

    fn observe_first_token(&mut self, first: &FirstToken) {
        self.chain.observe_first_token(first);
    }

    fn doubt_steps(&mut self, pod_class: u16) {
        self.chain.doubt_steps(pod_class);
    }

    fn observe_sample(&mut self, sample: &Sample) {
        self.keep_time();
        self.chain.observe_sample(sample);
        if let Err(error) = self.record(sample) {
            self.failure = Some(format!("a sample is lost: {error:#}"));
        }
    }

    fn status(&self) -> Status {
        let status = self.chain.status();
        let fallback_reason = self.failure.clone().or(status.fallback_reason);
        Status { fallback_reason, ..status }
    }
}
