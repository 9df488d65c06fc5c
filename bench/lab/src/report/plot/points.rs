//! Policies or requests in a plane.

use anyhow::Result;
use plotters::{
    element::{PathElement, Text as Label},
    style::{
        Color,
        text_anchor::{HPos, VPos},
    },
};

use super::{
    Axis, Guide, Look, Picture,
    frame::{self, Canvas, Plane, SMALL, Text, anchored, drawn, font, width_of},
    lines::keys,
    marker::marker,
};
use crate::report::palette::{FAINT, INK};

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cloud {
    /// What they are.
    pub(in crate::report) name: String,
    /// How they are drawn.
    pub(in crate::report) look: Look,
    /// The points.
    pub(in crate::report) points: Vec<(f64, f64)>,
}

/// A picture of points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Points {
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
    /// The points, the most important first.
    pub(in crate::report) clouds: Vec<Cloud>,
    /// Lines that help to read it.
    pub(in crate::report) guides: Vec<Guide>,
    /// Points that no other is better than in both, in the order of x: joined by a line.
    pub(in crate::report) frontier: Vec<(f64, f64)>,
    /// Size of a marker.
    pub(in crate::report) size: i32,
    /// Whether the named ones have their names beside them.
    pub(in crate::report) labelled: bool,
}

impl Points {
    /// Draws it.
    ///
    /// # Errors
    /// When the backend cannot.
    pub(in crate::report) fn draw(&self) -> Result<Picture> {
        let keys = keys(self.clouds.iter().map(|cloud| (cloud.name.as_str(), cloud.look)));
        let text = Text { name: &self.name, title: &self.title, about: &self.about, keys: &keys };
        let points = || self.clouds.iter().flat_map(|cloud| &cloud.points);
        let xs = (&self.x, self.x.span(points().map(|(x, _)| *x)));
        let ys = (&self.y, self.y.span(points().map(|(_, y)| *y)));
        frame::picture(&text, frame::HEIGHT, |area| {
            let plane = frame::axes(area, xs, ys)?;
            for guide in &self.guides {
                frame::draw_guide(area, &plane, guide)?;
            }
            let path = self.frontier.iter().map(|(x, y)| plane.place(*x, *y)).collect::<Vec<_>>();
            area.draw(&PathElement::new(path, FAINT.light.stroke_width(2))).map_err(drawn)?;
            self.clouds.iter().rev().try_for_each(|cloud| self.draw_cloud(area, &plane, cloud))?;
            if self.labelled { self.draw_names(area, &plane) } else { Ok(()) }
        })
    }

    fn draw_cloud(&self, area: &Canvas<'_>, plane: &Plane, cloud: &Cloud) -> Result<()> {
        let colour = cloud.look.colour.light;
        for (x, y) in &cloud.points {
            let at = plane.place(*x, *y);
            area.draw(&marker(at, self.size, cloud.look.marker, colour)).map_err(drawn)?;
        }
        Ok(())
    }

    /// Names beside their points, the most important first, where there is room; the legend has them all.
    fn draw_names(&self, area: &Canvas<'_>, plane: &Plane) -> Result<()> {
        let mut taken: Vec<Area> = Vec::new();
        for cloud in self.clouds.iter().filter(|cloud| cloud.look.named) {
            for (x, y) in &cloud.points {
                let at = plane.place(*x, *y);
                let free =
                    Area::beside(at, width_of(&cloud.name, SMALL)).into_iter().find(|(area, _)| {
                        area.is_inside() && taken.iter().all(|other| !area.meets(other))
                    });
                let Some((room, side)) = free else { continue };
                let x = if matches!(side, HPos::Left) { room.left } else { room.right };
                let style = anchored(font(SMALL * 0.9, INK.light), side, VPos::Center);
                let label =
                    Label::new(cloud.name.clone(), (x, (room.top + room.bottom) / 2), style);
                area.draw(&label).map_err(drawn)?;
                taken.push(room);
            }
        }
        Ok(())
    }
}

/// Room of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Area {
    /// Places for a name beside a point, the best first, with the side on which the name begins.
    fn beside((x, y): (i32, i32), width: i32) -> [(Self, HPos); 4] {
        let room = |right: bool, down: i32| {
            let (left, side) =
                if right { (x + 16, HPos::Left) } else { (x - 16 - width, HPos::Right) };
            let (top, bottom) = (y + down - 16, y + down + 16);
            (Self { left, right: left + width, top, bottom }, side)
        };
        [room(true, -14), room(false, -14), room(true, 20), room(false, 20)]
    }

    fn is_inside(&self) -> bool {
        self.left > 140 && self.right < frame::WIDTH as i32 && self.top > 0
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}
