//! The mailbox between the thread that loads bundles and the chain that serves them.
//!
//! The loader holds one clone and publishes; the chain holds another and looks at an atomic counter
//! before each batch, so that a batch without a swap takes no lock. A session that no longer serves
//! comes back through the slot and is freed by the loader: freeing one costs as much as a batch.
//!
//! A slot serves one chain. Only the newest offer is kept; one that was never taken is dropped by the
//! publisher. At most [`RETIRED_CAP`] retired bundles wait for the loader; past that the oldest is
//! dropped by the chain itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Bundle;

/// Retired bundles kept for a loader that does not come. Each holds a session of 4 to 10 MB.
pub const RETIRED_CAP: usize = 4;

/// What the loader has to say to the chain.
#[derive(Debug)]
pub enum Offer {
    /// Serve this bundle from the next batch on.
    Bundle(Box<Bundle>),
    /// Serve this bundle from the next batch on because an operator says so: it is taken even if it was
    /// rolled back before, and is not rolled back for doing worse than another one.
    Pin(Box<Bundle>),
    /// Serve no bundle.
    Withdraw {
        /// Why, for [`weir_schema::Status::fallback_reason`].
        reason: String,
    },
}

/// A handle to the mailbox; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Raised with every offer, inside the lock; read without it.
    generation: AtomicU64,
    mail: Mutex<Mail>,
}

#[derive(Debug, Default)]
struct Mail {
    offer: Option<Offer>,
    retired: Vec<Bundle>,
}

impl Slot {
    /// An empty mailbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the waiting offer. The chain takes it before its next batch.
    pub fn publish(&self, offer: Offer) {
        let replaced = {
            let mut mail = self.shared.mail.lock();
            let replaced = mail.offer.replace(offer);
            self.shared.generation.fetch_add(1, Ordering::Release);
            replaced
        };
        drop(replaced);
        self.retire();
    }

    /// Frees the bundles that no longer serve, and says how many there were. Call it from the loader
    /// thread from time to time, at least after each publication was taken.
    pub fn retire(&self) -> usize {
        let retired = std::mem::take(&mut self.shared.mail.lock().retired);
        retired.len()
    }

    /// The newest offer if there is one that was not seen at generation `seen`, which is moved on.
    ///
    /// Never waits: while the loader holds the lock the offer is left for the next batch.
    pub(crate) fn take(&self, seen: &mut u64) -> Option<Offer> {
        if self.shared.generation.load(Ordering::Acquire) == *seen {
            return None;
        }
        let mut mail = self.shared.mail.try_lock()?;
        *seen = self.shared.generation.load(Ordering::Acquire);
        mail.offer.take()
    }

    /// Gives a bundle back for the loader to free.
    pub(crate) fn hand_back(&self, bundle: Bundle) {
        let mut mail = self.shared.mail.lock();
        let surplus = (mail.retired.len() >= RETIRED_CAP).then(|| mail.retired.remove(0));
        mail.retired.push(bundle);
        drop(mail);
        drop(surplus);
    }
}
