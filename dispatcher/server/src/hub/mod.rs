//! Owns one pool's scheduler and lets every data-plane thread drive it.
//!
//! There is no actor task. A poster tries the lock of the desk and takes its message there; when somebody
//! else has it, the message goes into a bounded mailbox, which whoever holds the lock drains through the
//! scheduler. The lock is let go before what the scheduler wants done is performed. A hop to another thread costs 4 to 5 us of CPU
//! and 30 to 50 us of latency per request; this costs neither.
//!
//! # Promises
//! - No message is lost: a full mailbox makes its poster drain it, and whoever lets the lock go looks
//!   into the mailbox again.
//! - A request that was admitted gets one verdict, or is cancelled when its [`Ticket`] is dropped.
//! - What was debited is credited once: a [`Lease`] that is dropped anywhere, even one that nobody
//!   received, ends its request.
//! - No message per chunk: streams write their counts into atomics, which a drain sweeps at most
//!   every 10 ms.
//!
//! # Layout
//! - [`handle`]: [`Hub`], the mailbox and the lock
//! - `message`: what is in the mailbox
//! - `actor`: the desk: scheduler, waiters, streams
//! - [`ticket`]: the wait for a verdict
//! - [`lease`]: the claim on a pod
//! - [`seat`], [`steer`]: what an operator sees, and what he does
//! - [`led`]: another dispatcher decides; `handover`: it becomes another than before; [`errand`]: what they tell each other; [`held`]: what an operator holds
//! - `recall`: what outlives it
//! - [`ticks`]: the timer of a pool in which something waits

mod actor;
pub mod errand;
pub mod handle;
mod handover;
pub mod held;
pub mod lease;
pub mod led;
mod message;
mod recall;
pub mod seat;
pub mod steer;
pub mod ticket;
pub mod ticks;

pub use handle::{Hub, SampleSink};
pub use lease::Lease;
pub use ticket::Ticket;
pub use ticks::run_ticks;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod handover_tests;
#[cfg(test)]
mod tests;
