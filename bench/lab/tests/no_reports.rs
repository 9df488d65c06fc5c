//! ONNX Runtime is told to report nothing to its makers, before it can be loaded, unless somebody has said otherwise.
#![expect(clippy::unwrap_used, reason = "a test says what broke by panicking")]

use std::{env, fs, os::unix::fs::PermissionsExt, process::Command};

/// What a program that `weir-bench` starts is told, with this in the environment of `weir-bench`.
fn told(set: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (valgrind, said) = (folder.path().join("valgrind"), folder.path().join("said"));
    let script =
        format!("#!/bin/sh\nprintf '%s' \"$ORT_DISABLE_TELEMETRY\" > {}\nexit 1\n", said.display());
    fs::write(&valgrind, script).unwrap();
    fs::set_permissions(&valgrind, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-bench"));
    command.arg("instructions").env("PATH", path).env_remove("ORT_DISABLE_TELEMETRY");
    command.envs(set.map(|value| ("ORT_DISABLE_TELEMETRY", value)));
    command.output().unwrap();
    fs::read_to_string(said).unwrap()
}

#[test]
fn nothing_is_reported_unless_it_is_asked_for() {
    assert_eq!(told(None), "1");
    assert_eq!(told(Some("0")), "0");
}
