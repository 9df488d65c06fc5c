//! The timer of a pool in which something waits.

use std::sync::Arc;

use weir_core::TICK;

use super::Hub;

/// Ticks the hub every [`TICK`] while something waits in it, or runs that another dispatcher has to hear of, and sleeps otherwise.
///
/// Run one per hub, on any runtime; it never returns. Without it a request still leaves when
/// something happens in its pool, but not because its time has come.
pub async fn run_ticks(hub: Arc<Hub>) {
    loop {
        hub.until_something_stirs().await;
        tokio::time::sleep(TICK).await;
        hub.tick();
    }
}
