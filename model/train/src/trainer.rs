//! One round: read what is new, train, prove, compare, publish.
//!
//! Called by `weir train`, again and again on one thread. Every round ends in a [`Round`] or in an
//! error that names its reason; neither changes the bundle being served unless a better one is
//! wholly in its place. The window stays in memory, so a round reads only what the spool gained.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_schema::{
    Feature, Features, Holdout, LastRound, Manifest, Row, Sample, Target, feature_specs,
    schema_hash,
};

use crate::{
    Skipped, TrainConfig, TrainError, TrainMetrics,
    bundles::{Bundles, Serving, sha256},
    example::Example,
    holdout,
    learn::Candidate,
    library,
    onnx::{Graph, write},
    parity,
    spool::SpoolReader,
    window::{Split, Window},
    xgboost::Xgboost,
};

/// How a round ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Round {
    /// A new bundle is the current one.
    Published {
        /// Its version.
        version: u64,
        /// Rows trained on, for TTFT and TPOT; 0 is a target that answers its prior.
        rows: [usize; 2],
        /// Its errors on the newest slice.
        holdout: Holdout,
        /// Errors of the bundle it replaces on the same rows, if there was one to compare with.
        serving: Option<Holdout>,
        /// How long the round took.
        took: Duration,
        /// What was skipped in the spool.
        skipped: Skipped,
    },
    /// No target has enough samples.
    NotEnough {
        /// Samples of the target that has the most.
        have: usize,
        /// Samples it needs.
        need: usize,
        /// What was skipped in the spool.
        skipped: Skipped,
    },
    /// The bundle being served is better on the newest slice.
    NotBetter {
        /// Errors of the model that was trained.
        candidate: Holdout,
        /// Errors of the bundle being served.
        serving: Holdout,
        /// Version of the bundle being served.
        serving_version: u64,
        /// How long the round took.
        took: Duration,
        /// What was skipped in the spool.
        skipped: Skipped,
    },
    /// Too little is new since the last training.
    Unchanged {
        /// Samples that are new.
        fresh: usize,
        /// What was skipped in the spool.
        skipped: Skipped,
    },
}

/// Turns a spool into bundles, round by round.
pub struct Trainer {
    config: TrainConfig,
    xgboost: Xgboost,
    spool: SpoolReader,
    window: Window,
    bundles: Bundles,
    /// Samples taken since the last round that trained; as long as none has, those that the bundle being served has not seen.
    fresh: usize,
    /// Whether that is what `fresh` counts.
    counted: bool,
    /// The version that was told to be dated ahead of the clock.
    told_ahead: Option<u64>,
    metrics: TrainMetrics,
}

impl Trainer {
    /// Loads libxgboost and takes the directory of bundles over.
    ///
    /// # Errors
    /// When a value of the configuration is out of range, when there is no usable libxgboost (with
    /// the places that were tried), or when the directory cannot be used or another trainer does.
    /// A spool that is missing is no error: it may come.
    pub fn open(config: TrainConfig) -> Result<Self, TrainError> {
        config.check()?;
        let library = library::find(config.xgboost_library.as_deref())?;
        let xgboost = Xgboost::load(&library)?;
        let bundles = Bundles::open(&config.bundles, config.keep_bundles)?;
        tracing::info!(
            library = %library.display(),
            version = ?xgboost.version(),
            spool = %config.spool.display(),
            bundles = %config.bundles.display(),
            "trainer ready",
        );
        Ok(Self {
            spool: SpoolReader::new(config.spool.clone(), schema_hash().to_owned()),
            window: Window::new(config.window.clone()),
            config,
            xgboost,
            bundles,
            fresh: 0,
            counted: false,
            told_ahead: None,
            metrics: TrainMetrics::default(),
        })
    }

    /// What was done so far.
    pub const fn metrics(&self) -> &TrainMetrics {
        &self.metrics
    }

    /// What the trainer was opened with.
    pub const fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Reads what is new and, when it is enough, trains and publishes; then says beside the bundles how that ended, in a [`LastRound`].
    ///
    /// # Errors
    /// When XGBoost fails, when the written graph does not answer as XGBoost does, or when the
    /// bundle cannot be written. The bundle served before stays, and the next round tries again.
    pub fn run_once(&mut self) -> Result<Round, TrainError> {
        if self.bundles.noted().is_none() {
            self.note(&LastRound { ended_unix_ms: unix_ms(), ..LastRound::default() });
        }
        let outcome = self.run_at(unix_ms());
        let before = self.bundles.noted().unwrap_or_default();
        let ended_unix_ms = unix_ms();
        self.note(&LastRound {
            ended_unix_ms,
            failed: outcome.as_ref().err().map(ToString::to_string),
            published_unix_ms: match outcome {
                Ok(Round::Published { .. }) => Some(ended_unix_ms),
                _ => before.published_unix_ms,
            },
        });
        outcome
    }

