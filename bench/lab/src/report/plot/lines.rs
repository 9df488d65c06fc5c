//! Curves over an axis, each with the band in which it is known.

use anyhow::Result;
use plotters::{
    element::{PathElement, Polygon},
    style::Color,
};

use super::{
    Axis, Guide, Look, Picture,
    frame::{self, Canvas, Key, Plane, Text, drawn},
    marker::marker,
};

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// Whose.
    pub(in crate::report) name: String,
    /// How it is drawn.
    pub(in crate::report) look: Look,
    /// Its points, in the order of x.
    pub(in crate::report) points: Vec<(f64, f64)>,
    /// Half widths of the band, one per point; empty for none.
    pub(in crate::report) band: Vec<f64>,
    /// Which points have a marker.
    pub(in crate::report) marked: Marked,
}

/// Where a curve has its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Marked {
    /// At every point: each was measured.
    Each,
    /// Here and there, for a curve of many points to be told from the others.
    Few,
}

/// Markers of a curve of many points.
const MARKERS: usize = 6;

impl Marked {
    /// The points of so many that have one. Curves of other markers have them elsewhere: they would cover one another.
    pub(super) fn places(self, points: usize, marker: usize) -> impl Iterator<Item = usize> {
        let (first, step) = match self {
            Self::Each => (0, 1),
            Self::Few => {
                let step = points.div_ceil(MARKERS).max(1);
                (step * (marker % MARKERS) / MARKERS, step)
            }
        };
        (first..points).step_by(step)
    }
}

/// A picture of curves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lines {
    /// Name of the file.
    pub(in crate::report) name: String,
    /// Above it.
    pub(in crate::report) title: String,
    /// For those who cannot see it.
    pub(in crate::report) about: String,
    /// Across.
    pub(in crate::report) x: Axis,
    /// Up.
    pub(in crate::report) y: Axis,
    /// The curves, the most important first.
    pub(in crate::report) lines: Vec<Line>,
    /// Lines that help to read it.
    pub(in crate::report) guides: Vec<Guide>,
}

impl Lines {
    /// Draws it.
    ///
    /// # Errors
    /// When the backend cannot.
    pub(in crate::report) fn draw(&self) -> Result<Picture> {
        let keys = keys(self.lines.iter().map(|line| (line.name.as_str(), line.look)));
        let text = Text { name: &self.name, title: &self.title, about: &self.about, keys: &keys };
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = (&self.x, self.x.span(points().map(|(x, _)| *x)));
        let ys = (&self.y, self.y.span(points().map(|(_, y)| *y)));
        frame::picture(&text, frame::HEIGHT, |area| {
            let plane = frame::axes(area, xs, ys)?;
            for guide in &self.guides {
                frame::draw_guide(area, &plane, guide)?;
            }
            self.lines.iter().rev().try_for_each(|line| draw_line(area, &plane, line))
        })
    }
}

/// The legend: those that are named, and one for all others.
pub(super) fn keys<'a>(all: impl Iterator<Item = (&'a str, Look)>) -> Vec<Key> {
    let (mut named, mut others): (Vec<Key>, usize) = (Vec::new(), 0);
    for (name, look) in all {
        if !look.named {
            others += 1;
        } else if named.iter().all(|key| key.name != name) {
            named.push(Key { name: name.to_owned(), look });
        }
    }
    if others > 0 {
        let name = if others == 1 { "1 other".to_owned() } else { format!("{others} others") };
        named.push(Key { name, look: Look::OTHER });
    }
    named
}

fn draw_line(area: &Canvas<'_>, plane: &Plane, line: &Line) -> Result<()> {
    let colour = line.look.colour.light;
    let place = |(x, y): &(f64, f64)| plane.place(*x, *y);
    if line.look.named && !line.band.is_empty() {
        let edge = |sign: f64| {
            let with = line.points.iter().zip(&line.band);
            with.map(move |((x, y), half)| plane.place(*x, y + sign * half)).collect::<Vec<_>>()
        };
        let mut around = edge(1.0);
        around.extend(edge(-1.0).into_iter().rev());
        area.draw(&Polygon::new(around, colour.mix(0.16))).map_err(drawn)?;
    }
    let width = if line.look.named { 5 } else { 2 };
    let path: Vec<_> = line.points.iter().map(place).collect();
    area.draw(&PathElement::new(path, colour.stroke_width(width))).map_err(drawn)?;
    if line.look.named {
        let marked = line.marked.places(line.points.len(), line.look.marker);
        for point in marked.filter_map(|at| line.points.get(at)) {
            area.draw(&marker(place(point), 8, line.look.marker, colour)).map_err(drawn)?;
        }
    }
    Ok(())
}
