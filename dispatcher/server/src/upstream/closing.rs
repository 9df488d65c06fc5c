//! Whether what runs is to end now, because the process does.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Says to every request with a pod that its time is over; clones share it.
///
/// It wakes nobody, so that a request pays for it with one load of a byte: whoever says it sees to it that every
/// connection is looked at once more.
#[derive(Clone, Debug, Default)]
pub struct Closing(Arc<AtomicBool>);

impl Closing {
    /// What runs is to end, each with an error.
    pub fn say(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was said.
    pub fn is_said(&self) -> bool {
        self.0.load(Relaxed)
    }
}
