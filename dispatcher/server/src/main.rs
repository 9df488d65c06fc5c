//! The binary `weir`.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    weir::cli::Cli::parse().run()
}
