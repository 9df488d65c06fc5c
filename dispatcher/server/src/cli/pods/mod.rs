//! `weir pods`: the model servers, what they hold, and taking one out of service.
//!
//! # Layout
//! - [`drain`]: waiting until a pod has nothing left
//! - [`sheets`]: the answers for people

mod drain;
mod sheets;

use std::time::{Duration, Instant};

pub(super) use self::sheets::note;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    answers::{self, Pod, Pods},
    failure::Failure,
    output::{Format, OutputArgs, print, table::plain},
    queue::duration,
    remote::{Admin, RemoteArgs, path::Path},
};

/// The pods, and changes to them.
#[derive(Clone, Debug, Args)]
pub(super) struct PodsArgs {
    #[command(subcommand)]
    command: PodsCommand,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum PodsCommand {
    /// List the pods: state, what they hold, pace, KV cache, drain
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one pod, and each request on it with its objective and its actual pace
    Show(ShowArgs),
    /// Send a pod nothing new; what it has goes on. Remembered when weir restarts where state.dir is kept
    Cordon(NamesArgs),
    /// Cordon a pod and let it finish; --wait returns when nothing is left on it
    Drain(DrainArgs),
    /// Let a cordoned or drained pod take requests again
    Uncordon(NamesArgs),
}

#[derive(Clone, Debug, Args)]
struct ListArgs {
    /// Model whose pool is meant; all of them when left out
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct ShowArgs {
    /// The pod, as `weir pods ls` names it
    pod: String,
    /// Model whose pool is meant
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct NamesArgs {
    /// Pods, as `weir pods ls` names them
    #[arg(required = true)]
    pods: Vec<String>,
    /// Model whose pool is meant
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct DrainArgs {
    #[command(flatten)]
    names: NamesArgs,
    /// Wait until nothing is left on them, with progress on standard error
    #[arg(long)]
    wait: bool,
    /// Longest wait for all of them together, such as 30s or 5m; the pods go on draining after it
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "wait")]
    timeout: Option<Duration>,
}

pub(super) fn run(args: PodsArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?;
    let format = args.output.output;
    match args.command {
        PodsCommand::Ls(list) => {
            let path = Path::new("/pods").with("pool", list.pool);
            format.print::<Pods>("pods", admin.get(path.as_str())?)
        }
        PodsCommand::Show(show) => {
            format.print::<Pod>("the pod", look(&admin, &show.pod, show.pool.as_deref())?)
        }
        PodsCommand::Cordon(names) => change(&admin, format, &names, "cordon"),
        PodsCommand::Uncordon(names) => change(&admin, format, &names, "uncordon"),
        PodsCommand::Drain(drain) => self::drain(&admin, format, &drain),
    }
}

/// Reads one pod.
fn look(admin: &Admin, pod: &str, pool: Option<&str>) -> Result<Value, Failure> {
    admin.get(Path::new("/pods").segment(pod).with("pool", pool).as_str())
}

/// Changes one pod; returns it as it is then.
fn post(admin: &Admin, pod: &str, pool: Option<&str>, verb: &str) -> Result<Value, Failure> {
    let body = pool.map_or_else(|| json!({}), |pool| json!({"pool": pool}));
    admin.post(Path::new("/pods").segment(pod).segment(verb).as_str(), &body)
}

fn change(admin: &Admin, format: Format, names: &NamesArgs, verb: &str) -> Result<(), Failure> {
    for pod in &names.pods {
        let answer = post(admin, pod, names.pool.as_deref(), verb)?;
        say(format, verb, answer)?;
    }
    Ok(())
}

/// Prints a pod after a change: one line for people.
fn say(format: Format, verb: &str, answer: Value) -> Result<(), Failure> {
    if !format.is_for_people() {
        return format.print::<Pod>(verb, answer);
    }
    let pod: Pod = answers::read(answer).map_err(|error| Failure::not_understood(verb, error))?;
    let left = match pod.left() {
        0 if pod.phase == "draining" => format!(", {}", pod.awaited()),
        0 if pod.phase == drain::GONE => {
            ": it has left the pool, and nothing of that is left on it".to_owned()
        }
        0 => String::new(),
        1 => ", 1 request on it".to_owned(),
        left => format!(", {left} requests on it"),
    };
    print(&format!("{} is {}{left}\n", plain(&pod.pod), plain(&pod.phase)))
}

fn drain(admin: &Admin, format: Format, drain: &DrainArgs) -> Result<(), Failure> {
    let pool = drain.names.pool.as_deref();
    // One bound for all: a time that is beyond all clocks is none.
    let until = drain.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    // All at once, so that they drain beside each other.
    let mut answers = Vec::new();
    for pod in &drain.names.pods {
        answers.push(post(admin, pod, pool, "drain")?);
    }
    if drain.wait {
        answers.clear();
        for pod in &drain.names.pods {
            answers.push(drain::until_drained(admin, pod, pool, until)?);
        }
    }
    answers.into_iter().try_for_each(|answer| say(format, "drain", answer))
}
