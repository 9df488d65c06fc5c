//! The binary `weir`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::{env, process::ExitCode};

use clap::Parser as _;
use weir_predict::NO_REPORTS;

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
    weir::cli::Cli::parse().run()
}
