//! A naive model of the scheduler, and what it takes to hold it against the real one.
//!
//! # Layout
//! - [`model`]: a plain map of request to state, moved only by events sent and actions returned
//! - [`check`]: what must be true of model and scheduler after every step
//! - [`curious`]: an operator who looks at everything, which must change nothing
//! - [`watched`]: a scheduler with the model beside it
//! - [`steps`]: random interleavings as data, and how they become events
//! - [`moody`]: a predictor that fails when told to
//! - [`toy`]: pods that prefill and decode in steps, for the property on overload

pub mod check;
pub mod curious;
pub mod model;
pub mod moody;
pub mod steps;
pub mod toy;
pub mod watched;
