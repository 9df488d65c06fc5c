//! Checkers that others keep: from `PATH`, or with pip into an environment of their own.

use std::{path::PathBuf, process::Command};

use crate::built;

/// A program in `PATH`; says that its check is skipped and returns `None` when there is none.
pub fn in_path(name: &str) -> Option<PathBuf> {
    if Command::new(name).arg("--version").output().is_err() {
        println!("skipped: there is no {name} in PATH");
        return None;
    }
    Some(PathBuf::from(name))
}

/// A program in an environment with a Python package at a version, made beside the binaries once; says
/// that its check is skipped and returns `None` when it cannot be had.
///
/// # Panics
/// When pip was installed and cannot be started.
pub fn python(package: &str, version: &str, program: &str) -> Option<PathBuf> {
    let target = built::folder().parent().expect("a profile lies in a target folder");
    let venv = target.join(format!("{package}-{version}"));
    let tool = venv.join("bin").join(program);
    let whole = venv.join("whole");
    if whole.is_file() {
        return Some(tool);
    }
    let made = Command::new("python3").args(["-m", "venv"]).arg(&venv).output();
    if !made.is_ok_and(|made| made.status.success()) {
        println!("skipped: python3 -m venv does not work here");
        return None;
    }
    let package = format!("{package}=={version}");
    let got = Command::new(venv.join("bin/pip")).args(["install", "--quiet", &package]).output();
    let got = got.expect("pip runs");
    if got.status.success() && std::fs::write(whole, version).is_ok() {
        return Some(tool);
    }
    println!("skipped: pip cannot get {package}: {}", String::from_utf8_lossy(&got.stderr));
    None
}
