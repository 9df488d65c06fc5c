//! Tokens per event of a stream, and per step of an engine, learned online for each pod class.
//!
//! What a stream shows are events; what objectives, lengths and ledgers count are tokens. They are the same until an engine puts several
//! tokens into an event: it speculates, its stream interval is above one, or a slow reader has let events run together. A pool owns one
//! [`PerEvent`]. A finished stream that was counted both ways, by its events and by the `usage` that the engine reports, says how many
//! tokens came with an event after its first; the median of the newest ones stands in wherever there are events alone. A median,
//! because some responses hide most of what they generate: reasoning that is not streamed, the arguments of a tool in one piece.
//!
//! Streams of one sequence go before those of several: most engines write the events of each sequence apart, but one that puts a token
//! of each into an event looks like one that speculates. Where no stream carries `usage`, the count of generated tokens that a pod
//! keeps is held against the events of its streams ([`Meter`]).
//!
//! Tokens per step follow from it, and from how many events a resident was given by a step. An engine that speculates gives each
//! of them an event at every step, one with a stream interval does not, and only for the first is a token less than a step.
//!
//! Both are exactly one until most streams say otherwise, and as long as neither `usage` nor a pod tells.

pub mod learned;
mod meter;
mod newest;

pub use meter::Meter;
use newest::Newest;

/// Streams that the median is taken of.
const WINDOW: usize = 64;
/// Streams before it says anything.
const ENOUGH: usize = 8;
/// Stretches of pods' counts that are looked back over.
const STRETCHES: usize = 16;
/// Of those, before they say anything: one from each pod of a small pool.
const ENOUGH_STRETCHES: usize = 4;
/// Share of them that may say less than what is believed.
const LOW: f64 = 0.25;
/// Shorter streams say nothing: their last event may hold less than the others.
const LEAST_EVENTS: u32 = 8;
/// Share of the events, beside two, by which tokens may exceed them and mean nothing: of the token that stops an answer, and of one
/// whose text comes with the next, there is no event.
const SURPLUS: f64 = 0.05;
/// More tokens in an event than any engine is set to.
const MOST: f64 = 64.0;
/// Weight of the newest stretch of work in the events per step; the first ones count alike.
const STEP_WEIGHT: f64 = 0.1;
/// Events per step that a stretch may show: no engine gives more than one, but some of a stretch are seen in the next.
const MOST_EVENTS: f64 = 2.0;

/// What is counted by fewer tokens per event is counted anew from so many times as many on.
const RISE: f64 = 1.25;

/// Tokens per event and per step, by pod class.
#[derive(Clone, Debug, Default)]
pub struct PerEvent(Vec<OfClass>);

#[derive(Clone, Debug)]
struct OfClass {
    /// Of the newest streams of one sequence.
    single: Newest<WINDOW>,
    /// Of the newest of several.
    several: Newest<WINDOW>,
    /// Of the newest stretches of pods' counts.
    counted: Newest<STRETCHES>,
    per_event: f64,
    /// What requests that ran were last counted anew by. It never falls, so that they seldom are.
    raised: f64,
    /// Events that a resident is given by a step.
    events_per_step: f64,
    /// Stretches of work that say so.
    stepped: u32,
}

impl Default for OfClass {
    fn default() -> Self {
        Self {
            single: Newest::default(),
            several: Newest::default(),
            counted: Newest::default(),
            per_event: 1.0,
            raised: 1.0,
            events_per_step: 0.0,
            stepped: 0,
        }
    }
}

impl PerEvent {
    /// Learns that a stream of so many sequences came in so many events, and had so many tokens.
    pub fn streamed(&mut self, class: u16, sequences: u32, events: u32, tokens: u32) {
        let per_event = per_event(events, tokens, sequences.max(1));
        let Some((known, per_event)) = self.of(class).zip(per_event) else { return };
        if sequences > 1 {
            known.several.learn(per_event);
        } else {
            known.single.learn(per_event);
        }
        known.settle();
    }

    /// Learns what the [`Meter`] of a pod has found.
    pub fn counted(&mut self, class: u16, per_event: f32) {
        if let Some(known) = self.of(class) {
            known.counted.learn(per_event);
            known.settle();
        }
    }

