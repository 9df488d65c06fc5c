//! What was learned, given to another scheduler and taken from one.

use crate::{
    PodId,
    learned::{ClassLearned, Learned},
    prefix::{Cached, Part},
    scheduler::{Scheduler, alive::Asked},
};

impl Scheduler {
    /// What was learned of the pool; see [`Learned`].
    pub fn learned(&self) -> Learned {
        let classes = (0..).zip(&self.config.classes).map(|(class, known)| ClassLearned {
            name: known.name.clone(),
            steps: self.predictor.steps_learned(class),
            per_event: self.per_event.learned(class),
        });
        let [expected, actual] = self.demand.compared();
        Learned {
            lengths: self.length.learned(),
            ratio: self.ratio,
            need: self.config.need,
            held: self.held.load(),
            expected,
            actual,
            classes: classes.collect(),
        }
    }

    /// What a pod is believed to have cached, oldest first. Prompts that it is at work on are the youngest.
    pub fn cached_on(&self, pod: PodId) -> Cached {
        let Cached(mut parts) = self.pods.index().cached(pod);
        let flights = self.flights.values().filter(|flight| flight.pod == pod && flight.kept > 0);
        let mut used: Vec<_> = flights.map(|flight| (flight.sent, flight)).collect();
        used.sort_unstable_by_key(|(sent, flight)| (*sent, flight.request.id));
        parts.extend(used.into_iter().map(|(_, flight)| {
            let blocks = &flight.request.blocks;
            let kept = blocks.get(..flight.kept).filter(|kept| kept.len() < blocks.len());
            Part::Prompt(kept.map_or_else(|| blocks.clone(), Into::into))
        }));
        Cached(parts)
    }

    /// Goes on from what another has learned.
    pub(super) fn recall(&mut self, learned: &Learned) {
        self.length.recall(&learned.lengths);
        self.ratio.recall(learned.ratio);
        if self.config.need.learn && learned.need == self.config.need {
            self.held.recall(learned.held);
        }
        self.demand.recall([learned.expected, learned.actual]);
        for ClassLearned { name, steps, per_event } in &learned.classes {
            // Of two classes of one name the first is meant.
            let class = self.config.classes.iter().position(|class| class.name == *name);
            let Some(class) = class.and_then(|class| u16::try_from(class).ok()) else { continue };
            self.per_event.recall(class, per_event);
            if let Some(steps) = steps {
                self.predictor.recall_steps(class, steps);
            }
        }
        // What was found of pods was found by other steps.
        self.asked = Asked::default();
        self.pods.touch_all();
    }

    /// A pod has this cached, as another says: all of it is older than what is known of here.
    pub(super) fn recall_cached(&mut self, pod: PodId, cached: &Cached) {
        // To change a pod is to have it looked at anew.
        if self.pods.get_mut(&pod).is_some() {
            self.pods.index_mut().recall(pod, cached);
        }
    }
}
