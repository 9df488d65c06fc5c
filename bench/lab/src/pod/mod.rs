//! `weir-bench pod`: simulated vLLM pods in real time behind HTTP.
//!
//! Each pod is one [`weir_engine::Engine`] whose virtual time follows the wall clock, on a port of its own; all pods of a
//! process share one current-thread runtime. What a client sees is vLLM's: paths, chunk shapes, usage, errors, metric
//! names. What it does not see: text that means anything. The load may tell an answer's length in the header
//! `x-sim-output-tokens`; otherwise it is drawn from a seeded lognormal. A client that leaves aborts its sequences. With
//! data parallelism the engine has several ranks behind the port, and `x-data-parallel-rank` chooses among them; or several
//! ports with some of the ranks behind each, as vLLM's hybrid load balancing has a node for each port.
//!
//! Beside vLLM's paths: `POST /fault` and `GET /fault` (see [`Fault`]), `GET /sim/starts`, which lists the started
//! requests by a hash of their `x-request-id` so that a request started on two pods can be found (a prefill for another
//! pod is none), and `POST /kv_release`, by which that other pod says that it has the KV.
//!
//! With `--lora-modules` adapters are served beside the model, each under a name of its own, so many of them at once as
//! `--max-loras` says.
//!
//! Cost: per engine step each stream gets its bytes as one write of prebuilt chunks; nothing is formatted per token.
//!
//! # Layout
//! - `args`: the command line; `host`: listeners and threads; `server`: one pod's paths
//! - `models`: the model and its adapters
//! - `ask`, `error`: what comes in and why it is refused; `answer`: the shapes that go out
//! - `sim`: the engine, its clock and its calls; `call`: one request's progress; `body`: the same as an HTTP body
//! - `handover`: KV that one pod computes and another one decodes from
//! - `clock`, `fault`, `meters`, `starts`: time, faults, `/metrics`, double starts

mod answer;
mod args;
mod ask;
mod body;
mod call;
mod clock;
mod error;
mod fault;
mod handover;
mod host;
mod meters;
mod models;
mod server;
mod sim;
mod starts;

#[cfg(test)]
mod tests;

pub use args::PodArgs;
pub use fault::{Fault, Kind};
pub use host::{PodPlan, PodThread, Pods};
