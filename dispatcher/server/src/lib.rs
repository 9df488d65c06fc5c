//! The dispatcher: accepts OpenAI calls, holds them, and lets pods take them when they have room.
//!
//! # Layout
//! - [`cli`]: the command line
//! - [`app`]: the assembly, in one visible sequence
//! - [`config`]: the file, checked, as what each part is told
//! - [`telemetry`]: metrics and log lines
//! - [`admin`]: probes, metrics and the snapshot
//! - [`learn`]: samples out, bundles in
//! - [`state`]: what outlives the process
//! - [`shutdown`]: the stages of the process's life
//! - [`files`]: files that are replaced as a whole
//! - [`memory`]: gives back to the system what a burst took; [`worker`]: named threads that are joined at the end
//! - `budget`: memory that many have parts of
//! - [`patience`]: how long a wait may last; [`descriptors`]: how many connections there may be
//! - [`accept`]: what becomes of connections at a listener that may have no more
//! - [`api`]: the data API: accepts OpenAI calls and answers them
//! - [`clock`]: the process's clock
//! - [`replicas`]: other dispatchers in front of the same pods, and which of them decides
//! - [`hub`]: owns a pool's scheduler; requests get their verdicts here
//! - [`upstream`]: delivers requests to pods and relays their responses; [`h1`]: HTTP/1 towards pods
//! - [`tls`]: sealed connections, of clients and to pods
//! - [`fleet`]: the pods: which there are, whether they answer, what their gauges say

// A reader of the output that is gone ends the process where these write: `cli::output` writes and goes on.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod accept;
pub mod admin;
pub mod api;
pub mod app;
mod budget;
pub mod cli;
pub mod clock;
pub mod config;
pub mod descriptors;
pub mod files;
pub mod fleet;
pub mod h1;
pub mod hub;
pub mod learn;
pub mod memory;
pub mod patience;
pub mod replicas;
pub mod shutdown;
pub mod state;
pub mod telemetry;
pub mod tls;
pub mod upstream;
mod walk;
pub mod worker;
