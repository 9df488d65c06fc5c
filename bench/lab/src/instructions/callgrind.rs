//! Running a workload under callgrind and reading how many instructions it counted.

use std::{
    env,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// Functions whose instructions are counted, with all they call. By their whole names: another whose name holds one of them would
/// toggle the count as well.
const COUNTED: [&str; 2] =
    ["weir_bench::decide::drive::counted_call", "weir_bench::decide::queue::counted_turns"];
/// What callgrind says before the count.
const SAYS: &str = "Collected : ";

/// Whether valgrind can be run.
pub(super) fn is_installed() -> bool {
    let mut version = Command::new("valgrind");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// The compiler, as it names itself; `None` where it is not at hand.
pub(super) fn compiler() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Instructions of one time over of a workload.
///
/// # Errors
/// When valgrind or the workload fails, or its output says no count.
pub(super) fn count(workload: &str, handicap: u32) -> Result<u64> {
    let mut valgrind = callgrind();
    valgrind.args(COUNTED.map(|function| format!("--toggle-collect={function}")));
    valgrind.arg(env::current_exe().context("where this program is")?);
    valgrind.args(["instructions", "--workload", workload, "--handicap", &handicap.to_string()]);
    let output = valgrind.output().context("cannot run valgrind")?;
    let (answer, said) =
        (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{workload} under valgrind: {}", last_lines(&said));
    let times: u64 =
        answer.trim().parse().with_context(|| format!("{workload} said {answer:?}"))?;
    Ok(collected(&said)? / times.max(1))
}

/// Valgrind, which counts what the program takes that is to follow.
pub(super) fn callgrind() -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind
}

/// The count in what callgrind says.
///
/// # Errors
/// When it says none, with the last that it says.
pub(super) fn collected(said: &str) -> Result<u64> {
    let line = said.lines().rev().find_map(|line| Some(line.split_once(SAYS)?.1));
    let count = line.and_then(|line| line.trim().parse().ok());
    count.with_context(|| format!("no count in: {}", last_lines(said)))
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("; ")
}
