//! The lab: everything that is needed to try Weir and to measure it without a GPU.
//!
//! The binary `weir-bench` is a thin door to this library; the library is what its own tests and the demo call. Errors
//! are `anyhow` at this edge: a person reads them.
//!
//! # Layout
//! - [`prompt`]: how text is counted, hashed and made up; the pods and the load share it, so both mean the same token
//! - [`trace`]: recorded arrivals from files
//! - [`pod`]: `weir-bench pod`, simulated vLLM pods in real time behind HTTP
//! - [`load`]: `weir-bench load`, an open-loop client that gives every request exactly one outcome
//! - [`demo`]: `weir-bench demo`, the two of them around a real `weir`, with a verdict
//! - [`sim`]: the scheduler in front of modelled engines in virtual time, without a network
//! - [`advise`]: what pods hold of one's own traffic, and how to set them
//! - [`honesty`]: the simulation against the real program; [`sensitivity`]: its assumptions made otherwise
//! - [`versus`]: `weir-bench versus`, one policy after the other in front of the same pods, over HTTP; `real`: what it and
//!   [`honesty`] have in common
//! - [`learned`]: the trainer and its bundles in that simulation
//! - [`workload`]: traffic at any rate, from traces and generators; [`contender`]: the policies that are compared
//! - [`study`]: `weir-bench sim`, who serves how much of a workload inside its objectives; [`scale`]: `weir-bench scale`, rules
//!   that change the number of pods while they serve
//! - [`limits`]: what no scheduler could beat, and one that sees the future; [`rfc`]: the RFC of pattern-based routing, done again;
//!   [`qps`]: the benchmark of predicted-latency scheduling, done again
//! - [`decide`]: `weir-bench decide`, what a decision costs; [`instructions`]: whether its instructions have grown
//! - [`report`]: `weir-bench report`, run files as one page for people; [`lab`]: `weir-bench lab`, the whole table of targets
//! - [`peers`]: `weir-bench peers`, what a request costs in Weir and in what else people put in front of pods; `weir-bench exercise`,
//!   the load that the deployed binary is arranged by
//! - [`train`]: `weir-bench train`, what training costs and what a swap of bundles does to decisions
//! - `bounds`: how much a command may be asked for; `results`: files that are whole or not there, and lines for people
//! - [`children`], [`http_get`]: child processes that end with their owner, and small HTTP reads

pub mod advise;
mod bounds;
pub mod children;
pub mod cli;
pub mod contender;
pub mod decide;
pub mod demo;
pub mod honesty;
mod host;
pub mod http_get;
pub mod instructions;
pub mod lab;
pub mod learned;
pub mod limits;
pub mod load;
pub mod peers;
pub mod pod;
pub mod prompt;
pub mod qps;
mod real;
pub mod report;
mod results;
pub mod rfc;
pub mod scale;
pub mod sensitivity;
pub mod sim;
pub mod study;
pub mod trace;
pub mod train;
pub mod versus;
pub mod workload;
