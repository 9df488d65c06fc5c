//! How many sequences an engine runs at a time, where that is fewer than its class says.
//!
//! No engine tells. One whose seats are all taken lets prompts wait although its cache has room: step after step, while all that it
//! runs decodes. One that has seats but no room in its steps is at work on a prompt meanwhile.

use std::time::Duration;

use crate::{Scrape, Time};

/// Steps during which it stays so before it is believed.
const STEPS: u64 = 8;
/// Share of the KV cache from which on it may be that which is full.
const ROOMY: f32 = 0.9;
/// After so long it is forgotten, and seen again if it is so: something else may have made prompts wait.
const KEPT: Duration = Duration::from_secs(60);

/// What scrapes said of an engine's seats.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seats {
    /// Requests that ran at each scrape since the engine has looked full, and the steps seen before the first of these.
    full: Option<(u32, u64)>,
    /// Most sequences that it runs, until when.
    most: Option<(u32, Time)>,
}

impl Seats {
    /// Takes a scrape in, of a pod that was seen to take so many steps, and on which so many sequences are known to decode.
    pub(super) fn scraped(&mut self, now: Time, scrape: &Scrape, steps: u64, decoding: f64) {
        let Scrape { running, waiting, kv_usage, engines, shared, .. } = *scrape;
        let knows = engines <= 1 && !shared;
        let looks_full = knows && running > 0 && waiting > 0 && kv_usage < ROOMY;
        self.full = if looks_full && decoding >= f64::from(running) {
            let same = self.full.filter(|(before, _)| *before == running);
            Some(same.unwrap_or((running, steps)))
        } else {
            None
        };
        if self.full.is_some_and(|(_, since)| steps.saturating_sub(since) >= STEPS) {
            self.most = Some((running, now.plus(KEPT)));
        }
        // It was taken for less than it is.
        self.most = self.most.filter(|(most, until)| running <= *most && now < *until);
    }

    /// Most sequences that it was seen to run.
    pub(super) fn most(&self) -> Option<u32> {
        self.most.map(|(most, _)| most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scrape at each of so many steps.
    fn seen(seats: &mut Seats, scrape: Scrape, decoding: f64, steps: std::ops::Range<u64>) {
        for step in steps {
            let now = Time::ZERO.plus(Duration::from_millis(50 * step));
            seats.scraped(now, &scrape, step, decoding);
        }
    }

    fn scrape(running: u32, waiting: u32, kv_usage: f32) -> Scrape {
        Scrape { running, waiting, kv_usage, ..Scrape::default() }
    }

    #[test]
    fn prompts_that_wait_step_after_step_beside_others_that_decode_tell_how_many_seats_there_are() {
        let mut seats = Seats::default();
        seen(&mut seats, scrape(8, 1, 0.3), 8.0, 0..8);
        assert_eq!(seats.most(), None);
        seen(&mut seats, scrape(8, 3, 0.3), 8.0, 8..9);
        assert_eq!(seats.most(), Some(8));
        seen(&mut seats, scrape(6, 0, 0.3), 6.0, 9..20);
        assert_eq!(seats.most(), Some(8));
    }

    #[test]
    fn what_waits_for_anything_else_tells_nothing() {
        let mut seats = Seats::default();
        // For memory; for a prompt that is computed; for others of whom nothing is known.
        seen(&mut seats, scrape(8, 3, 0.95), 8.0, 0..20);
        seen(&mut seats, scrape(8, 3, 0.3), 7.0, 20..40);
        seen(&mut seats, Scrape { engines: 2, ..scrape(8, 3, 0.3) }, 8.0, 40..60);
        seen(&mut seats, Scrape { shared: true, ..scrape(8, 3, 0.3) }, 8.0, 60..80);
        // For a step that takes long: its scrapes all tell of the one before.
        (0..20).for_each(|_| seats.scraped(Time::ZERO, &scrape(8, 1, 0.3), 80, 8.0));
        // More run each time.
        (1..20).for_each(|more| seen(&mut seats, scrape(more, 1, 0.3), 30.0, 80..84));
        assert_eq!(seats.most(), None);
    }

    #[test]
    fn an_engine_that_runs_more_or_was_not_full_for_a_minute_is_asked_anew() {
        let mut seats = Seats::default();
        seen(&mut seats, scrape(8, 1, 0.3), 8.0, 0..9);
        seen(&mut seats, scrape(9, 0, 0.3), 8.0, 9..10);
        assert_eq!(seats.most(), None);
        seen(&mut seats, scrape(8, 1, 0.3), 8.0, 10..20);
        assert_eq!(seats.most(), Some(8));
        seats.scraped(Time::ZERO.plus(KEPT), &scrape(4, 0, 0.3), 20, 4.0);
        assert_eq!(seats.most(), Some(8));
        seats.scraped(Time::ZERO.plus(2 * KEPT), &scrape(4, 0, 0.3), 20, 4.0);
        assert_eq!(seats.most(), None);
    }
}
