//! Finding and loading the ONNX Runtime library, once per process.
//!
//! [`Runtime::load`] is called by whoever assembles the program, before the first bundle is read. A
//! missing or unsuitable library is an error with the places that were looked at, never a panic: the
//! dispatcher then serves from the prior. The library stays mapped for the life of the process, so
//! removing or replacing its file does not matter any more, and every later call gets the same one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;

/// Environment variables that name the library, in the order in which they are read.
pub const LIBRARY_VARIABLES: [&str; 2] = ["WEIR_ONNXRUNTIME_LIBRARY", "ORT_DYLIB_PATH"];

/// What keeps ONNX Runtime from reporting to its makers, where it is set before the library is loaded: as the first thing that a program
/// does. Its wheels report since 1.31, and begin when they are loaded, before they can be asked not to; while no name server
/// answers, the end of the process waits for a last report.
pub const NO_REPORTS: &str = "ORT_DISABLE_TELEMETRY";

/// Where `make native` puts the library, below the working directory or one of its parents.
const NATIVE_DIR: &str = ".native/onnxruntime/capi";

/// One environment per process is all that ONNX Runtime allows.
static LOADED: OnceLock<Runtime> = OnceLock::new();
/// Held while loading, so that two first callers do not load twice.
static LOADING: Mutex<()> = Mutex::new(());

/// Why there is no ONNX Runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No file of that kind in any of the places.
    #[error(
        "no onnx runtime library found (run `make native`, or set {}); looked at {}",
        LIBRARY_VARIABLES[0],
        listed(looked)
    )]
    NotFound {
        /// Files and folders looked at, in order.
        looked: Vec<PathBuf>,
    },
    /// A file was found and is no library that can be used.
    #[error("onnx runtime library {} cannot be used: {reason}", library.display())]
    Unusable {
        /// The file.
        library: PathBuf,
        /// What the loader said.
        reason: String,
    },
}

fn listed(looked: &[PathBuf]) -> String {
    let places: Vec<String> = looked.iter().map(|place| place.display().to_string()).collect();
    places.join(", ")
}

/// A handle to the loaded library; clones are cheap and share it.
#[derive(Clone, Debug)]
pub struct Runtime {
    environment: Environment,
    library: Arc<Path>,
}

impl Runtime {
    /// Loads the library, or returns the one that was loaded before, whatever it was loaded from.
    ///
    /// A library named by the argument or by a variable of [`LIBRARY_VARIABLES`] is the only one
    /// tried; it may be a file or the folder that holds it. Otherwise the folder of the executable
    /// and then `.native/onnxruntime/capi` in the working directory and its parents are searched.
    ///
    /// # Errors
    /// When no library is found or it cannot be used.
    pub fn load(library: Option<&Path>) -> Result<Self, RuntimeError> {
        let _loading = LOADING.lock();
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded.clone());
        }
        let file = find(&places(library))?;
        let runtime = Self::open(&file)?;
        tracing::info!(library = %file.display(), "onnx runtime loaded");
        Ok(LOADED.get_or_init(|| runtime).clone())
    }

    /// The file the library was loaded from.
    pub fn library(&self) -> &Path {
        &self.library
    }

    pub(crate) const fn environment(&self) -> &Environment {
        &self.environment
    }

    fn open(file: &Path) -> Result<Self, RuntimeError> {
        let unusable = |reason: String| RuntimeError::Unusable { library: file.to_owned(), reason };
        // `ort::init` panics without a library; `init_from` returns.
        let builder = ort::init_from(file).map_err(|error| unusable(error.to_string()))?;
        let environment = builder
            .with_name("weir")
            .with_telemetry(false)
            .with_logger(Arc::new(log))
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        environment.set_log_level(LogLevel::Warning);
        Ok(Self { environment, library: file.into() })
    }
}

/// Lines of the library itself. Whatever matters comes back as an error as well, so they are detail.
fn log(level: LogLevel, _category: &str, _id: &str, location: &str, message: &str) {
    tracing::debug!(target: "onnxruntime", ?level, location, "{message}");
}

fn places(library: Option<&Path>) -> Vec<PathBuf> {
    let variable = || {
        let values = LIBRARY_VARIABLES.iter().filter_map(std::env::var_os);
        values.filter(|value| !value.is_empty()).map(PathBuf::from).next()
    };
    if let Some(named) = library.map(Path::to_owned).or_else(variable) {
        return vec![named];
    }
    let executable = std::env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent).map(Path::to_owned);
    let working = std::env::current_dir().unwrap_or_default();
    beside.into_iter().chain(working.ancestors().map(|dir| dir.join(NATIVE_DIR))).collect()
}

/// The first library in `places`, each a file or a folder to look into, as an absolute path: the
/// loader would look for a relative one beside the executable.
fn find(places: &[PathBuf]) -> Result<PathBuf, RuntimeError> {
    let found = places.iter().find_map(|place| {
        if place.is_dir() { in_folder(place) } else { place.is_file().then(|| place.clone()) }
    });
    let file = found.ok_or_else(|| RuntimeError::NotFound { looked: places.to_vec() })?;
    Ok(std::path::absolute(&file).unwrap_or(file))
}

/// The library in a folder; with several versions the last by name.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // libonnxruntime.so, .so.1, .so.1.31.1, .dylib; not libonnxruntime_providers_shared.so.
        name.starts_with("libonnxruntime.") || name == "onnxruntime.dll"
    };
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(named).max()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The library that the tests run with.
    pub(crate) fn loaded() -> Runtime {
        Runtime::load(None).expect("these tests need ONNX Runtime: run `make native`")
    }

    #[test]
    fn a_missing_library_is_an_error_that_says_where_it_was_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().to_owned(), dir.path().join("absent.so")];
        let error = find(&places).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, RuntimeError::NotFound { looked } if looked == places));
        assert!(text.contains("make native") && text.contains("absent.so"), "{text}");
    }

    #[test]
    fn a_folder_gives_its_newest_library_and_not_a_provider() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libonnxruntime.so.1.24.4", "libonnxruntime.so.1.31.1", "notes.txt"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::write(dir.path().join("libonnxruntime_providers_shared.so"), "").unwrap();
        let found = find(&[dir.path().join("absent"), dir.path().to_owned()]).unwrap();
        assert_eq!(found, dir.path().join("libonnxruntime.so.1.31.1"));
    }

    #[test]
    fn a_named_library_is_the_only_place_looked_at() {
        assert_eq!(places(Some(Path::new("/somewhere/lib.so"))), [Path::new("/somewhere/lib.so")]);
    }
}
