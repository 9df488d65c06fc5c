//! One bar per policy.

use anyhow::Result;
use plotters::{
    element::{PathElement, Rectangle, Text as Label},
    style::{
        Color,
        text_anchor::{HPos, VPos},
    },
};

use super::{
    Look, Picture, Unit,
    frame::{self, Canvas, SMALL, Text, anchored, drawn, font, width_of},
};
use crate::report::palette::{FAINT, GRID, INK};

/// Height of a bar with the air around it.
const STEP: i32 = 46;

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    /// Whose.
    pub(in crate::report) name: String,
    /// How it is drawn.
    pub(in crate::report) look: Look,
    /// Its length.
    pub(in crate::report) value: f64,
    /// Half width of the interval around its end.
    pub(in crate::report) interval: Option<f64>,
}

/// A picture of bars.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bars {
    /// Name of the file.
    pub(in crate::report) name: String,
    /// Above it.
    pub(in crate::report) title: String,
    /// For those who cannot see it.
    pub(in crate::report) about: String,
    /// Unit of the values.
    pub(in crate::report) unit: Unit,
    /// Whether values are differences and written with their sign.
    pub(in crate::report) signed: bool,
    /// The bars, from above.
    pub(in crate::report) bars: Vec<Bar>,
}

/// Where bars are, and how long a unit is.
struct Ruler {
    from: i32,
    zero: f64,
    per_unit: f64,
}

impl Ruler {
    fn place(&self, value: f64) -> i32 {
        self.from + ((value - self.zero) * self.per_unit).round() as i32
    }
}

impl Bars {
    /// Draws it.
    ///
    /// # Errors
    /// When the backend cannot.
    pub(in crate::report) fn draw(&self) -> Result<Picture> {
        let text = Text { name: &self.name, title: &self.title, about: &self.about, keys: &[] };
        let height = 56 + self.bars.len() as i32 * STEP + 24;
        frame::picture(&text, height.max(120) as u32, |area| {
            let ruler = self.ruler();
            for (place, bar) in (0..).zip(&self.bars) {
                self.draw_bar(area, &ruler, place * STEP + 4, bar)?;
            }
            let zero = ruler.place(0.0);
            let bottom = self.bars.len() as i32 * STEP + 8;
            let line =
                PathElement::new(vec![(zero, 0), (zero, bottom)], FAINT.light.stroke_width(3));
            area.draw(&line).map_err(drawn)
        })
    }

    fn ruler(&self) -> Ruler {
        let names = self.bars.iter().map(|bar| width_of(&bar.name, SMALL)).max().unwrap_or(0);
        let values =
            self.bars.iter().map(|bar| width_of(&self.write(bar), SMALL)).max().unwrap_or(0);
        let ends =
            |sign: f64| move |bar: &Bar| sign * (bar.value + sign * bar.interval.unwrap_or(0.0));
        let high = self.bars.iter().map(ends(1.0)).fold(0.0, f64::max);
        let low = -self.bars.iter().map(ends(-1.0)).fold(0.0, f64::max);
        // Values of bars to the left stand beside their bars too.
        let left = if low < 0.0 { values + 16 } else { 0 };
        let from = 24 + names + 20 + left;
        let room = f64::from(frame::WIDTH as i32 - from - values - 56).max(80.0);
        Ruler { from, zero: low, per_unit: room / (high - low).max(1e-9) }
    }

    fn write(&self, bar: &Bar) -> String {
        let value = self.unit.write(bar.value);
        let value = if self.signed && bar.value > 0.0 { format!("+{value}") } else { value };
        bar.interval.map_or(value.clone(), |half| format!("{value} ± {}", self.unit.write(half)))
    }

    fn draw_bar(&self, area: &Canvas<'_>, ruler: &Ruler, top: i32, bar: &Bar) -> Result<()> {
        let (zero, end) = (ruler.place(0.0), ruler.place(bar.value));
        let middle = top + STEP / 2 - 4;
        let (left, right) = (zero.min(end), zero.max(end));
        let corners = [(left, top), (right.max(left + 2), top + STEP - 8)];
        let rectangle = Rectangle::new(corners, bar.look.colour.light.filled());
        area.draw(&rectangle).map_err(drawn)?;
        let half = bar.interval.unwrap_or(0.0);
        let reach = (ruler.place(bar.value - half), ruler.place(bar.value + half));
        if bar.interval.is_some() {
            let whisker = PathElement::new(
                vec![(reach.0, middle), (reach.1, middle)],
                INK.light.stroke_width(3),
            );
            area.draw(&whisker).map_err(drawn)?;
        }
        let names = anchored(font(SMALL, INK.light), HPos::Left, VPos::Center);
        area.draw(&Label::new(bar.name.clone(), (24, middle), names)).map_err(drawn)?;
        let (at, side) = if bar.value < 0.0 {
            (left.min(reach.0) - 12, HPos::Right)
        } else {
            (right.max(reach.1) + 12, HPos::Left)
        };
        let values = anchored(font(SMALL, FAINT.light), side, VPos::Center);
        area.draw(&Label::new(self.write(bar), (at, middle), values)).map_err(drawn)?;
        let ground = PathElement::new(
            vec![(24, top + STEP - 2), (frame::WIDTH as i32 - 24, top + STEP - 2)],
            GRID.light.stroke_width(1),
        );
        area.draw(&ground).map_err(drawn)
    }
}
