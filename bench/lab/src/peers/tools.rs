//! Finds the peers' programs, and installs those that are missing by the package managers that there are.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use super::peer::{Package, Peer};

/// Folders of servers' programs, which are not in everybody's `PATH`.
const MORE_FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"];

/// Where programs come from.
#[derive(Debug)]
pub(super) struct Tools {
    /// Folder of the Python environment.
    pub(super) venv: PathBuf,
    /// The dispatcher.
    pub(super) weir: PathBuf,
    /// Whether what is missing is installed.
    pub(super) install: bool,
}

impl Tools {
    /// The program of a peer, installed if it has to be.
    ///
    /// # Errors
    /// Says what was tried.
    pub(super) fn program(&self, peer: Peer) -> Result<PathBuf> {
        if let Some(found) = self.find(peer) {
            return Ok(found);
        }
        let Some(package) = peer.package() else {
            bail!("no {}: build it, or name it with --weir", self.weir.display());
        };
        ensure!(self.install, "not installed, and --no-install was given");
        match package {
            Package::System(name) => install_system(name)?,
            Package::Python(name) => self.install_python(name)?,
        }
        self.find(peer).context("installed, and its program is not there")
    }

    fn find(&self, peer: Peer) -> Option<PathBuf> {
        match peer.package() {
            None => self.weir.is_file().then(|| self.weir.clone()),
            Some(Package::System(_)) => on_path(peer.program()),
            Some(Package::Python(name)) => {
                let package = name.split("==").next().unwrap_or_default().replace('-', "_");
                let bin = self.venv.join("bin");
                let there = has_package(&self.venv, &package);
                there.then(|| bin.join(peer.program())).filter(|program| program.is_file())
            }
        }
    }

    fn install_python(&self, package: &str) -> Result<()> {
        if !self.venv.join("bin/python").is_file() {
            let mut make = Command::new("python3");
            quietly(make.args(["-m", "venv"]).arg(&self.venv))?;
        }
        let mut pip = Command::new(self.venv.join("bin/python"));
        quietly(pip.args(["-m", "pip", "install", "--quiet", package]))
    }
}

fn install_system(package: &str) -> Result<()> {
    let Some(apt) = on_path("apt-get") else {
        bail!("not installed, and without apt-get it is not known how to: install {package}");
    };
    let mut install = Command::new(apt);
    install.args(["install", "-y", "--no-install-recommends", package]);
    quietly(install.env("DEBIAN_FRONTEND", "noninteractive"))
        .with_context(|| format!("apt-get installs as root only: apt-get install {package}"))
}

/// Runs a command whose output matters only when it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.lines().last().unwrap_or("failed"));
    Ok(())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let more = MORE_FOLDERS.iter().map(PathBuf::from);
    env::split_paths(&path)
        .chain(more)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Whether a Python environment has a package.
fn has_package(venv: &Path, package: &str) -> bool {
    let libraries = std::fs::read_dir(venv.join("lib")).into_iter().flatten().flatten();
    let mut packages = libraries
        .filter_map(|python| std::fs::read_dir(python.path().join("site-packages")).ok())
        .flatten()
        .flatten();
    packages.any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.strip_prefix(package)
            .is_some_and(|rest| rest.starts_with('-') && rest.ends_with("-info"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_and_not_installed_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools {
            venv: folder.path().join("venv"),
            weir: folder.path().join("weir"),
            install: false,
        };
        let error = tools.program(Peer::Envoy).unwrap_err().to_string();
        assert!(error.contains("--no-install"), "{error}");
        let error = tools.program(Peer::Weir).unwrap_err().to_string();
        assert!(error.contains("build it"), "{error}");
    }

    #[test]
    fn a_package_of_python_is_found_by_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let venv = folder.path();
        let record = venv.join("lib/python3.11/site-packages/vllm_router-0.1.17.dist-info");
        std::fs::create_dir_all(record).unwrap();
        assert!(has_package(venv, "vllm_router"));
        assert!(!has_package(venv, "vllm"));
    }
}
