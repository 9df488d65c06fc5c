//! Dates with a time of day: `2023-11-16 18:17:03.9799600`, as Azure writes them, and with an offset: `Z`, `UTC`, `+00:00`, `-0530`.
//! Without one they count as UTC.

/// Seconds since 1970 of a date and time of day, or `None` when it is neither.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let (time, offset_s) = without_offset(time)?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (part(&mut date)?, part(&mut date)?, part(&mut date)?);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (part(&mut time)?, part(&mut time)?);
    let second: f64 = time.next()?.parse().ok()?;
    let in_range = (1..=days_of(year, month)?).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..61.0).contains(&second);
    let midnight = days_since_1970(year, month, day) * 86_400;
    in_range.then(|| (midnight + hour * 3600 + minute * 60 - offset_s) as f64 + second)
}

/// A time of day, and the seconds by which its clock is before UTC.
fn without_offset(time: &str) -> Option<(&str, i64)> {
    for utc in ["Z", "UTC"] {
        if let Some(time) = time.strip_suffix(utc) {
            return Some((time.trim_end(), 0));
        }
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (time, offset) = time.split_at_checked(at)?;
    let sign = if offset.starts_with('-') { -1 } else { 1 };
    let offset = offset.get(1..)?;
    let (hours, minutes) = match offset.split_once(':') {
        Some(parts) => parts,
        None => offset.split_at_checked(2)?,
    };
    let minutes = if minutes.is_empty() { "0" } else { minutes };
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    let in_range = hours < 24 && minutes < 60;
    in_range.then(|| (time.trim_end(), sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60)))
}

/// Days of a month, if there is such a month.
fn days_of(year: i64, month: i64) -> Option<i64> {
    let in_range = (1..=9999).contains(&year) && (1..=12).contains(&month);
    let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    in_range.then(|| days_since_1970(next.0, next.1, 1) - days_since_1970(year, month, 1))
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
    fn an_offset_counts() {
        let at = |text| seconds(text).map(|at_s| at_s - 1_715_299_200.0);
        for (text, at_s) in [
            ("2024-05-10 00:00:00 UTC", 0.0),
            ("2024-05-10 02:00:00+02:00", 0.0),
            ("2024-05-09T18:30:00.5-0530", 0.5),
            ("2024-05-10 01:00:00 +01", 0.0),
        ] {
            assert_eq!(at(text), Some(at_s), "{text}");
        }
        for text in
            ["2024-05-10 00:00:00+2", "2024-05-10 00:00:00+25:00", "2024-05-10 00:00:00 CET"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn a_month_has_the_days_it_has() {
        for text in ["2024-02-29", "2023-12-31", "2000-02-29", "2024-04-30"] {
            assert!(seconds(&format!("{text} 00:00:00")).is_some(), "{text}");
        }
        for text in ["2024-02-31", "2023-02-29", "1900-02-29", "2024-04-31", "2024-00-10"] {
            assert_eq!(seconds(&format!("{text} 00:00:00")), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_stamp_is_refused() {
        for text in ["", "yesterday", "2023-13-01 00:00:00", "2023-11-16", "2023-11-16 25:00:00"] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
    }
}
