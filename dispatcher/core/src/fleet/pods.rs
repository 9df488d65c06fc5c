//! The pods of a pool side by side in memory, in the order of their ids.
//!
//! Every decision walks over all of them and every event looks one up: the walk is over one block of
//! memory, the look-up a hash. Joining and leaving shift the others, which is rare.

use std::{cell::RefCell, collections::BTreeMap};

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::{
    PodId,
    fleet::{PodState, Together, together::Whole},
    prefix::PrefixIndex,
    spread::NumberMap,
};

/// All pods of a pool, in the order of their ids.
#[derive(Debug, Default)]
pub struct Pods {
    all: Vec<PodState>,
    /// Where each one is.
    places: NumberMap<PodId, usize>,
    /// What they are believed to have cached.
    index: PrefixIndex,
    /// When each one was last changed, by [`Self::clock`].
    changes: Vec<u64>,
    /// Those that step together.
    groups: Vec<Group>,
    /// Which of these each is in; empty where there is none.
    group_of: Vec<Option<u32>>,
    /// Goes on with every change.
    clock: u64,
    /// [`Self::clock`] when a pod last joined or left.
    order: u64,
    /// What pods are asked to take at most that are asked to take less than others, each once.
    limits: SmallVec<[f64; 4]>,
    /// What the largest cache holds of those that prefill, be they open or not; `None` where there is none.
    longest: Option<f64>,
    /// The same of those that are open; 0 where there is none.
    longest_open: f64,
}

/// Pods that step together.
#[derive(Debug)]
struct Group {
    /// Where they are, in order.
    places: SmallVec<[u32; 8]>,
    /// What they had to do at this change of theirs.
    whole: RefCell<Option<(u64, Whole)>>,
}

impl Pods {
    /// No pods.
    pub fn new() -> Self {
        Self::default()
    }

    /// A pod.
    pub fn get(&self, id: &PodId) -> Option<&PodState> {
        self.all.get(self.place(*id)?)
    }

    /// A pod, to change it. Its id stays.
    pub fn get_mut(&mut self, id: &PodId) -> Option<&mut PodState> {
        let place = self.place(*id)?;
        self.clock += 1;
        if let Some(change) = self.changes.get_mut(place) {
            *change = self.clock;
        }
        // What changes one changes what all have to wait for.
        if !self.groups.is_empty() {
            self.note_change_beside(place);
        }
        self.all.get_mut(place)
    }

    fn note_change_beside(&mut self, place: usize) {
        let group = self.group_of.get(place).copied().flatten();
        let group = group.and_then(|group| self.groups.get(group as usize));
        for peer in group.into_iter().flat_map(|group| &group.places) {
            if let Some(change) = self.changes.get_mut(*peer as usize) {
                *change = self.clock;
            }
        }
    }

