//! Times, sizes and shares in a few characters. What is not known is a dash.

use std::fmt::Display;

/// Not known, or does not apply.
pub(crate) const UNKNOWN: &str = "-";

/// A time: `850ms`, `2.4s`, `3m12s`, `5h07m`, `2d03h`; negative when it is over.
pub(crate) fn time(ms: Option<f64>) -> String {
    let Some(ms) = ms.filter(|ms| ms.is_finite()) else { return UNKNOWN.to_owned() };
    let sign = if ms <= -0.5 { "-" } else { "" };
    let ms = ms.abs();
    let seconds = (ms / 1e3).round() as u64;
    let pair = |large: u64, of: u64, small: &str, names: &str| {
        format!("{sign}{}{names}{:02}{small}", seconds / large, seconds % large / of)
    };
    match seconds {
        _ if ms < 9.95 && ms > 0.0 => format!("{sign}{ms:.1}ms"),
        _ if ms < 999.5 => format!("{sign}{ms:.0}ms"),
        0..10 => format!("{sign}{:.1}s", ms / 1e3),
        10..120 => format!("{sign}{seconds}s"),
        120..3600 => pair(60, 1, "s", "m"),
        3600..172_800 => pair(3600, 60, "m", "h"),
        _ => pair(86_400, 3600, "h", "d"),
    }
}

/// A predicted drain: an hour is as far as it is predicted.
pub(crate) fn drain(ms: Option<f64>) -> String {
    let far = ms.is_some_and(|ms| ms >= 3_600_000.0);
    if far { ">1h".to_owned() } else { time(ms) }
}

/// A number of things: `7`, `9500`, `12.3k`, `4.1M`.
pub(crate) fn count(number: Option<f64>) -> String {
    match number.filter(|number| number.is_finite()) {
        None => UNKNOWN.to_owned(),
        Some(number) if number.abs() < 1e4 => format!("{number:.0}"),
        Some(number) if number.abs() < 999_950.0 => format!("{:.1}k", number / 1e3),
        Some(number) => format!("{:.1}M", number / 1e6),
    }
}

/// Bytes: `512B`, `1.5KiB`, `3.0MiB`.
pub(crate) fn bytes(number: Option<f64>) -> String {
    match number.filter(|number| number.is_finite()) {
        None => UNKNOWN.to_owned(),
        Some(number) if number < 1024.0 => format!("{number:.0}B"),
        Some(number) if number < 1024.0 * 1024.0 => format!("{:.1}KiB", number / 1024.0),
        Some(number) => format!("{:.1}MiB", number / (1024.0 * 1024.0)),
    }
}

/// A share as percent; 100 is never shown of anything less.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share.filter(|share| share.is_finite()) {
        None => UNKNOWN.to_owned(),
        Some(share) if (0.9995..1.0).contains(&share) => "99.9%".to_owned(),
        Some(share) if (0.9..1.0).contains(&share) => format!("{:.1}%", share * 100.0),
        Some(share) => format!("{:.0}%", share * 100.0),
    }
}

/// By what share a prediction is off, as whole percent: it may be more than all of what was measured.
pub(crate) fn off(share: Option<f64>) -> String {
    match share.filter(|share| share.is_finite()) {
        None => UNKNOWN.to_owned(),
        Some(share) => format!("{:.0}%", share * 100.0),
    }
}

/// So many of something: `1 failure`, `4 failures`.
pub(crate) fn many<N: Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    let end = if number == N::from(1u8) { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// A text, or a dash.
pub(crate) fn text(text: &str) -> String {
    if text.is_empty() { UNKNOWN } else { text }.to_owned()
}

/// `yes` or nothing.
pub(crate) fn flag(set: bool, word: &str) -> String {
    if set { word.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_two_parts_at_most() {
        for (ms, shown) in [
            (0.0, "0ms"),
            (0.34, "0.3ms"),
            (31.26, "31ms"),
            (850.4, "850ms"),
            (999.6, "1.0s"),
            (2_440.0, "2.4s"),
            (59_600.0, "60s"),
            (192_000.0, "3m12s"),
            (18_420_000.0, "5h07m"),
            (183_600_000.0, "2d03h"),
            (-1_500.0, "-1.5s"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(time(Some(ms)), shown, "{ms}");
        }
        assert_eq!(time(None), "-");
        assert_eq!(
            [drain(Some(3_600_000.0)), drain(Some(87_000.0)), drain(None)],
            [">1h", "87s", "-"]
        );
    }

    #[test]
    fn counts_bytes_and_shares_are_short() {
        assert_eq!(
            [count(Some(7.0)), count(Some(12_345.0)), count(Some(4.1e6))],
            ["7", "12.3k", "4.1M"]
        );
        assert_eq!(
            [bytes(Some(12.0)), bytes(Some(1536.0)), bytes(Some(3.1e6))],
            ["12B", "1.5KiB", "3.0MiB"]
        );
        assert_eq!(percent(Some(0.99996)), "99.9%");
        assert_eq!(
            [percent(Some(1.0)), percent(Some(0.984)), percent(Some(0.41))],
            ["100%", "98.4%", "41%"]
        );
    }

    #[test]
    fn what_a_prediction_is_off_by_has_one_form() {
        let shares = [Some(0.94), Some(0.03), Some(1.5), None];
        assert_eq!(shares.map(off), ["94%", "3%", "150%", "-"]);
    }

    #[test]
    fn one_of_something_has_no_plural() {
        assert_eq!([0, 1, 2].map(|number| many(number, "pod")), ["0 pods", "1 pod", "2 pods"]);
    }
}
