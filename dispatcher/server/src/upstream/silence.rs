//! Notices that a pod has stopped talking.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};
use weir_core::Time;

use crate::{clock::Clock, patience::SECOND_LOOK};

/// Notices that a pod has stopped talking: in a stream, that its events have, for a server goes on with comments while its
/// engine hangs. Signs of life only leave their time here; the timer is set anew when it fires, not with each of them.
pub(super) struct Silence {
    /// When it is over, or what comes after it.
    pub timer: Timer,
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
        let timer = Timer::new(silence);
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
        self.timer.set(look);
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
        self.timer.set(next);
    }

    /// Waits until it has been silent for too long, or is out and silent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_out: impl Fn() -> bool) -> Poll<()> {
        loop {
            ready!(self.timer.poll(cx));
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
            self.timer.set(left);
        }
    }
}

/// A timer that is asked far more often than it fires, mostly by the same task: it knows whom it wakes and need not be told again.
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    /// Whom it wakes; `None` until it was asked since it was set.
    wakes: Option<Waker>,
}

impl Timer {
    fn new(after: Duration) -> Self {
        Self { sleep: Box::pin(sleep(after)), wakes: None }
    }

    /// Sets it anew, from now on.
    pub(super) fn set(&mut self, after: Duration) {
        self.sleep.as_mut().reset(Instant::now() + after);
        self.wakes = None;
    }

    /// Waits until it fires.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_told = |waker: &Waker| waker.will_wake(cx.waker());
        if self.wakes.as_ref().is_some_and(is_told) && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        let fired = self.sleep.as_mut().poll(cx);
        self.wakes = fired.is_pending().then(|| cx.waker().clone());
        fired
    }
}

/// How often it is asked whether a pod is out that has so much time between two events.
pub(super) fn look(stall_timeout: Duration) -> Duration {
    (stall_timeout / LOOKS).min(MOST)
}

/// In the time that a stream may be silent it is asked so often whether its pod is out, and no less often than this.
const LOOKS: u32 = 8;
const MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_wakes_who_asked_last_each_time_it_was_set() {
        let [one, other] = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        let mut timer = Timer::new(Duration::from_secs(1));
        let ask = |timer: &mut Timer, who: &Arc<Woken>| {
            timer.poll(&mut Context::from_waker(&Waker::from(who.clone())))
        };
        for (round, asks) in [(1, [&other, &one]), (2, [&one, &one]), (3, [&other, &one])] {
            assert!(asks.map(|who| ask(&mut timer, who)).iter().all(Poll::is_pending));
            sleep(Duration::from_secs(2)).await;
            assert_eq!([&one, &other].map(|who| who.0.load(Relaxed)), [round, 0]);
            assert!(ask(&mut timer, &one).is_ready());
            timer.set(Duration::from_secs(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_is_set_while_somebody_waits_wakes_him_at_its_new_time() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut timer = Timer::new(Duration::from_secs(1));
        assert!(timer.poll(&mut Context::from_waker(&waker)).is_pending());
        timer.set(Duration::from_secs(5));
        assert!(timer.poll(&mut Context::from_waker(&waker)).is_pending());
        sleep(Duration::from_secs(4)).await;
        assert_eq!(woken.0.load(Relaxed), 0);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(woken.0.load(Relaxed), 1);
        assert!(timer.poll(&mut Context::from_waker(&waker)).is_ready());
    }
}