    /// Whether any of them step together.
    pub const fn step_together(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Those that step together with the one in a place, and itself.
    fn group(&self, place: usize) -> Option<&Group> {
        let group = self.group_of.get(place).copied().flatten()?;
        self.groups.get(group as usize)
    }

    /// What all that steps together with a pod have to do; `None` where nothing does.
    pub fn together(&self, pod: &PodState, steps: &StepTime) -> Option<Together> {
        if !self.step_together() {
            return None;
        }
        let place = self.place(pod.spec.id)?;
        let group = self.group(place)?;
        // What changes one of them is a change of all.
        let change = *self.changes.get(place)?;
        let known = group.whole.take().filter(|(at, whole)| (*at, whole.steps) == (change, *steps));
        let (_, whole) = known.unwrap_or_else(|| {
            let pods = group.places.iter().filter_map(|place| self.all.get(*place as usize));
            (change, Whole::of(pods, steps))
        });
        let one = group.places.binary_search(&(place as u32)).ok();
        let together = one.and_then(|one| whole.around(one));
        group.whole.replace(Some((change, whole)));
        together
    }

    /// Those that step together with a pod.
    pub fn peers(&self, id: PodId) -> impl Iterator<Item = &PodState> {
        // Mostly there are none anywhere.
        let place = if self.step_together() { self.place(id) } else { None };
        let group = place.and_then(|place| self.group(place));
        let all = group.into_iter().flat_map(|group| &group.places);
        let others = all.filter(move |peer| place != Some(**peer as usize));
        others.filter_map(|peer| self.all.get(*peer as usize))
    }

    /// When each pod was last handed out to be changed, by its place: two equal numbers mean that nothing
    /// was.
    pub fn changes(&self) -> &[u64] {
        &self.changes
    }

    /// Changes when a pod joins or leaves, and places with it.
    pub const fn order(&self) -> u64 {
        self.order
    }

    /// Something that all pods are judged by has changed.
    pub fn touch_all(&mut self) {
        self.clock += 1;
        self.changes.fill(self.clock);
    }

    /// Says of each pod how long a prompt it is asked to take, after those that are open or what their caches hold has changed. Tells
    /// whether other prompts are too long for some pod now.
    pub fn note_longest_prompts(&mut self, is_open: impl Fn(&PodState) -> bool) -> bool {
        let open = self.all.iter().filter(|pod| is_open(pod));
        self.longest_open = open.map(PodState::kv_capacity_tokens).fold(0.0, f64::max);
        self.longest = self.all.iter().map(PodState::kv_capacity_tokens).reduce(f64::max);
        let most = self.longest_open;
        let longest_prompt = |pod: &PodState| match pod.kv_capacity_tokens() {
            tokens if tokens < most => tokens,
            _ => f64::INFINITY,
        };
        let same = |pod: &PodState| pod.longest_prompt.total_cmp(&longest_prompt(pod)).is_eq();
        if !self.all.iter().all(same) {
            self.values_mut().for_each(|pod| pod.longest_prompt = longest_prompt(pod));
        }
        let open = self.all.iter().filter(|pod| is_open(pod)).map(|pod| pod.longest_prompt);
        let mut limits: SmallVec<_> = open.filter(|tokens| tokens.is_finite()).collect();
        limits.sort_unstable_by(f64::total_cmp);
        limits.dedup();
        let others = limits != self.limits;
        self.limits = limits;
        others
    }

    /// Whether no cache holds a prompt, nor will when another pod is open again.
    pub fn hold_nowhere(&self, tokens: f64) -> bool {
        self.longest.is_some_and(|most| tokens > most)
    }

    /// Whether a cache holds a prompt when its pod is open again, and none that is open now, where there is one.
    pub fn hold_later(&self, tokens: f64) -> bool {
        self.longest_open > 0.0 && tokens > self.longest_open && !self.hold_nowhere(tokens)
    }

    /// What the largest cache of the open pods holds, and what that of all does.
    pub const fn largest(&self) -> (f64, Option<f64>) {
        (self.longest_open, self.longest)
    }

    /// How many of the sizes that pods are asked to take at most are too small for a prompt.
    pub fn short_of(&self, tokens: f64) -> u8 {
        let short = self.limits.iter().take_while(|most| tokens > **most).count();
        u8::try_from(short).unwrap_or(u8::MAX)
    }

    /// Its place in the order.
    pub fn place(&self, id: PodId) -> Option<usize> {
        self.places.get(&id).copied()
    }

    /// A pod joins that has so many blocks of prompts cached when it is full, in the place of the one of that id if there
    /// is one.
    pub fn insert(&mut self, pod: PodState, blocks: usize) {
        let id = pod.spec.id;
        self.index.remove(id);
        self.index.set_capacity(id, blocks);
        match self.all.binary_search_by_key(&id, |one| one.spec.id) {
            Ok(place) => {
                if let Some(known) = self.all.get_mut(place) {
                    *known = pod;
                }
                self.touch_all();
                self.note_groups();
            }
            // Ids are mostly given in order: then this is the end.
            Err(place) => {
                self.all.insert(place, pod);
                self.index_from(place);
            }
        }
    }

    /// A pod leaves.
    pub fn remove(&mut self, id: &PodId) -> Option<PodState> {
        let place = self.places.remove(id)?;
        self.index.remove(*id);
        let pod = self.all.remove(place);
        self.index_from(place);
        Some(pod)
    }

    fn index_from(&mut self, first: usize) {
        self.changes.resize(self.all.len(), 0);
        self.touch_all();
        self.order = self.clock;
        for (place, pod) in self.all.iter().enumerate().skip(first) {
            self.places.insert(pod.spec.id, place);
        }
        self.note_groups();
    }

    fn note_groups(&mut self) {
        let mut named: BTreeMap<&str, SmallVec<[u32; 8]>> = BTreeMap::new();
        for (place, pod) in (0..).zip(&self.all) {
            if let Some(group) = &pod.spec.group {
                named.entry(group).or_default().push(place);
            }
        }
        // Who is alone steps with nobody.
        let several = named.into_values().filter(|places| places.len() > 1);
        self.groups = several.map(|places| Group { places, whole: RefCell::default() }).collect();
        self.group_of.clear();
        if !self.groups.is_empty() {
            self.group_of.resize(self.all.len(), None);
        }
        for (number, group) in (0..).zip(&self.groups) {
            for place in &group.places {
                if let Some(group_of) = self.group_of.get_mut(*place as usize) {
                    *group_of = Some(number);
                }
            }
        }
    }

    /// What they are believed to have cached.
    pub const fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// The same, to change it.
    pub const fn index_mut(&mut self) -> &mut PrefixIndex {
        &mut self.index
    }

    /// The pods, by id.
    pub fn as_slice(&self) -> &[PodState] {
        &self.all
    }

    /// The pods with higher ids than that one; all of them if there is none.
    pub fn behind(&self, after: Option<PodId>) -> &[PodState] {
        let first = after.map_or(0, |after| self.all.partition_point(|one| one.spec.id <= after));
        self.all.get(first..).unwrap_or_default()
    }

    /// Whether there is a pod of that id.
    pub fn contains_key(&self, id: &PodId) -> bool {
        self.places.contains_key(id)
    }

    /// Ids, in order.
    pub fn keys(&self) -> impl Iterator<Item = &PodId> {
        self.all.iter().map(|pod| &pod.spec.id)
    }

    /// Pods, by id.
    pub fn values(&self) -> impl Iterator<Item = &PodState> {
        self.all.iter()
    }

    /// Pods, by id, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut PodState> {
        self.touch_all();
        self.all.iter_mut()
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl FromIterator<PodState> for Pods {
    fn from_iter<I: IntoIterator<Item = PodState>>(pods: I) -> Self {
        let mut all = Self::default();
        pods.into_iter().for_each(|pod| all.insert(pod, 100));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{PodClass, PodSpec};

    fn pod(id: u32) -> PodState {
        let spec = PodSpec { id: PodId(id), name: Arc::from(""), class: 0, group: None };
        PodState::new(spec, PodClass::default())
    }

    fn ids(pods: &Pods) -> Vec<u32> {
        pods.keys().map(|id| id.0).collect()
    }

    #[test]
    fn pods_stay_in_order_and_are_found_whoever_joins_and_leaves() {
        let mut pods: Pods = [5, 1, 9].map(pod).into_iter().collect();
        pods.insert(pod(3), 100);
        assert_eq!(ids(&pods), [1, 3, 5, 9]);
        assert!(pods.remove(&PodId(3)).is_some() && pods.remove(&PodId(3)).is_none());
        assert_eq!((ids(&pods), pods.len()), (vec![1, 5, 9], 3));
        for id in [1, 5, 9] {
            assert_eq!(pods.get(&PodId(id)).map(|pod| pod.spec.id), Some(PodId(id)));
        }
        assert!(pods.get(&PodId(3)).is_none() && !pods.contains_key(&PodId(3)));
        let behind = |after| pods.behind(after).iter().map(|pod| pod.spec.id.0).collect::<Vec<_>>();
        assert_eq!(behind(None), [1, 5, 9]);
        assert_eq!(behind(Some(PodId(1))), [5, 9]);
        assert_eq!(behind(Some(PodId(4))), [5, 9], "one that has left in between");
    }

    #[test]
    fn a_pod_of_a_known_id_takes_the_place_of_that_one() {
        let mut pods: Pods = [pod(1), pod(2)].into_iter().collect();
        pods.insert(PodState { dispatched: 7, ..pod(1) }, 100);
        assert_eq!((pods.len(), pods.get(&PodId(1)).map(|pod| pod.dispatched)), (2, Some(7)));
    }
}
