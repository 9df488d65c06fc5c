//! How pods are scraped, as written and as validated.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Problems;

/// How pods are scraped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawScrape {
    /// Whether pods are asked for what is read by name, which costs a stock vLLM a twentieth of what all of its metrics do. Its access log has /metrics/ then, which --disable-access-log-for-endpoints has to list beside /metrics.
    pub by_name: bool,
    /// Milliseconds between two scrapes of a pod's /metrics, more where its answer takes more than a twentieth of that; at least 10, or 0, which turns scraping off.
    #[schemars(range(min = 0, max = 60000))]
    pub every_ms: u64,
    /// Milliseconds after which a scrape has failed.
    #[schemars(range(min = 1, max = 60000))]
    pub timeout_ms: u64,
    /// Milliseconds after which a scrape is no longer believed; not below `every_ms`.
    pub stale_after_ms: u64,
}

impl Default for RawScrape {
    /// The engine's gauges change with every step, and asked for by name they cost a pod a quarter of a millisecond.
    fn default() -> Self {
        Self { by_name: true, every_ms: 100, timeout_ms: 1000, stale_after_ms: 2000 }
    }
}

impl RawScrape {
    /// The validated form.
    pub fn check(&self, problems: &mut Problems) -> ScrapeConfig {
        let sane = self.every_ms == 0 || (10..=60_000).contains(&self.every_ms);
        problems.require(sane, "scrape.every_ms", "must be 0 (off) or from 10 to 60000");
        let sane = (1..=60_000).contains(&self.timeout_ms);
        problems.require(sane, "scrape.timeout_ms", "must be from 1 to 60000");
        let sane = self.stale_after_ms >= self.every_ms;
        problems.require(sane, "scrape.stale_after_ms", "must not be below scrape.every_ms");
        let every = Duration::from_millis(self.every_ms);
        ScrapeConfig {
            by_name: self.by_name,
            every: (!every.is_zero()).then_some(every),
            timeout: Duration::from_millis(self.timeout_ms),
            stale_after: Duration::from_millis(self.stale_after_ms),
        }
    }
}

/// How pods are scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// Whether pods are asked for what is read by name.
    pub by_name: bool,
    /// Time between two scrapes; `None` is off.
    pub every: Option<Duration>,
    /// Time after which a scrape or a probe has failed.
    pub timeout: Duration,
    /// Time for which a scrape is believed.
    pub stale_after: Duration,
}
