//! The state's part of the configuration: [`RawState`] as it is written, [`StateConfig`] as it is used.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Problems;

/// What outlives the process: what was learned, what pods have cached, what an operator holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawState {
    /// Folder of its files, for this dispatcher alone. Need not exist yet. Empty: every process begins anew.
    pub dir: PathBuf,
    /// Seconds from one writing to the next; it is written at the end as well, and at once when an operator changes something.
    #[schemars(range(min = 1, max = 3600))]
    pub every_s: f64,
}

impl Default for RawState {
    /// A crash costs a minute of what was learned.
    fn default() -> Self {
        Self { dir: PathBuf::from(".weir/state"), every_s: 60.0 }
    }
}

/// Where the state is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateConfig {
    /// The folder.
    pub dir: PathBuf,
    /// From one writing to the next.
    pub every: Duration,
}

impl RawState {
    /// Validates and converts; `None` when nothing is kept.
    pub fn check(&self, problems: &mut Problems) -> Option<StateConfig> {
        let sound = (1.0..=3600.0).contains(&self.every_s);
        problems.require(sound, "state.every_s", "must be from 1 to 3600");
        let every = Duration::from_secs_f64(if sound { self.every_s } else { 1.0 });
        (!self.dir.as_os_str().is_empty()).then(|| StateConfig { dir: self.dir.clone(), every })
    }
}
