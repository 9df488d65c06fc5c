//! The data API: accepts OpenAI calls on the data plane's threads and answers them.
//!
//! [`routes::start`] is called once by the assembly. Bodies are kept as the bytes that came and go on
//! unchanged; [`mod@peek`] reads a few facts of them, nothing of them is ever logged, and no
//! label of a metric comes from a client.
//!
//! # Promises
//! - Every call gets one answer: the pod's, or an error in the shape of the API that it called from [`error`].
//! - Only the listed paths exist. This is no proxy: what else a pod serves cannot be reached.
//! - A client that leaves takes its request with it, wherever it is.
//! - What a client can make the process hold is bounded: head, body, connections, tenants and time.
//!
//! # Layout
//! - [`routes`]: a call's way from its head to [`crate::upstream::serve()`]
//! - [`plane`]: threads, listeners and connections; [`patience`]: what ends a connection that stalls; [`misread`]: what was no request;
//!   [`room`]: how many there may be; `behind`: what of a response its client has not taken
//! - [`endpoint`]: which paths there are; [`auth`]: keys; [`limit`]: rates; [`body`]: the bytes, and
//!   [`reading`]: how many of them at a time; [`mod@peek`]: the facts in them
//! - [`objective`]: SLO, band and tenant; [`wait`]: how long it may wait; `cors`: which web pages may call; [`models`]: which pool serves a name
//! - [`headers`]: what goes on to the pod; [`error`]: what the client is told
//! - [`config`]: this part of the configuration

pub mod auth;
mod behind;
pub mod body;
pub mod config;
mod cors;
pub mod endpoint;
pub mod error;
pub mod headers;
pub mod limit;
pub mod misread;
pub mod models;
pub mod objective;
pub mod patience;
pub mod peek;
pub mod plane;
pub mod reading;
pub mod room;
pub mod routes;
pub mod wait;

pub use config::{ApiConfig, RawApi};
pub use plane::{Listeners, Plane, PlaneConfig};
pub use routes::{Api, Pool, start};
