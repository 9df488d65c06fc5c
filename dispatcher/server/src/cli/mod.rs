//! The command line: `weir serve | train | check | schema | advise`.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 64 wrong configuration (EX_USAGE of sysexits.h is
//! clap's 2 here; 64 leaves 1 for failures at work).

mod advise;
mod check;
mod train;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use weir_core::Policy;

use crate::{
    app,
    config::{Config, ConfigError, Origin, schema},
    telemetry::log,
};

/// Holds LLM requests and lets a pod take one when it can serve it inside its objectives.
#[derive(Debug, Parser)]
#[command(name = "weir", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the OpenAI API in front of the pods
    Serve(ServeArgs),
    /// Train models of latency from the spool, in rounds until it is stopped
    Train(TrainArgs),
    /// Print the configuration in force, or everything that is wrong with it
    Check(ServeArgs),
    /// Print the JSON schema of the configuration file
    Schema,
    /// Say what pods hold of your own traffic, how many it takes, and how to set their engines (by weir-bench, beside weir)
    #[command(disable_help_flag = true)]
    Advise(AdviseArgs),
}

/// What overrides the file.
#[derive(Clone, Debug, Args)]
struct ServeArgs {
    /// Configuration file; without it a built-in one for a simulated pod on this machine
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Preset that decides in every pool, whatever the file says
    #[arg(long, value_name = "NAME", value_parser = policy_names())]
    policy: Option<Policy>,
    /// Address of the OpenAI API
    #[arg(long, value_name = "ADDRESS", env = "WEIR_LISTEN")]
    listen: Option<String>,
    /// Address of probes, metrics and the snapshot
    #[arg(long, value_name = "ADDRESS", env = "WEIR_ADMIN_LISTEN")]
    admin_listen: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct TrainArgs {
    /// Configuration file; without it the built-in one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One round, then end
    #[arg(long)]
    once: bool,
    /// End when standard input closes: `weir serve` starts its trainer so
    #[arg(long, hide = true)]
    supervised: bool,
}

#[derive(Clone, Debug, Args)]
struct AdviseArgs {
    /// Arguments of `weir-bench advise`; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    words: Vec<OsString>,
}

/// The names of all presets, as one argument.
fn policy_names() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name)).try_map(|name| name.parse::<Policy>())
}

impl From<ServeArgs> for Origin {
    fn from(args: ServeArgs) -> Self {
        Self {
            file: args.config,
            listen: args.listen,
            admin_listen: args.admin_listen,
            policy: args.policy,
        }
    }
}

/// The code for a configuration that cannot be used.
const BAD_CONFIG: u8 = 64;

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(args) => serve(&args.into()),
            Command::Train(args) => {
                let origin = Origin { file: args.config.clone(), ..Origin::default() };
                with_config(&origin, |config| train::run(config, args.once, args.supervised))
            }
            Command::Check(args) => check::run(&args.into()),
            Command::Schema => print(&schema()),
            Command::Advise(args) => {
                eprintln!("weir: {}", advise::become_lab(&args.words));
                ExitCode::FAILURE
            }
        }
    }
}

fn serve(origin: &Origin) -> ExitCode {
    with_config(origin, |config| {
        if origin.file.is_none() {
            tracing::warn!(
                "no --config: serving a simulated pod on this machine (start one with `weir-bench \
                 pod --count 1 --port 18001`); copy config/weir.yaml for pods of your own"
            );
        }
        Ok(app::serve(config, origin.file.as_deref())?)
    })
}

/// Loads the configuration, starts logging, and runs `work`.
fn with_config<W>(origin: &Origin, work: W) -> ExitCode
where
    W: FnOnce(Config) -> Result<(), anyhow::Error>,
{
    let config = match origin.load() {
        Ok(config) => config,
        Err(error) => return bad_config(&error),
    };
    log::start(&config.log);
    match work(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bad_config(error: &ConfigError) -> ExitCode {
    eprintln!("weir: {error}");
    ExitCode::from(BAD_CONFIG)
}

/// Prints to standard output. A reader that has gone away is no failure.
fn print(text: &str) -> ExitCode {
    use std::io::{ErrorKind, Write as _};
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_preset_can_be_named_and_nothing_else() {
        for policy in Policy::ALL {
            let cli = Cli::try_parse_from(["weir", "serve", "--policy", policy.name()]).unwrap();
            let Command::Serve(args) = cli.command else { panic!("not serve: {cli:?}") };
            assert_eq!(args.policy, Some(policy));
        }
        assert!(Cli::try_parse_from(["weir", "serve", "--policy", "wier"]).is_err());
    }

    #[test]
    fn advise_hands_on_every_argument_as_it_is() {
        let words = ["--trace", "a b.csv", "--help", "-x"];
        let cli = Cli::try_parse_from(["weir", "advise"].into_iter().chain(words)).unwrap();
        let Command::Advise(args) = cli.command else { panic!("not advise: {cli:?}") };
        assert_eq!(args.words, words);
    }

    #[test]
    fn the_trainer_that_serve_starts_is_understood() {
        let file = std::path::Path::new("/etc/weir.yaml");
        let launch = crate::learn::trainer::Launch::this_program(Some(file)).unwrap();
        let words = ["weir".to_owned()].into_iter().chain(launch.arguments);
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Train(args) = cli.command else { panic!("not train: {cli:?}") };
        assert!(args.supervised && !args.once);
        assert_eq!(args.config.as_deref(), Some(file));
    }
}
