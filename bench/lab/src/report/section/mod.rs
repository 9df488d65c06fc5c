//! The parts of a report: what was run, what it shows, with its figures computed from the rows, and the pictures.
//!
//! Every file here turns the runs into one [`Section`], or into none when no run has what it is about.
//!
//! # Layout
//! - `targets`: the table of targets; `highest`: highest loads; `by_load`: attainment and goodput against the load
//! - `plain`: figures without a load or without objectives
//! - `limits`: how far from what no scheduler could beat; `variants`: Weir with a part taken away; `frontier`: what is paid for what
//! - `latency`, `timeline`, `prediction`: from the series of single requests
//! - `screening`: who was looked at briefly; `sources`: the run files

mod by_load;
mod frontier;
mod highest;
mod latency;
mod limits;
mod plain;
mod prediction;
mod screening;
mod sources;
mod targets;
mod timeline;
mod variants;

use std::collections::HashSet;

use anyhow::Result;

use super::{cast::Cast, html::Table, input::Runs, plot::Picture};

/// A part of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section {
    /// For links.
    pub(super) id: &'static str,
    /// Its heading.
    pub(super) title: &'static str,
    /// What it shows over all settings, as prose.
    pub(super) lead: String,
    /// How it is read, as prose.
    pub(super) how: &'static str,
    /// One per setting.
    pub(super) parts: Vec<Part>,
}

/// What a section says of one setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// The setting.
    pub(super) heading: String,
    /// What was run, as prose.
    pub(super) run: String,
    /// What the pictures show, as prose.
    pub(super) lead: String,
    /// The pictures.
    pub(super) pictures: Vec<Picture>,
    /// The numbers.
    pub(super) table: Table,
    /// Whether the table is shown at once.
    pub(super) open: bool,
}

/// All sections that the runs have something for.
///
/// # Errors
/// When a picture cannot be drawn.
pub(super) fn all(runs: &Runs, cast: &Cast) -> Result<Vec<Section>> {
    let sections = [
        targets::section(runs),
        highest::section(runs, cast)?,
        by_load::section(runs, cast)?,
        plain::section(runs),
        frontier::section(runs, cast)?,
        limits::section(runs, cast)?,
        variants::section(runs, cast)?,
        latency::section(runs, cast)?,
        timeline::section(runs, cast)?,
        prediction::section(runs, cast)?,
        screening::section(runs)?,
        sources::section(runs),
    ];
    let mut sections: Vec<Section> = sections.into_iter().flatten().collect();
    let parts = sections.iter_mut().flat_map(|section| &mut section.parts);
    name_apart(parts.flat_map(|part| &mut part.pictures));
    Ok(sections)
}

/// Characters of a picture's name: file systems take 255 bytes with its ending and a number.
const LONGEST: usize = 200;

/// Gives every picture a name that is a file's of its own. Headings tell settings apart; what is left of them in a name need not.
fn name_apart<'a>(pictures: impl Iterator<Item = &'a mut Picture>) {
    let mut taken = HashSet::new();
    for picture in pictures {
        let name: String = picture.name.chars().take(LONGEST).collect();
        let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        picture.name = names.find(|name| taken.insert(name.clone())).unwrap_or(name.clone());
    }
}

/// A share with its interval.
fn with_interval(value: String, interval: Option<String>) -> String {
    interval.map_or(value.clone(), |half| format!("{value} ± {half}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pictures_have_one_name() {
        let picture = |name: &str| Picture {
            name: name.to_owned(),
            about: String::new(),
            svg: String::new(),
        };
        let long = "x".repeat(300);
        let mut pictures = ["a", "a", "a-2", "a", &long, &long].map(picture);
        name_apart(pictures.iter_mut());
        let names: HashSet<&str> = pictures.iter().map(|picture| picture.name.as_str()).collect();
        assert_eq!(names.len(), pictures.len(), "{names:?}");
        assert!(names.iter().all(|name| name.len() < 220), "{names:?}");
        assert_eq!(pictures[0].name, "a");
    }
}
