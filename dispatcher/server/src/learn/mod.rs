//! From served requests to better predictions: samples out, bundles in.
//!
//! Everything here runs beside the data plane and may fail without it: no spool, no library, no
//! bundle and no trainer cost accuracy, never an answer.
//!
//! # Layout
//! - [`config`]: what is written and what it becomes
//! - [`profile`]: what was measured of pod classes before
//! - [`spool`]: samples to disk
//! - [`reload`]: bundles from disk into the pools; [`shelf`]: what an operator does with them; `pointer`: what is written beside them
//! - [`versions`]: how each version does in service
//! - [`trainer`]: the trainer's process

pub mod config;
mod pointer;
pub mod profile;
pub mod reload;
pub mod shelf;
pub mod spool;
pub mod trainer;
pub mod versions;

pub use config::LearnConfig;
pub use shelf::{BundleView, Order, OrderError, Shelf};
pub use versions::Versions;