    /// Where nothing can be said what was said before grows old, which says as much.
    fn note(&self, last: &LastRound) {
        if let Err(error) = self.bundles.note(last) {
            tracing::warn!(%error, "how the round ended is not said");
        }
    }

    /// [`Self::run_once`] at a given time, for whoever has a clock of its own: ages are counted, and the bundle is dated, by it.
    ///
    /// # Errors
    /// Those of [`Self::run_once`].
    pub fn run_at(&mut self, now_unix_ms: u64) -> Result<Round, TrainError> {
        let started = Instant::now();
        let skipped = self.read_spool(now_unix_ms);
        self.metrics.skipped.add(&skipped);
        self.metrics.window_samples = self.window.len();
        let outcome = self.round(now_unix_ms, started, skipped);
        self.metrics.record(&outcome, started.elapsed());
        outcome
    }

    /// Takes what is new into the window.
    fn read_spool(&mut self, now_unix_ms: u64) -> Skipped {
        let mut skipped = Skipped::default();
        let (window, fresh, classes) = (&mut self.window, &mut self.fresh, &self.config.classes);
        self.spool.read(now_unix_ms, &mut skipped, |mut sample, skipped| {
            if !place_class(&mut sample, classes) {
                skipped.other_class += 1;
                return;
            }
            match Example::of(&sample) {
                None => skipped.no_target += 1,
                Some(example) if window.offer(example, now_unix_ms) => *fresh += 1,
                Some(_) => skipped.too_old += 1,
            }
        });
        window.settle(now_unix_ms);
        // What was not streamed has no target, and what is old was of use: neither is anybody's fault.
        let usual = skipped.no_target + skipped.too_old;
        let all: u64 = skipped.by_reason().iter().map(|(_, count)| *count).sum();
        if all == usual {
            tracing::debug!(%skipped, "skipped in the spool");
        } else {
            tracing::warn!(%skipped, problems = ?skipped.problems, "skipped in the spool");
        }
        skipped
    }

    fn round(
        &mut self,
        now_unix_ms: u64,
        started: Instant,
        skipped: Skipped,
    ) -> Result<Round, TrainError> {
        self.hold_bundles()?;
        let serving = self.bundles.serving(&self.config.classes);
        let seen_until = serving.as_ref().and_then(|serving| self.seen_until(serving, now_unix_ms));
        let split = self.window.split(seen_until);
        let (have, targets) = self.learnable(&split);
        if targets.is_empty() {
            return Ok(Round::NotEnough { have, need: self.config.min_samples, skipped });
        }
        // Where nothing is served and nothing was trained, whatever there is is worth it.
        let fresh = match &serving {
            None if !self.counted => usize::MAX,
            _ => self.count_fresh(&split),
        };
        if fresh < self.config.min_new_samples {
            return Ok(Round::Unchanged { fresh, skipped });
        }
        let (_, _, graph) = self.learn(&split.train, &split.newest, &targets)?;
        let holdout = judge(&graph, &split.newest)?;
        let serving = serving.and_then(|serving| judge_serving(&serving, &split.newest));
        if let Some((serving_version, serving)) = serving
            && !holdout::not_worse(&holdout, &serving)
        {
            self.mark_trained();
            let (candidate, took) = (holdout, started.elapsed());
            return Ok(Round::NotBetter { candidate, serving, serving_version, took, skipped });
        }
        // What was held out is the part of the window that the next requests resemble most.
        let whole = [split.train, split.newest].concat();
        let (candidate, model, _) = self.learn(&whole, &whole, &targets)?;
        // Training takes its time, in which the folder may have become another's.
        self.hold_bundles()?;
        let manifest = self.manifest(now_unix_ms, &candidate, &whole, holdout, &model)?;
        self.bundles.publish(&manifest, &model)?;
        self.mark_trained();
        let Manifest { version, rows, .. } = manifest;
        let serving = serving.map(|(_, errors)| errors);
        tracing::info!(version, ?rows, ?holdout, "published a bundle");
        Ok(Round::Published { version, rows, holdout, serving, took: started.elapsed(), skipped })
    }

    /// Before anything is published: what was there may have been removed, and then nothing serves.
    fn hold_bundles(&mut self) -> Result<(), TrainError> {
        if self.bundles.hold()? {
            self.counted = false;
        }
        Ok(())
    }

    /// Samples that are new, whatever share of the window they are and whether or not it still has them.
    fn count_fresh(&mut self, split: &Split) -> usize {
        // Of a bundle that a trainer before this one published, only what it has not seen.
        if !std::mem::replace(&mut self.counted, true) {
            self.fresh = split.unseen;
        }
        // What ended before the last training and was written after it is new, but nothing to compare by.
        if split.unseen < holdout::MIN_ROWS { self.fresh.min(split.unseen) } else { self.fresh }
    }

