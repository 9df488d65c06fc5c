//! What waits: lanes per pattern, the board that holds them, and the bounds on both.
//!
//! - [`lane`]: one pattern's requests in rank order
//! - [`board`]: all lanes and the demoted ones; [`waiting`]: the facts kept of each waiting request
//! - [`ages`]: requests by their arrival
//! - [`order`]: what a rank is
//! - [`key`]: what lanes are called; [`paused`]: those that an operator holds
//! - [`bounds`]: how much may wait, and how long a newcomer would; [`strain`]: how much of its objective what leaves has waited;
//!   [`longest`]: the longest prompt of late; [`promised`]: objectives and bands, counted

pub mod ages;
pub mod board;
pub mod bounds;
pub mod key;
pub mod lane;
pub mod longest;
pub mod order;
pub mod paused;
pub mod promised;
pub mod strain;
pub mod waiting;

pub use board::Board;
pub use bounds::Drain;
pub use key::LaneKey;
pub use lane::Lane;
pub use longest::Longest;
pub use order::{Head, Rank};
pub use paused::Paused;
pub use promised::Promised;
pub use strain::Strain;
pub use waiting::{Failed, Waiting};
