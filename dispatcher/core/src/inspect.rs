//! What an operator sees of a pool when looking closer than the [`Snapshot`](crate::Snapshot): plain
//! data, made in bounded steps, without prompt text.
//!
//! Times are milliseconds. What is named `id` is the dispatcher's own number of a request, `request_id`
//! what its client calls it.
//!
//! - [`walk`]: what waits, in pages and in counts
//! - [`pool`]: lanes, bands, pods, and the pool in a few numbers
//! - [`request`]: one request, and one that does not exist

pub mod pool;
pub mod request;
pub mod walk;

pub use pool::{BandView, PodDetail, PodErrors, QueueView, Summary, Tally};
pub use request::{
    Against, AlternativeView, DecisionView, EndedView, Inspection, Look, Moment, Out, State,
    Supposed, Supposition, Would,
};
pub use walk::{Census, Count, Cursor, Filter, NoCursor, Page, Risk, TENANTS_COUNTED, WaitingView};
