//! The command line: what runs here, and the clients of a running dispatcher's admin side.
//!
//! A client deserialises leniently, prints a table for people or the answer itself for programs, and
//! fails with one line and an exit code of its own (`failure`). docs/cli.md is written from the
//! definitions here (`reference`).
//!
//! # Layout
//! - `serve`, `train`, `check`, `profile`, `advise`, `completions`, `reference`: work on this machine
//! - `queue`, `pods`, `model`, `decisions`, `explain`, `config`: clients, a command each
//! - `top`: the live board
//! - `remote`: the admin side as a client sees it; `answers`: what it answers
//! - `output`, `confirm`, `failure`: what is printed, asked and returned

mod advise;
mod answers;
mod check;
mod completions;
mod config;
mod confirm;
mod decisions;
mod explain;
mod failure;
mod model;
mod output;
mod pods;
mod profile;
mod queue;
mod reference;
mod remote;
mod serve;
mod top;
mod train;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{
    Args, CommandFactory as _, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use weir_core::Policy;

use crate::{
    config::{Config, ConfigError, Origin, schema},
    telemetry::log,
};

/// Holds LLM requests and lets a pod take one when it can serve it inside its objectives.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = codes(), infer_subcommands = false)]
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
    /// Check profile files of one pod class, and print what they say
    Profile(profile::ProfileArgs),
    /// Say what pods hold of your own traffic, how many it takes, and how to set their engines (by weir-bench, beside weir)
    #[command(disable_help_flag = true)]
    Advise(AdviseArgs),
    /// Watch lanes, pods and decisions on a live board, and act on them
    Top(top::TopArgs),
    /// See what waits and why; cancel, move, pause, resume
    Queue(queue::QueueArgs),
    /// See the pods and what is on them; cordon, drain, uncordon
    Pods(pods::PodsArgs),
    /// See the versions of the latency model and how good they are; reload, pin, roll back
    Model(model::ModelArgs),
    /// List the last decisions with their reasons and what lost
    Decisions(decisions::DecisionsArgs),
    /// Say why a request waits, or what would become of one that is not sent
    Explain(explain::ExplainArgs),
    /// See the configuration of a running dispatcher, compare it with its file, take the file in
    Config(config::ConfigArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print docs/cli.md
    #[command(hide = true)]
    Reference,
}

/// The exit codes, as `--help` ends with them.
fn codes() -> String {
    let lines = failure::CODES.map(|(code, meaning)| format!("\n  {code:>2}  {meaning}"));
    format!("Exit codes:{}", lines.concat())
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

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Serve(args) => return serve::run(&args.into()),
            Command::Train(args) => {
                let origin = Origin { file: args.config.clone(), ..Origin::default() };
                return with_config(origin.load_in_the_clear(), |config| {
                    train::run(config, args.once, args.supervised)
                });
            }
            Command::Check(args) => return check::run(&args.into()),
            Command::Schema => output::print(&schema()),
            Command::Profile(args) => profile::run(&args),
            Command::Advise(args) => Err(failure::Failure::Failed(advise::become_lab(&args.words))),
            Command::Top(args) => top::run(&args),
            Command::Queue(args) => queue::run(args),
            Command::Pods(args) => pods::run(args),
            Command::Model(args) => model::run(args),
            Command::Decisions(args) => decisions::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Config(args) => config::run(&args),
            Command::Completions(args) => completions::run(args, Self::command()),
            Command::Reference => output::print(&reference::page(Self::command())),
        };
        output::exit(done)
    }
}

/// Loads the configuration, starts logging, and runs `work`.
fn with_config<W>(loaded: Result<Config, ConfigError>, work: W) -> ExitCode
where
    W: FnOnce(Config) -> Result<(), anyhow::Error>,
{
    let config = match loaded {
        Ok(config) => config,
        Err(error) => return bad_config(&error),
    };
    // What was logged is written before the process ends.
    let _written = match log::start(&config.log) {
        Ok(scribe) => scribe,
        Err(error) => {
            output::say(format_args!("cannot log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match work(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bad_config(error: &ConfigError) -> ExitCode {
    output::say(format_args!("{error}{}", error.hint()));
    ExitCode::from(failure::BAD_CONFIG)
}

#[cfg(test)]
mod tests {
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
        let interval = std::time::Duration::from_secs(30);
        let launch = crate::learn::trainer::Launch::this_program(Some(file), interval);
        let words = ["weir".to_owned()].into_iter().chain(launch.arguments);
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Train(args) = cli.command else { panic!("not train: {cli:?}") };
        assert!(args.supervised && !args.once);
        assert_eq!(args.config.as_deref(), Some(file));
    }
}
