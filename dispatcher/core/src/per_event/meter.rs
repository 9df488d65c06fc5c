//! Tokens per event by what a pod says of itself, for pools where no stream says it.
//!
//! An engine counts the tokens that it generates. Over a stretch between two scrapes its count grows by the first token of each sequence,
//! which comes alone, and by what came with the events after those. That is so only while all that the pod runs are streams of this
//! pool's ledger: the caller looks at each scrape whether it is, and where it is not a stretch is given up. So nothing is learned of pods that
//! have other clients, other dispatchers' requests, or responses that are not streamed.
//!
//! A stretch is long enough that what is on its way at its two ends is little. What goes wrong all the same adds tokens without
//! events: those of a request that came and went between two scrapes, reasoning that is not streamed. So a low one of several counts.

use super::{MOST, SURPLUS};

/// Events of a stretch, at least: with two tokens each they are some two hundred.
const LEAST_EVENTS: u64 = 100;
/// And for each sequence there, an event of which may be on its way.
const LEAST_EVENTS_EACH: u64 = 32;

/// One pod's count, held against what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    came: Came,
    open: Option<Stretch>,
}

/// What came from a pod since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    /// Sequences whose first token came.
    firsts: u64,
    /// Events after those.
    events: u64,
    /// Sequences that ended.
    ends: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The pod's count, and what had come, where it began.
    began: (u64, Came),
    /// The same at the last scrape.
    last: (u64, Came),
    /// Sequences that were there then.
    sequences: u64,
    /// Most of them so far.
    most: u64,
}

impl Meter {
    /// The first token of a request with so many sequences came.
    pub fn began(&mut self, sequences: u32) {
        self.came.firsts += u64::from(sequences.max(1));
    }

    /// Events came after the first ones.
    pub fn came(&mut self, events: u32) {
        self.came.events += u64::from(events);
    }

    /// A request with so many sequences is over. Of one that was not streamed nothing came.
    pub fn ended(&mut self, sequences: u32, streamed: bool) {
        self.came.ends += u64::from(sequences.max(1));
        if !streamed {
            self.give_up();
        }
    }

    /// The pod generates what is not seen.
    pub fn give_up(&mut self) {
        self.open = None;
    }

    /// The pod has generated so many tokens in all and has so many sequences, each of a stream that is seen. Returns the tokens per event
    /// of a stretch that is complete.
    pub fn scraped(&mut self, generated: u64, sequences: u32) -> Option<f32> {
        let (now, sequences) = ((generated, self.came), u64::from(sequences));
        let fresh = Stretch { began: now, last: now, sequences, most: sequences };
        let Some(open) = self.open.as_mut().filter(|open| open.goes_on(now, sequences)) else {
            self.open = Some(fresh);
            return None;
        };
        (open.last, open.sequences, open.most) = (now, sequences, open.most.max(sequences));
        let complete = open.tokens_per_event()?;
        self.open = Some(fresh);
        Some(complete)
    }
}

impl Stretch {
    /// Whether the next scrape belongs to it. A count that fell is another process's, and what an idle pod generates is for others.
    fn goes_on(&self, now: (u64, Came), sequences: u64) -> bool {
        let idle = self.sequences == 0 && sequences == 0 && self.last.1 == now.1;
        now.0 == self.last.0 || (now.0 > self.last.0 && !idle)
    }

    /// What it says once it is long enough.
    fn tokens_per_event(&self) -> Option<f32> {
        let ((from, before), (to, after)) = (self.began, self.last);
        let events = after.events - before.events;
        if events < LEAST_EVENTS.max(LEAST_EVENTS_EACH * self.most) {
            return None;
        }
        let (firsts, ends) = (after.firsts - before.firsts, after.ends - before.ends);
        let tokens = (to - from) as f64 - firsts as f64;
        let (events, surplus) = (events as f64, tokens - events as f64);
        // As of a stream, and what is on its way.
        let nothing = 2.0 * ends as f64 + SURPLUS * events + self.most as f64;
        let more = if surplus > nothing { (surplus / events).min(MOST - 1.0) } else { 0.0 };
        Some((1.0 + more) as f32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A pod whose streams get some tokens with each event, and what its meter finds.
    #[derive(Default)]
    struct Pod {
        meter: Meter,
        generated: u64,
        found: Vec<f32>,
    }

    impl Pod {
        /// Streams that begin, get so many events more, and end.
        fn answers(&mut self, streams: u32, events: u32, per_event: u64) {
            (0..streams).for_each(|_| self.meter.began(1));
            self.generated += u64::from(streams);
            for _ in 0..events {
                self.meter.came(streams);
                self.generated += u64::from(streams) * per_event;
                self.scraped(streams);
            }
            (0..streams).for_each(|_| self.meter.ended(1, true));
            self.scraped(0);
        }

        fn scraped(&mut self, sequences: u32) {
            self.found.extend(self.meter.scraped(self.generated, sequences));
        }
    }

    #[test]
    fn a_pods_count_says_how_many_tokens_an_event_holds() {
        for per_event in [1, 2, 4, 9] {
            let mut pod = Pod::default();
            pod.scraped(0);
            (0..10).for_each(|_| pod.answers(3, 50, per_event));
            assert!(pod.found.len() >= 10, "{}", pod.found.len());
            assert!(pod.found.iter().all(|one| *one == per_event as f32), "{:?}", pod.found);
        }
    }

    #[test]
    fn a_token_that_stops_an_answer_is_no_speculation() {
        let mut pod = Pod::default();
        for _ in 0..100 {
            pod.answers(4, 6, 1);
            pod.generated += 4;
        }
        assert!(
            !pod.found.is_empty() && pod.found.iter().all(|one| *one == 1.0),
            "{:?}",
            pod.found
        );
    }

    #[test]
    fn many_sequences_make_a_stretch_longer() {
        let mut pod = Pod::default();
        pod.scraped(0);
        pod.answers(64, 31, 3);
        assert!(pod.found.is_empty());
        pod.answers(64, 1, 3);
        assert_eq!(pod.found, [3.0]);
    }

    #[test]
    fn what_others_are_given_ends_a_stretch() {
        let mut pod = Pod::default();
        pod.scraped(0);
        for _ in 0..20 {
            pod.answers(1, 60, 2);
            pod.meter.give_up();
            pod.generated += 500;
        }
        assert!(pod.found.is_empty(), "seen while it ran");
        for _ in 0..20 {
            pod.answers(1, 60, 2);
            pod.generated += 500;
            pod.scraped(0);
        }
        assert!(pod.found.is_empty(), "where nothing of ours ran");
        pod.generated = 0;
        (0..2).for_each(|_| pod.answers(1, 60, 2));
        assert_eq!(pod.found, [2.0], "another process");
    }

    proptest! {
        #[test]
        fn it_stays_bounded_whatever_a_pod_says(
            says in prop::collection::vec((any::<u64>(), any::<u16>(), any::<u16>(), 0u32..9), 0..100),
        ) {
            let mut meter = Meter::default();
            for (generated, events, ends, sequences) in says {
                meter.came(events.into());
                meter.ended(ends.into(), true);
                meter.began(sequences);
                if let Some(per_event) = meter.scraped(generated, sequences) {
                    prop_assert!((1.0..=MOST as f32).contains(&per_event));
                }
            }
        }
    }
}
