//! The binary `weir`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::{env, process::ExitCode};

use clap::Parser as _;

/// What keeps ONNX Runtime from reporting to its makers. Its wheels do so since 1.31, and begin when they are loaded, before they can be
/// asked not to; while no name server answers, the end of the process waits for a last report.
const NO_REPORTS: &str = "ORT_DISABLE_TELEMETRY";

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
