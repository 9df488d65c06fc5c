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

/// A share of 0 to 1 as percent, with a digit after the point.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A share that was asked for, as percent with no more digits than it has.
pub(super) fn asked(share: f64) -> String {
    format!("{} %", number(share * 100.0))
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
    fn a_slug_names_a_file() {
        assert_eq!(slug("Azure conv / two, (8192)"), "azure-conv-two-8192");
    }
}
