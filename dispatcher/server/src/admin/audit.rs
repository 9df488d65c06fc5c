//! One log line for every change that was asked for, done or not, and a count of them.
//!
//! At every level, with target `weir::audit`: who, what, in which pool, how many requests or pods it touched, what came of
//! it, and from where. Never a token.

use axum::response::Response;

use super::{
    fault::{Fault, Verdict},
    guard::Caller,
    seat::Seat,
};
use crate::telemetry::log::AUDIT;

/// A change that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// What is done, as the metric's `action` label has it.
    pub action: &'static str,
    /// The pool; empty for those that concern the whole process.
    pub pool: &'a str,
    /// What it is done to.
    pub what: &'a str,
}

/// Does a change and writes down what came of it; `act` says how many it touched.
///
/// # Errors
/// What `act` says.
pub fn change<T>(
    seat: &Seat,
    caller: &Caller,
    change: Change<'_>,
    act: impl FnOnce() -> Result<(T, usize), Fault>,
) -> Result<T, Fault> {
    let done = act();
    let (result, count) = match &done {
        Ok((_, count)) => ("ok", *count),
        Err(fault) => (fault.verdict().1, 0),
    };
    let Change { action, pool, what } = change;
    caller.note_written();
    write(caller, action, pool, what, count, result);
    let counted = if done.is_ok() { "ok" } else { "refused" };
    seat.watched().metrics.admin_change(action, counted);
    done.map(|(value, _)| value)
}

/// Writes down a change that its caller may not make.
pub fn denied(seat: &Seat, caller: &Caller, path: &str, fault: &Fault) {
    refused(seat, caller, ("denied", path), fault.verdict().1);
}

/// Writes down a change of which it could not be read what it is.
pub fn unread(seat: &Seat, caller: &Caller, path: &str, answer: &Response) {
    if let Some(Verdict(code)) = answer.extensions().get() {
        refused(seat, caller, ("unread", path), code);
    }
}

fn refused(seat: &Seat, caller: &Caller, (action, path): (&'static str, &str), code: &str) {
    let path: String = path.chars().take(200).collect();
    write(caller, action, "", &path, 0, code);
    seat.watched().metrics.admin_change(action, "refused");
}

fn write(caller: &Caller, action: &str, pool: &str, what: &str, count: usize, result: &str) {
    let from = caller.from.map(|from| from.to_string()).unwrap_or_default();
    tracing::info!(
        target: AUDIT, who = %caller.who, action, pool, what = ?what, count, result, from, "operator's change"
    );
}
