//! The ONNX Runtime library missing, unusable, found, and removed while in use.
//!
//! A process loads it once, so this is one test in a program of its own.

use std::path::{Path, PathBuf};

use weir_predict::{Bundle, Chain, Runtime, RuntimeError};
use weir_schema::{Predict, Prediction, Source};

#[cfg(test)]
#[expect(dead_code, reason = "the unit tests use the rest of it")]
#[path = "../src/fixture.rs"]
mod fixture;

/// The library that `make native` unpacked, or the one named in the environment.
fn unpacked() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WEIR_ONNXRUNTIME_LIBRARY") {
        return Some(named.into());
    }
    let roots = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folders = roots.map(|root| root.join(".native/onnxruntime/capi"));
    let mut files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let library =
        files.find(|file| file.file_name().to_string_lossy().starts_with("libonnxruntime."))?;
    Some(library.path())
}

#[test]
fn a_bad_library_is_an_error_and_a_removed_one_goes_on_working() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("libonnxruntime.so");

    let missing = Runtime::load(Some(&copy)).unwrap_err();
    assert!(
        matches!(&missing, RuntimeError::NotFound { looked } if looked == std::slice::from_ref(&copy))
    );
    std::fs::write(&copy, b"no library").unwrap();
    let unusable = Runtime::load(Some(&copy)).unwrap_err();
    assert!(matches!(&unusable, RuntimeError::Unusable { library, .. } if library == &copy));
    std::fs::remove_file(&copy).unwrap();

    let library = unpacked().expect("this test needs ONNX Runtime: run `make native`");
    std::fs::copy(library, &copy).unwrap();
    let runtime = Runtime::load(Some(&copy)).unwrap();
    assert_eq!(runtime.library(), copy);
    std::fs::remove_file(&copy).unwrap();
    let again = Runtime::load(Some(&copy)).unwrap();
    let bundle = Bundle::load(&again, &fixture::Fixture::trees(1).write(dir.path())).unwrap();
    let mut chain = Chain::new();
    chain.set_bundle(bundle);
    let mut out = [Prediction::default()];
    chain.predict(&[fixture::row(10.0, 2.0, 5000.0)], &mut out).unwrap();
    assert_eq!(out[0].ttft_source, Source::Onnx);
    assert!((out[0].ttft_ms.p50 - 20.0).abs() < 0.01, "{out:?}");
}
