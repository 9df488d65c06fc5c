//! A configuration is checked before anything starts, and what is wrong is said in words that help.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use weir_tests::built;

/// The exit code for a configuration that cannot be used.
const BAD_CONFIG: i32 = 64;

fn weir(arguments: &[&str]) -> Output {
    Command::new(built::binary("weir")).args(arguments).output().unwrap()
}

/// What each command says of a configuration that it refuses.
fn refused(yaml: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    std::fs::write(&file, yaml).unwrap();
    refused_file(&file)
}

fn refused_file(file: &Path) -> String {
    let mut said = String::new();
    for command in ["check", "serve", "train"] {
        let output = weir(&[command, "--config", file.to_str().unwrap()]);
        said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(BAD_CONFIG), "{command}: {said}");
        assert!(said.contains(file.to_str().unwrap()), "{command} does not name the file: {said}");
        assert!(output.stdout.is_empty(), "{command}");
    }
    said
}

#[test]
fn an_unknown_key_is_refused_with_a_suggestion_and_its_line() {
    let said = refused("listen: 127.0.0.1:0\nscrape:\n  evry_ms: 5\n");
    assert!(said.contains("`evry_ms`") && said.contains("did you mean `every_ms`?"), "{said}");
    assert!(said.contains("line 3"), "{said}");
}

#[test]
fn every_bad_value_is_named_at_once() {
    let said = refused(
        "listen: nowhere\n\
         upstream: { stall_timeout_s: 0 }\n\
         objectives: { standard: { ttft_ms: -4 } }\n\
         spool: { segment_bytes: 1 }\n\
         log: { level: '=loud=' }\n",
    );
    for key in ["listen", "upstream.stall_timeout_s", "ttft_ms", "spool.segment_bytes", "log.level"]
    {
        assert!(said.contains(key), "{key} is not named:\n{said}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_place() {
    let said = refused("threads: many\n");
    assert!(said.contains("threads") && said.contains("line 1"), "{said}");
    refused("pools: [{ model: m, policy: wier }]");
    refused("- not\n- a mapping\n");
    refused("listen: [unclosed");
}

#[test]
fn two_pools_of_one_name_are_refused() {
    let said = refused(
        "pools:\n- { model: m, pods: [{ url: 'http://127.0.0.1:1' }] }\n\
         - { model: n, aliases: [m], pods: [{ url: 'http://127.0.0.1:2' }] }\n",
    );
    assert!(said.contains("\"m\""), "{said}");
}

#[test]
fn a_file_without_any_pod_is_refused() {
    let said = refused("listen: 127.0.0.1:0\n");
    assert!(said.contains("pools"), "{said}");
}

#[test]
fn a_missing_file_is_refused_by_name() {
    let said = refused_file(Path::new("/nowhere/weir.yaml"));
    assert!(said.contains("cannot read"), "{said}");
}

#[test]
fn wrong_usage_has_an_exit_code_of_its_own() {
    assert_eq!(weir(&["serve", "--no-such-flag"]).status.code(), Some(2));
    assert_eq!(weir(&["serve", "--policy", "fortune-telling"]).status.code(), Some(2));
}

#[test]
fn an_address_that_is_taken_fails_with_its_name() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: '{address}' }}\n\
         pools: [{{ model: m, pods: [{{ url: 'http://127.0.0.1:1' }}] }}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let output = weir(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address), "{output:?}");
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|kind| kind == "yaml")).collect()
}

#[test]
fn every_configuration_that_is_shipped_passes() {
    let config = built::root().join("config");
    let files = [yaml_files(&config), yaml_files(&config.join("examples"))].concat();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let output = weir(&["check", "--config", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", file.display());
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("pools:"),
            "the configuration in force"
        );
    }
}

#[test]
fn the_schema_that_is_shipped_is_the_programs() {
    let shipped = std::fs::read_to_string(built::root().join("config/weir.schema.json")).unwrap();
    let output = weir(&["schema"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        shipped.as_bytes() == output.stdout,
        "write config/weir.schema.json with `weir schema`"
    );
}
