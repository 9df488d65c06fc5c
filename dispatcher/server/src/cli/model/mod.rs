//! `weir model`: the versions of the latency model, how good they are, and which one serves.

mod sheets;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    answers::Models,
    failure::Failure,
    output::OutputArgs,
    remote::{Admin, RemoteArgs, path::Path},
};
use sheets::OneVersion;

/// The latency models, and changes to them.
#[derive(Clone, Debug, Args)]
pub(super) struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum ModelCommand {
    /// List the versions: state, age, error on the holdout and in service, coverage
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one version with what each feature adds, or why it is not used
    Show {
        /// Its number, also as its folder is named
        #[arg(value_parser = number)]
        version: u64,
    },
    /// Look for new bundles now
    Reload,
    /// Serve one version and keep to it
    Pin {
        /// Its number, also as its folder is named
        #[arg(value_parser = number)]
        version: u64,
    },
    /// Go back to the newest version, and to rolling back by error in service
    Unpin,
    /// Pin the version before the serving one
    Rollback,
}

/// A version's number: `9`, `v9`, `v000000000009`.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix('v').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_number);
    number.ok_or_else(|| "no number of a version, like 9 or v000000000009".to_owned())
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// Model whose pool is meant; all of them when left out
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
}

pub(super) fn run(args: ModelArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?;
    let format = args.output.output;
    let (verb, body) = match args.command {
        ModelCommand::Ls(list) => {
            let path = Path::new("/models").with("pool", list.pool);
            return format.print::<Models>("models", admin.get(path.as_str())?);
        }
        ModelCommand::Show { version } => {
            let path = Path::new("/models").segment(&version.to_string());
            return format.print::<OneVersion>("the version", admin.get(path.as_str())?);
        }
        ModelCommand::Reload => ("reload", json!({})),
        ModelCommand::Pin { version } => ("pin", json!({"version": version})),
        ModelCommand::Unpin => ("unpin", json!({})),
        ModelCommand::Rollback => ("rollback", json!({})),
    };
    format.print::<Models>(verb, admin.post(&format!("/models/{verb}"), &body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_told_by_its_number_or_by_the_name_of_its_folder() {
        for text in ["9", "v9", "v000000000009"] {
            assert_eq!(number(text), Ok(9));
        }
        for text in ["", "v", "+9", "v-9", "nine", "vv9", "99999999999999999999"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
