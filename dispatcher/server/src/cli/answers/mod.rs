//! The admin side's answers, as far as the command line and the board read them.
//!
//! Read leniently, on purpose apart from what the admin side writes: a dispatcher and this program
//! may be of different versions, so members that are unknown here are skipped, and those that are
//! absent or `null`, as a time that is infinite is in JSON, are empty ([`read`]). But of the members that it is asked for one must be
//! there ([`Answer`]): `{}` is nobody's answer, and would say that nothing waits, or that it is done.
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
    pods::{Adapter, Pod, PodRequest, Pods},
    queues::{Lane, Queues, Risk},
    requests::{Called, Look, Request, Requests, Waiting},
    why::Why,
};

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

/// Something that the admin side answers.
pub(super) trait Answer: DeserializeOwned {
    /// Members of which it has one at least, of whatever version it is.
    const HAS: &[&str];
}

/// Names what answers have.
macro_rules! has {
    ($($answer:ty: $($member:literal)|+;)+) => {
        $(impl $crate::cli::answers::Answer for $answer {
            const HAS: &[&str] = &[$($member),+];
        })+
    };
}
pub(super) use has;

has! {
    Overview: "pools";
    Queues: "queues" | "bands" | "tenants";
    Requests: "requests";
    Request: "state";
    Pods: "pods";
    Pod: "pod";
    Models: "pools";
    Decisions: "decisions";
}

/// Reads an answer.
///
/// # Errors
/// When a member is of another kind, or it is another answer than was asked for.
pub(super) fn read<T: Answer>(mut answer: Value) -> Result<T, serde_json::Error> {
    check::<T>(&answer)?;
    drop_nulls(&mut answer);
    serde_json::from_value(answer)
}

/// Whether it is the answer that was asked for, as far as that can be told without reading it.
///
/// # Errors
/// When it is not.
pub(super) fn check<T: Answer>(answer: &Value) -> Result<(), serde_json::Error> {
    if T::HAS.iter().any(|member| answer.get(member).is_some()) {
        return Ok(());
    }
    Err(serde_json::Error::custom(format_args!("it has no `{}`", T::HAS.join("` or `"))))
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
