//! The file of ratios: what each slice had when it was last stored, and the command that stores it.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::FILE;

/// What is stored in the repository.
const BUILT_IN: &str = include_str!("../../../guard.json");

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    /// What writes it.
    pub(super) command: String,
    pub(super) slices: Vec<Measured>,
}

/// Weir's goodput on a slice as a multiple of its best rival's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    pub(super) slice: String,
    /// Digest of the trace's file; absent where requests are generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traffic: Option<String>,
    pub(super) load: f64,
    /// Of each seed.
    pub(super) requests: usize,
    pub(super) seeds: u64,
    pub(super) weir_rps: f64,
    /// The rival with the highest goodput.
    pub(super) rival: String,
    pub(super) rival_rps: f64,
    pub(super) ratio: f64,
    /// Half width of its 95 % interval, jackknifed over the seeds in pairs.
    pub(super) interval: f64,
}

impl Measured {
    /// Whether another one is of the same requests.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.load, one.requests, one.seeds);
        self.slice == other.slice && self.traffic == other.traffic && of(self) == of(other)
    }
}

impl Stored {
    /// What was stored when this program was built.
    pub(super) fn built_in() -> Result<Self> {
        serde_json::from_str(BUILT_IN).with_context(|| FILE.to_owned())
    }

    /// The file, or an empty one where there is none.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self { command: String::new(), slices: Vec::new() });
        }
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// The same with these in the place of theirs, or behind the others.
    pub(super) fn renewed(mut self, measured: Vec<Measured>) -> Self {
        for new in measured {
            match self.slices.iter_mut().find(|old| old.slice == new.slice) {
                Some(old) => *old = new,
                None => self.slices.push(new),
            }
        }
        Self { command: "weir-bench guard --renew".to_owned(), ..self }
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
