//! What all pictures share: canvas, title, axes and legend.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Axis, Guide, Look, Picture, marker::marker, round};
use crate::report::palette::{FAINT, GRID, INK, PAPER};

/// Width of every picture. Coordinates are whole numbers, so the canvas is twice as fine as it is shown on a desk.
pub(super) const WIDTH: u32 = 1040;
/// Height of a picture without its legend.
pub(super) const HEIGHT: u32 = 640;
/// Height of the title.
const TITLE: u32 = 56;
/// Height of a line of the legend.
const LEGEND_LINE: u32 = 42;
/// Size of labels.
pub(super) const SMALL: f64 = 28.0;
/// Width of a letter on average, as a share of its size.
const LETTER: f64 = 0.54;

/// Where is drawn, in pixels.
pub(super) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line of the legend.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) look: Look,
}

/// What is said around the data.
pub(super) struct Text<'a> {
    pub(super) name: &'a str,
    pub(super) title: &'a str,
    pub(super) about: &'a str,
    pub(super) keys: &'a [Key],
}

/// A letter's style. The backend divides the size by 1.24.
pub(super) fn font(size: f64, colour: RGBColor) -> TextStyle<'static> {
    let style = TextStyle::from(("sans-serif", size * 1.24));
    TextStyle { color: colour.to_backend_color(), ..style }
}

/// The same, around another place of the text.
pub(super) fn anchored(style: TextStyle<'static>, h: HPos, v: VPos) -> TextStyle<'static> {
    style.pos(Pos::new(h, v))
}

/// Width of a text, for layouts.
pub(super) fn width_of(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * LETTER).ceil() as i32
}

