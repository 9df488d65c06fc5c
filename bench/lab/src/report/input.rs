//! What a report is about: run files, found in a folder.
//!
//! A run file is a JSON object with `rows` (`weir-bench sim --json`), `series` (`weir-bench sim --series`) or `targets`
//! (`weir-bench lab`). Other JSON files are left out, and that is said. A run file that cannot be read is an error: a report
//! that silently lost a run would lie by omission.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Series, Summary};
use crate::study::Row;

/// How deep folders are searched.
const DEPTH: usize = 3;

/// All runs of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Runs {
    /// The files.
    pub(super) files: Vec<RunFile>,
    /// All rows, each with the place of its file.
    pub(super) rows: Vec<(Row, usize)>,
    /// All per-request series.
    pub(super) series: Vec<Series>,
    /// The table of targets, if the lab wrote one.
    pub(super) summary: Option<Summary>,
    /// JSON files that are not run files.
    pub(super) left_out: Vec<String>,
}

/// A run file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RunFile {
    /// Its path below the folder.
    pub(super) name: String,
    /// What wrote it, if it says so.
    pub(super) command: Option<String>,
    /// How long that took.
    pub(super) seconds: Option<f64>,
    /// How many rows it has.
    pub(super) rows: usize,
}

impl Runs {
    /// Reads every run file below a folder.
    ///
    /// # Errors
    /// When the folder cannot be read or has no run file, or when one of them is malformed.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        search(folder, DEPTH, &mut paths)?;
        paths.sort();
        let mut runs = Self::default();
        for path in &paths {
            let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
            runs.add(&name, path).with_context(|| path.display().to_string())?;
        }
        ensure!(
            !runs.rows.is_empty() || !runs.series.is_empty() || runs.summary.is_some(),
            "no run file in {}: `weir-bench sim .. --json FILE` writes one",
            folder.display()
        );
        Ok(runs)
    }

    fn add(&mut self, name: &str, path: &Path) -> Result<()> {
        let text = fs::read_to_string(path).context("cannot be read")?;
        let Value::Object(mut file) = serde_json::from_str(&text).context("is not JSON")? else {
            self.left_out.push(name.to_owned());
            return Ok(());
        };
        if file.contains_key("targets") {
            self.summary = Some(serde_json::from_value(Value::Object(file))?);
            return Ok(());
        }
        let rows: Option<Vec<Row>> = take(&mut file, "rows")?;
        let series: Option<Vec<Series>> = take(&mut file, "series")?;
        if rows.is_none() && series.is_none() {
            self.left_out.push(name.to_owned());
            return Ok(());
        }
        let rows = rows.unwrap_or_default();
        self.files.push(RunFile {
            name: name.to_owned(),
            command: take(&mut file, "command")?,
            seconds: take(&mut file, "seconds")?,
            rows: rows.len(),
        });
        let place = self.files.len() - 1;
        self.rows.extend(rows.into_iter().map(|row| (row, place)));
        self.series.extend(series.unwrap_or_default());
        Ok(())
    }
}

fn take<T: DeserializeOwned>(file: &mut Map<String, Value>, key: &str) -> Result<Option<T>> {
    let value = file.remove(key).filter(|value| !value.is_null());
    value.map(|value| serde_json::from_value(value).context(format!("{key:?}"))).transpose()
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder);
    let entries =
        entries.with_context(|| format!("cannot read the folder {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if depth > 0 {
                search(&path, depth - 1, found)?;
            }
        } else if path.extension().is_some_and(|ending| ending == "json") {
            found.push(path);
        }
    }
    Ok(())
}
