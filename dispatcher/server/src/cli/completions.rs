//! `weir completions`: a script that teaches a shell the commands and their options.

use clap::{Args, ValueEnum};
use clap_complete::{Shell, generate};

use super::{failure::Failure, output::print};

/// A completion script.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Known,
}

/// The shells that a script is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Known {
    /// source <(weir completions bash)
    Bash,
    /// weir completions zsh > "${fpath[1]}/_weir"
    Zsh,
    /// weir completions fish > ~/.config/fish/completions/weir.fish
    Fish,
}

pub(super) fn run(args: CompletionsArgs, mut command: clap::Command) -> Result<(), Failure> {
    print(&script(args.shell, &mut command))
}

fn script(shell: Known, command: &mut clap::Command) -> String {
    let shell = match shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, command, "weir", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_shell_learns_the_commands() {
        for shell in [Known::Bash, Known::Zsh, Known::Fish] {
            let text = script(shell, &mut Cli::command());
            for word in ["queue", "uncordon", "rollback", "older-than"] {
                assert!(text.contains(word), "{shell:?} does not know {word}");
            }
        }
    }
}
