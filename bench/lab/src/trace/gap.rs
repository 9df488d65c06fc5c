//! A gap that is most of a trace.
//!
//! A replay is compressed to the rate that is asked for, so one wrong time decides the rate of all other rows: they come in a volley.
//! Of [`LEAST_ROWS`] rows and more, a gap of more than half of the time is told, with its lines; one [`REFUSED`] times as long as all
//! the others together is a mistake, and refused. Two stretches that were recorded days apart are let through.

use std::fmt;

use super::BadRow;

/// Of fewer rows a long gap is no surprise.
const LEAST_ROWS: usize = 10;
/// Two stretches of five minutes, a day apart, are 144.
const REFUSED: f64 = 1000.0;

/// The times of a file's rows and their lines.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<(f64, u64)>);

/// The longest time without a row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gap {
    /// The line of the row before it, and of the one behind.
    lines: (u64, u64),
    length_s: f64,
    /// From the first row to the last one.
    span_s: f64,
}

impl fmt::Display for Gap {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines: (before, after), length_s, span_s } = self;
        write!(
            to,
            "it comes {length_s:.0} s after line {before} and no row between, of {span_s:.0} s from the first row to the last: \
             is the time of line {before} or {after} wrong?"
        )
    }
}

impl Times {
    pub(super) fn push(&mut self, at_s: f64, line: u64) {
        self.0.push((at_s, line));
    }

    /// Tells of a gap that is most of the time.
    ///
    /// # Errors
    /// When next to nothing is left beside it.
    pub(super) fn check(self) -> Result<(), BadRow> {
        let Some(gap) = self.longest() else { return Ok(()) };
        let others_s = gap.span_s - gap.length_s;
        let line = gap.lines.1;
        if others_s > 0.0 && gap.length_s > REFUSED * others_s {
            return Err(BadRow { line, reason: gap.to_string() });
        }
        if gap.length_s > others_s {
            tracing::warn!("line {line}: {gap} All other rows come in {others_s:.0} s");
        }
        Ok(())
    }

    fn longest(mut self) -> Option<Gap> {
        if self.0.len() < LEAST_ROWS {
            return None;
        }
        self.0.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let span_s = self.0.last()?.0 - self.0.first()?.0;
        let gaps = self.0.windows(2).filter_map(|pair| match pair {
            [(from_s, before), (to_s, after)] => {
                Some(Gap { lines: (*before, *after), length_s: to_s - from_s, span_s })
            }
            _ => None,
        });
        gaps.max_by(|a, b| a.length_s.total_cmp(&b.length_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seconds: impl IntoIterator<Item = f64>) -> Times {
        Times(seconds.into_iter().zip(2..).collect())
    }

    fn each_second(from: u32, to: u32) -> impl Iterator<Item = f64> {
        (from..to).map(f64::from)
    }

    #[test]
    fn a_time_far_from_all_others_is_refused_by_its_line() {
        let wrong = times(each_second(0, 50).chain([1.7e9]).chain(each_second(50, 100)));
        let bad = wrong.check().unwrap_err();
        assert_eq!(bad.line, 52);
        assert!(bad.reason.contains("of line 102 or 52"), "{}", bad.reason);
        let zero = times([0.0].into_iter().chain(each_second(1_700_000_000, 1_700_000_050)));
        assert!(zero.check().unwrap_err().reason.contains("of line 2 or 3"));
    }

    #[test]
    fn stretches_that_are_apart_are_told_and_let_through() {
        let apart = || times(each_second(0, 300).chain(each_second(86_400, 86_700)));
        assert_eq!(apart().longest().unwrap().lines, (301, 302));
        assert!(apart().check().is_ok());
        assert!(times([0.0, 0.001, 1e9]).check().is_ok(), "of three rows nothing is said");
        assert_eq!(times(each_second(0, 9)).longest(), None);
    }
}
