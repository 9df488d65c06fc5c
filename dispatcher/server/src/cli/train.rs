//! `weir train`: rounds of training until the process is stopped, or one.
//!
//! A signal ends the process at any moment: bundles appear by a rename. A supervised trainer also
//! ends, after the round it is in, when its standard input closes.

use std::{
    io::Read as _,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
};

use anyhow::Context as _;
use weir_train::{Round, Trainer};

use crate::{config::Config, worker::Worker};

pub(super) fn run(config: Config, once: bool, supervised: bool) -> Result<(), anyhow::Error> {
    let train = config.learn.train;
    let interval = train.interval;
    let mut trainer = Trainer::open(train).context("cannot train")?;
    if once {
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
    loop {
        match trainer.run_once() {
            Ok(round) => report(&round),
            Err(error) => tracing::error!(%error, "round failed"),
        }
        if over(&closed, interval) {
            return Ok(());
        }
    }
}

fn report(round: &Round) {
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

fn over(closed: &Receiver<()>, interval: std::time::Duration) -> bool {
    closed.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected)
}

fn until_input_closes<T>(held: T) {
    let mut rest = [0; 256];
    while std::io::stdin().read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    drop(held);
}
