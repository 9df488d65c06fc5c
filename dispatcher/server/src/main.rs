//! The binary `weir`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    weir::cli::Cli::parse().run()
}
