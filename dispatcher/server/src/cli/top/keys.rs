//! What a key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    change::{Change, Deed},
    feed::{Ask, Detail, Focus},
    seat::{Pane, Seat},
};
use crate::cli::answers::{Lane, Waiting};

/// Rows of a page.
const PAGE: isize = 10;
/// More rows than there are.
const ALL: isize = 1 << 20;

/// What a key asks for beyond the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Nothing.
    Nothing,
    /// Leave.
    Quit,
    /// Something of the feed.
    Ask(Ask),
}

impl Seat {
    /// Takes in a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Order {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if with_control && matches!(key.code, KeyCode::Char('c')) {
            return Order::Quit;
        }
        if let Some(change) = self.asking.take() {
            return match key.code {
                KeyCode::Char('y' | 'Y') => Order::Ask(Ask::Do(change)),
                _ => Order::Nothing,
            };
        }
        self.said = None;
        match key.code {
            KeyCode::Char('q') => return Order::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-PAGE),
            KeyCode::PageDown => self.go(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.go(-ALL),
            KeyCode::End | KeyCode::Char('G') => self.go(ALL),
            KeyCode::Tab if self.views.is_empty() => self.pane = self.pane.next(),
            KeyCode::BackTab if self.views.is_empty() => self.pane = self.pane.next().next(),
            KeyCode::Enter | KeyCode::Right => return self.look_closer(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace if !self.views.is_empty() => {
                return Order::Ask(Ask::Look(self.leave()));
            }
            KeyCode::Char('p') => self.asking = self.pause_or_resume(),
            KeyCode::Char('d') => self.asking = self.drain_or_uncordon(),
            KeyCode::Char('c') => self.asking = self.cancel(),
            _ => {}
        }
        Order::Nothing
    }

    fn look_closer(&mut self) -> Order {
        let focus = match (self.views.last(), self.pane) {
            (None, Pane::Lanes) => self
                .lane()
                .map(|lane| Focus::Lane { pool: lane.pool.clone(), lane: lane.lane.clone() }),
            (None, Pane::Pods) => {
                self.pod().map(|pod| Focus::Pod { pool: pod.pool.clone(), pod: pod.pod.clone() })
            }
            (None, Pane::Decisions) => self.decision().map(|decision| Focus::Request {
                pool: decision.pool.clone(),
                request: decision.called(),
            }),
            (Some(Focus::Lane { pool, .. }), _) => self
                .request()
                .map(|request| Focus::Request { pool: pool.clone(), request: request.called() }),
            _ => None,
        };
        let Some(focus) = focus else { return Order::Nothing };
        self.enter(focus.clone());
        Order::Ask(Ask::Look(focus))
    }

    /// The lane that is looked at, or the picked one.
    fn lane_at_hand(&self) -> Option<&Lane> {
        match self.views.last() {
            None => self.lane().filter(|_| self.pane == Pane::Lanes),
            Some(Focus::Lane { pool, lane }) => {
                let mut lanes = self.board.queues.iter();
                lanes.find(|known| known.pool == *pool && known.lane == *lane)
            }
            Some(_) => None,
        }
    }

    fn pause_or_resume(&self) -> Option<Change> {
        let lane = self.lane_at_hand()?;
        let name = lane.lane.clone();
        let deed = if lane.paused { Deed::Resume(name) } else { Deed::Pause(name) };
        Some(Change { pool: lane.pool.clone(), deed })
    }

    fn drain_or_uncordon(&self) -> Option<Change> {
        let pod = match (self.views.last(), &self.detail) {
            (None, _) if self.pane == Pane::Pods => self.pod()?,
            (Some(Focus::Pod { .. }), Some(Detail::Pod(pod))) => pod,
            _ => return None,
        };
        if pod.phase == "leaving" {
            return None;
        }
        let out = matches!(pod.phase.as_str(), "cordoned" | "draining" | "drained");
        let name = pod.pod.clone();
        let deed = if out { Deed::Uncordon(name) } else { Deed::Drain(name) };
        Some(Change { pool: pod.pool.clone(), deed })
    }

    fn cancel(&self) -> Option<Change> {
        let one = |pool: &str, request: &Waiting| Change {
            pool: pool.to_owned(),
            deed: Deed::Cancel(request.called()),
        };
        match (self.views.last(), &self.detail) {
            (None, _) => {
                let lane = self.lane_at_hand()?;
                let deed = Deed::CancelLane(lane.lane.clone(), lane.depth);
                Some(Change { pool: lane.pool.clone(), deed })
            }
            (Some(Focus::Lane { pool, .. }), _) => Some(one(pool, self.request()?)),
            (Some(Focus::Request { pool, .. }), Some(Detail::Request(request))) => {
                (request.state == "waiting").then(|| one(pool, &request.waiting))
            }
            _ => None,
        }
    }
}
