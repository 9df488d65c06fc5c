//! `deploy/profiled.sh` builds with what a run under load has counted, and without where nothing can be counted.
//!
//! Compiler, cargo and load are scripts here that say what they were asked: the real ones take a quarter of an hour.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use weir_tests::built;

/// Leaves a program that says with which flags it was made, where the real one does.
const CARGO: &str = r#"out=$CARGO_TARGET_DIR
case "$*" in *--target*) out=$out/a-b-c ;; esac
mkdir -p "$out/dist" && printf 'flags:%s\n' "$RUSTFLAGS" >"$out/dist/weir"
printf '%s\n' "$*" >>"$SAID""#;
const RUSTC: &str = r#"case "$*" in
*target-libdir*) printf '%s/lib\n' "$TOOLS" ;;
*) printf 'rustc 1\nhost: a-b-c\n' ;;
esac"#;
const PROFDATA: &str = r#"for last; do :; done
cat "$last"/* >"${2#--output=}""#;
/// Counts what the program under load is.
const BENCH: &str = r#"printf 'exercise\n' >>"$SAID"
mkdir -p "${LLVM_PROFILE_FILE%/*}" && cp "$3" "$LLVM_PROFILE_FILE""#;
/// One that finds no native libraries.
const NO_BENCH: &str = "exit 1";

/// The programs that the script calls.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new(load: &str) -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["programs", "lib", "bin"] {
            fs::create_dir(bench.at(folder)).unwrap();
        }
        bench.program("programs/cargo", CARGO);
        bench.program("programs/rustc", RUSTC);
        bench.program("programs/rustup", "exit 1");
        bench.program("bin/llvm-profdata", PROFDATA);
        bench.program("weir-bench", load);
        bench
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn program(&self, path: &str, script: &str) {
        fs::write(self.at(path), format!("#!/bin/sh\nset -eu\n{script}\n")).unwrap();
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What the script says, and the binary that it leaves.
    fn build(&self) -> (String, String) {
        let path = env::var("PATH").unwrap();
        let output = Command::new(built::root().join("deploy/profiled.sh"))
            .arg(self.at("weir-bench"))
            .env_remove("CARGO")
            .env("RUSTFLAGS", "-Chosen")
            .env("CARGO_TARGET_DIR", self.at("target"))
            .env("PATH", format!("{}:{path}", self.at("programs").display()))
            .env("TOOLS", self.folder.path())
            .env("SAID", self.at("said"))
            .output()
            .unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        println!("{said}");
        assert!(output.status.success(), "{said}");
        (said, fs::read_to_string(self.at("target/profiled/weir")).unwrap())
    }

    /// How often the load ran.
    fn exercised(&self) -> usize {
        fs::read_to_string(self.at("said")).unwrap().matches("exercise").count()
    }
}

/// The profile that a binary was made with.
fn profile(binary: &str) -> &Path {
    Path::new(binary.trim().strip_prefix("flags:-Chosen -Cprofile-use=").unwrap())
}

#[test]
fn what_is_deployed_is_built_with_what_the_load_has_counted() {
    let bench = Bench::new(BENCH);
    let (said, binary) = bench.build();
    assert!(!said.contains("without a profile"), "{said}");
    let counted = fs::read_to_string(profile(&binary)).unwrap();
    assert!(
        counted.starts_with("flags:-Chosen ") && counted.contains("-Cprofile-generate="),
        "{counted}"
    );
}

#[test]
fn the_same_program_is_counted_once() {
    let bench = Bench::new(BENCH);
    let first = bench.build();
    assert_eq!((bench.build().1, bench.exercised()), (first.1.clone(), 1));
    bench.program("programs/cargo", &format!("RUSTFLAGS=\"$RUSTFLAGS -Cnew\"\n{CARGO}"));
    let (_, renewed) = bench.build();
    assert_eq!(bench.exercised(), 2);
    assert_ne!(profile(renewed.trim().strip_suffix(" -Cnew").unwrap()), profile(&first.1));
}

#[test]
fn without_the_compilers_tools_it_says_so_and_builds_plainly() {
    let bench = Bench::new(BENCH);
    fs::remove_file(bench.at("bin/llvm-profdata")).unwrap();
    let (said, binary) = bench.build();
    assert!(said.contains("profiled: without a profile: no llvm-tools"), "{said}");
    assert_eq!((binary.as_str(), bench.exercised()), ("flags:-Chosen\n", 0));
}

#[test]
fn when_the_load_fails_it_says_so_and_builds_plainly() {
    let bench = Bench::new(NO_BENCH);
    let (said, binary) = bench.build();
    assert!(said.contains("profiled: without a profile: nothing could be counted"), "{said}");
    assert_eq!(binary, "flags:-Chosen\n");
}
