//! Colours, bars and gauges. What a colour says, a sign, a word or the weight of letters says too: not everybody
//! sees red, and NO_COLOR (no-color.org) or a plain frame has none.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use crate::cli::{answers::Risk, output::table::plain};

/// Cells of a bar.
const BAR: u64 = 12;
/// Cells of a gauge.
const GAUGE: usize = 8;

/// Whether and how colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint {
    colours: bool,
}

impl Paint {
    /// Colours unless the environment says otherwise.
    pub(crate) fn of_environment() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colours: !refused }
    }

    /// None.
    pub(crate) const fn plain() -> Self {
        Self { colours: false }
    }

    fn colour(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// Past its objective, or broken.
    pub(crate) fn late(self) -> Style {
        self.colour(Color::Red)
    }

    /// Close to it.
    pub(crate) fn tight(self) -> Style {
        self.colour(Color::Yellow)
    }

    /// As it should be.
    pub(crate) fn ok(self) -> Style {
        self.colour(Color::Green)
    }

    /// Of less weight. Neither this nor the next is a colour.
    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Of more weight.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The frame to which the keys go.
    pub(crate) fn focused(self) -> Style {
        if self.colours { self.colour(Color::Cyan) } else { self.strong() }
    }

    /// The title of a frame. Without colours a frame hardly shows that it is of more weight.
    pub(crate) fn title(self, focused: bool) -> Style {
        if focused && !self.colours {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        }
    }

    /// The picked row.
    pub(crate) fn picked(self) -> Style {
        // Not reversed where there are colours: those of its cells still count.
        if self.colours {
            self.strong().bg(Color::DarkGray)
        } else {
            self.strong().add_modifier(Modifier::REVERSED)
        }
    }

    /// A question that waits.
    pub(crate) fn question(self) -> Style {
        self.late().add_modifier(Modifier::BOLD)
    }

    /// By the worst of its requests.
    pub(crate) fn risk(self, risk: Risk) -> Style {
        match risk {
            Risk { late: 1.., .. } => self.late(),
            Risk { tight: 1.., .. } => self.tight(),
            _ => self.ok(),
        }
    }

    /// By a pod's state.
    pub(crate) fn phase(self, phase: &str) -> Style {
        match phase {
            "ready" => self.ok(),
            "broken" => self.late(),
            _ => self.tight(),
        }
    }

    /// Depth as a bar against the deepest lane, made of what is late, tight and neither.
    pub(crate) fn bar(self, risk: Risk, depth: u64, deepest: u64) -> Line<'static> {
        let known = (risk.late + risk.tight + risk.ok).max(1);
        let cells = (depth * BAR).div_ceil(deepest.max(1)).min(BAR);
        // What is there at all shows.
        let part = |count: u64| (count * cells).div_ceil(known);
        let late = part(risk.late).min(cells);
        let tight = part(risk.tight).min(cells - late);
        let ok = cells - late - tight;
        let run = |sign: &str, cells: u64, style| {
            Span::styled(sign.repeat(usize::try_from(cells).unwrap_or_default()), style)
        };
        Line::from(vec![
            run("█", late, self.late()),
            run("▓", tight, self.tight()),
            run("░", ok, self.ok()),
        ])
    }

    /// How much is used; red when little is left.
    pub(crate) fn gauge(self, used: Option<f64>, words: String) -> Line<'static> {
        let Some(used) = used.filter(|used| used.is_finite()) else { return Line::raw(words) };
        let filled = ((used.clamp(0.0, 1.0) * GAUGE as f64).round() as usize).min(GAUGE);
        Line::from(vec![
            Span::styled("━".repeat(filled), self.fill(used)),
            Span::styled("─".repeat(GAUGE - filled), self.dim()),
            Span::raw(format!(" {words}")),
        ])
    }

    /// The same in words alone, where there is no room for a gauge.
    pub(crate) fn share(self, used: Option<f64>, words: String) -> Line<'static> {
        Line::styled(words, used.map_or_else(Style::new, |used| self.fill(used)))
    }

    fn fill(self, used: f64) -> Style {
        match used {
            used if used > 1.0 => self.late(),
            used if used > 0.9 => self.tight(),
            _ => self.ok(),
        }
    }

    /// A line of an explanation: what stands before a colon is a label.
    pub(crate) fn explanation<'a>(self, line: &'a str) -> Line<'a> {
        let label = line.split_once(":  ").filter(|(label, _)| !label.starts_with(' '));
        match label {
            Some((label, value)) => Line::from(vec![
                Span::styled(format!("{label}:  "), self.dim()),
                Span::raw(plain(value)),
            ]),
            None if line.starts_with("POD ") || line.starts_with("REQUEST ") => {
                Line::styled(line, self.strong())
            }
            None => Line::raw(plain(line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(late: u64, tight: u64, ok: u64, deepest: u64) -> String {
        Paint::plain().bar(Risk { ok, tight, late }, late + tight + ok, deepest).to_string()
    }

    #[test]
    fn a_bar_is_as_long_as_its_lane_is_deep_and_shows_one_that_is_late() {
        assert_eq!(bar(0, 0, 8, 8), "░".repeat(12));
        assert_eq!(bar(0, 0, 1, 1000), "░");
        assert_eq!(bar(1, 0, 999, 1000), format!("█{}", "░".repeat(11)));
        assert_eq!(bar(4, 4, 0, 8), "██████▓▓▓▓▓▓");
        assert_eq!(bar(0, 0, 0, 0), "");
    }

    #[test]
    fn a_gauge_is_never_longer_than_it_is() {
        let gauge = |used| Paint::plain().gauge(used, "x".into()).to_string();
        assert_eq!(gauge(Some(0.5)), "━━━━──── x");
        assert_eq!(gauge(Some(7.0)), "━━━━━━━━ x");
        assert_eq!(gauge(Some(-1.0)), "──────── x");
        assert_eq!(gauge(None), "x");
    }
}
