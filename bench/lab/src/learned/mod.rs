//! The trainer and the bundles of the dispatcher, in virtual time.
//!
//! A study that predicts with a chosen error says nothing about the model that serves. Here it is the model itself: samples go
//! to a spool in a folder of its own, [`weir_train::Trainer`] looks at it at every interval of virtual time, and what it
//! publishes is verified and handed to the [`weir_predict::Chain`] that predicts, with the chain's own judgement of when a bundle is
//! trusted, passed over or rolled back. Nothing depends on real time: the same requests give the same bundles.
//!
//! A predictor is never told the time, so [`Clocked`] stands before the dispatcher and notes it for [`Trained`].
//!
//! # Layout
//! - `clock`: virtual time for those who are not told of it; `trained`: the trainer in the loop; `recorded`: a bundle as it is

mod clock;
mod recorded;
#[cfg(test)]
mod tests;
mod trained;

pub use clock::{Clock, Clocked};
pub use recorded::{recorded, recorded_by};
pub use trained::{Trained, Training};

use anyhow::Result;

use crate::{
    contender::Contender,
    sim::{Dispatcher, Pool},
};

/// A dispatcher of a contender whose predictions come from a model that is trained while virtual time passes.
///
/// # Errors
/// When a native library is missing or the spool cannot be made.
pub fn dispatcher(
    contender: &Contender,
    pool: &Pool,
    training: &Training,
    seed: u64,
) -> Result<Box<dyn Dispatcher>> {
    let clock = Clock::default();
    let predictor = Trained::new(training, clock.clone())?;
    let dispatcher = contender.build(pool, Box::new(predictor), seed);
    Ok(Box::new(Clocked::new(dispatcher, clock)))
}
