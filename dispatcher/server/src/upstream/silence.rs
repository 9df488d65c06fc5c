//! Notices that a pod has stopped talking.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};
use weir_core::Time;

use crate::{clock::Clock, patience::SECOND_LOOK};

/// Notices that a pod has stopped talking: in a stream, that its events have, for a server goes on with comments while its
/// engine hangs. Signs of life only leave their time here; the timer is set anew when it fires, not with each of them.
pub(super) struct Silence {
    /// When it is over, or what comes after it.
    pub timer: Pin<Box<Sleep>>,
    pub clock: Clock,
    /// `None` once the first token was seen.
    first_token_by: Option<Time>,
    last_sign_at: Time,
    stall_timeout: Duration,
    /// Its time was over at the look before, and it is looked at once more.
    doubted: bool,
    /// How often it is asked whether the pod is out, if it is; and whether it was, with nothing to be heard since.
    look: Option<Duration>,
    was_out: bool,
}

impl Silence {
    /// From now on.
    pub(super) fn new(
        clock: Clock,
        first_token_by: Option<Instant>,
        stall_timeout: Duration,
    ) -> Self {
        let now = clock.now();
        let left = first_token_by.map(|by| by.saturating_duration_since(Instant::now()));
        let silence = left.unwrap_or(stall_timeout);
        let first_token_by = left.map(|left| now.plus(left));
        let timer = Box::pin(sleep(silence));
        Self {
            timer,
            clock,
            first_token_by,
            last_sign_at: now,
            stall_timeout,
            doubted: false,
            look: None,
            was_out: false,
        }
    }

    /// The same of another pod, whose first event is to be there by then.
    pub(super) fn of_next(&self, by: Instant) -> Self {
        Self::new(self.clock, Some(by), self.stall_timeout).that_asks()
    }

    /// The same, which asks now and then whether the pod is out: two times in a row, and nobody waits for it any longer.
    pub(super) fn that_asks(mut self) -> Self {
        let look = look(self.stall_timeout);
        self.look = Some(look);
        self.timer.as_mut().reset(Instant::now() + look);
        self
    }

    /// Something came.
    pub(super) const fn sign_of_life(&mut self, now: Time) {
        self.last_sign_at = now;
    }

    /// An event came that holds nothing of the answer. The engine is at work, and has as long for the next as inside an answer;
    /// never less than for the first token.
    pub(super) fn event(&mut self, now: Time) {
        let by = now.plus(self.stall_timeout);
        self.first_token_by = self.first_token_by.map(|first| first.max(by));
    }

    /// The first token came.
    pub(super) fn first_token(&mut self) {
        self.first_token_by = None;
        self.doubted = false;
        let next = self.look.map_or(self.stall_timeout, |look| look.min(self.stall_timeout));
        self.timer.as_mut().reset(Instant::now() + next);
    }

    /// Waits until it has been silent for too long, or is out and silent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_out: impl Fn() -> bool) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.first_token_by.unwrap_or(self.last_sign_at.plus(self.stall_timeout));
            let now = self.clock.now();
            let mut left = due.since(now);
            let over = left.is_zero();
            if over {
                if self.doubted {
                    return Poll::Ready(());
                }
                left = SECOND_LOOK;
            }
            self.doubted = over;
            if let Some(look) = self.look {
                let is_out = now.since(self.last_sign_at) >= look && is_out();
                if is_out && self.was_out {
                    return Poll::Ready(());
                }
                self.was_out = is_out;
                left = left.min(look);
            }
            self.timer.as_mut().reset(Instant::now() + left);
        }
    }
}

/// How often it is asked whether a pod is out that has so much time between two events.
pub(super) fn look(stall_timeout: Duration) -> Duration {
    (stall_timeout / LOOKS).min(MOST)
}

/// In the time that a stream may be silent it is asked so often whether its pod is out, and no less often than this.
const LOOKS: u32 = 8;
const MOST: Duration = Duration::from_secs(1);
