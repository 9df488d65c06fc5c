//! `weir advise`: hands over to `weir-bench advise`, which lies beside this program.
//!
//! The answer takes the modelled engines of the lab, and the dispatcher does not carry them. So this process becomes the
//! other one, with the same arguments: its output, its signals and its exit code are those of the advice.

use std::{ffi::OsString, io, os::unix::process::CommandExt as _, path::Path, process::Command};

/// The lab's program.
const LAB: &str = "weir-bench";

/// Becomes `weir-bench advise`; returns only why that is not possible.
pub(super) fn become_lab(words: &[OsString]) -> String {
    match std::env::current_exe() {
        Ok(here) => become_program(&here.with_file_name(LAB), words),
        Err(error) => format!("it is not known where this program is ({error})"),
    }
}

fn become_program(program: &Path, words: &[OsString]) -> String {
    let error = Command::new(program).arg("advise").args(words).exec();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "advise is answered by {LAB}, which is not at {}: build it (cargo build --release -p {LAB}) or copy it there",
            program.display()
        ),
        _ => format!("{} cannot be started: {error}", program.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_lab_beside_it_the_error_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let said = become_program(&dir.path().join(LAB), &[]);
        assert!(said.contains("cargo build --release -p weir-bench"), "{said}");
        assert!(said.contains(&dir.path().display().to_string()), "{said}");
    }

    #[test]
    fn a_lab_that_cannot_be_started_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(LAB), "no program").unwrap();
        let said = become_program(&dir.path().join(LAB), &[]);
        assert!(said.contains("cannot be started"), "{said}");
    }
}
