//! What an operator asks of a pod: to take no new request, or to be emptied.
//!
//! It goes before what the breaker says, is kept when the pod restarts, and forgotten when the pod leaves
//! the pool or this process ends.

use parking_lot::Mutex;
use weir_core::{Phase, Time};

/// What is asked of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ask {
    /// Nothing.
    #[default]
    Serve,
    /// To take no new request.
    Cordon,
    /// To take none and be emptied.
    Drain,
}

/// What is asked of one pod, and since when.
#[derive(Debug, Default)]
pub struct Cordon(Mutex<(Ask, Time)>);

impl Cordon {
    /// Asks something else. Says whether that is a change; asking the same again is none.
    pub fn ask(&self, what: Ask, now: Time) -> bool {
        let mut asked = self.0.lock();
        let changes = asked.0 != what;
        if changes {
            *asked = (what, now);
        }
        changes
    }

    /// What is asked, and since when.
    pub fn asked(&self) -> (Ask, Time) {
        *self.0.lock()
    }

    /// The phase of a pod whose breaker says `own`.
    pub fn over(&self, own: Phase) -> Phase {
        match self.asked().0 {
            Ask::Serve => own,
            Ask::Cordon => Phase::Cordoned,
            Ask::Drain => Phase::Draining,
        }
    }
}
