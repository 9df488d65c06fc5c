//! A time limit on a wait, kept by who polls.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

/// How long what was waited for is looked at once more after its time. A process that did not run for a while finds its timers over
/// before it finds what has come meanwhile.
pub const SECOND_LOOK: Duration = Duration::from_millis(50);

/// What comes of this before its time is up, or is found to have come at a second look.
pub async fn in_time<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match timeout_at(deadline, future.as_mut()).await {
        Ok(output) => Some(output),
        Err(_) => timeout(SECOND_LOOK, future).await.ok(),
    }
}

/// A time limit that is set when the wait begins and forgotten when it ends.
///
/// A wait costs a look at the clock: its timer is set anew when it fires, not when a wait begins.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    due: Option<Instant>,
    /// Kept for the next wait: most waits never come to need a timer.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// For waits of at most this long.
    pub const fn new(limit: Duration) -> Self {
        Self { limit, due: None, timer: None }
    }

    /// A wait begins, unless it has.
    pub fn begin(&mut self) {
        if self.due.is_none() {
            self.due = Some(Instant::now() + self.limit);
        }
    }

    /// Whether a wait has begun.
    pub const fn is_waiting(&self) -> bool {
        self.due.is_some()
    }

    /// The wait has ended.
    pub fn forget(&mut self) {
        self.due = None;
    }

    /// Ready once the wait that has begun is over.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            ready!(timer.as_mut().poll(cx));
            // It may have been set for a wait before this one, which cannot end later.
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }
}
