//! The demo's folder, ports and children.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::time::Instant;

use super::pool::{Group, addresses};
use crate::{children::Child, http_get};

/// How long the children have to come up.
const READY: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Where everything is, and what decides the pods' noise.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Weir's OpenAI API.
    pub(crate) api: SocketAddr,
    /// Weir's admin side.
    pub(crate) admin: SocketAddr,
    /// Folder for the configuration, logs, samples and bundles.
    pub(crate) dir: PathBuf,
    /// Pod n of a class uses this plus n.
    pub(crate) seed: u64,
}

/// Everything that is up while the demo runs. Dropping it ends the children.
pub(crate) struct Stage {
    /// Absolute path of its folder.
    pub(crate) dir: PathBuf,
    /// Weir ends first, so that it does not report its pods as lost.
    weir: Child,
    /// One process for each class.
    pods: Vec<Child>,
}

impl Stage {
    /// Brings everything up and waits until Weir is ready. `yaml` is its configuration, from the folder's absolute path.
    pub(crate) async fn set(
        place: &Place,
        groups: &[Group],
        yaml: impl FnOnce(&Path) -> String,
    ) -> Result<Self> {
        for address in addresses(groups).into_iter().chain([place.api, place.admin]) {
            free(address)?;
        }
        let dir = folder(&place.dir)?;
        let file = dir.join("weir.yaml");
        fs::write(&file, yaml(&dir))?;
        let mut pods = Vec::new();
        for group in groups {
            let log = dir.join(format!("pods-{}.log", group.class()));
            pods.push(Child::start("weir-bench pod", &mut pod_command(place, group)?, &log)?);
        }
        let weir = Child::start("weir serve", &mut weir_command(&file)?, &dir.join("weir.log"))?;
        let mut stage = Self { dir, weir, pods };
        for pod in addresses(groups) {
            stage.answers(pod, "/health").await?;
        }
        stage.answers(place.admin, "/readyz").await?;
        Ok(stage)
    }

    /// # Errors
    /// When a child has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        for pods in &mut self.pods {
            pods.check()?;
        }
        self.weir.check()
    }

    async fn answers(&mut self, address: SocketAddr, path: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            self.check()?;
            match http_get::get(address, path).await {
                Ok(_) => return Ok(()),
                Err(error) if start.elapsed() > READY => {
                    return Err(error.context("not ready within 30 s"));
                }
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
}

/// An error that a person can act on when something else listens there.
fn free(address: SocketAddr) -> Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => bail!(
            "{address} cannot be used ({error}): stop what listens there, or choose other ports with --port, \
             --admin-port and --pod-port"
        ),
    }
}

/// Makes the folder and removes what an earlier demo learned there.
fn folder(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let dir = dir.canonicalize()?;
    for learned in ["bundles", "spool", "state"] {
        let path = dir.join(learned);
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot clear {}", path.display()))?;
        }
    }
    Ok(dir)
}

fn pod_command(place: &Place, group: &Group) -> Result<Command> {
    let first = group.pods.first().context("a class without pods")?.port();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["pod", "--end-with-stdin", "--model", group.model(), "--gpu", group.class()])
        .args(["--count".to_owned(), group.pods.len().to_string()])
        .args(["--port".to_owned(), first.to_string()])
        .args(["--chunk-tokens".to_owned(), group.engine.max_num_batched_tokens.to_string()])
        .args(["--seed".to_owned(), place.seed.to_string()]);
    Ok(command)
}

fn weir_command(config: &Path) -> Result<Command> {
    let here = std::env::current_exe()?;
    let weir = here.with_file_name("weir");
    ensure!(
        weir.exists(),
        "{} is missing: build it, for example with `make build`",
        weir.display()
    );
    let mut command = Command::new(weir);
    command.arg("serve").arg("--config").arg(config);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_an_error_that_says_what_to_do() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = free(address).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("--pod-port"), "{error}");
        drop(taken);
        free(address).unwrap();
    }

    #[test]
    fn what_an_earlier_demo_learned_is_removed_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("demo");
        fs::create_dir_all(dir.join("bundles/v1")).unwrap();
        fs::write(dir.join("notes"), "mine").unwrap();
        let absolute = folder(&dir).unwrap();
        assert!(absolute.is_absolute() && !dir.join("bundles").exists());
        assert_eq!(fs::read_to_string(dir.join("notes")).unwrap(), "mine");
    }
}
