//! What a report is about: run files, found in a folder.
//!
//! A run file is a JSON object with `rows` (`weir-bench sim --json`), `series` (single requests of a lab run) or `targets`
//! (`weir-bench lab`). A file whose `round` is `screening` is kept apart; rows may also be those of `weir-bench limits`. Other JSON
//! files are left out, and that is said. A run file that cannot be read is an error: a report that silently lost a run would lie
//! by omission.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Series, Summary, common::Common};
use crate::study::Row;

/// How deep folders are searched.
const DEPTH: usize = 3;

/// All runs of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Runs {
    /// The files.
    pub(super) files: Vec<RunFile>,
    /// The settings, each once.
    pub(super) settings: Vec<Common>,
    /// All rows.
    pub(super) rows: Vec<Placed<Row>>,
    /// All lines about limits.
    pub(super) limits: Vec<Placed<LimitLine>>,
    /// All per-request series.
    pub(super) series: Vec<Placed<Series>>,
    /// The table of targets, if the lab wrote one.
    pub(super) summary: Option<Summary>,
    /// JSON files that are not run files.
    pub(super) left_out: Vec<String>,
    /// All files that were read, those too.
    pub(super) paths: Vec<PathBuf>,
}

/// What a file holds, and where it belongs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed<T> {
    /// A row, a line or a series.
    pub(super) item: T,
    /// Place of its file.
    pub(super) file: usize,
    /// Place of its setting.
    pub(super) setting: usize,
}

/// A line of `weir-bench limits`: a policy against what no scheduler could beat, beside its setting.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct LimitLine {
    /// The load.
    pub(super) load: f64,
    /// Name of the policy.
    pub(super) policy: String,
    /// How many seeds.
    pub(super) seeds: usize,
    /// Requests that are counted.
    pub(super) requests: usize,
    /// Share of them that was in time.
    pub(super) attainment: f64,
    /// Share that no policy can exceed.
    pub(super) attainment_limit: f64,
    /// Mean TTFT, and what it is at least.
    pub(super) ttft_ms_mean: Option<f64>,
    /// See above.
    pub(super) ttft_ms_limit: Option<f64>,
    /// Mean time to the end, and what it is at least.
    pub(super) e2e_ms_mean: Option<f64>,
    /// See above.
    pub(super) e2e_ms_limit: Option<f64>,
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
    /// When it was written, if the file system says so.
    pub(super) modified: Option<SystemTime>,
    /// How many rows it has.
    pub(super) rows: usize,
    /// Whether they only chose whom to look at: with fewer seeds and requests, so that they are compared with nothing else.
    pub(super) is_screening: bool,
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
            !runs.files.is_empty() || runs.summary.is_some(),
            "no run file in {}: `weir-bench sim .. --json FILE` writes one",
            folder.display()
        );
        runs.paths = paths;
        Ok(runs)
    }

    /// Whether the file at this place is of a screening.
    pub(super) fn is_screening(&self, file: usize) -> bool {
        self.files.get(file).is_some_and(|file| file.is_screening)
    }

    /// The setting at this place.
    pub(super) fn common(&self, setting: usize) -> Common {
        self.settings.get(setting).cloned().unwrap_or_default()
    }

    /// Its heading.
    pub(super) fn heading(&self, setting: usize) -> String {
        self.common(setting).heading(&self.settings)
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
        let kind = Kind::of(&file);
        if kind == Kind::Other {
            self.left_out.push(name.to_owned());
            return Ok(());
        }
        let rows: Vec<Value> = match kind {
            Kind::Rows | Kind::Limits => take(&mut file, "rows")?.unwrap_or_default(),
            Kind::Series | Kind::Other => Vec::new(),
        };
        let series: Vec<Value> = take(&mut file, "series")?.unwrap_or_default();
        let place = self.files.len();
        self.files.push(RunFile {
            name: name.to_owned(),
            command: take(&mut file, "command")?,
            seconds: take(&mut file, "seconds")?,
            modified: fs::metadata(path).and_then(|file| file.modified()).ok(),
            rows: rows.len(),
            is_screening: take::<String>(&mut file, "round")?.as_deref() == Some("screening"),
        });
        for row in rows {
            if kind == Kind::Limits {
                let line = self.placed(row, place).context("\"rows\"")?;
                self.limits.push(line);
            } else {
                let row = self.placed(row, place).context("\"rows\"")?;
                self.rows.push(row);
            }
        }
        for one in series {
            let one = self.placed(one, place).context("\"series\"")?;
            self.series.push(one);
        }
        Ok(())
    }

    /// What a value of a file says, beside the setting that it is of.
    fn placed<T: DeserializeOwned>(&mut self, value: Value, file: usize) -> Result<Placed<T>> {
        let common = Common::deserialize(&value)?;
        let known = self.settings.iter().position(|setting| *setting == common);
        let setting = known.unwrap_or(self.settings.len());
        if known.is_none() {
            self.settings.push(common);
        }
        Ok(Placed { item: serde_json::from_value(value)?, file, setting })
    }
}

/// What a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rows,
    Limits,
    Series,
    Other,
}

impl Kind {
    fn of(file: &Map<String, Value>) -> Self {
        let rows = file.get("rows").and_then(Value::as_array);
        let first = rows.and_then(|rows| rows.first());
        let has = |key: &str| first.is_some_and(|row| row.get(key).is_some());
        match rows {
            Some(_) if has("attainment_limit") => Self::Limits,
            // The highest loads of `weir-bench limits` have policies too, and no class.
            Some(_) if has("policy") && has("class") => Self::Rows,
            _ if file.get("series").is_some_and(Value::is_array) => Self::Series,
            _ => Self::Other,
        }
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
