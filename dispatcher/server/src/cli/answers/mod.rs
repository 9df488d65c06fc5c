//! The admin side's answers, as far as the command line and the board read them.
//!
//! Read leniently, on purpose apart from what the admin side writes: a dispatcher and this program
//! may be of different versions, so members that are unknown here are skipped, absent ones are empty,
//! and a time that is infinite (`null` in JSON) is not known.
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
    requests::{Look, Request, Requests, Waiting},
    why::Why,
};

#[cfg(test)]
mod tests;
