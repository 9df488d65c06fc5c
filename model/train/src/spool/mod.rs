//! Reading the spool: what is new since the last look, and what of it can be believed.
//!
//! # Layout
//! - [`reader`]: segments, offsets, torn and endless lines
//! - [`admit`]: one line, checked
//! - [`skipped`]: what was left out, counted by reason

mod admit;
mod reader;
mod skipped;
#[cfg(test)]
mod tests;

pub(crate) use admit::MAX_AHEAD_MS;
pub(crate) use reader::SpoolReader;
pub use skipped::Skipped;
