//! `weir-bench versus`: the same requests through `weir serve` with one policy after the other, in front of the same pods, over HTTP.
//!
//! The simulation compares policies in seconds and without noise that others make; this is for whoever wants to see it on pods of
//! their own. Every policy gets the same lengths at the same moments in words of its own, so that nobody finds in a cache what
//! another left there. A round is all of them once; the next has other requests and begins with the next policy.
//!
//! # Layout
//! - `args`: the command line and the rounds; `way`: who decides; `standings`: what everybody came to

mod args;
mod standings;
#[cfg(test)]
mod tests;
mod way;

pub use args::VersusArgs;
