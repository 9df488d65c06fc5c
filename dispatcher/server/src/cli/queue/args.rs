//! The command line of `weir queue`.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value};

use super::filter::FilterArgs;
use crate::cli::{output::OutputArgs, remote::RemoteArgs};

/// What waits, and changes to it.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    pub(super) command: QueueCommand,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum QueueCommand {
    /// List the lanes with something in them: depth, oldest wait, predicted drain, risk, and why the head waits
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show why a request waits, pod by pod; or list the waiting requests of a lane, band or tenant
    Show(ShowArgs),
    /// Cancel waiting requests, by id or by filter; their clients get 503 cancelled_by_operator
    Cancel(CancelArgs),
    /// Hold a lane, a band or the whole pool: it accepts and waits, and nothing is dispatched
    Pause(PauseArgs),
    /// Let a lane, a band or the whole pool go on
    Resume(PlaceArgs),
    /// Move a waiting request to another band
    Move(MoveArgs),
}

/// What the rows of `ls` are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// One row for each pattern and band
    #[default]
    Lane,
    /// One row for each band
    Band,
    /// One row for each tenant
    Tenant,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ListArgs {
    /// Model whose pool is meant; all of them when left out
    #[arg(long, value_name = "MODEL")]
    pub(super) pool: Option<String>,
    /// What a row is
    #[arg(long, value_enum, default_value_t)]
    pub(super) by: By,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ShowArgs {
    /// A request's id: the x-request-id of its response, or the dispatcher's number; '#57' is the number alone
    #[arg(conflicts_with_all = ["lane", "band", "tenant", "late", "older_than", "cursor", "all"])]
    pub(super) request: Option<String>,
    /// Most requests to list, the oldest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) limit: u32,
    /// Go on where a list ended
    #[arg(long, value_name = "CURSOR")]
    pub(super) cursor: Option<String>,
    /// Every page, one after the other
    #[arg(long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
}

#[derive(Clone, Debug, Args)]
pub(super) struct CancelArgs {
    /// Ids of requests: the x-request-id of their responses, or the dispatcher's numbers; '#57' is the number alone
    #[arg(conflicts_with_all = ["lane", "band", "tenant", "late", "older_than", "dry_run"])]
    pub(super) requests: Vec<String>,
    /// Say what a filter matches, and cancel nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Cancel what a filter matches without asking
    #[arg(short, long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
}

#[derive(Clone, Debug, Args)]
pub(super) struct PlaceArgs {
    /// A lane, as `weir queue ls` names it
    #[arg(long, conflicts_with = "band")]
    pub(super) lane: Option<String>,
    /// A band
    #[arg(long, allow_negative_numbers = true)]
    pub(super) band: Option<i8>,
    /// Model whose pool is meant; needed when there are several
    #[arg(long, value_name = "MODEL")]
    pub(super) pool: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    /// Pause the whole pool without asking
    #[arg(short, long)]
    pub(super) yes: bool,
}

impl PlaceArgs {
    /// The body of the call.
    pub(super) fn body(&self) -> Value {
        let members = [
            ("pool", self.pool.clone().map(Value::from)),
            ("lane", self.lane.clone().map(Value::from)),
            ("band", self.band.map(Value::from)),
        ];
        let set = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(set.collect::<Map<_, _>>())
    }
}

#[derive(Clone, Debug, Args)]
pub(super) struct MoveArgs {
    /// A request's id
    pub(super) request: String,
    /// Where to; below 0 is sheddable
    #[arg(long, allow_negative_numbers = true)]
    pub(super) band: i8,
    /// Model whose pool is meant; needed when there are several
    #[arg(long, value_name = "MODEL")]
    pub(super) pool: Option<String>,
}
