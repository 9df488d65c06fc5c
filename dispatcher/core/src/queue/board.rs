//! All lanes of a pool, and the facts kept of every waiting request.
//!
//! The board is the only place that knows what waits. A request is in exactly one lane, or in the
//! late queue of its band, from `insert` until `remove`; counts and bytes follow from that and
//! cannot drift. A lane exists while it holds something.
//!
//! A request that could not be delivered has a lane to itself: there may be no pod left for it, and
//! nobody must wait behind that.

use std::{cmp::Reverse, collections::BTreeMap, hash::BuildHasherDefault};

use priority_queue::PriorityQueue;

use crate::{
    Band, BucketEdges, Gate, RequestId, Time,
    by_id::ById,
    decide::standing::Standing,
    pattern::Pattern,
    queue::{
        Head, Lane, LaneKey, Paused, Promised, Rank, Waiting,
        ages::{Age, Ages},
    },
    spread::{NumberMap, Spread},
};

/// Empty lanes kept, at most: a busy pool has some tens of patterns.
const SPARE_LANES: usize = 64;
/// Findings about heads kept for their memory, at most.
const SPARE_STANDINGS: usize = 64;

/// All lanes of a pool.
#[derive(Debug, Default)]
pub struct Board {
    entries: ById<Waiting>,
    lanes: NumberMap<LaneKey, Lane>,
    late: BTreeMap<LaneKey, Lane>,
    /// What waits by band, in the order of arrival; a band that had something once stays.
    bands: BTreeMap<Band, Ages>,
    /// Lanes that hold nothing, kept for their memory.
    spare: Vec<Lane>,
    /// Findings about heads that are none any more, kept for their memory.
    #[expect(clippy::vec_box, reason = "the boxes go from request to request as they are")]
    spare_standings: Vec<Box<Standing>>,
    /// When the wait is over of those whose client has bounded it.
    expiries: PriorityQueue<RequestId, Reverse<(Time, RequestId)>, BuildHasherDefault<Spread>>,
    bytes: u64,
    /// Lanes whose heads are not to be given out.
    paused: Paused,
    /// What is promised to what is in them.
    held: Promised,
}

impl Board {
    /// Puts a request into its lane, or behind all lanes when it is late.
    pub fn insert(&mut self, mut waiting: Waiting) {
        let id = waiting.request.id;
        let age = (waiting.request.arrived, id);
        self.bytes += u64::from(waiting.request.body_bytes);
        self.expiries.extend(waiting.request.expiry().map(|expiry| (id, Reverse((expiry, id)))));
        self.bands.entry(waiting.pattern.band).or_default().insert(age);
        let (key, rank) = (waiting.key(), waiting.rank());
        waiting.held = self.paused.covers(key);
        if waiting.held {
            self.held.enter(&waiting.request);
        }
        let lane = if waiting.late {
            self.late.entry(key).or_default()
        } else {
            let spare = || self.spare.pop().unwrap_or_default();
            self.lanes.entry(key).or_insert_with(spare)
        };
        lane.insert(rank);
        if waiting.standing.is_some() && lane.head() != Some(rank) {
            self.recycle(&mut waiting);
        }
        self.entries.insert(id, waiting);
    }

    /// Takes a request out, wherever it stands. Who is done with what was found of it gives that to [`Self::recycle`].
    pub fn remove(&mut self, id: RequestId) -> Option<Waiting> {
        let waiting = self.entries.remove(id)?;
        let age = (waiting.request.arrived, id);
        let band = waiting.pattern.band;
        self.bytes = self.bytes.saturating_sub(u64::from(waiting.request.body_bytes));
        if waiting.request.expiry().is_some() {
            self.expiries.remove(&id);
        }
        if let Some(ages) = self.bands.get_mut(&band) {
            ages.remove(&age);
        }
        if waiting.held {
            self.held.leave(&waiting.request);
        }
        let (key, rank) = (waiting.key(), waiting.rank());
        if waiting.late {
            if self.late.get_mut(&key).is_some_and(|lane| empties(lane, rank)) {
                self.late.remove(&key);
            }
        } else if self.lanes.get_mut(&key).is_some_and(|lane| empties(lane, rank)) {
            let empty = self.lanes.remove(&key).filter(|_| self.spare.len() < SPARE_LANES);
            self.spare.extend(empty);
        }
        Some(waiting)
    }

    /// Moves a request behind those that can still make it.
    pub fn demote(&mut self, id: RequestId) {
        if let Some(mut waiting) = self.remove(id) {
            waiting.late = true;
            self.recycle(&mut waiting);
            self.insert(waiting);
        }
    }

    /// A waiting request.
    pub fn get(&self, id: RequestId) -> Option<&Waiting> {
        self.entries.get(id)
    }

    /// A waiting request, to note something on it. Its lane and rank must not be changed.
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut Waiting> {
        self.entries.get_mut(id)
    }

    /// A waiting request with room for what is found of it, to note that there.
    #[inline]
    pub fn looked_at(&mut self, id: RequestId) -> Option<&mut Waiting> {
        let waiting = self.entries.get_mut(id)?;
        waiting.standing.get_or_insert_with(|| self.spare_standings.pop().unwrap_or_default());
        Some(waiting)
    }

