//! What every look at a pod begins with, kept side by side until the pod changes.
//!
//! The first question of a decision is asked of every pod: when would the first token come, or what would the request cost
//! all together there? What it takes of a pod is a few numbers, and between two decisions most pods have not changed
//! ([`Pods::changes`]). So they lie in rows of memory, and the pods themselves are touched only where something has happened.
//!
//! [`Pods::changes`]: crate::fleet::Pods::changes

use std::ops::Range;

use crate::{
    PodId,
    decide::{Floor, filter, score},
    headroom::{Ground, Question, Starts},
    prefix::Match,
    queue::Waiting,
};

/// All pods, a row for each figure, by their places.
#[derive(Debug, Default)]
pub struct Grounds {
    ids: Vec<PodId>,
    classes: Vec<u16>,
    /// Pods of one class that stand together.
    alike: Vec<(u16, Range<usize>)>,
    /// The longest prompt that each takes, in tokens; below zero where it takes no requests.
    pub takes: Vec<f64>,
    starts: Starts,
    /// The pods' changes that these are of; for one that is not to be used again a number that no change has.
    changes: Vec<u64>,
    /// Share of a prompt that each has cached.
    pub cached_shares: Vec<f64>,
    /// What the step-time model answers of it there, in milliseconds: the TTFT, or of a request that is promised nothing the
    /// time that all lose to it.
    pub answers_ms: Vec<f32>,
}

/// Longer is any prompt.
const NONE: f64 = -1.0;

/// No change of a pod has this number.
const NEVER: u64 = u64::MAX;

impl Grounds {
    /// Makes room for so many pods, of which nothing is known yet.
    fn resize(&mut self, pods: usize) {
        self.ids.resize(pods, PodId(0));
        self.classes.resize(pods, 0);
        self.takes.resize(pods, NONE);
        self.starts.resize(pods);
        self.cached_shares.resize(pods, 0.0);
        self.answers_ms.resize(pods, 0.0);
        self.changes.clear();
        self.changes.resize(pods, NEVER);
        self.note_classes();
    }

    /// Sequences that decode on each once what is pending does.
    pub fn decodes(&self) -> &[f64] {
        self.starts.decodes()
    }

    /// Notes what each pod has cached; both are in the order of the pods.
    fn note_shares(&mut self, matches: &[Match]) {
        self.cached_shares.fill(0.0);
        let mut place = 0;
        for known in matches {
            let left = self.ids.get(place..).unwrap_or_default();
            let Some(ahead) = left.iter().position(|id| *id >= known.pod) else { return };
            place += ahead;
            if left.get(ahead) == Some(&known.pod)
                && let Some(share) = self.cached_shares.get_mut(place)
            {
                *share = known.share;
            }
        }
    }

    fn note_classes(&mut self) {
        self.alike.clear();
        let mut first = 0;
        for alike in self.classes.chunk_by(|one, next| one == next) {
            let places = first..first + alike.len();
            first = places.end;
            self.alike.extend(alike.first().map(|class| (*class, places)));
        }
    }
}

impl Floor<'_> {
    /// Looks at every pod for a request: what it has cached, and when the first token would come or what the request would cost.
    pub(super) fn survey(&self, waiting: &Waiting, grounds: &mut Grounds) {
        self.look_around(waiting, grounds);
        let Grounds { alike, starts, cached_shares, answers_ms, .. } = grounds;
        let demand = score::demand(waiting);
        let question = if waiting.request.slo.is_empty() {
            Question::Delay { cold_weight: self.config.pull.cold_weight }
        } else {
            Question::Ttft
        };
        for (class, places) in alike {
            let shares = cached_shares.get(places.clone()).unwrap_or_default();
            let answers_ms = answers_ms.get_mut(places.clone()).unwrap_or_default();
            let steps = self.steps_of(*class);
            starts.answer(places.clone(), &steps, (question, &demand), shares, answers_ms);
        }
    }

    /// Looks at what every pod has to do, and what it has of a request cached.
    pub(super) fn look_around(&self, waiting: &Waiting, grounds: &mut Grounds) {
        self.update(grounds);
        grounds.note_shares(waiting.matches());
    }

    /// Looks again at the pods that have changed. When one joins or leaves, all of them change.
    fn update(&self, grounds: &mut Grounds) {
        let pods = self.pods.as_slice();
        if grounds.changes.len() != pods.len() {
            grounds.resize(pods.len());
        }
        let Grounds { ids, classes, takes, starts, changes, .. } = grounds;
        let known = changes.iter_mut().zip(ids).zip(classes.iter_mut().zip(takes));
        let mut other_classes = false;
        let pods = pods.iter().zip(self.pods.changes());
        for (place, (((known, id), (class, takes)), (pod, change))) in known.zip(pods).enumerate() {
            if known == change {
                continue;
            }
            // What other pools have there counts while a scrape is fresh: that is a matter of time.
            *known = if pod.is_alone() { *change } else { NEVER };
            other_classes |= *class != pod.spec.class;
            let longest = if filter::is_taking(pod) { pod.longest_prompt } else { NONE };
            (*id, *class, *takes) = (pod.spec.id, pod.spec.class, longest);
            let others = pod.others(self.now, self.config.pull.stale_after_ms);
            // By its own work, whoever steps together with it: of these the one with the least to do is the best.
            let ground = Ground::of(pod, &self.steps_of(*class), others);
            starts.set(place, &ground.start);
        }
        if other_classes {
            grounds.note_classes();
        }
    }
}
