//! `weir queue`: what waits and why, and the changes an operator may make to it.
//!
//! # Layout
//! - [`args`]: the command line
//! - [`filter`]: which requests are meant
//! - [`sheets`]: the answers for people
//! - [`cancel`]: cancelling, by name or by filter

mod args;
mod cancel;
mod filter;
mod sheets;

use serde_json::{Value, json};

pub(super) use self::{args::QueueArgs, filter::duration, sheets::looks};
use self::{
    args::{By, ListArgs, MoveArgs, PauseArgs, QueueCommand, ShowArgs},
    sheets::{Bands, Lanes, Paused, Tenants},
};
use super::{
    answers::{self, Request, Requests},
    confirm::confirm,
    failure::Failure,
    output::{Format, print, say},
    remote::{Admin, path::Path},
};

pub(super) fn run(args: QueueArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?;
    let format = args.output.output;
    match args.command {
        QueueCommand::Ls(list) => ls(&admin, format, &list),
        QueueCommand::Show(show) => self::show(&admin, format, &show),
        QueueCommand::Cancel(what) => cancel::run(&admin, format, &what),
        QueueCommand::Pause(what) => pause(&admin, format, &what),
        QueueCommand::Resume(place) => change(&admin, format, "resume", &place.body()),
        QueueCommand::Move(what) => move_to(&admin, format, &what),
    }
}

fn ls(admin: &Admin, format: Format, list: &ListArgs) -> Result<(), Failure> {
    let path = Path::new("/queues").with("pool", list.pool.as_ref());
    let answer = admin.get(path.as_str())?;
    match list.by {
        By::Lane => format.print::<Lanes>("queues", answer),
        By::Band => format.print::<Bands>("queues", answer),
        By::Tenant => format.print::<Tenants>("queues", answer),
    }
}

fn show(admin: &Admin, format: Format, show: &ShowArgs) -> Result<(), Failure> {
    if let Some(request) = &show.request {
        return one(admin, format, request, show.filter.pool.as_deref());
    }
    let path = |cursor: Option<&str>| {
        let path = show.filter.query(Path::new("/requests"));
        path.with("limit", Some(show.limit)).with("cursor", cursor)
    };
    let (answer, next) = pages(admin, show, path)?;
    format.print::<Requests>("requests", answer)?;
    if let Some(next) = next.filter(|_| format.is_for_people()) {
        say(format_args!("there are more: --cursor {next}, or --all"));
    }
    Ok(())
}

/// One page, or with `--all` all of them as one; and the cursor of what is left out.
fn pages(
    admin: &Admin,
    show: &ShowArgs,
    path: impl Fn(Option<&str>) -> Path,
) -> Result<(Value, Option<String>), Failure> {
    let mut cursor = show.cursor.clone();
    let mut all = Vec::new();
    loop {
        let mut answer = admin.get(path(cursor.as_deref()).as_str())?;
        let page: Requests = answers::read(answer.clone())
            .map_err(|error| Failure::not_understood("requests", error))?;
        let requests = answer.get_mut("requests").map(Value::take);
        all.append(requests.unwrap_or_default().as_array_mut().unwrap_or(&mut Vec::new()));
        cursor = page.cursor();
        // A filter that matches little may return a short page; it is filled up as asked.
        let wanted = show.all || all.len() < show.limit as usize;
        if cursor.is_none() || !wanted {
            return Ok((json!({"requests": all, "next": cursor}), cursor));
        }
    }
}

/// `weir queue show REQUEST` and `weir explain REQUEST`.
pub(super) fn one(
    admin: &Admin,
    format: Format,
    request: &str,
    pool: Option<&str>,
) -> Result<(), Failure> {
    let path = Path::new("/requests").segment(request).with("pool", pool);
    format.print::<Request>("the request", admin.get(path.as_str())?)
}

fn pause(admin: &Admin, format: Format, pause: &PauseArgs) -> Result<(), Failure> {
    let place = &pause.place;
    let whole_pool = place.lane.is_none() && place.band.is_none();
    if whole_pool {
        let pool = place.pool.as_deref().unwrap_or("the pool");
        confirm(
            pause.yes,
            &format!("hold everything that arrives for {pool} until it is resumed"),
        )?;
    }
    change(admin, format, "pause", &place.body())
}

fn change(admin: &Admin, format: Format, verb: &str, body: &Value) -> Result<(), Failure> {
    let answer = admin.post(&format!("/queues/{verb}"), body)?;
    format.print::<Paused>(verb, answer)
}

fn move_to(admin: &Admin, format: Format, what: &MoveArgs) -> Result<(), Failure> {
    let path = Path::new("/requests").segment(&what.request).segment("move");
    let mut body = json!({"band": what.band});
    if let (Some(pool), Some(body)) = (&what.pool, body.as_object_mut()) {
        body.insert("pool".to_owned(), pool.as_str().into());
    }
    let answer = admin.post(path.as_str(), &body)?;
    if format.is_for_people() {
        answers::check::<Request>(&answer)
            .map_err(|error| Failure::not_understood("move", error))?;
        return print(&format!("{} moved to band {}\n", what.request, what.band));
    }
    format.print::<Request>("move", answer)
}
