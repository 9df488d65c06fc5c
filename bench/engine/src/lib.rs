//! A step-level model of a vLLM V1 engine in virtual time.
//!
//! It reproduces vLLM's scheduler (token budget, chunked prefill, paged KV blocks, prefix cache, preemption, async
//! scheduling) step by step and takes each step's duration from measured coefficients, so that queueing, TTFT and TPOT come
//! out of the mechanism and are not drawn from a distribution. There is no I/O and no clock: the caller owns time. The
//! real-time pod and the discrete-event simulator of `weir-bench` are its callers. The engines of one server that step
//! together, as of a mixture of experts under `--data-parallel-size`, are the ranks of one [`Engine`].
//!
//! ```
//! use weir_engine::{Engine, EngineConfig, Job, Output, hardware};
//!
//! let hw = hardware("h100-qwen3-32b-tp2").ok_or("no such hardware")?;
//! let mut engine = Engine::new(EngineConfig::for_hardware(hw));
//! let job = Job {
//!     prompt_tokens: 1000, blocks: vec![], output_tokens: 2, priority: 0, brought_tokens: 0, keeps: false,
//!     adapter: None,
//! };
//! engine.submit(0.0, job)?;
//! let mut out = Vec::new();
//! while let Some(at_ms) = engine.next_event_ms() {
//!     engine.advance(at_ms, &mut out);
//! }
//! assert!(matches!(out.as_slice(), [Output::Token { index: 1, .. }, _, Output::Finished { .. }]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//! - `hardware`: measured coefficients, as data; `step`: the formula that turns them into a step's time
//! - `config`: what an engine is started with; `job`: what goes in and out; `metrics`: what it counts
//! - `block_pool`: KV blocks, their hashes and the free queue
//! - `sequence`: one job's progress; `waiting`: the queue; `lora`: adapters and their slots; `schedule`: which tokens the next
//!   step computes
//! - `rank`: one of the engines that step together; `engine`: their common pipeline of steps on the caller's clock
//! - `capacity`: the steady-state arrival rate, by formula
//! - [`validate`]: the model against logs of real engines

mod block_pool;
mod capacity;
mod config;
mod engine;
mod hardware;
mod job;
mod lora;
mod metrics;
mod rank;
mod schedule;
mod sequence;
mod step;
pub mod validate;
mod waiting;

pub use capacity::{Bound, FluidCapacity, fluid_capacity, fluid_capacity_rps};
pub use config::EngineConfig;
pub use engine::Engine;
pub use hardware::{Hardware, all_hardware, hardware};
pub use job::{Job, Output, Rejected, SeqId};
pub use lora::Adapters;
pub use metrics::EngineMetrics;
pub use step::step_ms;
