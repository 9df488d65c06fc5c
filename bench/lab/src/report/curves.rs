//! Curves of policies as one SVG file, for commands that draw a picture and no page.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::{
    cast::{Cast, SUBJECT_NAME},
    make_folder,
    plot::{Axis, Line, Lines, Marked, Unit},
};

/// A picture of policies over a quantity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curves {
    /// The file's name without the ending.
    pub(crate) name: String,
    /// Above it.
    pub(crate) title: String,
    /// What is across, with its unit.
    pub(crate) x: String,
    /// What is up, with its unit.
    pub(crate) y: String,
    /// Whether equal steps up are equal ratios.
    pub(crate) is_log: bool,
    /// Policies with their points, in the order of x.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Writes it into the folder, which is made where there is none.
///
/// # Errors
/// When it cannot be drawn or written.
pub(crate) fn write_curves(folder: &Path, curves: Curves) -> Result<()> {
    make_folder(folder)?;
    let names = curves.lines.iter().map(|(name, _)| name.as_str());
    let cast = Cast::named(names.filter(|name| *name != SUBJECT_NAME));
    let line = |(name, points): (String, Vec<(f64, f64)>)| {
        let look = cast.look(&name);
        Line { name, look, points, band: Vec::new(), marked: Marked::Each }
    };
    let y = Axis::new(curves.y, Unit::Number);
    let picture = Lines {
        about: format!("{}: {} against {}", curves.title, y.name, curves.x),
        name: curves.name,
        title: curves.title,
        x: Axis::new(curves.x, Unit::Number),
        y: if curves.is_log { y.log() } else { y },
        lines: curves.lines.into_iter().map(line).collect(),
        guides: Vec::new(),
    };
    let picture = picture.draw()?;
    let path = folder.join(format!("{}.svg", picture.name));
    fs::write(&path, picture.file()).with_context(|| format!("cannot write {}", path.display()))
}
