//! Colours by what they are for, in a light and a dark version.
//!
//! Plots are drawn in the light ones. A stylesheet turns each into its dark counterpart by the attribute it was drawn with,
//! so that a picture follows the reader's setting inside the page and as a file of its own.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// One colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour {
    /// On white.
    pub(super) light: RGBColor,
    /// On nearly black.
    dark: RGBColor,
}

const fn colour(light: u32, dark: u32) -> Colour {
    Colour { light: rgb(light), dark: rgb(dark) }
}

const fn rgb(hex: u32) -> RGBColor {
    let [_, red, green, blue] = hex.to_be_bytes();
    RGBColor(red, green, blue)
}

/// Behind everything.
pub(super) const PAPER: Colour = colour(0xFFFFFF, 0x15181D);
/// Text.
pub(super) const INK: Colour = colour(0x1B1F24, 0xE8EAED);
/// Labels of axes.
pub(super) const FAINT: Colour = colour(0x5B626B, 0xA4ABB4);
/// Lines of the grid.
pub(super) const GRID: Colour = colour(0xE3E6EA, 0x2C3138);
/// What is shown but not named.
pub(super) const OTHERS: Colour = colour(0xA9B0B8, 0x626A73);
/// The policy that the report is about.
pub(super) const SUBJECT: Colour = colour(0x1558D6, 0x7FB0FF);
/// Those it is compared with, the most important first. Distinguishable without seeing red or green; the markers differ too.
pub(super) const RIVALS: [Colour; 6] = [
    colour(0xC75B00, 0xF5A35C),
    colour(0x0A7F74, 0x4FD1C5),
    colour(0xA8327E, 0xF08CC6),
    colour(0x7A5C00, 0xD9B94A),
    colour(0x6A4BC4, 0xB7A0FA),
    colour(0xB3261E, 0xFF9A90),
];

fn all() -> impl Iterator<Item = Colour> {
    [PAPER, INK, FAINT, GRID, OTHERS, SUBJECT].into_iter().chain(RIVALS)
}

/// The attribute's value for a colour, as the drawing backend writes it.
pub(super) fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Rules that give every colour of a picture its dark version, for readers who asked for that.
pub(super) fn dark_rules() -> String {
    let mut css = "@media (prefers-color-scheme:dark){".to_owned();
    for colour in all() {
        let (light, dark) = (hex(colour.light), hex(colour.dark));
        let _ = write!(
            css,
            "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}"
        );
    }
    css.push('}');
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_purposes_share_a_colour_so_that_each_finds_its_dark_version() {
        let mut light: Vec<_> = all().map(|colour| hex(colour.light)).collect();
        let count = light.len();
        light.sort();
        light.dedup();
        assert_eq!(light.len(), count);
        assert!(light.iter().all(|hex| dark_rules().contains(hex)));
    }
}
