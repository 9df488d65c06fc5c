//! Who is compared: every policy that a user could pick, by its name.
//!
//! A [`Contender`] builds a dispatcher for a pool. The presets are Weir's own scheduler with the policy of that name, so that
//! a rival is judged by what its rules decide and not by another's plumbing.

use std::{fmt, sync::Arc};

use anyhow::{Context, Result};
use weir_core::{Policy, Scheduler, SchedulerConfig};
use weir_schema::Predict;

use crate::sim::{Dispatcher, Pool};

type Build = dyn Fn(&Pool, Box<dyn Predict>, u64) -> Box<dyn Dispatcher> + Send + Sync;

/// A policy under test.
#[derive(Clone)]
pub struct Contender {
    name: String,
    build: Arc<Build>,
}

impl fmt::Debug for Contender {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Contender").field(&self.name).finish()
    }
}

impl Contender {
    /// A policy under test from what builds its dispatcher: for a pool, with a predictor and a seed.
    pub fn new(
        name: impl Into<String>,
        build: impl Fn(&Pool, Box<dyn Predict>, u64) -> Box<dyn Dispatcher> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), build: Arc::new(build) }
    }

    /// The contender of a name.
    ///
    /// # Errors
    /// When nobody is called that.
    pub fn named(name: &str) -> Result<Self> {
        let policy: Policy = name.parse().with_context(|| format!("--policy {name:?}"))?;
        Ok(Self::scheduler(name, move |config| config.policy = policy))
    }

    /// Weir's scheduler, with something changed in what it is told.
    pub fn scheduler(
        name: &str,
        change: impl Fn(&mut SchedulerConfig) + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |pool, predictor, seed| {
            let mut config =
                SchedulerConfig { classes: pool.classes.clone(), ..SchedulerConfig::default() };
            change(&mut config);
            let mut rules = config.rules();
            rules.seed = seed;
            config.rules = Some(rules);
            Box::new(Scheduler::new(config, predictor))
        })
    }

    /// Its name, for tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A dispatcher of it.
    pub fn build(
        &self,
        pool: &Pool,
        predictor: Box<dyn Predict>,
        seed: u64,
    ) -> Box<dyn Dispatcher> {
        (self.build)(pool, predictor, seed)
    }
}
