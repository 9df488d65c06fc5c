//! Awaiting something that can only be looked at, such as the state of another process.

use std::{fmt::Debug, time::Duration};

use tokio::time::{Instant, sleep};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until `look` says `Ok`, and returns what it found.
///
/// # Panics
/// When it does not within `limit`; the message has the last thing seen.
pub async fn within<T, E, L>(limit: Duration, what: &str, mut look: L) -> T
where
    E: Debug,
    L: AsyncFnMut() -> Result<T, E>,
{
    let deadline = Instant::now() + limit;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if Instant::now() > deadline => {
                panic!("not within {limit:?}: {what}; last seen: {seen:#?}")
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// The same with the usual limit: long enough for a busy machine, for nothing here should take long.
pub async fn eventually<T, E, L>(what: &str, look: L) -> T
where
    E: Debug,
    L: AsyncFnMut() -> Result<T, E>,
{
    within(Duration::from_secs(20), what, look).await
}
