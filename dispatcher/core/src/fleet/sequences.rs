//! How many sequences an engine runs at a time, where that is fewer than its class says.
//!
//! No engine tells. One whose seats are all taken lets a prompt wait although its cache has room: step after step, while all that it
//! runs decodes. One that has seats but no room in its steps is at work on a prompt meanwhile, and where steps are short every scrape
//! may find a prompt that has just come: it must be the same one that waits.

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
    /// Since the engine has looked full.
    full: Option<Full>,
    /// Most sequences that it runs, until when.
    most: Option<(u32, Time)>,
}

/// The first of the scrapes that found an engine full.
#[derive(Clone, Copy, Debug)]
struct Full {
    at: Time,
    /// Requests that ran, then and since.
    running: u32,
    /// Steps seen before.
    steps: u64,
}

impl Seats {
    /// Takes a scrape in, of a pod that was seen to take so many steps, on which so many sequences are known to decode and the first
    /// stream of those that wait for a token was sent at `waits_since`.
    pub(super) fn scraped(
        &mut self,
        now: Time,
        scrape: &Scrape,
        (steps, decoding): (u64, f64),
        waits_since: Option<Time>,
    ) {
        let Scrape { running, waiting, kv_usage, engines, shared, .. } = *scrape;
        let knows = engines <= 1 && !shared;
        let looks_full = knows && running > 0 && waiting > 0 && kv_usage < ROOMY;
        self.full = if looks_full && decoding >= f64::from(running) {
            let still = |full: &Full| {
                full.running == running && waits_since.is_some_and(|since| since <= full.at)
            };
            Some(self.full.filter(still).unwrap_or(Full { at: now, running, steps }))
        } else {
            None
        };
        if self.full.is_some_and(|full| steps.saturating_sub(full.steps) >= STEPS) {
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

    fn at(step: u64) -> Time {
        Time::ZERO.plus(Duration::from_millis(50 * step))
    }

    /// A scrape at each of so many steps, while the same prompt waits.
    fn seen(seats: &mut Seats, scrape: Scrape, decoding: f64, steps: std::ops::Range<u64>) {
        for step in steps {
            seats.scraped(at(step), &scrape, (step, decoding), Some(Time::ZERO));
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
        (0..20).for_each(|_| seen(&mut seats, scrape(8, 1, 0.3), 8.0, 80..81));
        // More run each time.
        (1..20).for_each(|more| seen(&mut seats, scrape(more, 1, 0.3), 30.0, 80..84));
        assert_eq!(seats.most(), None);
    }

    #[test]
    fn a_prompt_that_has_just_come_each_time_tells_nothing_however_many_steps_lie_between() {
        let mut seats = Seats::default();
        for step in (0..200).step_by(10) {
            seats.scraped(at(step), &scrape(8, 1, 0.3), (step, 8.0), Some(at(step - step.min(1))));
        }
        (200..220).for_each(|step| seats.scraped(at(step), &scrape(8, 1, 0.3), (step, 8.0), None));
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
        seats.scraped(Time::ZERO.plus(KEPT), &scrape(4, 0, 0.3), (20, 4.0), None);
        assert_eq!(seats.most(), Some(8));
        seats.scraped(Time::ZERO.plus(2 * KEPT), &scrape(4, 0, 0.3), (20, 4.0), None);
        assert_eq!(seats.most(), None);
    }
}
