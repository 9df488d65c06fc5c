//! How many pods what comes needs, for whoever starts and stops them.
//!
//! Two questions, answered apart. What comes is a [`load`](Need::load): the work of the requests that came lately over what the
//! open pods hold by formula, which follows the traffic at once and is in proportion to it. What of that load is held within
//! objectives differs from traffic to traffic by a factor of ten, and no formula has it: it is [`Held`], learned from what
//! became of requests. The one over the other is how many pods there should be.
//!
//! - `work`: what a request asks of an engine, and how many pods so much work takes
//! - `demand`: what came lately, and how far the lengths of answers were estimated wrong
//! - `held`: the load that is held

mod demand;
mod held;
mod work;

use serde::{Deserialize, Serialize};

pub use demand::Demand;
pub use held::Held;
pub use work::{Capacity, Work};

/// How many pods a pool needs, and why.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Need {
    /// Work of the requests that came in the last minute and may not be shed, over what the open pods hold by formula: 1 is
    /// every pod at the pace that requests ask for, evenly. Without open pods as if there were one of the first class.
    pub load: f64,
    /// The same with the sheddable ones.
    pub load_of_all: f64,
    /// The load at which as many of the requests that may not be shed are in time as asked for, as far as was seen.
    pub held: f64,
    /// Pods, such as those that are open, that bring the load to that; at least one while something comes. Where a class has several
    /// engines behind a port, they are one here, for they are started and stopped as one.
    pub pods: u32,
    /// The same with the sheddable requests.
    pub pods_for_all: u32,
}

/// What is asked of a pool that others size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NeedConfig {
    /// Share of the requests with objectives that may not be shed which should be in time, from 0.5 to 0.999.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.5, max = 0.999)))]
    pub attained: f64,
    /// The load at which as many are in time as far as is known before anything was seen, 0.02 to 2; `weir advise` finds it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.02, max = 2)))]
    pub load: f64,
    /// Whether it is learned from what becomes of requests.
    pub learn: bool,
}

impl Default for NeedConfig {
    fn default() -> Self {
        // What conversations are held at, about: docs/lab.md.
        Self { attained: 0.99, load: 0.7, learn: true }
    }
}