    /// What stands of the last look at a waiting request, to note something there.
    #[inline]
    pub fn standing_of(&mut self, id: RequestId) -> Option<&mut Standing> {
        self.looked_at(id)?.standing.as_deref_mut()
    }

    /// Room for what is found of a newcomer.
    pub fn blank(&mut self) -> Box<Standing> {
        self.spare_standings.pop().unwrap_or_default()
    }

    /// Takes back what was found of a request, for its memory.
    pub fn recycle(&mut self, waiting: &mut Waiting) {
        let spare = waiting.standing.take();
        if let Some(mut standing) = spare.filter(|_| self.spare_standings.len() < SPARE_STANDINGS) {
            standing.clear();
            self.spare_standings.push(standing);
        }
    }

    /// Moves a request to another band, at the rank it has.
    pub fn move_to(&mut self, id: RequestId, band: Band) {
        if let Some(mut waiting) = self.remove(id) {
            waiting.request.band = band;
            waiting.pattern.band = band;
            self.recycle(&mut waiting);
            self.insert(waiting);
        }
    }

    /// The heads of all lanes that are not paused, the highest band first, then the earliest due.
    pub fn heads(&self) -> Vec<Head> {
        let mut heads = Vec::new();
        self.heads_into(&mut heads);
        heads
    }

    /// The same into a buffer, in the place of what it held.
    pub fn heads_into(&self, heads: &mut Vec<Head>) {
        ordered(self.lanes.iter().filter(|(key, _)| !self.paused.covers(**key)), heads);
    }

    /// The late requests that go first: the highest band's earliest arrival, and those that have a
    /// lane to themselves.
    pub fn late_heads(&self) -> Vec<Head> {
        let mut heads = Vec::new();
        self.late_heads_into(&mut heads);
        heads
    }

    /// The same into a buffer, in the place of what it held.
    pub fn late_heads_into(&self, heads: &mut Vec<Head>) {
        ordered(self.late.iter().filter(|(key, _)| !self.paused.covers(**key)), heads);
    }

    /// Every lane with its pattern, in no order.
    pub fn lanes(&self) -> impl Iterator<Item = (&Pattern, &Lane)> {
        self.lanes.iter().filter_map(|(key, lane)| match key {
            LaneKey::Open { pattern, .. } => Some((pattern, lane)),
            LaneKey::Late { .. } => None,
        })
    }

    /// Every lane that holds something, late ones too, in no order.
    pub fn keys(&self) -> impl Iterator<Item = LaneKey> {
        self.lanes.keys().chain(self.late.keys()).copied()
    }

    /// A lane, if it holds anything.
    pub fn lane(&self, key: LaneKey) -> Option<&Lane> {
        match key {
            LaneKey::Open { .. } => self.lanes.get(&key),
            LaneKey::Late { .. } => self.late.get(&key),
        }
    }

    /// What is held back.
    pub const fn paused(&self) -> &Paused {
        &self.paused
    }

    /// What is promised to what is held back: it keeps nothing from anybody.
    pub const fn held(&self) -> &Promised {
        &self.held
    }

    /// Shuts a gate.
    pub fn pause(&mut self, gate: Gate) {
        self.paused.pause(gate);
        self.count_held();
    }

    /// Opens a gate; that of the pool opens all.
    pub fn resume(&mut self, gate: Gate) {
        self.paused.resume(gate);
        self.count_held();
    }

    /// Goes by other buckets; what waits goes by its own until it is put into its lane anew.
    pub fn rename_paused(&mut self, before: &BucketEdges, after: &BucketEdges) {
        self.paused.rename(before, after);
    }

    fn count_held(&mut self) {
        self.held = Promised::default();
        for waiting in self.entries.values_mut() {
            waiting.held = self.paused.covers(waiting.key());
            if waiting.held {
                self.held.enter(&waiting.request);
            }
        }
    }

    /// How many of a band wait to be given out, and since when the oldest: without what is paused.
    pub fn backlog_of(&self, band: Band) -> (usize, Option<Time>) {
        if !self.paused.has_lanes() && !self.paused.covers_band(band) {
            return (self.len_of(band), self.oldest_of(band));
        }
        // Heads stand for their lanes: what arrived first in a lane is mostly due first.
        let open = self.keys().filter(|key| key.band() == band && !self.paused.covers(*key));
        let lanes = open.filter_map(|key| self.lane(key));
        lanes.fold((0, None), |(count, oldest), lane| {
            let head = lane.head().and_then(|head| self.get(head.id()));
            let arrived = head.map(|waiting| waiting.request.arrived);
            (count + lane.len(), oldest.into_iter().chain(arrived).min())
        })
    }

