//! Which LoRA adapters an engine may run beside each other.
//!
//! An engine runs `max_loras` of them at once, and lets a prompt for another one wait in its queue until one of them has nothing running
//! any more. What waits there waits for something that nobody there works towards: whoever comes for an adapter that runs goes on ahead of it.
//! So a request for an adapter goes only to a pod that runs it or has a slot for it, and where there is none, one adapter gives way to it on
//! some pod: nothing more goes there for that one, and its slot is kept for the other until what runs there has ended.

use smallvec::SmallVec;

use crate::{AdapterId, fleet::PodState};

/// Who may take a slot of a pod.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Adapters that may take one that is free.
    granted: SmallVec<[AdapterId; 4]>,
    turns: SmallVec<[Turn; 2]>,
}

/// One adapter gives way to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Nothing more goes to the pod for this one.
    pub from: AdapterId,
    /// Its slot is kept for this one.
    pub to: AdapterId,
}

impl Slots {
    /// Whether nothing more goes there for an adapter.
    pub fn gives_way(&self, adapter: AdapterId) -> bool {
        self.turns.iter().any(|turn| turn.from == adapter)
    }

    /// Whether a slot is kept for an adapter.
    pub fn is_awaited(&self, adapter: AdapterId) -> bool {
        self.turns.iter().any(|turn| turn.to == adapter)
    }

    /// Adapters that may take a slot, or for which one is kept.
    pub fn admitted(&self) -> impl Iterator<Item = AdapterId> {
        let awaited = self.turns.iter().map(|turn| turn.to);
        self.granted.iter().copied().chain(awaited)
    }

    /// An adapter may take a slot that is free.
    pub fn grant(&mut self, adapter: AdapterId) {
        self.granted.push(adapter);
    }

    /// One adapter gives way to another.
    pub fn turn(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// An adapter takes no slot any more, and nothing gives way to it.
    pub fn take_back(&mut self, adapter: AdapterId) {
        self.granted.retain(|one| *one != adapter);
        self.turns.retain(|turn| turn.to != adapter);
    }
}

impl PodState {
    /// Most adapters that it runs at once; `None` where nothing bounds them.
    pub fn max_loras(&self) -> Option<usize> {
        let known = self.told_max_loras.unwrap_or(self.class.max_loras);
        usize::try_from(known).ok().filter(|most| *most > 0)
    }

    /// Whether something of an adapter runs there, or is on its way.
    pub fn runs(&self, adapter: AdapterId) -> bool {
        self.ledger.adapters().iter().any(|one| one.adapter == adapter)
    }

    /// Whether requests for an adapter go there because it runs there.
    pub fn is_home(&self, adapter: AdapterId) -> bool {
        self.runs(adapter) && !self.slots.gives_way(adapter)
    }

    /// Slots that nothing runs in and that are not kept for anybody else than an adapter.
    pub fn free_slots(&self, adapter: AdapterId) -> usize {
        self.slots_but_for(|turn| turn.to != adapter)
    }

    /// Slots that nothing runs in and that are kept for nobody.
    pub fn spare_slots(&self) -> usize {
        self.slots_but_for(|_| true)
    }

    /// Slots that nothing runs in, but for those that such turns keep. What still runs in one of these is counted already.
    fn slots_but_for(&self, of_turns: impl Fn(&Turn) -> bool) -> usize {
        let Some(most) = self.max_loras() else { return usize::MAX };
        let is_kept = |turn: &&Turn| of_turns(turn) && !self.runs(turn.from);
        let kept = self.slots.turns.iter().filter(is_kept).count();
        most.saturating_sub(self.ledger.adapters().len() + kept)
    }

    /// Whether a request for an adapter may go there: it runs and does not give way, or may take a slot that is free.
    pub fn has_slot(&self, adapter: AdapterId) -> bool {
        if self.max_loras().is_none() {
            return true;
        }
        if self.runs(adapter) {
            return self.is_home(adapter);
        }
        let mut admitted = self.slots.admitted();
        admitted.any(|one| one == adapter) && self.free_slots(adapter) > 0
    }

    /// Whether an adapter may give way to another there.
    pub fn can_turn(&self, turn: Turn) -> bool {
        let slots = &self.slots;
        let is_free = |adapter| !slots.gives_way(adapter) && !slots.is_awaited(adapter);
        self.runs(turn.from) && !self.runs(turn.to) && is_free(turn.from) && is_free(turn.to)
    }
}
