//! What was found of a pod class's tokens per event, for another to go on from.

use serde::{Deserialize, Serialize};

use super::{MOST, MOST_EVENTS, OfClass, PerEvent, newest::Newest};

/// What was found of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerEventLearned {
    /// Tokens per event of the newest streams of one sequence, oldest first.
    pub single: Vec<f32>,
    /// The same of several.
    pub several: Vec<f32>,
    /// The same of the newest stretches of pods' counts.
    pub counted: Vec<f32>,
    /// Events that a resident is given by a step.
    pub events_per_step: f64,
    /// Stretches of work that say so.
    pub stepped: u32,
}

impl PerEvent {
    /// What was found of a class.
    pub fn learned(&self, class: u16) -> PerEventLearned {
        self.0.get(usize::from(class)).map_or_else(PerEventLearned::default, |known| {
            PerEventLearned {
                single: known.single.oldest_to_newest().collect(),
                several: known.several.oldest_to_newest().collect(),
                counted: known.counted.oldest_to_newest().collect(),
                events_per_step: known.events_per_step,
                stepped: known.stepped,
            }
        })
    }

    /// Goes on from what another has found of a class. What cannot be is left out.
    pub fn recall(&mut self, class: u16, learned: &PerEventLearned) {
        let Some(known) = self.of(class) else { return };
        let events = learned.events_per_step;
        let is_sound = (0.0..=MOST_EVENTS).contains(&events);
        *known = OfClass {
            single: recalled(&learned.single),
            several: recalled(&learned.several),
            counted: recalled(&learned.counted),
            events_per_step: if is_sound { events } else { 0.0 },
            stepped: if is_sound { learned.stepped } else { 0 },
            ..OfClass::default()
        };
        known.settle();
        // Nothing that runs was counted by less.
        known.raised = known.per_event;
    }
}

fn recalled<const MANY: usize>(learned: &[f32]) -> Newest<MANY> {
    let mut newest = Newest::default();
    let sound = |per_event: &&f32| (1.0..=MOST as f32).contains(*per_event);
    learned.iter().filter(sound).for_each(|per_event| newest.learn(*per_event));
    newest
}
