//! One life of Weir by itself, from its start to its end by SIGTERM: only a program that ends by itself writes what it has
//! counted.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep};

use super::{
    setup::{free_address, pod_lines},
    wire::MODEL,
};
use crate::{children::Child, http_get};

/// How long Weir has to come up, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What Weir is put in front of.
pub(super) struct Site<'a> {
    /// Folder of its configuration, log and spool.
    pub(super) dir: &'a Path,
    pub(super) pods: &'a [SocketAddr],
    /// Requests that a pod may run.
    pub(super) sequences: u32,
    pub(super) bundles: Option<&'a Path>,
    /// Time between two scrapes of a pod, if it is not Weir's own.
    pub(super) scraped_every: Option<Duration>,
}

/// Weir, as it serves.
pub(super) struct Life {
    process: Child,
    /// Where requests go.
    pub(super) target: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Site<'_> {
    /// Starts Weir by `program`, to which its own arguments are added, and waits until it is ready.
    ///
    /// # Errors
    /// When its configuration cannot be written, or it does not come up.
    pub(super) async fn begin(&self, mut program: Command) -> Result<Life> {
        let (target, admin) = (free_address()?, free_address()?);
        let file = self.dir.join("weir.yaml");
        fs::write(&file, self.yaml(target, admin))
            .with_context(|| format!("cannot write {}", file.display()))?;
        program.arg("serve").arg("--config").arg(file);
        let mut process = Child::start("weir", &mut program, &self.log())?;
        let start = Instant::now();
        while http_get::get(admin, "/readyz").await.is_err() {
            process.check()?;
            ensure!(start.elapsed() < PATIENCE, "not ready within {PATIENCE:?}");
            sleep(ASK_AGAIN).await;
        }
        Ok(Life { process, target, admin })
    }

    /// What the last life wrote.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Only what is not Weir's default, and objectives that nothing misses.
    fn yaml(&self, listen: SocketAddr, admin: SocketAddr) -> String {
        let pods = pod_lines(self.pods);
        let bundles = self.bundles.map_or_else(|| self.dir.join("none"), Path::to_owned);
        let scrape = self.scraped_every.map_or_else(String::new, |every| {
            let every = every.as_millis();
            format!("scrape: {{ every_ms: {every}, stale_after_ms: {} }}\n", every * 10)
        });
        format!(
            "listen: {listen}
admin: {{ listen: {admin} }}
classes:
  - {{ name: bench, chunk_tokens: 8192, max_sequences: {sequences}, kv_blocks: 1000000, block_tokens: 16 }}
pools:
  - model: {MODEL}
    pods:
{pods}objectives:
  standard: {{ band: 0, ttft_ms: 600000, tpot_ms: 60000 }}
service_tiers: {{}}
model: {{ bundles: {bundles:?} }}
spool: {{ dir: {spool:?} }}
state: {{ dir: {state:?} }}
{scrape}log: {{ level: warn }}
",
            sequences = self.sequences,
            spool = self.dir.join("spool"),
            state = self.dir.join("state"),
        )
    }
}

impl Life {
    /// Ends it.
    ///
    /// # Errors
    /// When it ends with a failure, or takes too long.
    pub(super) async fn end(self) -> Result<()> {
        self.process.terminate(PATIENCE).await
    }
}
