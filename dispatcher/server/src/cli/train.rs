//! `weir train`: rounds of training until the process is stopped, or one.
//!
//! A signal ends the process at any moment: bundles appear by a rename. A supervised trainer also
//! ends, after the round it is in, when its standard input closes.

use std::{
    io::Read as _,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use weir_train::{Round, TrainConfig, TrainError, Trainer};

use crate::{config::Config, memory, worker::Worker};

/// A folder that another trainer has is asked for this often at least.
const MOST_WAIT: Duration = Duration::from_secs(5);

pub(super) fn run(config: Config, once: bool, supervised: bool) -> Result<(), anyhow::Error> {
    let train = config.learn.train;
    let interval = train.interval;
    if once {
        let mut trainer = Trainer::open(train).context("cannot train")?;
        let round = trainer.run_once().context("round failed")?;
        report(&round);
        return Ok(());
    }
    let (orphaned, closed) = sync_channel::<()>(0);
    // Dropping the sender ends the loop; without supervision it stays here.
    let mut held = Some(orphaned);
    if supervised {
        let held = held.take();
        Worker::spawn("weir-orphan", move |_| until_input_closes(held))?;
    }
    let Some(mut trainer) = open(&train, &closed).context("cannot train")? else { return Ok(()) };
    loop {
        let started = Instant::now();
        match trainer.run_once() {
            Ok(round) => report(&round),
            Err(error) => tracing::error!(%error, "round failed"),
        }
        if over(&closed, rest(interval, started.elapsed())) {
            return Ok(());
        }
    }
}

/// Takes the folder of the bundles over, when a trainer that has it ends: in an upgrade the next one starts before that. `None` when
/// this one is to end first.
fn open(train: &TrainConfig, closed: &Receiver<()>) -> Result<Option<Trainer>, TrainError> {
    let mut told = false;
    loop {
        match Trainer::open(train.clone()) {
            Err(TrainError::Locked(dir)) => {
                if !std::mem::replace(&mut told, true) {
                    let dir = dir.display();
                    tracing::warn!(%dir, "another trainer publishes there; waiting for its end");
                }
                if over(closed, train.interval.min(MOST_WAIT)) {
                    return Ok(None);
                }
            }
            opened => return opened.map(Some),
        }
    }
}

fn report(round: &Round) {
    if matches!(round, Round::Published { .. } | Round::NotBetter { .. }) {
        let mb = memory::most_bytes().map(|bytes| bytes as f64 / 1e6);
        tracing::info!(peak_memory_mb = mb, "round over");
    }
    match round {
        // The trainer has said so itself.
        Round::Published { .. } => {}
        Round::NotBetter { candidate, serving, serving_version, .. } => {
            let (ttft, tpot) = (candidate.ttft.mape, candidate.tpot.mape);
            let (ttft_now, tpot_now) = (serving.ttft.mape, serving.tpot.mape);
            tracing::info!(
                serving_version,
                ttft,
                ttft_now,
                tpot,
                tpot_now,
                "not better; not published"
            );
        }
        Round::NotEnough { have, need, .. } => tracing::info!(have, need, "not enough samples yet"),
        Round::Unchanged { fresh, .. } => tracing::debug!(fresh, "too little is new"),
    }
}

/// Until the next round: an interval is from start to start, so that a sample waits for one round and not for the one under way
/// as well. A round that takes more than half of it is followed by as long a rest, so that half of a core is left.
fn rest(interval: Duration, took: Duration) -> Duration {
    interval.saturating_sub(took).max(took.min(interval))
}

fn over(closed: &Receiver<()>, interval: Duration) -> bool {
    closed.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected)
}

fn until_input_closes<T>(held: T) {
    let mut rest = [0; 256];
    while std::io::stdin().read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    drop(held);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_trainer_waits_for_the_end_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, bundles) = (folder.path().join("spool"), folder.path().join("bundles"));
        let interval = Duration::from_millis(20);
        let config = TrainConfig { spool, bundles, interval, ..TrainConfig::default() };
        let first = Trainer::open(config.clone()).unwrap();
        let (held, closed) = sync_channel::<()>(0);
        let second = std::thread::spawn(move || open(&config, &closed).map(|one| one.is_some()));
        std::thread::sleep(10 * interval);
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().unwrap().unwrap());
        drop(held);
    }

    #[test]
    fn rounds_start_an_interval_apart_unless_they_take_more_than_half_of_it() {
        let s = Duration::from_secs;
        assert_eq!(rest(s(30), s(1)), s(29));
        assert_eq!(rest(s(30), s(15)), s(15));
        assert_eq!(rest(s(30), s(20)), s(20));
        assert_eq!(rest(s(30), s(100)), s(30));
    }
}
