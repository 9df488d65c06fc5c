//! How much of what a pod is believed to have cached its engine finds.
//!
//! An engine counts the tokens of prompts that it looks up, and those that it finds. Where it finds far less than was believed when
//! they were sent, it keeps less than it says, was told to forget, or is asked for prompts that differ where nobody else sees it.
//! Then what is believed counts for so much less, until it finds more again.

use std::time::Duration;

use crate::{CacheUse, Time};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// Tokens believed cached, and prompts, after which those before them count half.
const HALF_LIFE_TOKENS: f64 = 50_000.0;
const HALF_LIFE_PROMPTS: f64 = 32.0;

/// Tokens believed cached, and prompts, before anything is concluded.
const LEAST_TOKENS: f64 = 20_000.0;
const LEAST_PROMPTS: f64 = 16.0;

/// Finding that much of what is believed is finding all: estimates of lengths are as far off.
const FINE: f64 = 0.8;

/// Of less this at least is left: that it finds more again has to be seen.
const LEAST: f64 = 0.01;

/// What differs by less is the same: few prompts tell.
const NOTICED: f64 = 0.1;

/// A share that differs so much from the one with which step times were learned makes them wrong; looks until what was sent with that is
/// over.
const MISTAUGHT: f64 = 0.25;
const UNSETTLED: u8 = 5;

/// What is found now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Share of what is believed.
    pub share: f64,
    /// Whether what steps have taught was of prompts of which much more, or less, was thought cached.
    pub mistaught: bool,
}

/// What is known of one pod.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// Share of what is believed that is found.
    share: f64,
    /// The one with which step times are learned, and looks until all is over that was sent before.
    taught: f64,
    unsettled: u8,
    /// The last look.
    last: Option<Look>,
    /// What was looked up between it and the one before: a scrape is of a moment ago.
    held_back: LookedUp,
    /// What was looked up and counted before, of which the older is forgotten.
    believed: LookedUp,
    counted: LookedUp,
}

/// What there had been at a look.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Time,
    looked_up: LookedUp,
    counted: CacheUse,
}

/// Prompts that an engine has looked for in its prefix cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookedUp {
    prompts: f64,
    /// Their tokens.
    tokens: f64,
    /// Those of them that counted as cached, or were found.
    cached: f64,
}

impl LookedUp {
    /// The first token of one has come, of which so many tokens were to be computed.
    pub fn begun(&mut self, tokens: f64, uncached_tokens: f64) {
        self.prompts += 1.0;
        self.tokens += tokens;
        self.cached += (tokens - uncached_tokens).max(0.0);
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            prompts: self.prompts - before.prompts,
            tokens: self.tokens - before.tokens,
            cached: self.cached - before.cached,
        }
    }

    fn add(&mut self, kept: f64, more: &Self) {
        self.prompts = kept * self.prompts + more.prompts;
        self.tokens = kept * self.tokens + more.tokens;
        self.cached = kept * self.cached + more.cached;
    }

    fn share(&self) -> f64 {
        if self.tokens > 0.0 { self.cached / self.tokens } else { 0.0 }
    }
}

impl Default for Finding {
    fn default() -> Self {
        let (held_back, believed, counted) = Default::default();
        let (share, taught, unsettled) = (1.0, 1.0, 0);
        Self { share, taught, unsettled, last: None, held_back, believed, counted }
    }
}

impl Finding {
    /// Share of what is believed cached that is found; 1 while nothing speaks against it.
    pub const fn share(&self) -> f64 {
        self.share
    }

    /// An engine has counted so much, and has looked up so much by then of what it was sent. Returns what it finds where that is
    /// another share now, or step times are learned anew.
    pub fn scraped(&mut self, now: Time, looked_up: LookedUp, counted: CacheUse) -> Option<Found> {
        if self.last.is_some_and(|last| now.since(last.at) < EVERY) {
            return None;
        }
        let last = self.last.replace(Look { at: now, looked_up, counted })?;
        let queried = counted.queried.checked_sub(last.counted.queried);
        let Some((queried, found)) = queried.zip(counted.found.checked_sub(last.counted.found))
        else {
            // Another process counts.
            let Self { share, taught, last, .. } = *self;
            *self = Self { share, taught, last, ..Self::default() };
            return None;
        };
        let mut fresh = looked_up.since(&last.looked_up);
        // What was believed before it counted for less.
        fresh.cached = (fresh.cached / self.share).min(fresh.tokens);
        let fresh = std::mem::replace(&mut self.held_back, fresh);
        let age = (fresh.cached / HALF_LIFE_TOKENS).min(fresh.prompts / HALF_LIFE_PROMPTS);
        let kept = 0.5_f64.powf(age);
        self.believed.add(kept, &fresh);
        let counted =
            LookedUp { prompts: fresh.prompts, tokens: queried as f64, cached: found as f64 };
        self.counted.add(kept, &counted);
        let share = self.found();
        let changes = (share - self.share).abs() >= NOTICED;
        if changes {
            self.share = share;
        }
        self.unsettled = self.unsettled.saturating_sub(1);
        if (self.share - self.taught).abs() >= MISTAUGHT {
            (self.taught, self.unsettled) = (self.share, UNSETTLED);
        }
        let mistaught = self.unsettled > 0;
        (changes || mistaught).then_some(Found { share: self.share, mistaught })
    }