    /// Until when the bundle being served has seen samples; `None` when a clock that was ahead dated it: by that
    /// date nothing would be new until the clock has come there, so all counts as new.
    fn seen_until(&mut self, serving: &Serving, now_unix_ms: u64) -> Option<u64> {
        let (version, trained_at_unix_ms) = (serving.version, serving.trained_at_unix_ms);
        if trained_at_unix_ms <= now_unix_ms {
            return Some(trained_at_unix_ms);
        }
        if self.told_ahead.replace(version) != Some(version) {
            tracing::warn!(
                version,
                trained_at_unix_ms,
                now_unix_ms,
                "the current bundle is dated ahead of the clock; its date is left out of account",
            );
        }
        None
    }

    /// From here on only what arrives later is new. Not reached by a round that fails, which is
    /// tried again with the same samples.
    const fn mark_trained(&mut self) {
        self.fresh = 0;
        self.counted = true;
    }

    /// The most samples that a target has, and the targets that have enough of them.
    fn learnable(&self, split: &Split) -> (usize, Vec<Target>) {
        let need = self.config.min_samples;
        let count = |target: Target, examples: &[Example]| {
            examples.iter().filter(|example| example.measured_ms(target).is_some()).count()
        };
        let mut most = 0;
        let enough = |target: &Target| {
            let train = count(*target, &split.train);
            let have = train + count(*target, &split.newest);
            most = most.max(have);
            // The newest slice may hold most of a target that has just begun to be measured.
            have >= need && train >= need / 2
        };
        let targets = Target::ALL.into_iter().filter(enough).collect();
        (most, targets)
    }

    /// Trains on a slice, and proves on another that the written graph answers as XGBoost does.
    fn learn(
        &self,
        slice: &[Example],
        check: &[Example],
        targets: &[Target],
    ) -> Result<(Candidate, Vec<u8>, Graph), TrainError> {
        let candidate = Candidate::train(&self.xgboost, &self.config, slice, targets)?;
        let model = write(candidate.trees());
        let graph = proven(&model, &candidate, check)?;
        Ok((candidate, model, graph))
    }

    fn manifest(
        &self,
        now_unix_ms: u64,
        candidate: &Candidate,
        newest: &[Example],
        holdout: Holdout,
        model: &[u8],
    ) -> Result<Manifest, TrainError> {
        Ok(Manifest {
            version: self.bundles.next_version()?,
            schema: schema_hash().into(),
            sha256: sha256(model),
            trained_at_unix_ms: now_unix_ms,
            features: feature_specs().iter().map(|spec| spec.name.to_owned()).collect(),
            classes: self.config.classes.clone(),
            rows: candidate.rows(),
            trees: self.config.trees,
            holdout,
            golden: parity::golden(candidate, newest)?,
            gains: candidate.gains(),
        })
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Gives a row the index that its pod class has in the configuration now; `false` when there is none of that name. A sample of a pod
/// that had left has no name, and keeps its index.
fn place_class(sample: &mut Sample, classes: &[String]) -> bool {
    if classes.is_empty() || sample.pod_class.is_empty() {
        return true;
    }
    let place = classes.iter().position(|name| **name == *sample.pod_class);
    if let Some(place) = place {
        let mut features = Features(sample.row);
        features.set(Feature::PodClass, place as f32);
        sample.row = features.0;
    }
    place.is_some()
}

/// The graph in the bytes of a candidate, once it was shown to answer as XGBoost does.
fn proven(model: &[u8], candidate: &Candidate, newest: &[Example]) -> Result<Graph, TrainError> {
    let graph = Graph::decode(model).map_err(|error| TrainError::Graph(error.to_string()))?;
    parity::check(&graph, candidate, &parity::rows_to_check(newest))?;
    Ok(graph)
}

/// Errors of the bundle being served, on the rows that the candidate is judged by.
fn judge_serving(serving: &Serving, newest: &[Example]) -> Option<(u64, Holdout)> {
    let version = serving.version;
    match judge(&serving.graph, newest) {
        Ok(holdout) => Some((version, holdout)),
        Err(error) => {
            tracing::warn!(version, %error, "the current bundle cannot be compared with");
            None
        }
    }
}

/// Errors of a graph on a slice.
fn judge(graph: &Graph, slice: &[Example]) -> Result<Holdout, TrainError> {
    let rows: Vec<Row> = slice.iter().map(|example| example.row).collect();
    let answers = graph.latency_ms(&rows).map_err(|error| TrainError::Graph(error.to_string()))?;
    Ok(holdout::errors(slice, &answers))
}

#[cfg(test)]
#[path = "trainer_tests.rs"]
mod tests;
