//! What is shown and what is picked: the board's state, without terminal and network.
//!
//! What is picked is kept by name and not by place: rows move as the pool does, and an order must be
//! about the row that was looked at.

use super::{
    change::Change,
    feed::{Board, Detail, Focus, News},
};
use crate::cli::answers::{Decision, Lane, Pod, Waiting};

/// A part of the board that has rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    /// Lanes.
    #[default]
    Lanes,
    /// Pods.
    Pods,
    /// Decisions.
    Decisions,
}

impl Pane {
    /// The next one.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Lanes => Self::Pods,
            Self::Pods => Self::Decisions,
            Self::Decisions => Self::Lanes,
        }
    }
}

/// Something that was said about a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) words: String,
    pub(super) is_error: bool,
}

/// What is shown and what is picked.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// The admin side's address.
    pub(super) address: String,
    /// The last board that came.
    pub(super) board: Board,
    /// Why the last look failed; what is shown is old then.
    pub(super) lost: Option<String>,
    /// What is looked at, the closest last; empty is the board.
    pub(super) views: Vec<Focus>,
    /// What the closest look found.
    pub(super) detail: Option<Detail>,
    /// Where the keys go on the board.
    pub(super) pane: Pane,
    /// Names of the picked rows.
    pub(super) picked: Picked,
    /// First line shown of a text.
    pub(super) scroll: u16,
    /// A change that waits for yes or no.
    pub(super) asking: Option<Change>,
    /// What came of the last change.
    pub(super) said: Option<Said>,
}

/// Names of the picked rows. One that is gone is replaced by the row in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Picked {
    lane: Pick<(String, String)>,
    pod: Pick<(String, String)>,
    decision: Pick<(u64, String)>,
    request: Pick<u64>,
}

/// One picked row: its name, and where it was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pick<N> {
    name: Option<N>,
    place: usize,
}

impl<N: PartialEq> Pick<N> {
    /// Finds it among the rows there are now.
    fn settle(&mut self, names: impl ExactSizeIterator<Item = N>) {
        let mut names: Vec<N> = names.collect();
        let found = names.iter().position(|name| Some(name) == self.name.as_ref());
        self.place = found.unwrap_or(self.place).min(names.len().saturating_sub(1));
        self.name = (self.place < names.len()).then(|| names.swap_remove(self.place));
    }

    /// Goes to another row.
    fn go(&mut self, by: isize, names: impl ExactSizeIterator<Item = N>) {
        self.place = self.place.saturating_add_signed(by);
        self.name = None;
        self.settle(names);
    }
}

fn lane_name(lane: &Lane) -> (String, String) {
    (lane.pool.clone(), lane.lane.clone())
}

fn pod_name(pod: &Pod) -> (String, String) {
    (pod.pool.clone(), pod.pod.clone())
}

fn decision_name(decision: &Decision) -> (u64, String) {
    (decision.id, decision.kind.clone())
}

impl Seat {
    pub(super) fn new(address: String) -> Self {
        Self { address, ..Self::default() }
    }

    /// Takes in what the feed says.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Board(board) => {
                self.board = *board;
                self.lost = None;
                self.go(0);
            }
            News::Detail(focus, detail) if self.views.last() == Some(&focus) => {
                self.detail = Some(detail);
                self.go(0);
            }
            // Of a view that was left.
            News::Detail(..) => {}
            News::Lost(why) => self.lost = Some(why),
            News::Done(words) => self.said = Some(Said { words, is_error: false }),
            News::NotDone(words) => self.said = Some(Said { words, is_error: true }),
        }
    }

    /// Says that an order was not taken.
    pub(super) fn say_busy(&mut self) {
        let words = "still waiting for the last answer; try again".to_owned();
        self.said = Some(Said { words, is_error: true });
    }

    /// Waiting requests of the lane that is looked at.
    pub(super) fn requests(&self) -> &[Waiting] {
        match &self.detail {
            Some(Detail::Lane(page)) => &page.requests,
            _ => &[],
        }
    }

    /// Moves the pick of every pane by none, and that of the focused one by `by`.
    pub(super) fn go(&mut self, by: isize) {
        let board = &self.board;
        let on_board = self.views.is_empty();
        let by_of = |pane: Pane| if on_board && self.pane == pane { by } else { 0 };
        let (lanes, pods, decisions) =
            (by_of(Pane::Lanes), by_of(Pane::Pods), by_of(Pane::Decisions));
        step(&mut self.picked.lane, lanes, board.queues.iter().map(lane_name));
        step(&mut self.picked.pod, pods, board.pods.iter().map(pod_name));
        step(&mut self.picked.decision, decisions, board.decisions.iter().map(decision_name));
        let in_lane = matches!(self.views.last(), Some(Focus::Lane { .. }));
        let requests = match &self.detail {
            Some(Detail::Lane(page)) => page.requests.as_slice(),
            _ => &[],
        };
        let names = requests.iter().map(|request| request.id);
        step(&mut self.picked.request, if in_lane { by } else { 0 }, names);
        if !on_board && !in_lane {
            let by = i16::try_from(by).unwrap_or(if by < 0 { i16::MIN } else { i16::MAX });
            self.scroll = self.scroll.saturating_add_signed(by);
        }
    }

    /// Looks closer.
    pub(super) fn enter(&mut self, focus: Focus) {
        self.views.push(focus);
        self.forget_detail();
    }

    /// Looks from further away; says what is looked at then.
    pub(super) fn leave(&mut self) -> Focus {
        self.views.pop();
        self.forget_detail();
        self.views.last().cloned().unwrap_or_default()
    }

    fn forget_detail(&mut self) {
        self.detail = None;
        self.scroll = 0;
    }

    /// The picked lane.
    pub(super) fn lane(&self) -> Option<&Lane> {
        self.board.queues.get(self.picked.lane.place)
    }

    /// The picked pod.
    pub(super) fn pod(&self) -> Option<&Pod> {
        self.board.pods.get(self.picked.pod.place)
    }

    /// The picked decision.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.board.decisions.get(self.picked.decision.place)
    }

    /// The picked request of the lane that is looked at.
    pub(super) fn request(&self) -> Option<&Waiting> {
        self.requests().get(self.picked.request.place)
    }

    /// Where the picked rows are: lane, pod, decision, request.
    pub(super) const fn places(&self) -> [usize; 4] {
        let Picked { lane, pod, decision, request } = &self.picked;
        [lane.place, pod.place, decision.place, request.place]
    }
}

fn step<N: PartialEq>(pick: &mut Pick<N>, by: isize, names: impl ExactSizeIterator<Item = N>) {
    if by == 0 {
        pick.settle(names);
    } else {
        pick.go(by, names);
    }
}
