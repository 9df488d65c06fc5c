//! The binary `weir-bench`: parses the command line and hands over to the library.

use std::{env, io::IsTerminal, process::ExitCode};

use clap::Parser;
use weir_bench::cli::Cli;
use weir_predict::NO_REPORTS;

#[global_allocator]
static ALLOCATOR: weir_bench::decide::allocations::Counting =
    weir_bench::decide::allocations::Counting;

fn main() -> ExitCode {
    if env::var_os(NO_REPORTS).is_none() {
        #[expect(
            unsafe_code,
            reason = "the library reads nothing else, and no other thread is there yet"
        )]
        // SAFETY: nobody reads the environment meanwhile, for this is the only thread.
        unsafe {
            env::set_var(NO_REPORTS, "1");
        }
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(wants_colour())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("WEIR_LOG")
                // A trainer in the loop of a simulation reports drift and rollbacks of every run.
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,weir_predict=error")),
        )
        .init();
    Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("weir-bench: {error:#}");
        ExitCode::from(2)
    })
}

/// Colours are for a terminal: a file would hold their codes.
fn wants_colour() -> bool {
    std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
