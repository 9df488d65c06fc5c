//! The stages of the process's life, and the way out.
//!
//! ```text
//! signal -> Draining   /readyz answers 503; still accepts for `drain_delay`, until the load
//!                      balancer has noticed; each connection ends with its next answer
//!        -> Closing    accepts no connection; what waits and what runs may finish for `grace`
//!        -> Closed     what waits is refused, what runs ends with an error
//! ```
//! A second signal goes to `Closed` at once. The stage only ever moves on.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::config::Problems;

/// How the dispatcher stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawShutdown {
    /// Seconds to go on accepting after the signal, while /readyz answers 503 and every connection is closed behind its next answer.
    #[schemars(range(min = 0, max = 3600))]
    pub drain_delay_s: u64,
    /// Seconds that waiting and running requests have to finish after that.
    #[schemars(range(min = 0, max = 3600))]
    pub grace_s: u64,
}

impl Default for RawShutdown {
    fn default() -> Self {
        Self { drain_delay_s: 0, grace_s: 30 }
    }
}

impl RawShutdown {
    /// The validated form.
    pub fn check(&self, problems: &mut Problems) -> ShutdownConfig {
        let hour = 3600;
        for (key, value) in
            [("shutdown.drain_delay_s", self.drain_delay_s), ("shutdown.grace_s", self.grace_s)]
        {
            problems.require(value <= hour, key, "must be at most 3600");
        }
        ShutdownConfig {
            drain_delay: Duration::from_secs(self.drain_delay_s),
            grace: Duration::from_secs(self.grace_s),
        }
    }
}

/// How the dispatcher stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// Time to go on accepting after the signal.
    pub drain_delay: Duration,
    /// Time that requests have to finish after that.
    pub grace: Duration,
}

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Accepts and serves.
    Serving,
    /// Accepts and serves, and says that it will not much longer.
    Draining,
    /// Serves what it has.
    Closing,
    /// Serves nothing any more.
    Closed,
}

/// The process's stage; clones share it.
#[derive(Clone, Debug)]
pub struct Life(Arc<watch::Sender<Stage>>);

impl Default for Life {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Stage::Serving)))
    }
}

impl Life {
    /// The stage now.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Ends when `stage` or a later one is reached.
    pub async fn reached(&self, stage: Stage) {
        let mut stages = self.0.subscribe();
        // The sender is alive as long as `self` is.
        let _ = stages.wait_for(|now| *now >= stage).await;
    }

    /// Moves on to `stage`; a stage that is behind already is ignored.
    pub fn move_on(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
            let later = stage > *now;
            if later {
                *now = stage;
            }
            later
        });
    }
}

/// The signals that ask the process to stop.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on. Needs a runtime.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Ends with the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Moves `life` through its stages: on the first `signal`, by the clock, and at once on the second.
/// `idle` ends when nothing waits and nothing runs.
pub async fn conduct<S, N, I>(
    life: &Life,
    config: ShutdownConfig,
    mut signal: S,
    idle: impl FnOnce() -> I,
) where
    S: FnMut() -> N,
    N: Future<Output = ()>,
    I: Future<Output = ()>,
{
    signal().await;
    tracing::info!(grace_s = config.grace.as_secs(), "draining; a second signal ends it at once");
    let orderly = async {
        life.move_on(Stage::Draining);
        tokio::time::sleep(config.drain_delay).await;
        life.move_on(Stage::Closing);
        if tokio::time::timeout(config.grace, idle()).await.is_err() {
            tracing::warn!("grace is over; cutting what still runs");
        }
    };
    tokio::select! {
        () = orderly => {}
        () = signal() => tracing::warn!("second signal; cutting what still runs"),
    }
    life.move_on(Stage::Closed);
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::{sync::Semaphore, time::Instant};

    use super::*;

    const CONFIG: ShutdownConfig =
        ShutdownConfig { drain_delay: Duration::from_secs(5), grace: Duration::from_secs(30) };

    /// Gives as many signals as the semaphore has permits.
    async fn one(signals: &Semaphore) {
        signals.acquire().await.unwrap().forget();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_dispatcher_closes_after_the_drain_delay() {
        let (life, signals, start) = (Life::default(), Semaphore::new(1), Instant::now());
        conduct(&life, CONFIG, || one(&signals), || ready(())).await;
        assert_eq!(life.stage(), Stage::Closed);
        assert_eq!(start.elapsed(), CONFIG.drain_delay);
    }

    #[tokio::test(start_paused = true)]
    async fn grace_bounds_what_still_runs() {
        let (life, signals, start) = (Life::default(), Semaphore::new(1), Instant::now());
        conduct(&life, CONFIG, || one(&signals), pending).await;
        assert_eq!(start.elapsed(), CONFIG.drain_delay + CONFIG.grace);
    }

    #[tokio::test(start_paused = true)]
    async fn it_accepts_during_the_drain_delay_and_not_after() {
        let (life, signals) = (Life::default(), Semaphore::new(1));
        let conducting = conduct(&life, CONFIG, || one(&signals), pending);
        let watching = async {
            let start = Instant::now();
            life.reached(Stage::Draining).await;
            assert_eq!(start.elapsed(), Duration::ZERO);
            life.reached(Stage::Closing).await;
            assert_eq!(start.elapsed(), CONFIG.drain_delay);
        };
        tokio::join!(conducting, watching);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_it_at_once() {
        let (life, signals, start) = (Life::default(), Semaphore::new(2), Instant::now());
        conduct(&life, CONFIG, || one(&signals), pending).await;
        assert_eq!(life.stage(), Stage::Closed);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[test]
    fn the_stage_never_moves_back() {
        let life = Life::default();
        life.move_on(Stage::Closing);
        life.move_on(Stage::Draining);
        assert_eq!(life.stage(), Stage::Closing);
    }
}