    fn found(&self) -> f64 {
        if self.believed.cached < LEAST_TOKENS || self.believed.prompts < LEAST_PROMPTS {
            return self.share;
        }
        // Of tokens, or of shares of prompts where both count tokens otherwise or others send prompts too.
        let of_tokens = self.counted.cached / self.believed.cached;
        let of_shares = self.counted.share() / self.believed.share();
        let share = of_tokens.max(of_shares);
        if share >= FINE { 1.0 } else { share.max(LEAST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that is looked at every second.
    #[derive(Default)]
    struct Watched {
        finding: Finding,
        looked_up: LookedUp,
        counted: CacheUse,
        seconds: u32,
    }

    impl Watched {
        fn look(&mut self) -> Option<Found> {
            self.seconds += 1;
            self.finding.scraped(
                Time::ZERO.plus(EVERY * self.seconds),
                self.looked_up,
                self.counted,
            )
        }

        /// Counts a prompt of so many tokens, of which it finds some.
        fn counts(&mut self, tokens: f64, found: f64) {
            self.counted.queried += tokens as u64;
            self.counted.found += found as u64;
        }

        /// A prompt in each of so many seconds, of so many tokens of which so many are believed cached, and what it finds of these.
        fn after(&mut self, prompts: u32, [tokens, believed]: [f64; 2], finds: f64) -> f64 {
            for _ in 0..prompts {
                self.counts(tokens, finds * believed);
                self.looked_up.begun(tokens, tokens - believed * self.finding.share());
                self.look();
            }
            self.finding.share()
        }
    }

    #[test]
    fn who_finds_what_is_believed_is_believed() {
        for finds in [0.85, 1.0, 1.3] {
            assert_eq!(Watched::default().after(500, [2000.0, 1500.0], finds), 1.0, "{finds}");
        }
        // Who counts other tokens finds the same share of them.
        let mut watched = Watched::default();
        for _ in 0..500 {
            watched.counts(2000.0, 1000.0);
            watched.looked_up.begun(3000.0, 1500.0);
            watched.look();
        }
        assert_eq!(watched.finding.share(), 1.0);
    }

    #[test]
    fn who_finds_less_is_believed_less_and_again_once_it_does() {
        let mut watched = Watched::default();
        assert_eq!(watched.after(10, [2000.0, 1500.0], 0.0), 1.0, "that says little");
        assert_eq!(watched.after(500, [2000.0, 1500.0], 0.0), LEAST);
        let half = watched.after(500, [2000.0, 1500.0], 0.5);
        assert!((half - 0.5).abs() < NOTICED, "{half}");
        assert_eq!(watched.after(500, [2000.0, 1500.0], 1.0), 1.0);
        // However long each is, a few say nothing.
        assert_eq!(Watched::default().after(10, [200_000.0, 150_000.0], 0.0), 1.0);
        assert_eq!(Watched::default().after(50, [200_000.0, 150_000.0], 0.0), LEAST);
    }

    #[test]
    fn little_is_noticed_only_where_it_adds_up_and_much_is_taught_anew() {
        let mut watched = Watched::default();
        let told = |watched: &mut Watched, finds: f64| {
            let mut told = Vec::new();
            for _ in 0..500 {
                watched.counts(2000.0, finds * 1500.0);
                watched.looked_up.begun(2000.0, 2000.0 - 1500.0 * watched.finding.share());
                told.extend(watched.look());
            }
            let anew = told.iter().filter(|found| found.mistaught).count();
            (told.len() - anew, anew)
        };
        assert_eq!(told(&mut watched, 0.9), (0, 0));
        let (changes, anew) = told(&mut watched, 0.6);
        assert!(changes <= 2 && (5..=10).contains(&anew), "{changes}, {anew}");
        let (changes, anew) = told(&mut watched, 0.55);
        assert!(changes <= 1 && anew == 0, "{changes}, {anew}");
    }

    #[test]
    fn what_others_send_there_makes_nobody_believe_less() {
        let mut watched = Watched::default();
        for _ in 0..500 {
            watched.counts(4000.0, 0.0);
            watched.after(1, [2000.0, 1500.0], 1.0);
        }
        assert_eq!(watched.finding.share(), 1.0);
    }

    #[test]
    fn another_process_says_nothing_of_the_one_before() {
        let mut watched = Watched::default();
        watched.after(500, [2000.0, 1500.0], 0.0);
        watched.counted = CacheUse { queried: 10, found: 10 };
        assert_eq!(watched.look(), None);
        assert_eq!((watched.finding.share(), watched.finding.believed.tokens), (LEAST, 0.0));
    }

    #[test]
    fn a_scrape_may_be_older_than_what_has_just_begun() {
        let mut watched = Watched::default();
        watched.look();
        for _ in 0..100 {
            watched.looked_up.begun(2000.0, 0.0);
            watched.look();
            watched.counts(2000.0, 2000.0);
        }
        assert_eq!(watched.finding.share(), 1.0);
    }
}
