//! The file of counts: what each workload took when it was last stored, and with which compiler.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Where it is in the repository.
pub(super) const FILE: &str = "bench/lab/instructions.json";
/// What is stored there.
const BUILT_IN: &str = include_str!("../../instructions.json");

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    /// What writes it.
    pub(super) command: String,
    /// What `rustc --version` said.
    pub(super) compiler: String,
    /// Instructions of each workload, one time over.
    pub(super) counts: BTreeMap<String, u64>,
}

impl Stored {
    /// What was stored when this program was built.
    pub(super) fn built_in() -> Result<Self> {
        serde_json::from_str(BUILT_IN).context(FILE)
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
