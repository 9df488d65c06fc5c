//! Delivers requests to pods and relays their responses.
//!
//! The data plane calls [`serve()`] once per request and gets a response head with a body, or a
//! [`Fault`] to answer with. Everything is undone by dropping: the future of `serve` while the
//! request waits or is being sent, the [`RelayBody`] once there is a response. Either way the pod's
//! connection is cut at once, the lease ends and the queue forgets the request.
//!
//! # Promises
//! - Bytes pass unchanged, but for a priority that the configuration asks for and for where another pod keeps the prompt. Only hop-by-hop headers are dropped, and a few of our own added.
//! - A request is sent a second time only when nothing of it was sent before, or to go on where a pod was lost, as often as the configuration allows.
//! - A response that a pod did not finish never looks finished.
//! - When it is to end before its pod is done, because the process ends, its client is told so.
//!
//! # Layout
//! - [`mod@serve`]: admit, wait for a pod; `attempt`: send, try again, answer
//! - [`client`]: connections to pods, which [`crate::h1`] speaks HTTP on
//! - `ahead`: what is read of a response before its head is passed on; [`relay`]: the response body
//! - `silence`: whether a pod still talks; `hold`: what is kept back of a stream, so that it breaks off between two events
//! - `sse`: what the events of a stream say; `usage`: token counts that a pod reports
//! - `account`: one request's outcome, counted once
//! - `blame`: what that says of the pod
//! - [`dialect`]: how the clients of a call read streams and errors
//! - `headers`: what is dropped from and added to a response's head
//! - [`prefill`]: prompts that the pods of another pool compute
//! - [`migration`]: requests that go on at another pod; `said`: what of an answer was passed on; `continuation`: how a pod is asked to go on
//! - `priority`: vLLM's priority, written into a body; `splice`: how
//! - `closing`: whether what runs is to end
//! - [`config`]: timeouts and limits

mod account;
mod ahead;
mod attempt;
mod blame;
pub mod client;
mod closing;
pub mod config;
mod continuation;
pub mod dialect;
mod door;
mod headers;
mod hold;
pub mod migration;
pub mod prefill;
mod priority;
pub mod relay;
mod said;
pub mod serve;
mod silence;
mod splice;
mod sse;
mod usage;

pub use client::Upstream;
pub use closing::Closing;
pub use config::{RawUpstream, UpstreamConfig};
pub use dialect::Dialect;
pub use migration::Migrates;
pub use prefill::Prefill;
pub use relay::{RelayBody, RelayError};
pub use serve::{Call, Fault, Unserved, serve};

#[cfg(test)]
mod tests;
