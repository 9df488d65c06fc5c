//! The decision: which request goes to which pod, and when to hold.
//!
//! No clock, no I/O, no runtime: time is an argument and everything goes through
//! [`Scheduler::handle`]. The same bytes serve production and simulation.
//!
//! # Layout
//! - [`request`], [`pod`], [`adapter`], [`event`], [`control`], [`config`], [`snapshot`]: the words at the door
//! - [`scheduler`]: the door: an event and the time in, actions out
//! - [`policy`]: what decides, as data; [`decide`]: the pass that follows it
//! - [`headroom`]: what a pod has left for a newcomer and for those it serves
//! - [`queue`]: lanes, board, rank and bounds; [`pattern`] names the lanes
//! - [`ledger`], [`fleet`]: what is in flight on each pod, and everything else known of it
//! - [`halves`]: a request that two pods serve, one its prompt and one its answer
//! - [`length`], [`ratio`], [`prefix`]: output lengths, tokens per byte, cached prompt blocks; [`per_event`]: tokens per event
//! - [`learned`]: what of all that is kept for the next process
//! - [`recent_error`]: how wrong predictions were lately
//! - [`need`]: how many pods what comes needs
//! - [`profile`]: capacity, load and violation by measured profiles
//! - [`explain`]: the reason for every wait; [`inspect`]: the closer look; [`decisions`]: the last of them
//! - [`time`]: time as an argument; [`by_id`]: tables by requests; [`spread`]: tables by other numbers

pub mod adapter;
pub mod by_id;
pub mod config;
pub mod control;
pub mod decide;
pub mod decisions;
pub mod event;
pub mod explain;
pub mod fleet;
pub mod halves;
pub mod headroom;
pub mod inspect;
pub mod learned;
pub mod ledger;
pub mod length;
pub mod need;
pub mod pattern;
pub mod per_event;
pub mod pod;
pub mod policy;
pub mod prefix;
pub mod profile;
pub mod queue;
pub mod rate;
pub mod ratio;
pub mod recent_error;
pub mod regrets;
pub mod request;
pub mod scheduler;
pub mod snapshot;
pub mod spread;
pub mod time;

pub use adapter::AdapterId;
pub use config::{Bounds, BucketEdges, HeadRule, LengthConfig, PullConfig, SchedulerConfig, TICK};
pub use control::{Control, Gate};
pub use event::{
    Action, Answered, Dispatch, End, EndKind, Event, Lesson, Progress, Refusal, RefusalReason,
    Running,
};
pub use explain::Reason;
pub use halves::Handover;
pub use learned::Learned;
pub use need::{Need, NeedConfig};
pub use pod::{CacheInfo, CacheUse, Phase, PodClass, PodId, PodSpec, Pulse, Role, Scrape};
pub use policy::{Policy, Rules};
pub use profile::Profiles;
pub use recent_error::RecentError;
pub use request::{Band, PromptSize, Request, RequestId, Slo};
pub use scheduler::Scheduler;
pub use snapshot::{
    AdapterView, Counters, LaneView, PodView, REQUESTS_SHOWN, RequestView, Snapshot,
};
pub use time::Time;
