//! Several dispatchers in front of the same pods, of which one decides.
//!
//! Dispatchers that decide apart know nothing of what the others sent to a pod, which prompts it has cached by that, and what it
//! keeps free for whom; a gateway that has more than one wants them for the case that one is lost, not for more decisions. So of
//! those that can hear each other the one that started first decides for all. The others accept clients, ask it for verdicts, and
//! relay between their clients and the pods themselves: a dispatcher that is lost takes with it the streams that went through it,
//! and nobody else's.
//!
//! Every dispatcher calls every other, once for each pool, and asks by that call; who is called answers by its hub, as if the
//! requests were its own. Nothing is voted on: all hear of the same ranks, and where they do not, since the network is parted, each
//! side has one that decides, as if it were alone. A call that is lost takes nothing along: what waits is decided anew, by the next
//! in rank or here, and who was called gives back what it had given out.
//!
//! # Layout
//! - [`config`]: what is written and what it becomes
//! - `rank`: who decides; [`circle`]: the others of one pool, as far as they can be heard
//! - `wire`: what travels; `seal`: what shows whom it comes from
//! - `call`: calls another and asks; `lobby`: who calls; `desk`: is called and answers
//! - `teach`: what is known, for one that may decide next
//! - `run`: the thread

mod call;
pub mod circle;
pub mod config;
mod desk;
mod lobby;
mod rank;
mod run;
mod seal;
mod teach;
#[cfg(test)]
mod tests;
mod wire;

pub use circle::{Circle, CircleView};
pub use config::{RawReplicas, ReplicasConfig};
pub use run::{Replicas, bind};

use std::time::Duration;

/// Between two signs of life on a call.
const BEAT: Duration = Duration::from_millis(125);
/// Own beats without a sign of life after which a call is lost. A process that ends is noticed at once, by its connection; this is for
/// a machine that vanishes. Beats are counted and not time, for who was held up itself has not listened meanwhile: three dispatchers on
/// two cores that eight to 24 others wanted as well, or that ran for a tenth of each half second, lost no call.
const MISSED: u32 = 8;
/// The same without an answer to a sign of life, though others come: who is that busy decides too late. Longer, for it is then left
/// alone for some seconds.
const LATE: u32 = 2 * MISSED;
/// As long is waited where nothing beats.
const SILENT: Duration = Duration::from_secs(2);
