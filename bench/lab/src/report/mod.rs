//! `weir-bench report`: turns run files into one page that somebody who was not there can read.
//!
//! [`ReportArgs::run`] reads every run file below a folder ([`write()`] is the same for callers), and writes one HTML file with
//! all pictures inside and, if asked, every picture as an SVG file of its own. Each section says what was run and what it
//! shows; every figure in a sentence is computed from the rows. A section that no run has something for is left out; a folder
//! without a run file is an error.
//!
//! Pictures are SVG only: a raster would need fonts, which are not on every machine.
//!
//! # Layout
//! - `series`: what single requests got, written by runners; `target`: the table of targets, written by the lab
//! - `input`: run files; `common`: a setting, and its heading; `choice`: which of several runs counts
//! - `group`, `scene`: what can be compared, in words; `cast`: who has which colour
//! - `section`: the parts of the page; `plot`: pictures; `palette`: colours
//! - `page`, `html`, `words`: the page, markup and numbers; `curves`: a picture without a page

mod cast;
mod choice;
mod common;
mod curves;
mod group;
mod html;
mod input;
mod page;
mod palette;
mod plot;
mod scene;
mod section;
mod series;
mod target;
#[cfg(test)]
mod tests;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;

pub(crate) use curves::{Curves, write_curves};
pub use series::{Call, Moment, Series, SeriesFile};
pub use target::{Judged, Keep, Summary, Target};
pub(crate) use words::{asked, attained};

use crate::results::{ResultFile, say};
use cast::Cast;
use input::Runs;
use words::counted;

/// Write one self-contained HTML page, and the pictures in it, from the run files in a folder
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Folder with run files: what `--json` of the other commands wrote
    dir: PathBuf,
    /// The page to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Folder for every picture as an SVG file of its own
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Heading of the page
    #[arg(long, default_value = "Weir in the lab")]
    title: String,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Rows that were read.
    pub rows: usize,
    /// Sections of the page.
    pub sections: usize,
    /// Pictures in it.
    pub pictures: usize,
}

impl ReportArgs {
    /// Writes the page.
    ///
    /// # Errors
    /// When there is no run file, one is malformed, or the page cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let written = write(&self.dir, &self.out, self.plots.as_deref(), &self.title)?;
        say!(
            "{}: {} with {} from {}",
            self.out.display(),
            counted(written.sections, "section", "sections"),
            counted(written.pictures, "picture", "pictures"),
            counted(written.rows, "row", "rows"),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a page from the run files below `folder`, and the pictures below `plots`.
///
/// # Errors
/// When there is no run file, one is malformed, or something cannot be written.
pub fn write(folder: &Path, out: &Path, plots: Option<&Path>, title: &str) -> Result<Written> {
    let runs = Runs::read(folder)?;
    let read = runs.paths.iter().map(|path| ("the report", Some(path.as_path())));
    let file = ResultFile::asked(Some(out))?.sparing(read)?;
    let sections = section::all(&runs, &Cast::of(&runs))?;
    let lead = "The scheduler that serves and the policies it is compared with, in front of modelled engines in virtual time: the same arrivals and the same noise for everybody. What each section was made of is said at its head.";
    let page = page::page(title, lead, &sections);
    file.write(|to| Ok(to.write_all(page.as_bytes())?))?;
    let pictures =
        sections.iter().flat_map(|section| &section.parts).flat_map(|part| &part.pictures);
    if let Some(plots) = plots {
        make_folder(plots)?;
        for picture in pictures.clone() {
            let path = plots.join(format!("{}.svg", picture.name));
            fs::write(&path, picture.file())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(Written { rows: runs.rows.len(), sections: sections.len(), pictures: pictures.count() })
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}
