//! Azure's timestamps: `2023-11-16 18:17:03.9799600`, with or without an offset of zero.

/// Seconds since 1970 of a date and time of day, or `None` when it is neither.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let text = text.strip_suffix("+00:00").or_else(|| text.strip_suffix('Z')).unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (part(&mut date)?, part(&mut date)?, part(&mut date)?);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (part(&mut time)?, part(&mut time)?);
    let second: f64 = time.next()?.parse().ok()?;
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..61.0).contains(&second);
    let midnight = days_since_1970(year, month, day) * 86_400;
    in_range.then(|| (midnight + hour * 3600 + minute * 60) as f64 + second)
}

fn part<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<i64> {
    parts.next()?.parse().ok()
}

/// Days of the proleptic Gregorian calendar, with years that begin in March so that the leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let march_year = if month > 2 { year } else { year - 1 };
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let leap_days =
        march_year.div_euclid(4) - march_year.div_euclid(100) + march_year.div_euclid(400);
    march_year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_its_unix_time() {
        assert_eq!(seconds("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(seconds("2000-02-29 12:00:00Z"), Some(951_825_600.0));
        assert_eq!(seconds("2023-11-16 18:17:03.5000000"), Some(1_700_158_623.5));
        assert_eq!(seconds("2024-05-10T00:00:00.25+00:00"), Some(1_715_299_200.25));
    }

    #[test]
    fn what_is_no_stamp_is_refused() {
        for text in ["", "yesterday", "2023-13-01 00:00:00", "2023-11-16", "2023-11-16 25:00:00"] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }
}
