//! The harness of the scenarios: real programs on free ports of this machine, one stage per scenario.
//!
//! A scenario raises a [`Stage`] (simulated pods and one dispatcher, each a process of its own), calls
//! it as a client would, and ends with [`Stage::assert_settled`]: whatever was done to it, nothing
//! waits, nothing is in flight, and every request that arrived has exactly one outcome.
//!
//! Nothing here sleeps for a fixed time: what takes time is awaited by [`eventually`], with a deadline
//! and the last thing seen in the message. A process ends with the value that owns it. A harness that
//! cannot go on panics: that is how a scenario fails.
//!
//! # Layout
//! - [`browser`]: a headless Chromium on the page
//! - [`built`]: the binaries, built once per test process
//! - [`program`]: a child process, its log, its signals
//! - [`pod`]: one simulated pod, its faults and its own account
//! - [`vllm`]: a real vLLM, where one is installed
//! - [`server`]: a server that answers as it is told; [`echo`]: one that answers with what it was sent;
//!   [`collector`]: one that is told of spans
//! - [`seal`]: TLS in front of who speaks in the clear, and the other way round
//! - [`stage`]: pods, a configuration and a dispatcher
//! - [`pair`]: the same with two dispatchers, one of which decides
//! - [`weir`]: a dispatcher: addresses, snapshot, metrics
//! - [`settled`]: what must hold after every scenario
//! - [`call`]: one HTTP call, whole or as it streams
//! - [`command`]: Weir's command line, run
//! - [`terminal`]: a program in a terminal, its screen and its keys
//! - [`load`]: calls that go on in the background
//! - [`chart`]: a Helm chart, rendered
//! - [`tool`]: checkers that others keep
//! - [`promql`]: whether a query can be answered
//! - [`wait`]: awaiting something that can only be looked at
//! - [`samples`]: made-up samples, and a bundle trained on them
//! - [`graph`]: a bundle whose model answers NaN in service
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a scenario that cannot go on fails"
)]

pub mod browser;
pub mod built;
pub mod call;
pub mod chart;
pub mod collector;
pub mod command;
pub mod echo;
pub mod graph;
pub mod load;
pub mod pair;
pub mod pod;
pub mod program;
pub mod promql;
pub mod samples;
pub mod seal;
pub mod server;
pub mod settled;
pub mod stage;
pub mod terminal;
pub mod tool;
pub mod vllm;
pub mod wait;
pub mod weir;

pub use browser::{Browser, Screen};
pub use call::{Call, Live, Reply, served_by};
pub use collector::Collector;
pub use echo::Echo;
pub use load::Load;
pub use pair::Pair;
pub use pod::Pod;
pub use program::Program;
pub use seal::Authority;
pub use server::Server;
pub use stage::{Plan, Stage};
pub use terminal::Terminal;
pub use vllm::Vllm;
pub use wait::eventually;
pub use weir::Weir;

/// The model that every stage serves.
pub const MODEL: &str = "qwen3-32b";
