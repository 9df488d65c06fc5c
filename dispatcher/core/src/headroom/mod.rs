//! Headroom: what a pod has left for a newcomer and for those it already serves.
//!
//! - [`features`]: the state of a pod and a demand, as the row the models know
//! - [`start`]: when a first token would come, on one pod or many at once
//! - [`outlook`]: what sending a request to a pod would do, by the step-time model
//! - [`judge`]: predictions against objectives, the newcomer's and the residents'
//! - [`risk`]: how many residents a stall would cost their pace
//! - [`stride`]: a pod's steps as seen in its streams, from which step times are learned

pub mod features;
pub mod judge;
pub mod outlook;
pub mod risk;
pub mod start;
pub mod stride;

pub use outlook::{Demand, Ground, Outlook};
pub use start::{Question, Starts};
