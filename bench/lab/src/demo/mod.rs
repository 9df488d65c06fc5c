//! `weir-bench demo`: Weir in front of a few simulated pods, under a load that fits and one that does not, and a verdict.
//!
//! Everything runs as a user would run it: the pods are `weir-bench pod`, Weir is the binary `weir` beside this one with its
//! trainer, and the requests go over HTTP. It ends with one table, `summary.json` in its folder, and exit code 0 only if
//! what it set out to show is true. Its children end with it on every way out.
//!
//! # Layout
//! - `args`: the command line; `pool`: the pods; `play`: the sequence; `stage`: folder, ports and children; `config`: the file for Weir
//! - `admin`: what Weir and the pods say of themselves; `narrate`: lines while it runs
//! - `summary`: the numbers; `checks`: the verdict; `table`: both for people

mod admin;
mod args;
mod checks;
mod config;
mod narrate;
mod play;
mod pool;
mod stage;
mod summary;
mod table;

#[cfg(test)]
mod tests;

pub use args::DemoArgs;
pub(crate) use {
    args::local,
    checks::percent,
    config::class,
    pool::Group,
    stage::{Place, Stage},
    table::pair,
};
