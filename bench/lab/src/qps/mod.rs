//! `weir-bench qps`: the benchmark of llm-d's predicted-latency scheduling, done again.
//!
//! Scenarios A to D, a ShareGPT-like one and the production ladder as they were published (pods, KV blocks, ladders of rates,
//! no objectives) under round robin, load and prefix scorers, predicted latency, and Weir: time per output token and tokens per
//! second at each rate, and beside what was published the same as ratios. Published are figures for the production ladder and
//! words for the others; `published` holds both, and the tables say where they hold.
//!
//! A stage's requests are sent in 100 s and waited for, so that nothing of it is left when the next one begins. Everything is
//! decided by the seeds, which are the same for every policy.
//!
//! # Layout
//! - `set_up`: pods and ladders; `published`: what was said of them; `measure`: policies in a set-up, step by step
//! - `compare`: ratios and verdicts; `args`, `table`: the command and its tables

mod args;
mod compare;
mod measure;
mod published;
mod set_up;
mod table;
#[cfg(test)]
mod tests;

pub use args::QpsArgs;
