//! What an operator has pinned: by an order, and by the file `pinned`, which others write too.
//!
//! Owned by the loader. A pin that cannot be read or cannot serve holds everything as it is and is said once: whoever pinned a
//! version went away from what is published.

use weir_predict::Offer;
use weir_schema::manifest::{PINNED_FILE, bundle_name, pinned_version};

use super::{Attempt, Loader, NO_BUNDLE};
use crate::learn::{pointer, shelf::OrderError};

/// What the folder says is pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    /// A version, and the state of its files.
    Version(u64, Attempt),
    /// Something, if nobody knows what.
    Unreadable(String),
}

impl Loader {
    fn pin(&mut self, version: u64) -> Result<(), OrderError> {
        let dir = self.reload.bundles.join(bundle_name(version));
        if !dir.is_dir() {
            return Err(OrderError::NoBundle(version));
        }
        match self.load(&dir, Offer::Pin) {
            Ok(version) => {
                self.note_loaded(version, dir);
                *self.reload.counter.pinned.lock() = Some(version);
                Ok(())
            }
            Err(error) => {
                self.note_refused(&dir, &error);
                Err(OrderError::Refused { version, reason: error.to_string() })
            }
        }
    }

    pub(super) fn pin_on_order(&mut self, version: u64) -> Result<(), OrderError> {
        self.pin(version)?;
        match pointer::write_pin(&self.reload.bundles, Some(version)) {
            Ok(()) => {
                self.pinned = self.said(version);
                *self.reload.counter.pin_failing.lock() = None;
            }
            Err(error) => {
                tracing::warn!(version, %error, "the pin cannot be written; a restart forgets it")
            }
        }
        Ok(())
    }

    pub(super) fn unpin_on_order(&mut self) -> Result<(), OrderError> {
        pointer::write_pin(&self.reload.bundles, None)
            .map_err(|error| OrderError::PinStays(error.to_string()))?;
        self.pinned = Said::Nothing;
        self.unpin();
        self.look();
        Ok(())
    }

    fn unpin(&mut self) {
        *self.reload.counter.pinned.lock() = None;
        if self.reload.counter.pin_failing.lock().take().is_some() {
            self.reload.tally.say(None);
            if self.serving.is_none() {
                self.reload.withdraw_all(NO_BUNDLE);
            }
        }
        self.tried = None;
    }

    /// Follows what the folder says is pinned, where it says something else than before or is to be tried again.
    pub(super) fn follow_pin(&mut self, again: bool) {
        let said = match pinned_version(&self.reload.bundles) {
            Ok(Some(version)) => self.said(version),
            Ok(None) => Said::Nothing,
            Err(error) => Said::Unreadable(error.to_string()),
        };
        if said == self.pinned && (!again || said == Said::Nothing) {
            return;
        }
        self.pinned = said.clone();
        match said {
            Said::Version(version, _) => match self.pin(version) {
                Ok(()) => {
                    *self.reload.counter.pin_failing.lock() = None;
                    tracing::info!(version, "pinned");
                }
                Err(error) => self.hold(
                    "the pinned version cannot serve",
                    format!("v{version} is pinned and cannot be loaded: {error}"),
                ),
            },
            Said::Unreadable(error) => {
                self.hold("the pin cannot be read", format!("the pin cannot be read: {error}"));
            }
            Said::Nothing => self.unpin(),
        }
    }

    /// Keeps what is there until what is pinned can serve: whoever pinned a version went away from what is published. Where
    /// nothing serves yet the pools say so in short.
    fn hold(&self, short: &str, why: String) {
        tracing::warn!(why, "a pin fails; what serves stays and nothing newer is taken");
        if self.serving.is_none() {
            self.reload.withdraw_all(short);
        }
        self.reload.tally.say(Some(why.clone()));
        *self.reload.counter.pin_failing.lock() = Some(why);
    }

    /// That a version is pinned, with the state of its files.
    fn said(&self, version: u64) -> Said {
        let bundle = self.reload.bundles.join(bundle_name(version));
        Said::Version(version, Attempt::of(&self.reload.bundles, bundle, PINNED_FILE))
    }
}