/// Draws a picture: title above, legend below, and between them whatever `draw` draws.
pub(super) fn picture(
    text: &Text<'_>,
    height: u32,
    draw: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<Picture> {
    let lines = legend_lines(text.keys);
    let below = lines.len() as u32 * LEGEND_LINE + if lines.is_empty() { 0 } else { 16 };
    let mut svg = String::new();
    {
        let size = (WIDTH, height + below);
        let canvas = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        canvas.fill(&PAPER.light).map_err(drawn)?;
        let (upper, legend) = canvas.split_vertically(height as i32);
        let (title, middle) = upper.split_vertically(TITLE as i32);
        let mut bold = anchored(font(31.0, INK.light), HPos::Left, VPos::Center);
        bold.font = bold.font.style(FontStyle::Bold);
        title.draw(&plotters::element::Text::new(text.title, (20, 28), bold)).map_err(drawn)?;
        draw(&middle)?;
        draw_legend(&legend, &lines)?;
        canvas.present().map_err(drawn)?;
    }
    Ok(Picture { name: text.name.to_owned(), about: text.about.to_owned(), svg })
}

/// An error of the drawing backend, which is not an error type of ours.
pub(super) fn drawn(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

/// The keys in lines that are not too wide, each with its place.
fn legend_lines(keys: &[Key]) -> Vec<Vec<(i32, &Key)>> {
    let mut lines: Vec<Vec<(i32, &Key)>> = Vec::new();
    let mut x = i32::MAX;
    for key in keys {
        let width = 62 + width_of(&key.name, SMALL) + 28;
        if x.saturating_add(width) > WIDTH as i32 {
            lines.push(Vec::new());
            x = 24;
        }
        if let Some(line) = lines.last_mut() {
            line.push((x, key));
        }
        x += width;
    }
    lines
}

fn draw_legend(area: &Canvas<'_>, lines: &[Vec<(i32, &Key)>]) -> Result<()> {
    let style = anchored(font(SMALL, INK.light), HPos::Left, VPos::Center);
    for (y, line) in (0..).zip(lines) {
        let y = y * LEGEND_LINE as i32 + LEGEND_LINE as i32 / 2;
        for (x, key) in line {
            let colour = key.look.colour.light;
            let stroke = PathElement::new(vec![(*x, y), (x + 48, y)], colour.stroke_width(4));
            area.draw(&stroke).map_err(drawn)?;
            area.draw(&marker((x + 24, y), 7, key.look.marker, colour)).map_err(drawn)?;
            let text = plotters::element::Text::new(key.name.clone(), (x + 62, y), style.clone());
            area.draw(&text).map_err(drawn)?;
        }
    }
    Ok(())
}

/// From values to places on the canvas.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    x: Scale,
    y: Scale,
}

#[derive(Clone, Debug)]
struct Scale {
    values: (f64, f64),
    pixels: (i32, i32),
    log: bool,
}

impl Scale {
    fn place(&self, value: f64) -> i32 {
        let of = |value: f64| if self.log { value.max(1e-12).ln() } else { value };
        let (low, high) = (of(self.values.0), of(self.values.1));
        let part = ((of(value) - low) / (high - low)).clamp(-0.001, 1.001);
        let (from, to) = (f64::from(self.pixels.0), f64::from(self.pixels.1));
        (from + part * (to - from)).round() as i32
    }
}

impl Plane {
    /// Where a point is; what is out of range is at the edge.
    pub(super) fn place(&self, x: f64, y: f64) -> (i32, i32) {
        (self.x.place(x), self.y.place(y))
    }

    /// A guide as the values at its two ends.
    pub(super) fn guide(&self, guide: &Guide) -> [(i32, i32); 2] {
        let ((left, right), (low, high)) = (self.x.values, self.y.values);
        match guide {
            Guide::Level(level) => [self.place(left, *level), self.place(right, *level)],
            Guide::Upright(x) => [self.place(*x, low), self.place(*x, high)],
            Guide::Diagonal => {
                let (from, to) = (left.max(low), right.min(high));
                [self.place(from, from), self.place(to, to)]
            }
        }
    }
}

/// Draws both axes with their grid, and returns the plane between them. Places are those of the whole canvas.
pub(super) fn axes(
    area: &Canvas<'_>,
    (x, x_range): (&Axis, (f64, f64)),
    (y, y_range): (&Axis, (f64, f64)),
) -> Result<Plane> {
    let (xs, ys) = (x_range.0..x_range.1, y_range.0..y_range.1);
    let log =
        |range: (f64, f64)| (range.0..range.1).log_scale().with_key_points(round::labels(range));
    let (across, up) = match (x.log, y.log) {
        (false, false) => grid(area, xs, ys, (x, y)),
        (true, false) => grid(area, log(x_range), ys, (x, y)),
        (false, true) => grid(area, xs, log(y_range), (x, y)),
        (true, true) => grid(area, log(x_range), log(y_range), (x, y)),
    }?;
    let x = Scale { values: x_range, pixels: (across.start, across.end), log: x.log };
    let y = Scale { values: y_range, pixels: (up.end, up.start), log: y.log };
    Ok(Plane { x, y })
}

fn grid<X, Y>(
    area: &Canvas<'_>,
    xs: X,
    ys: Y,
    (x, y): (&Axis, &Axis),
) -> Result<(Range<i32>, Range<i32>)>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin_left(4)
        .margin_top(16)
        .margin_right(40)
        .margin_bottom(6)
        .x_label_area_size(92)
        .y_label_area_size(136)
        .build_cartesian_2d(xs, ys)
        .map_err(drawn)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.light.stroke_width(2))
        .axis_style(GRID.light.stroke_width(2))
        .label_style(font(SMALL, FAINT.light))
        .axis_desc_style(font(SMALL, FAINT.light))
        .x_labels(7)
        .y_labels(6)
        .x_desc(x.name.as_str())
        .y_desc(y.name.as_str())
        .x_label_formatter(&|value| x.unit.write(*value))
        .y_label_formatter(&|value| y.unit.write(*value))
        .draw()
        .map_err(drawn)?;
    let ((x0, y0), (across, up)) = (area.get_base_pixel(), chart.plotting_area().get_pixel_range());
    Ok((across.start - x0..across.end - x0, up.start - y0..up.end - y0))
}

/// Draws a guide, dashed.
pub(super) fn draw_guide(area: &Canvas<'_>, plane: &Plane, guide: &Guide) -> Result<()> {
    let [from, to] = plane.guide(guide);
    let length = f64::from((to.0 - from.0).pow(2) + (to.1 - from.1).pow(2)).sqrt();
    let at = |along: f64| {
        let part = (along / length.max(1.0)).min(1.0);
        let between = |from: i32, to: i32| from + (f64::from(to - from) * part).round() as i32;
        (between(from.0, to.0), between(from.1, to.1))
    };
    let mut along = 0.0;
    while along < length {
        let dash = vec![at(along), at(along + 12.0)];
        let style = FAINT.light.stroke_width(3);
        area.draw(&PathElement::new(dash, style)).map_err(drawn)?;
        along += 22.0;
    }
    Ok(())
}
