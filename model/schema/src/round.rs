//! What a trainer says of its rounds, in a file beside the bundles: whoever serves learns from it whether somebody trains,
//! and whether it works, whichever way the trainer was started.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use crate::manifest::read_capped;

/// File name of a [`LastRound`], replaced by rename.
pub const ROUND_FILE: &str = "round.json";
/// Largest such file that is read, in bytes; a reason names a path or two.
const ROUND_CAP: u64 = 64 << 10;

/// The last round of training.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRound {
    /// When it ended, in milliseconds since 1970; when the first one began, as long as none has ended.
    pub ended_unix_ms: u64,
    /// Why it failed, if it did.
    #[serde(default)]
    pub failed: Option<String>,
    /// When a round last published a bundle, in milliseconds since 1970.
    #[serde(default)]
    pub published_unix_ms: Option<u64>,
}

impl LastRound {
    /// What is said in a folder of bundles; `None` where no trainer has said anything.
    ///
    /// # Errors
    /// When the file cannot be read or understood.
    pub fn read(bundles: &Path) -> io::Result<Option<Self>> {
        match read_capped(&bundles.join(ROUND_FILE), ROUND_CAP) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
