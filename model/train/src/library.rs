//! Where libxgboost is looked for.
//!
//! A place that somebody named, in the configuration or in the environment, the library or its folder, is the only one tried:
//! falling through to another library would hide the mistake.

use std::path::{Path, PathBuf};

use crate::TrainError;

/// Environment variable that names the library.
const ENVIRONMENT: &str = "WEIR_XGBOOST_LIBRARY";
/// File name beside the binary, or in a folder that was named.
const FILE_NAME: &str = "libxgboost.so";
/// Where `make native` puts it, below the repository's root.
const NATIVE: &str = ".native/xgboost/lib/libxgboost.so";

/// The library to load.
pub(crate) fn find(configured: Option<&Path>) -> Result<PathBuf, TrainError> {
    let named = std::env::var_os(ENVIRONMENT).filter(|value| !value.is_empty()).map(PathBuf::from);
    let binary = std::env::current_exe().ok();
    let here = std::env::current_dir().ok();
    let places = places(configured, named, binary.as_deref(), here.as_deref());
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(TrainError::Library {
            reason: "not found".into(),
            looked: places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// Every place to try, in order.
fn places(
    configured: Option<&Path>,
    named: Option<PathBuf>,
    binary: Option<&Path>,
    here: Option<&Path>,
) -> Vec<PathBuf> {
    if let Some(only) = configured.map(Path::to_owned).or(named) {
        return vec![if only.is_dir() { only.join(FILE_NAME) } else { only }];
    }
    let beside = binary.and_then(Path::parent).map(|folder| folder.join(FILE_NAME));
    // The parents too: tests run in the folder of their crate, below the repository's root.
    let native = here.into_iter().flat_map(Path::ancestors).map(|folder| folder.join(NATIVE));
    beside.into_iter().chain(native).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_place_is_the_only_one_and_the_configuration_comes_first() {
        let (one, other) = (Path::new("/one.so"), Path::new("/other.so"));
        let here = Some(Path::new("/a/b"));
        assert_eq!(places(Some(one), Some(other.into()), here, here), [one]);
        assert_eq!(places(None, Some(other.into()), here, here), [other]);
    }

    #[test]
    fn a_named_folder_is_the_librarys() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join(FILE_NAME);
        let error = find(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains(&library.display().to_string()), "{error}");
        std::fs::write(&library, "").unwrap();
        assert_eq!(find(Some(folder.path())).unwrap(), library);
    }

    #[test]
    fn unnamed_it_is_looked_for_beside_the_binary_and_then_upwards() {
        let found = places(None, None, Some(Path::new("/bin/weir")), Some(Path::new("/a/b")));
        let below = |folder: &str| Path::new(folder).join(NATIVE);
        assert_eq!(found, ["/bin/libxgboost.so".into(), below("/a/b"), below("/a"), below("/")]);
    }

    #[test]
    fn a_missing_library_is_refused_with_the_places_and_the_remedy() {
        let error = find(Some(Path::new("/nowhere/x.so"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.so") && error.contains("make native"), "{error}");
    }
}
