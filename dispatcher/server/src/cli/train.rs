//! `weir train`: rounds of training until the process is stopped, or one.
//!
//! A signal ends the process at any moment: bundles appear by a rename. A supervised trainer sends itself one
//! when its standard input closes, whatever it is at, and says on its standard output that it goes on.

use std::{
    io::{Read as _, Write as _},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Signal, getpid, kill_process};
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
    if supervised {
        Worker::spawn("weir-orphan", |_| end_when_input_closes())?;
    }
    let go_on = || {
        if supervised {
            say_so()
        }
    };
    let mut trainer = open(&train, go_on).context("cannot train")?;
    loop {
        let started = Instant::now();
        match trainer.run_once() {
            Ok(round) => report(&round),
            Err(error) => tracing::error!(%error, "round failed"),
        }
        go_on();
        sleep(rest(interval, started.elapsed()));
    }
}

/// Takes the folder of the bundles over, when a trainer that has it ends: in an upgrade the next one starts before that.
/// `waiting` is called again and again until then.
fn open(train: &TrainConfig, waiting: impl Fn()) -> Result<Trainer, TrainError> {
    let mut told = false;
    loop {
        match Trainer::open(train.clone()) {
            Err(TrainError::Locked { dir, by }) => {
                if !std::mem::replace(&mut told, true) {
                    let dir = dir.display();
                    tracing::warn!(%dir, by, "another trainer publishes there; waiting for its end");
                }
                waiting();
                sleep(train.interval.min(MOST_WAIT));
            }
            opened => return opened,
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

/// Whoever started this trainer hears that it goes on. One that is gone hears nothing, which is no fault of a round's.
fn say_so() {
    let _ = std::io::stdout().write_all(b"\n");
}

/// Ends this process when whoever started it is gone, also in the middle of a round that never ends: it would keep the folder
/// from the next trainer.
fn end_when_input_closes() {
    let mut rest = [0; 256];
    while std::io::stdin().read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    let _ = kill_process(getpid(), Signal::TERM);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_second_trainer_waits_for_the_end_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, bundles) = (folder.path().join("spool"), folder.path().join("bundles"));
        let interval = Duration::from_millis(20);
        let config = TrainConfig { spool, bundles, interval, ..TrainConfig::default() };
        let first = Trainer::open(config.clone()).unwrap();
        let (waits, heard) = sync_channel::<()>(100);
        let second =
            std::thread::spawn(move || open(&config, || waits.send(()).unwrap()).map(drop));
        // It says so again and again, for whoever would take it for one that hangs.
        (0..3).for_each(|_| heard.recv().unwrap());
        assert!(!second.is_finished());
        drop(first);
        second.join().unwrap().unwrap();
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
