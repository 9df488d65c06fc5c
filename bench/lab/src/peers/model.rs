//! The model that Weir predicts with: trained at the start on what simulated pods answered, and in service before anything is
//! measured.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use crate::{decide, http_get, train};

/// Samples that it is trained on. A tree costs the same whatever it was grown from.
const SAMPLES: usize = 3000;
/// How long a bundle may take into service.
const READY: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Trains a bundle in this folder, in the place of what is there, and says where bundles are.
///
/// # Errors
/// When a native library is missing, which `make native` fetches.
pub(super) fn trained(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    decide::train(&train::samples(SAMPLES)?, folder)
}

/// What the metrics say of a bundle that the first request will be predicted by. Its version is that of the last
/// prediction, and there has been none.
const LOADED: &str = "weir_bundles_total{result=\"loaded\"} ";

/// Returns once a bundle is handed over, by the metrics on Weir's admin side.
///
/// # Errors
/// When none is.
pub(super) async fn serves(admin: SocketAddr) -> Result<()> {
    let start = Instant::now();
    while !has_loaded(&http_get::get(admin, "/metrics").await?) {
        ensure!(start.elapsed() < READY, "no bundle serves after {READY:?}");
        sleep(ASK_AGAIN).await;
    }
    Ok(())
}

fn has_loaded(page: &str) -> bool {
    page.lines().filter_map(|line| line.strip_prefix(LOADED)).any(|count| count != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_there_when_one_was_loaded() {
        assert!(has_loaded("# HELP x\nweir_bundles_total{result=\"loaded\"} 1\n"));
        assert!(!has_loaded("weir_bundles_total{result=\"loaded\"} 0\n"));
        assert!(!has_loaded("weir_bundles_total{result=\"refused\"} 1\n"));
    }
}
