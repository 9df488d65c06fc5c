//! Who is compared: every policy that a user could pick, by its name.
//!
//! A [`Contender`] builds a dispatcher for a pool. The presets are Weir's own scheduler with the policy of that name, so that
//! a rival is judged by what its rules decide and not by another's plumbing; rivals whose rules Weir does not have are
//! dispatchers of their own, which see what any dispatcher sees.
//!
//! # Layout
//! - `roster`: the names, and a line about each
//! - `ruled`: rivals by Weir's rules; `ablation`: Weir with something left out; `informed`: a scheduler set up with what somebody
//!   knows; `profiled`: profiles of a pool's engines
//! - `desk`, `cached`: the plumbing of rivals with a decision of their own: `capped`, `sglang`, `dynamo`, `llmd`

mod ablation;
mod cached;
mod capped;
mod desk;
mod dynamo;
mod informed;
mod llmd;
#[cfg(test)]
mod posed;
mod profiled;
mod roster;
mod ruled;
mod sglang;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use anyhow::{Context, Result, anyhow};
use weir_core::{Policy, Scheduler, SchedulerConfig};
use weir_schema::Predict;

use crate::sim::{Dispatcher, Pool};
use capped::{Capped, Slices};
use desk::{Decide, Rival};

pub use roster::Entry;

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
        Self::known(name).with_context(|| format!("--policy {name:?}"))
    }

    /// The same by a flag, for whoever may have misspelt it: those that are known are told.
    ///
    /// # Errors
    /// When nobody is called that.
    pub(crate) fn asked(flag: &str, name: &str) -> Result<Self> {
        let known =
            |error| anyhow!("{flag} {name:?}: {error:#}; known are {}", Self::all().join(", "));
        Self::known(name).map_err(known)
    }

    fn known(name: &str) -> Result<Self> {
        let known = match name.split_once(':') {
            Some(("weir", variant)) => Some(ablation::named(name, variant)?),
            _ => Self::counted(name).or_else(|| Self::own(name)).or_else(|| ruled::named(name)),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let policy: Policy = name.parse()?;
        Ok(Self::scheduler(name, move |config| config.policy = policy))
    }

    /// Those that a word means: `all`, `rivals`, `caps`, `variants` of Weir, or one name.
    ///
    /// # Errors
    /// When it means nobody.
    pub fn several(word: &str) -> Result<Vec<Self>> {
        let names = match word {
            "all" => Self::all(),
            "rivals" => Self::rivals(),
            "caps" => Self::caps(),
            "variants" => {
                Self::all().into_iter().filter(|name| name.starts_with("weir:")).collect()
            }
            name => vec![name],
        };
        names.into_iter().map(Self::named).collect()
    }

    /// Everybody that has a name of their own, in the order of tables.
    pub fn all() -> Vec<&'static str> {
        Self::roster().iter().map(|entry| entry.name).collect()
    }

    /// The same with a line about each.
    pub fn roster() -> &'static [Entry] {
        &roster::ENTRIES
    }

    /// Those that are not Weir: the best of them is who Weir is compared with.
    pub fn rivals() -> Vec<&'static str> {
        Self::roster().iter().filter(|entry| entry.rival).map(|entry| entry.name).collect()
    }

    /// Caps per pod to be swept: the best of them is what a pool that was tuned by hand would have.
    pub fn caps() -> Vec<&'static str> {
        roster::CAPS.to_vec()
    }

    /// Weir's scheduler, with something changed in what it is told.
    pub fn scheduler(
        name: &str,
        change: impl Fn(&mut SchedulerConfig) + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |pool, predictor, seed| {
            Box::new(Scheduler::new(configured(pool, seed, &change), predictor))
        })
    }

    /// `cap-N`, `cap-N-bands` and `slices-N`.
    fn counted(name: &str) -> Option<Self> {
        let (kind, count) = name.split_once('-')?;
        let bands = count.strip_suffix("-bands");
        let most = bands.unwrap_or(count).parse().ok().filter(|most| *most > 0)?;
        let bands = bands.is_some();
        match kind {
            "cap" => Some(Self::rival(name, move |_| Capped { most, bands })),
            "slices" if !bands => Some(Self::rival(name, move |_| Slices::new(most))),
            _ => None,
        }
    }

    /// Rivals with a decision of their own.
    fn own(name: &str) -> Option<Self> {
        match name {
            "slices" => Some(Self::rival(name, |_| Slices::new(Slices::SLOTS))),
            "sglang-cache-aware" => Some(Self::rival(name, |_| sglang::CacheAware::default())),
            "dynamo-kv" => Some(Self::rival(name, dynamo::KvRouter::new)),
            "llmd-fc" => Some(Self::rival(name, llmd::Router::gated)),
            "llmd-composite" => Some(Self::rival(name, llmd::Router::open)),
            "llmd-fc-lora" => {
                Some(Self::rival(name, |seed| llmd::Router::gated(seed).with_loras()))
            }
            "llmd-lora" => Some(Self::rival(name, |seed| llmd::Router::open(seed).with_loras())),
            _ => None,
        }
    }

    fn rival<D: Decide + 'static>(
        name: &str,
        decide: impl Fn(u64) -> D + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |pool, _, seed| Box::new(Rival::new(pool, decide(seed))))
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

/// What Weir's scheduler is told in a pool, with something changed.
fn configured(pool: &Pool, seed: u64, change: &dyn Fn(&mut SchedulerConfig)) -> SchedulerConfig {
    let mut config = SchedulerConfig {
        classes: pool.classes.clone(),
        named_tokens: pool.named_tokens,
        ..SchedulerConfig::default()
    };
    change(&mut config);
    let mut rules = config.rules();
    rules.seed = seed;
    config.rules = Some(rules);
    config
}
