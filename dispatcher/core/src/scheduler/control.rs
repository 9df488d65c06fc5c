//! What an operator does: cancel, move, pause, resume.

use crate::{
    Action, Band, Control, Gate, RefusalReason, RequestId, Time,
    decisions::{Decision, Verdict},
    queue::Paused,
    scheduler::Scheduler,
};

impl Scheduler {
    /// Does what an operator wants. What is not there is not an error: it ended meanwhile.
    pub(super) fn control(&mut self, now: Time, control: Control, actions: &mut Vec<Action>) {
        match control {
            Control::Cancel(ids) => {
                for id in ids {
                    self.refuse_waiting(now, id, RefusalReason::Cancelled, actions);
                }
            }
            Control::Move(id, band) => self.move_to(now, id, band),
            Control::Pause(gate) => {
                self.board.pause(gate);
                self.note_gates(now);
                self.part_picky();
            }
            Control::Resume(gate) => {
                self.board.resume(gate);
                self.note_gates(now);
                self.part_picky();
            }
        }
    }

    /// What an operator holds back.
    pub const fn paused(&self) -> &Paused {
        self.board.paused()
    }

    /// What a gate is called: `pool`, `b0`, or the name of a lane.
    pub fn gate_name(&self, gate: Gate) -> String {
        match gate {
            Gate::Pool => "pool".to_owned(),
            Gate::Band(band) => format!("b{}", band.0),
            Gate::Lane(key) => self.name_of(key),
        }
    }

    fn move_to(&mut self, now: Time, id: RequestId, band: Band) {
        let Some(waiting) = self.board.get(id) else { return };
        let before = waiting.pattern.band;
        if before == band {
            return;
        }
        self.alive.leave(&waiting.request);
        self.board.move_to(id, band);
        if let Some(waiting) = self.board.get(id) {
            self.alive.enter(&waiting.request);
            self.decisions.push(Decision::of(now, &waiting.request, Verdict::Move));
        }
        self.note_backlog(now, before);
        self.note_backlog(now, band);
    }

    /// The gates have changed: rates of dispatch count only over what may go.
    fn note_gates(&mut self, now: Time) {
        let bands: Vec<Band> = self.board.bands().map(|(band, _)| band).collect();
        bands.into_iter().for_each(|band| self.note_backlog(now, band));
    }
}
