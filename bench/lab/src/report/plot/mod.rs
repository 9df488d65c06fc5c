//! Pictures: data in, SVG out.
//!
//! A plot is small enough (520 units wide) to be read on a phone, where it shrinks to the width of the screen, and two of
//! them stand side by side on a desk. Text is text, in the reader's own sans-serif font; nothing is loaded from anywhere.
//!
//! # Layout
//! - `frame`: canvas, title, axes and legend, which all pictures share; `marker`: shapes of points; `round`: what a logarithmic
//!   axis is labelled with
//! - `lines`: curves with bands over an axis; `bars`: one bar per policy; `points`: policies or requests in a plane

mod bars;
mod frame;
mod lines;
mod marker;
mod points;
mod round;
#[cfg(test)]
mod tests;

use super::palette::{self, Colour, OTHERS};

pub(super) use bars::{Bar, Bars};
pub(super) use lines::{Line, Lines, Marked};
pub(super) use points::{Cloud, Points};

/// A finished picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    /// Its file's name without the ending.
    pub(crate) name: String,
    /// What it shows, for those who cannot see it.
    pub(crate) about: String,
    /// The picture itself.
    pub(crate) svg: String,
}

impl Picture {
    /// For the inside of a page, whose stylesheet has the dark colours.
    pub(super) fn inline(&self) -> String {
        let about = super::html::escape(&self.about);
        self.svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{about}\" "), 1)
    }

    /// For a file of its own.
    pub(super) fn file(&self) -> String {
        let rules = palette::dark_rules().replace("svg [", "[");
        let title =
            format!("<title>{}</title><style>{rules}</style>", super::html::escape(&self.about));
        match self.svg.find('>') {
            Some(end) => {
                let (head, rest) = self.svg.split_at(end + 1);
                format!("{head}\n{title}{rest}")
            }
            None => self.svg.clone(),
        }
    }
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// What it is, with its unit.
    pub(super) name: String,
    /// From where to where; `None` for what the data need.
    pub(super) range: Option<(f64, f64)>,
    /// Equal steps are equal ratios.
    pub(super) log: bool,
    /// How a value on it is written.
    pub(super) unit: Unit,
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A bare number.
    Number,
    /// 0 to 1, as percent.
    Share,
    /// Milliseconds, in the unit that suits them.
    Millis,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// A value of it.
    pub(super) fn write(self, value: f64) -> String {
        match self {
            Self::Number => super::words::number(value),
            Self::Share => format!("{} %", super::words::number(value * 100.0)),
            Self::Millis => super::words::ms(value),
            Self::Seconds => format!("{} s", super::words::number(value)),
        }
    }
}

impl Axis {
    /// A linear axis over what the data need.
    pub(super) fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self { name: name.into(), range: None, log: false, unit }
    }

    /// From 0 to 1 as percent.
    pub(super) fn share(name: impl Into<String>) -> Self {
        Self { range: Some((0.0, 1.0)), ..Self::new(name, Unit::Share) }
    }

    /// The same, logarithmic.
    pub(super) fn log(self) -> Self {
        Self { log: true, ..self }
    }

    /// Range for these values: with a little air, from zero on where that is near, and never empty.
    fn span(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        if let Some(range) = self.range {
            return range;
        }
        let usable = values.filter(|value| value.is_finite() && (!self.log || *value > 0.0));
        let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return if self.log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if self.log {
            let air = (high / low).powf(0.04).max(1.05);
            return round::widened(low / air, high * air);
        }
        // Shares that hardly differ are not to look as if they did.
        let (low, high) = match self.unit {
            Unit::Share if high - low < 0.05 => ((low - 0.025).max(0.0), (high + 0.025).max(0.05)),
            _ => (low, high),
        };
        let air = ((high - low) * 0.06).max(high.abs() * 0.02).max(1e-9);
        let near_zero = low >= 0.0 && low < 0.4 * high;
        // No share is above one.
        let most = if self.unit == Unit::Share && high <= 1.0 { 1.01 } else { f64::INFINITY };
        (if near_zero { 0.0 } else { low - air }, (high + air).min(most))
    }
}

/// How a policy is drawn: its colour and marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Colour.
    pub(super) colour: Colour,
    /// Number of the marker's shape.
    pub(super) marker: usize,
    /// Whether it is in the legend.
    pub(super) named: bool,
}

impl Look {
    /// Of those that are shown but not named.
    pub(super) const OTHER: Self = Self { colour: OTHERS, marker: 0, named: false };
}

/// A straight line that says where something is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Guide {
    /// At this height.
    Level(f64),
    /// At this place across.
    Upright(f64),
    /// Where both axes are equal.
    Diagonal,
}