    /// Learns that a resident was given so many events by a step, on average.
    pub fn stepped(&mut self, class: u16, events: f64) {
        if let Some(known) = self.of(class).filter(|_| events.is_finite()) {
            known.stepped = known.stepped.saturating_add(1);
            let weight = STEP_WEIGHT.max(1.0 / f64::from(known.stepped));
            let events = events.clamp(0.0, MOST_EVENTS);
            known.events_per_step += weight * (events - known.events_per_step);
        }
    }

    /// Tokens that come with an event, if they are so many more now that what runs has to be counted by them, too.
    pub fn rise(&mut self, class: u16) -> Option<f64> {
        let known = self.of(class).filter(|one| one.per_event > RISE * one.raised)?;
        known.raised = known.per_event;
        Some(known.per_event)
    }

    /// Tokens that come with an event after a stream's first.
    pub fn tokens_per_event(&self, class: u16) -> f64 {
        self.0.get(usize::from(class)).map_or(1.0, |one| one.per_event)
    }

    /// Tokens that a resident gets by a step: at least one, and no more than by an event.
    pub fn tokens_per_step(&self, class: u16) -> f64 {
        let known = self.0.get(usize::from(class));
        known.map_or(1.0, |one| (one.events_per_step * one.per_event).clamp(1.0, one.per_event))
    }

    fn of(&mut self, class: u16) -> Option<&mut OfClass> {
        let place = usize::from(class);
        if self.0.len() <= place {
            self.0.resize_with(place + 1, OfClass::default);
        }
        self.0.get_mut(place)
    }
}

impl OfClass {
    /// Goes by the best that there is.
    fn settle(&mut self) {
        let usage = || self.single.quantile(0.5, ENOUGH).or(self.several.quantile(0.5, ENOUGH));
        let known = usage().or(self.counted.quantile(LOW, ENOUGH_STRETCHES));
        self.per_event = known.unwrap_or(1.0);
    }
}

/// What a stream says of the tokens per event; `None` when it says nothing.
fn per_event(events: u32, tokens: u32, sequences: u32) -> Option<f32> {
    let (gaps, of_each) = (f64::from(events) - f64::from(sequences), f64::from(sequences));
    let surplus = f64::from(tokens) - f64::from(events);
    if events / sequences < LEAST_EVENTS || surplus > (MOST - 1.0) * gaps {
        return None;
    }
    // One that has fewer tokens than events was not counted as it came.
    let more = if surplus > 2.0 * of_each + SURPLUS * gaps { surplus / gaps } else { 0.0 };
    Some((1.0 + more) as f32)
}

