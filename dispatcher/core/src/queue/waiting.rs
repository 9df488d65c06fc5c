//! A request that waits, and what is known of it.

use crate::{
    AdapterId, PodId, Reason, Request, RequestId, Time,
    decide::standing::Standing,
    pattern::Pattern,
    prefix::Match,
    queue::{LaneKey, Rank},
};

/// A request that waits.
#[derive(Debug)]
pub struct Waiting {
    /// The facts it came with.
    pub request: Box<Request>,
    /// Input tokens, over all its sequences.
    pub input_tokens: u32,
    /// Output tokens predicted for each sequence, once, on arrival.
    pub output_tokens: u32,
    /// Deliveries that failed.
    pub failed: Option<Box<Failed>>,
    /// Largest share of the prompt that a pod had cached when that was last looked up.
    pub share: f64,
    /// Its lane.
    pub pattern: Pattern,
    /// Which pods do not take it, as far as was known when it was put on the board; 0: every pod takes it.
    pub picky: u8,
    /// The adapter that it asks for, where pods run only so many of them.
    pub adapter: Option<AdapterId>,
    /// When it is due: its place in the lane.
    pub due: Time,
    /// After so many milliseconds it is as urgent as it gets: see [`Waiting::urgency`].
    pub spare_ms: f32,
    /// Whether it was moved behind those that can still make it.
    pub late: bool,
    /// Whether it is in a lane that an operator holds, as the board knows it.
    pub(crate) held: bool,
    /// What was found when it was looked at as a head; see [`Board::standing_of`](super::Board::standing_of). One that is not the head of its lane
    /// mostly has none, so that a request in a long queue is a few words.
    pub standing: Option<Box<Standing>>,
}

/// Deliveries of a request that failed.
#[derive(Clone, Debug, Default)]
pub struct Failed {
    /// How many.
    pub attempts: u32,
    /// When the last one did.
    pub at: Time,
    /// Pods it could not be delivered to, without those that have recovered or answered since.
    pub pods: Vec<PodId>,
}

impl Waiting {
    /// One that nobody has looked at.
    pub fn new(
        request: Box<Request>,
        (input_tokens, output_tokens): (u32, u32),
        pattern: Pattern,
        due: Time,
    ) -> Self {
        let spare_ms = request.may_wait().as_secs_f32() * 1e3;
        Self {
            request,
            input_tokens,
            output_tokens,
            failed: None,
            share: 0.0,
            pattern,
            picky: 0,
            adapter: None,
            due,
            spare_ms,
            late: false,
            held: false,
            standing: None,
        }
    }

    /// How urgent it is: the share of its spare time that it has waited, at most 1. One that is late has nothing to gain any more.
    pub fn urgency(&self, now: Time) -> f64 {
        let waited_ms = now.ms_since(self.request.arrived);
        if self.late { 0.0 } else { (waited_ms / f64::from(self.spare_ms)).min(1.0) }
    }

    /// Its lane. What is held back by one policy must not keep a request of the other from going, nor what not every pod takes
    /// what any does.
    pub fn key(&self) -> LaneKey {
        let Self { pattern, picky, adapter, .. } = *self;
        let alone = self.alone();
        if self.late {
            return LaneKey::Late { band: pattern.band, picky, adapter, alone };
        }
        LaneKey::Open { pattern, by_header: self.request.by_header, picky, adapter, alone }
    }

    /// Its place in its lane. Late requests go by arrival: their deadlines say nothing any more.
    pub fn rank(&self) -> Rank {
        Rank::new(if self.late { self.request.arrived } else { self.due }, self.request.id)
    }

    /// Its name, once a delivery has failed: then nobody shares its lane.
    fn alone(&self) -> Option<RequestId> {
        self.failed.is_some().then_some(self.request.id)
    }

    /// Deliveries tried.
    #[inline]
    pub fn attempts(&self) -> u32 {
        self.failed.as_ref().map_or(0, |failed| failed.attempts)
    }

    /// Pods it could not be delivered to.
    #[inline]
    pub fn excluded(&self) -> &[PodId] {
        self.failed.as_ref().map_or(&[], |failed| &failed.pods)
    }

    /// Why it was not dispatched in the last pass that looked at it.
    #[inline]
    pub fn reason(&self) -> Reason {
        let noted = self.standing.as_ref().and_then(|standing| standing.reason);
        noted.unwrap_or(if self.late { Reason::Late } else { Reason::NotConsidered })
    }

    /// The pod it claims while it is a blocked head.
    #[inline]
    pub fn claim(&self) -> Option<PodId> {
        self.standing.as_ref()?.claim
    }

    /// The pods that have some of it cached, in their order, as of the last look-up.
    #[inline]
    pub fn matches(&self) -> &[Match] {
        self.standing.as_ref().map_or(&[], |standing| &standing.matches)
    }
}
