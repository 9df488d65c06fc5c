//! The binaries under test, built once per test process with the profile that the tests have.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The folder of the binaries; builds them on the first call.
///
/// # Panics
/// When they do not build.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build)
}

/// The path of a binary.
pub fn binary(name: &str) -> PathBuf {
    folder().join(name)
}

/// The path of an example of the dispatcher's crate; builds it.
///
/// # Panics
/// When it does not build.
pub fn example(name: &str) -> PathBuf {
    cargo(&["-p", "weir", "-p", "weir-bench", "--example", name]);
    folder().join("examples").join(name)
}

/// The repository's root.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate lies in the repository")
}

fn build() -> PathBuf {
    cargo(&["-p", "weir", "-p", "weir-bench", "--bins"])
}

/// Builds something with the profile of the tests, and returns the folder where it lies.
fn cargo(what: &[&str]) -> PathBuf {
    // This test lies in TARGET/PROFILE/deps, wherever the target folder was put.
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.ancestors().nth(2).expect("a test lies in a target folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet"])
        .args(what)
        .args(["--profile", profile, "--target-dir"])
        .arg(folder.parent().expect("a profile lies in a target folder"))
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.to_owned()
}