/// Tokens of so many sequences that came in so many events: the first of each comes alone.
pub fn tokens(events: u32, sequences: u32, per_event: f64) -> u32 {
    let more = f64::from(events.saturating_sub(sequences.max(1))) * (per_event - 1.0);
    // The cast saturates, and nothing is below zero.
    events.saturating_add((more + 0.5) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taught(streams: impl IntoIterator<Item = (u32, u32)>) -> f64 {
        let mut known = PerEvent::default();
        streams.into_iter().for_each(|(events, tokens)| known.streamed(0, 1, events, tokens));
        known.tokens_per_event(0)
    }

    #[test]
    fn where_a_token_is_an_event_it_stays_exactly_one() {
        assert_eq!(PerEvent::default().tokens_per_event(3), 1.0);
        // As counted; with the token that stops it; with letters that take two tokens, as text in some scripts has.
        assert_eq!(taught((0..500).map(|more| (8 + more, 8 + more + more % 3))), 1.0);
        assert_eq!(taught((0..500).map(|_| (1000, 1045))), 1.0);
        for events in [0, 1, 17, u32::MAX] {
            assert_eq!(tokens(events, 3, 1.0), events);
        }
    }

    #[test]
    fn four_tokens_an_event_are_known_after_a_few_streams() {
        let of = |events: u32| (events, 1 + 4 * (events - 1));
        assert_eq!(taught((0..7).map(|_| of(100))), 1.0, "too few");
        assert_eq!(taught((0..8).map(|_| of(100))), 4.0);
        assert_eq!(tokens(100, 1, 4.0), 397);
        assert_eq!(tokens(200, 2, 4.0), 794, "two sequences side by side");
        assert_eq!((tokens(1, 1, 4.0), tokens(0, 1, 4.0)), (1, 0), "the first comes alone");
    }

    #[test]
    fn what_fewer_than_half_of_the_streams_say_changes_nothing() {
        // Reasoning that is not streamed, a tool's arguments in three events, an answer that is said to have no tokens.
        let odd = |turn: u32| match turn % 5 {
            0 => (10, 600),
            1 => (3, 200),
            2 => (100, 0),
            _ => (50, 51),
        };
        assert_eq!(taught((0..1000).map(odd)), 1.0);
        let speculates = |turn| if turn % 3 == 0 { (10, 600) } else { (50, 148) };
        assert!((taught((0..1000).map(speculates)) - 3.0).abs() < 1e-6);
    }

    #[test]
    fn it_follows_an_engine_that_is_started_anew_without_speculation() {
        let before = (0..1000).map(|_| (50, 148));
        assert_eq!(taught(before.chain((0..WINDOW as u32 / 2).map(|_| (50, 51)))), 1.0);
    }

    #[test]
    fn a_step_yields_no_more_than_an_event_and_no_less_than_a_token() {
        let mut known = PerEvent::default();
        (0..8).for_each(|_| known.streamed(0, 1, 100, 397));
        assert_eq!(known.tokens_per_step(0), 1.0, "no step was seen");
        (0..100).for_each(|_| known.stepped(0, 1.1));
        assert_eq!(known.tokens_per_step(0), 4.0);
        known.stepped(0, f64::NAN);
        (0..100).for_each(|_| known.stepped(0, 0.05));
        assert_eq!(known.tokens_per_step(0), 1.0, "an event each twenty steps");
        (0..64).for_each(|_| known.streamed(0, 1, 100, 101));
        assert_eq!((known.tokens_per_event(0), known.tokens_per_step(0)), (1.0, 1.0));
    }

    #[test]
    fn what_was_seen_of_steps_counts_as_soon_as_an_event_is_known_to_hold_several_tokens() {
        let mut known = PerEvent::default();
        known.stepped(0, 1.0);
        assert_eq!(known.tokens_per_step(0), 1.0, "a token is an event");
        (0..8).for_each(|_| known.streamed(0, 1, 100, 397));
        assert_eq!(known.tokens_per_step(0), 4.0);
        known.stepped(0, 0.5);
        assert_eq!(known.tokens_per_step(0), 3.0, "the first ones count alike");
    }

    #[test]
    fn streams_of_several_sequences_count_where_there_are_none_of_one() {
        let mut known = PerEvent::default();
        (0..8).for_each(|_| known.streamed(0, 4, 400, 4 + 4 * 396));
        assert_eq!(known.tokens_per_event(0), 4.0);
        (0..100).for_each(|_| known.streamed(0, 4, 400, 410));
        assert_eq!(known.tokens_per_event(0), 1.0, "as many stop as there are sequences");
        // An engine that puts a token of each sequence into an event.
        (0..100).for_each(|_| known.streamed(0, 4, 100, 400));
        (0..8).for_each(|_| known.streamed(0, 1, 100, 101));
        assert_eq!(known.tokens_per_event(0), 1.0);
    }

    #[test]
    fn what_pods_count_is_believed_until_streams_tell() {
        let mut known = PerEvent::default();
        (0..3).for_each(|_| known.counted(0, 3.0));
        assert_eq!(known.tokens_per_event(0), 1.0, "too few");
        known.counted(0, 5.0);
        assert_eq!(known.tokens_per_event(0), 3.0, "what goes wrong adds tokens");
        (0..8).for_each(|_| known.streamed(0, 1, 100, 200));
        assert!((known.tokens_per_event(0) - 2.0).abs() < 0.02);
    }

    proptest! {
        #[test]
        fn it_stays_bounded_whatever_is_reported(
            streams in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..200),
            stepped in any::<f64>(),
            counted in 1f32..64.0,
        ) {
            let mut known = PerEvent::default();
            for (sequences, events, tokens) in streams {
                known.streamed(1, sequences, events, tokens);
                known.streamed(1, sequences % 5, events % 1000, tokens % 10_000);
                known.stepped(1, stepped);
                known.counted(1, counted);
                prop_assert!((1.0..=MOST).contains(&known.tokens_per_event(1)));
                prop_assert!((1.0..=MOST).contains(&known.tokens_per_step(1)));
            }
            prop_assert_eq!(known.tokens_per_event(0), 1.0);
        }
    }
}
