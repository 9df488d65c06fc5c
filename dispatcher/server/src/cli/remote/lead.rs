//! What another dispatcher decides, as an answer's header says it. What is asked here is then not told whole, and a person would take
//! an empty list for an empty queue.

use std::cell::Cell;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::{admin::lead::DECIDED_BY, cli::output::say};

/// Says who decides, once for a command.
#[derive(Debug, Default)]
pub(super) struct Notice {
    said: Cell<bool>,
}

impl Notice {
    /// One that says nothing: a board has a place of its own for it.
    pub(super) fn silent() -> Self {
        Self { said: Cell::new(true) }
    }

    /// An answer has come.
    pub(super) fn hear(&self, headers: &HeaderMap) {
        let lines = lines(headers);
        if !lines.is_empty() && !self.said.replace(true) {
            lines.iter().for_each(say);
        }
    }
}

/// A line for each pool that is decided elsewhere.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let led = headers.get(&DECIDED_BY).and_then(|led| led.to_str().ok()).unwrap_or_default();
    let of = |(pool, address): (&str, &str)| {
        let pool = percent_decode_str(pool).decode_utf8_lossy();
        format!("{address} decides for {pool}; what waits is told there")
    };
    led.split(", ").filter_map(|one| one.split_once('=')).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pool_that_is_decided_elsewhere_has_its_line() {
        let mut headers = HeaderMap::new();
        assert!(lines(&headers).is_empty());
        let led = "a%2Cb=10.0.0.7:8082, qwen3/32b=[::1]:8082";
        headers.insert(&DECIDED_BY, led.parse().unwrap());
        let said = [
            "10.0.0.7:8082 decides for a,b; what waits is told there",
            "[::1]:8082 decides for qwen3/32b; what waits is told there",
        ];
        assert_eq!(lines(&headers), said);
    }

    #[test]
    fn it_is_said_once_and_on_a_board_never() {
        let mut headers = HeaderMap::new();
        headers.insert(&DECIDED_BY, "m=10.0.0.7:8082".parse().unwrap());
        let notice = Notice::default();
        notice.hear(&HeaderMap::new());
        assert!(!notice.said.get(), "there was nothing to say");
        notice.hear(&headers);
        assert!(notice.said.get() && Notice::silent().said.get());
    }
}
