//! docs/cli.md, written from the definitions that parse the command line, so that neither can say
//! what the other does not.

use clap::Command;

use super::failure::CODES;

/// What stands before the commands.
const HEAD: &str = "# Command line

Written by `weir reference` from the program's own definitions; a test keeps this page equal to it.

`serve`, `train`, `check`, `schema`, `profile`, `advise` and `completions` work on this machine. The others are clients of a running
dispatcher's admin listener (`admin.listen`), by `https://` where it has a certificate (docs/tls.md). Reach a remote one that has none through a
tunnel (`ssh -L 8081:127.0.0.1:8081 HOST`, `kubectl port-forward deploy/inference 8081`, where `inference` is the Helm release). Words in
capitals stand for values of your own.
";

/// What stands after the exit codes.
const CLIENTS: &str = "
Errors are on standard error, one line that says what to do; a wrong configuration has a line for each problem, and under a command line that
cannot be read stands its usage.

Of several dispatchers one decides (docs/replicas.md). Where another one is asked, `weir: HOST:PORT decides for MODEL; what waits is told there` is on standard
error, whatever else is printed.

## Options of every client
These may stand anywhere after the command. The token can also be in the variable `WEIR_ADMIN_TOKEN`; it is no option, because options
show in the process list.
";

/// What is said of the forms.
const FORMS: &str = "
`json` and `yaml` are the admin side's own answer with all its members (docs/admin.md); `table` and `wide` are for people and may change.
Times are short: `850ms`, `2.4s`, `3m12s`, `5h07m`; a dash is a value that is not known or does not apply.
";

/// A width of the terminal at which no line is broken: the page is as it is on every screen.
const UNBROKEN: usize = 0;

/// The page.
pub(super) fn page(mut command: Command) -> String {
    command.build();
    let mut page = HEAD.to_owned() + "\n## Exit codes\n| code | meaning |\n|---|---|\n";
    page.extend(CODES.map(|(code, meaning)| format!("| {code} | {meaning} |\n")));
    page += CLIENTS;
    page += &options_of_clients(&command);
    page += FORMS;
    for part in command.get_subcommands().filter(|part| is_shown(part)) {
        chapter(part, &mut page);
    }
    page
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

/// A command with the commands below it.
fn chapter(command: &Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut parts = command.get_subcommands().filter(|part| is_shown(part)).peekable();
    if parts.peek().is_none() {
        *page += &format!("\n## {name}\n{}", help(command));
        return;
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    *page += &format!("\n## {name}\n{about}.\n");
    for part in parts {
        let name = part.get_bin_name().unwrap_or_else(|| part.get_name());
        *page += &format!("\n### {name}\n{}", help(part));
    }
}

/// The help of a command as the program prints it, less what is the same everywhere.
fn help(command: &Command) -> String {
    let plain = |arg: clap::Arg| {
        let hidden = arg.is_hide_set() || arg.is_global_set();
        arg.hide_env_values(true).hide(hidden)
    };
    let mut command = command.clone().mut_args(plain).disable_help_flag(true).term_width(UNBROKEN);
    let text = command.render_long_help().to_string();
    let lines: String = text.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    format!("```text\n{}\n```\n", lines.trim_end())
}

/// The shared options, as the first client has them.
fn options_of_clients(command: &Command) -> String {
    let client = command.find_subcommand("queue").and_then(|queue| queue.find_subcommand("ls"));
    let Some(client) = client else { return String::new() };
    let shared = client.get_arguments().filter(|arg| arg.is_global_set()).cloned();
    let mut alone = Command::new("weir")
        .disable_help_flag(true)
        .term_width(UNBROKEN)
        .args(shared.map(|arg| arg.global(false).hide_env_values(true)));
    let text = alone.render_long_help().to_string();
    let text: String = text
        .lines()
        .skip_while(|line| line.starts_with("Usage") || line.is_empty())
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect();
    format!("```text\n{}\n```\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_page_that_is_shipped_is_the_programs() {
        let server = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let shipped = std::fs::read_to_string(server.join("../../docs/cli.md")).unwrap();
        assert!(shipped == page(Cli::command()), "run `weir reference > docs/cli.md`");
    }

    #[test]
    fn the_page_has_every_command_and_no_value_of_this_environment() {
        let page = page(Cli::command());
        for part in [
            "## weir serve",
            "### weir queue cancel",
            "### weir pods drain",
            "## weir explain",
            "--older-than",
            "[env: WEIR_ADMIN]",
            "| 77 |",
        ] {
            assert!(page.contains(part), "{part} is not in the page");
        }
        for hidden in ["## weir reference", "--supervised"] {
            assert!(!page.contains(hidden), "{hidden} is in the page");
        }
    }
}
