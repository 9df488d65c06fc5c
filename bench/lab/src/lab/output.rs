//! The files of a run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{
    Rounds,
    contest::Showing,
    effort::{VARIANT_SEEDS, screen_seeds},
};
use crate::{
    limits::Line,
    report::{self, SeriesFile, Summary},
    results::{ResultFile, command},
    study::Row,
};

/// What a lab run writes into `runs`: of each case a file for each round, and these two.
const ROUNDS: [&str; 3] = ["-full.json", "-variants.json", "-screening.json"];
const LIMITS: &str = "limits.json";
const SERIES: &str = "series.json";

/// Folders that it writes; the first one is there from its first moment on.
const RUNS: &str = "runs";
const PLOTS: &str = "plots";
/// And files.
const FILES: [&str; 2] = ["summary.json", "report.html"];

/// The folder.
pub(super) struct Output {
    folder: PathBuf,
}

impl Output {
    /// Makes the folder, without what an earlier run wrote.
    ///
    /// # Errors
    /// When it cannot be made, or has what somebody else put there, which would be lost, or be in the page.
    pub(super) fn prepare(folder: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", folder.display());
        if let Some(other) = others(folder).with_context(cannot)? {
            bail!("{} is of no lab run and would be removed: give another --out", other.display());
        }
        for old in [RUNS, PLOTS] {
            let old = folder.join(old);
            if old.exists() {
                fs::remove_dir_all(&old).with_context(cannot)?;
            }
        }
        fs::create_dir_all(folder.join(RUNS)).with_context(cannot)?;
        for old in FILES {
            let old = folder.join(old);
            if old.exists() {
                fs::remove_file(&old).with_context(cannot)?;
            }
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Every row, by case and round.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn runs(&self, rounds: &Rounds<'_>, traces: Option<&Path>) -> Result<()> {
        let (effort, of_case) = (&rounds.effort, rounds.stages.iter().enumerate());
        for (place, stage) in of_case {
            let full = (effort.seeds.len(), stage.setting.requests);
            let screening = effort.screening.get(place).copied().unwrap_or_default();
            let written = [
                ("full", &rounds.finals, full),
                ("variants", &rounds.variants, (VARIANT_SEEDS.len(), full.1)),
                ("screening", &rounds.screened, (screen_seeds(screening).len(), screening)),
            ];
            for (round, showings, (seeds, requests)) in written {
                let showings = showings.get(place).map(Vec::as_slice).unwrap_or_default();
                if showings.is_empty() {
                    continue;
                }
                let arguments = stage.entry.case.arguments(traces);
                let command =
                    format!("weir-bench sim {arguments} --seeds {seeds} --requests {requests}");
                let file = json!({"command": command, "round": round, "rows": rows(showings)});
                self.write(&format!("runs/{}-{round}.json", stage.entry.case.id), &file)?;
            }
        }
        let limits: Vec<&Line> = rounds.limits.iter().flatten().collect();
        if !limits.is_empty() {
            let file = json!({"command": command(), "rows": limits});
            self.write(&format!("runs/{LIMITS}"), &file)?;
        }
        let series = SeriesFile { command: command(), series: rounds.series.clone() };
        series.write(ResultFile::asked(Some(&self.folder.join("runs").join(SERIES)))?)
    }

    /// The table.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn summary(&self, summary: &Summary) -> Result<()> {
        self.write("summary.json", &serde_json::to_value(summary)?)
    }

    /// The page and its pictures. Says what was written.
    ///
    /// # Errors
    /// When something cannot be drawn or written.
    pub(super) fn page(&self) -> Result<String> {
        let page = self.folder.join("report.html");
        let written = report::write(
            &self.folder,
            &page,
            Some(&self.folder.join("plots")),
            "Weir in the lab",
        )?;
        Ok(format!("{}: {} pictures from {} rows", page.display(), written.pictures, written.rows))
    }

    fn write(&self, name: &str, value: &serde_json::Value) -> Result<()> {
        let path = self.folder.join(name);
        let text = serde_json::to_string_pretty(value)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Something in the folder that would be removed and that no lab run wrote.
fn others(folder: &Path) -> Result<Option<PathBuf>> {
    let (runs, plots) = (folder.join(RUNS), folder.join(PLOTS));
    if !runs.exists() {
        let names = [PLOTS].into_iter().chain(FILES);
        return Ok(names.map(|name| folder.join(name)).find(|path| path.exists()));
    }
    let is_run = |name: &str| {
        [LIMITS, SERIES].contains(&name) || ROUNDS.iter().any(|ending| name.ends_with(ending))
    };
    let run = first_in(&runs, |name| !is_run(name))?;
    Ok(run.or(first_in(&plots, |name| !name.ends_with(".svg"))?))
}

/// The first file of a folder, if that is there, whose name is such.
fn first_in(folder: &Path, is_such: impl Fn(&str) -> bool) -> Result<Option<PathBuf>> {
    if !folder.exists() {
        return Ok(None);
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_such(&entry.file_name().to_string_lossy()) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// All rows of these.
fn rows(showings: &[Showing]) -> Vec<&Row> {
    showings.iter().flat_map(rows_of).collect()
}

fn rows_of(showing: &Showing) -> impl Iterator<Item = &Row> {
    let levels = showing.levels.iter().flat_map(|(_, _, highest)| &highest.rows);
    levels.chain(showing.loads.iter().flat_map(|at| &at.rows))
}
