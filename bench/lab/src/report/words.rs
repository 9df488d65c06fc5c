//! Numbers and lists as a reader wants them.

/// A number with three digits that count, without zeros that say nothing.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let size = value.abs();
    let digits = match size {
        _ if !(1e-9..100.0).contains(&size) => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.01 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// So many of something.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

/// From the one to the other, or both as one where they read alike.
pub(super) fn range(low: &str, high: &str) -> String {
    if low == high { low.to_owned() } else { format!("{low} to {high}") }
}

/// A load, or none where the traffic has rates of its own.
pub(super) fn load(load: Option<f64>) -> String {
    load.map_or_else(|| "its own rates".to_owned(), |load| format!("load {}", number(load)))
}

/// A share of 0 to 1 as percent, with a digit after the point.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A number with all its digits: what was asked for, where another may be close to it.
pub(super) fn exact(value: f64) -> String {
    value.to_string()
}

/// A share that was asked for, as percent with no more digits than it has.
pub(crate) fn asked(share: f64) -> String {
    format!("{} %", percent_asked(share))
}

/// A share that was attained where one was asked for, as percent with a digit more than that one has. It is rounded down, so
/// that it never looks as high as what it is below.
pub(crate) fn attained(share: f64, asked: f64) -> String {
    let asked = percent_asked(asked);
    let digits = asked.split_once('.').map_or(0, |(_, digits)| digits.len()) + 1;
    let scale = 10_f64.powi(i32::try_from(digits).unwrap_or(i32::MAX));
    // A share that is exactly what was asked for may lie below it in floating point.
    let down = (share * 100.0 * scale + 1e-6).floor() / scale;
    format!("{down:.digits$} %")
}

/// Digits of a percentage that are looked at: behind them is what floating point adds.
const DIGITS: usize = 9;

fn percent_asked(share: f64) -> String {
    let percent = format!("{:.DIGITS$}", share * 100.0);
    percent.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Milliseconds, in seconds from one on.
pub(super) fn ms(value: f64) -> String {
    if value.abs() >= 1000.0 {
        format!("{} s", number(value / 1000.0))
    } else {
        format!("{} ms", number(value))
    }
}

/// A factor.
pub(super) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}x") } else { "none".to_owned() }
}

/// A change by a factor, in percent with its sign.
pub(super) fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// Seconds of a clock, as minutes where there are some.
pub(super) fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    if whole < 60 {
        format!("{whole} s")
    } else {
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// The name of a file for a text: lower case, and a dash for what is not a letter or a digit.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter.to_ascii_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_counts() {
        let written = [0.0, 0.8333, 1.5, 12.345, 1234.5, -0.00001, f64::NAN].map(number);
        assert_eq!(written, ["0", "0.833", "1.5", "12.3", "1234", "0", "none"]);
        assert_eq!((ms(950.4), ms(1500.0)), ("950 ms".to_owned(), "1.5 s".to_owned()));
        assert_eq!((change(0.85), times(1.3456)), ("-15.0 %".to_owned(), "1.35x".to_owned()));
        assert_eq!(clock(125.0), "2 min 05 s");
    }

    #[test]
    fn a_promise_has_all_its_digits_and_what_misses_it_looks_so() {
        assert_eq!(
            [0.99, 0.999, 0.9995, 0.5, 0.1].map(asked),
            ["99 %", "99.9 %", "99.95 %", "50 %", "10 %"]
        );
        let of = |share, at| attained(share, at);
        assert_eq!([of(0.99, 0.99), of(0.98996, 0.99)], ["99.0 %", "98.9 %"]);
        assert_eq!([of(0.9990, 0.999), of(0.99899, 0.999)], ["99.90 %", "99.89 %"]);
        assert_eq!([of(1.0, 0.9995), of(0.0, 0.9)], ["100.000 %", "0.0 %"]);
        // What nine parts in ten come to in floating point.
        assert_eq!(of(1.0 - 0.01, 0.99), "99.0 %");
    }

    #[test]
    fn one_is_one_and_alike_figures_are_one_figure() {
        let said = [0, 1, 2].map(|count| counted(count, "policy", "policies"));
        assert_eq!(said, ["0 policies", "1 policy", "2 policies"]);
        assert_eq!((range("1", "2"), range("2", "2")), ("1 to 2".to_owned(), "2".to_owned()));
    }

    #[test]
    fn a_slug_names_a_file() {
        assert_eq!(slug("Azure conv / two, (8192)"), "azure-conv-two-8192");
    }
}