    /// Everything that waits, or all of a band, in the order of arrival from behind `after`.
    pub fn behind(
        &self,
        band: Option<Band>,
        after: Option<(Time, RequestId)>,
    ) -> impl Iterator<Item = &Waiting> {
        let bands = self.bands.iter().filter(move |(one, _)| band.is_none_or(|band| band == **one));
        let ages = merged(bands.map(move |(_, ages)| ages.behind(after)));
        ages.filter_map(|(_, id)| self.entries.get(id))
    }

    /// Those behind a request in its lane, the next one first.
    pub fn followers(&self, waiting: &Waiting) -> impl Iterator<Item = &Waiting> {
        let rank = waiting.rank();
        let lane = self.lane(waiting.key()).into_iter();
        lane.flat_map(move |lane| lane.behind(rank)).filter_map(|rank| self.entries.get(rank.id()))
    }

    /// Late requests.
    pub fn late_len(&self) -> usize {
        self.late.values().map(Lane::len).sum()
    }

    /// Sheddable requests, the one that is least worth keeping first: the last of the lowest band.
    pub fn expendable(&self) -> impl Iterator<Item = &Waiting> {
        let bands = self.bands.iter().take_while(|(band, _)| band.sheddable());
        let ids = bands.flat_map(|(_, ages)| ages.from_last()).map(|(_, id)| id);
        ids.filter_map(|id| self.entries.get(id))
    }

    /// Arrival and name of the request that has waited longest.
    pub fn oldest(&self) -> Option<(Time, RequestId)> {
        self.bands.values().filter_map(Ages::first).min()
    }

    /// Arrival and name of the late request that has waited longest.
    pub fn oldest_late(&self) -> Option<(Time, RequestId)> {
        let first = |id: RequestId| Some((self.entries.get(id)?.request.arrived, id));
        self.late.values().filter_map(|lane| first(lane.head()?.id())).min()
    }

    /// The request whose client's bound on the wait ends first, and when.
    pub fn first_expiry(&self) -> Option<(Time, RequestId)> {
        self.expiries.peek().map(|(_, Reverse(first))| *first)
    }

    /// Arrival of the request of a band that has waited longest.
    pub fn oldest_of(&self, band: Band) -> Option<Time> {
        self.bands.get(&band)?.first().map(|(arrived, _)| arrived)
    }

    /// Requests of a band.
    pub fn len_of(&self, band: Band) -> usize {
        self.bands.get(&band).map_or(0, Ages::len)
    }

    /// Bands with something waiting, lowest first, and how many.
    pub fn bands(&self) -> impl Iterator<Item = (Band, usize)> {
        let bands = self.bands.iter().filter(|(_, ages)| !ages.is_empty());
        bands.map(|(band, ages)| (*band, ages.len()))
    }

    /// Every waiting request, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.entries.values()
    }

    /// Every waiting request, oldest first.
    pub fn ids(&self) -> Vec<RequestId> {
        merged(self.bands.values().map(|ages| ages.behind(None))).map(|(_, id)| id).collect()
    }

    /// Requests waiting.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Body bytes of what waits.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks that every view of the board agrees with the entries; for tests.
    #[cfg(test)]
    pub fn check(&self) {
        let in_lanes: usize = self.lanes.values().map(Lane::len).sum();
        assert_eq!(in_lanes + self.late_len(), self.entries.len());
        let known = self.entries.values().map(|waiting| &waiting.request);
        let mut ages: Vec<Age> = known.map(|request| (request.arrived, request.id)).collect();
        ages.sort_unstable();
        assert!(self.ids().iter().eq(ages.iter().map(|(_, id)| id)));
        assert_eq!(self.oldest(), ages.first().copied());
        let bounded = self.entries.values().filter(|waiting| waiting.request.expiry().is_some());
        assert_eq!(self.expiries.len(), bounded.count());
        let bytes: u64 = self.entries.values().map(|w| u64::from(w.request.body_bytes)).sum();
        assert_eq!(bytes, self.bytes);
        assert!(self.lanes.values().all(|lane| !lane.is_empty()));
    }
}

/// The requests of several bands in the order of arrival.
fn merged<I: Iterator<Item = Age>>(bands: impl Iterator<Item = I>) -> impl Iterator<Item = Age> {
    let mut bands: Vec<_> = bands.map(|mut ages| (ages.next(), ages)).collect();
    std::iter::from_fn(move || {
        let ahead = bands.iter_mut().filter(|(first, _)| first.is_some());
        let (first, rest) = ahead.min_by_key(|(first, _)| *first)?;
        std::mem::replace(first, rest.next())
    })
}

/// The heads of lanes, the highest band first, then the first by rank.
fn ordered<'a>(lanes: impl Iterator<Item = (&'a LaneKey, &'a Lane)>, heads: &mut Vec<Head>) {
    let head = |(key, lane): (&LaneKey, &Lane)| lane.head().map(|rank| (key.band(), rank));
    heads.clear();
    heads.extend(lanes.filter_map(head));
    heads.sort_unstable_by_key(|head| Reverse(*head));
}

/// Takes a request of this rank out of a lane; whether that was all it held.
fn empties(lane: &mut Lane, rank: Rank) -> bool {
    lane.remove(rank);
    lane.is_empty()
}

#[cfg(test)]
mod tests;
