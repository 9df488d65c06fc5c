//! How long a client lets its request wait: `x-llm-d-inference-ttl` and `x-weir-queue`.
//!
//! Both can only take from the request that carries them, so that they count under every key, trusted
//! or not. The first is llm-d's, a duration as Go writes it; it bounds the wait from arrival and never
//! lengthens what `queue.max_wait_s` allows. `x-weir-queue: none` is for clients with somewhere else
//! to go: the request is given to a pod in the step in which it arrives, or refused in that step. A
//! value that cannot be understood is refused, because the client would wait longer than it means to.

use std::time::Duration;

use http::HeaderMap;

use super::{headers, objective::slo_from_ms};

const TTL: &str = "x-llm-d-inference-ttl";
const QUEUE: &str = "x-weir-queue";

/// What a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Longest time from arrival to dispatch.
    pub ttl: Option<Duration>,
    /// Whether it is rather refused than made to wait.
    pub immediate: bool,
}

/// A header that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header {header} must be {want}")]
pub struct BadWait {
    /// Its name.
    pub header: &'static str,
    want: &'static str,
}

/// Reads both headers.
///
/// # Errors
/// Names the one that cannot be understood.
pub fn asked(headers: &HeaderMap) -> Result<Wait, BadWait> {
    if !headers::steers(headers) {
        return Ok(Wait::default());
    }
    let text = |name| {
        let value = headers.get(name)?;
        // A micro sign is not ASCII.
        Some(std::str::from_utf8(value.as_bytes()).unwrap_or_default().trim())
    };
    let ttl = text(TTL).map(|value| {
        let want = "a positive duration such as 1.5s or 300ms";
        go_duration(value).ok_or(BadWait { header: TTL, want })
    });
    let immediate = text(QUEUE).map(|value| {
        let none = value.eq_ignore_ascii_case("none");
        none.then_some(true).ok_or(BadWait { header: QUEUE, want: "none" })
    });
    Ok(Wait { ttl: ttl.transpose()?, immediate: immediate.transpose()?.unwrap_or(false) })
}

/// Units of a Go duration in milliseconds; "ms" before "m", which it begins with.
const UNITS_MS: [(&str, f64); 8] = [
    ("ns", 1e-6),
    ("us", 1e-3),
    ("\u{b5}s", 1e-3),
    ("\u{3bc}s", 1e-3),
    ("ms", 1.0),
    ("s", 1000.0),
    ("m", 60_000.0),
    ("h", 3_600_000.0),
];

/// A positive duration as Go's `time.ParseDuration` reads it: numbers with units, added up. Held
/// within the bounds of an SLO.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total_ms = 0.0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|one: char| !is_of_number(one))?);
        let (unit_ms, after) =
            UNITS_MS.iter().find_map(|(name, ms)| Some((ms, tail.strip_prefix(name)?)))?;
        total_ms += number.parse::<f64>().ok()? * unit_ms;
        rest = after;
    }
    slo_from_ms(total_ms)
}

const fn is_of_number(one: char) -> bool {
    one.is_ascii_digit() || one == '.'
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn ask(name: &'static str, value: &str) -> Result<Wait, BadWait> {
        asked(&HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]))
    }

    #[test]
    fn a_request_without_the_headers_waits_as_long_as_any() {
        assert_eq!(asked(&HeaderMap::new()), Ok(Wait { ttl: None, immediate: false }));
    }

    #[test]
    fn a_ttl_is_read_as_go_reads_a_duration() {
        for (text, ms) in [
            ("300ms", 300.0),
            ("1.5s", 1500.0),
            (" 2s ", 2000.0),
            ("+.5s", 500.0),
            ("1.s", 1000.0),
            ("1m30s", 90_000.0),
            ("1h2m3.5s", 3_723_500.0),
            ("1500us", 1.5),
            ("2000000ns", 2.0),
        ] {
            let want = Some(Duration::from_secs_f64(ms / 1000.0));
            assert_eq!(ask(TTL, text).unwrap().ttl, want, "{text}");
        }
        let micro = HeaderValue::from_bytes("250\u{b5}s".as_bytes()).unwrap();
        let micro = HeaderMap::from_iter([(TTL.parse().unwrap(), micro)]);
        assert_eq!(asked(&micro).unwrap().ttl, Some(Duration::from_micros(250)));
        assert_eq!(ask(TTL, "9999999h").unwrap().ttl, Some(Duration::from_secs(86_400)));
    }

    #[test]
    fn what_is_no_positive_duration_is_refused_by_name() {
        let long = format!("{}s", "9".repeat(400));
        for text in
            ["", "5", "0", "0s", "-1s", "s", "ms", ".s", "1.2.3s", "1s5", "1 s", "1d", "inf", &long]
        {
            let refusal = ask(TTL, text).unwrap_err();
            assert_eq!(refusal.header, TTL, "{text}");
            assert!(refusal.to_string().contains("1.5s"), "{refusal}");
        }
    }

    #[test]
    fn the_queue_can_be_left_out_and_nothing_else_be_said_of_it() {
        assert!(ask(QUEUE, "none").unwrap().immediate && ask(QUEUE, " None").unwrap().immediate);
        for text in ["", "no", "yes", "none, none", "true"] {
            assert_eq!(
                ask(QUEUE, text).unwrap_err().to_string(),
                "header x-weir-queue must be none"
            );
        }
    }
}
