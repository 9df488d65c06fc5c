//! Shapes of points, so that policies can be told apart without colour.

use plotters::{
    element::{Circle, DynElement, IntoDynElement, Polygon},
    prelude::DrawingBackend,
    style::{Color, RGBColor},
};

/// A marker around a place on the canvas, `size` from its middle to its edge.
pub(super) fn marker<'a, B: DrawingBackend + 'a>(
    at: (i32, i32),
    size: i32,
    shape: usize,
    colour: RGBColor,
) -> DynElement<'a, B, (i32, i32)> {
    let fill = colour.filled();
    let (x, y) = at;
    let around = |corners: &[(i32, i32)]| {
        let corners: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        Polygon::new(corners, fill).into_dyn()
    };
    let s = size;
    match shape % 6 {
        0 => Circle::new(at, s, fill).into_dyn(),
        1 => around(&[(-s, -s), (s, -s), (s, s), (-s, s)]),
        2 => around(&[(0, -s - 1), (s + 1, s), (-s - 1, s)]),
        3 => around(&[(0, -s - 2), (s + 2, 0), (0, s + 2), (-s - 2, 0)]),
        4 => around(&[(-s - 1, -s), (s + 1, -s), (0, s + 1)]),
        _ => around(&[
            (-s, -3),
            (-3, -3),
            (-3, -s),
            (3, -s),
            (3, -3),
            (s, -3),
            (s, 3),
            (3, 3),
            (3, s),
            (-3, s),
            (-3, 3),
            (-s, 3),
        ]),
    }
}
