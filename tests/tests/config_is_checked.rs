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

/// Ten mistakes as they are made, and what must be said of each: its line, its key and what to write.
const MISTAKES: [(&str, &str, &[&str]); 10] = [
    (
        "a key that is spelled wrong",
        "pools:\n- model: m\n  pods: [ { url: 'http://a:1' } ]\nlisten: 127.0.0.1:1\nqueue:\n  max_wat_s: 5\n",
        &["line 6: queue.max_wat_s: ", "did you mean `max_wait_s`?"],
    ),
    (
        "a value of the wrong kind",
        "threads: many\npools: [ { model: m, pods: [ { url: 'http://a:1' } ] } ]\n",
        &["line 1: threads: ", "write a whole number"],
    ),
    (
        "numbers out of their range",
        "pools:\n- model: m\n  pods: [ { url: 'http://a:1' } ]\n  policy:\n    filters:\n    - headroom\n    \
         - kind: headroom-tier\n      explore_negative: 7\npull:\n  kv_limit: 98\n  long_prompt_ms: -1\ntrainer:\n  eta: 5\n",
        &[
            "line 8: pools[0].policy.filters[1].explore_negative: must be from 0 to 1",
            "line 10: pull.kv_limit: must be from 0 to 1",
            "line 11: pull.long_prompt_ms: must be from 0 to 86400000",
            "line 13: trainer.eta: must be above 0, and at most 1",
        ],
    ),
    (
        "a pod's URL that is none",
        "pools:\n- model: m\n  pods:\n  - url: http://a:1\n  - url: grpc://b:1\n",
        &["line 5: pools[0].pods[1].url: ", "must begin with http:// or https://"],
    ),
    (
        "an objective that does not exist",
        "pools:\n- model: m\n  pods: [ { url: 'http://a:1' } ]\n  default_objective: bacth\n",
        &["line 4: pools[0].default_objective: ", "did you mean \"batch\"?"],
    ),
    (
        "a class that does not exist",
        "classes: [ { name: h100 } ]\npools:\n- model: m\n  pods:\n  - { url: 'http://a:1', class: a100 }\n",
        &["line 5: pools[0].pods[0].class: ", "did you mean \"h100\"?"],
    ),
    (
        "a model that is listed twice",
        "pools:\n- { model: m, pods: [ { url: 'http://a:1' } ] }\n- { model: m, pods: [ { url: 'http://b:1' } ] }\n",
        &["line 3: pools[1]: ", "name it once"],
    ),
    (
        "a key in clear, and one whose variable is not set",
        "keys:\n- { sha256: sk-secret, tenant: a }\n- key_env: WEIR_NO_SUCH_KEY\n  tenant: b\n\
         pools: [ { model: m, pods: [ { url: 'http://a:1' } ] } ]\n",
        &["line 2: keys[0].sha256: ", "sha256sum", "line 3: keys[1].key_env: ", "export it"],
    ),
    (
        "no pools at all",
        "# weir\nlisten: 127.0.0.1:1\n",
        &["\n  pools: ", "name at least one model"],
    ),
    (
        "no YAML",
        "pools:\n- model: m\n  pods: [ { url: http://a:1 }\nthreads: 2\n",
        &["line 4: ", "expected"],
    ),
];

#[test]
fn ten_mistakes_are_answered_with_key_line_and_what_to_write() {
    for (mistake, yaml, wanted) in MISTAKES {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weir.yaml");
        std::fs::write(&file, yaml).unwrap();
        let output = weir(&["check", "--config", file.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        let said =
            said.replace(dir.path().to_str().unwrap(), "").replace("/weir.yaml", "weir.yaml");
        println!("{mistake}:\n{said}");
        assert_eq!(output.status.code(), Some(BAD_CONFIG));
        for want in wanted {
            assert!(said.contains(want), "{mistake}: no {want:?} in\n{said}");
        }
    }
}

#[test]
fn a_value_of_the_environment_is_blamed_on_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    let text = "listen: 127.0.0.1:1\npools: [ { model: m, pods: [ { url: 'http://a:1' } ] } ]\n";
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(built::binary("weir"));
    command.args(["check", "--config", file.to_str().unwrap()]).env("WEIR_LISTEN", "nowhere");
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("listen: \"nowhere\"") && said.contains("WEIR_LISTEN"), "{said}");
    assert!(!said.contains("line"), "{said}");
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
