//! The admin side's answers, as far as the command line and the board read them.
//!
//! Read leniently, on purpose apart from what the admin side writes: a dispatcher and this program
//! may be of different versions, so members that are unknown here are skipped, and those that are
//! absent or `null`, as a time that is infinite is in JSON, are empty ([`read`]).
//!
//! # Layout
//! - [`why`]: a reason, with its figures
//! - [`overview`], [`queues`], [`requests`], [`pods`], [`models`], [`decisions`]: one answer each

pub(super) mod decisions;
pub(super) mod models;
pub(super) mod overview;
pub(super) mod pods;
pub(super) mod queues;
pub(super) mod requests;
pub(super) mod why;

pub(super) use self::{
    decisions::{Decision, Decisions},
    models::{Model, Models, Version},
    overview::{Overview, PoolOverview},
    pods::{Pod, PodRequest, Pods},
    queues::{Lane, Queues, Risk},
    requests::{Called, Look, Request, Requests, Waiting},
    why::Why,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads an answer.
///
/// # Errors
/// When a member is of another kind.
pub(super) fn read<T: DeserializeOwned>(mut answer: Value) -> Result<T, serde_json::Error> {
    drop_nulls(&mut answer);
    serde_json::from_value(answer)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
