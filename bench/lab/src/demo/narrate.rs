//! The lines that a person reads while the demo runs.

use std::{cell::RefCell, convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::Result;
use tokio::time::MissedTickBehavior;

use super::{admin::PoolView, stage::Stage};
use crate::{
    load::{Class, Tally},
    results::say,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const LINE_EVERY_S: f64 = 10.0;

/// Tells what happens until it is dropped.
pub(super) struct Narrator<'a> {
    pub(super) admin: SocketAddr,
    pub(super) classes: &'a [Class],
    /// Kept up to date by the load.
    pub(super) tally: &'a RefCell<Tally>,
    /// Kept up to date while requests are still being sent.
    pub(super) loaded: &'a RefCell<Option<PoolView>>,
    /// Seconds of the first stretch, and the rate of the second.
    pub(super) step: (f64, f64),
}

/// What was told already.
#[derive(Default)]
struct Told {
    line_s: f64,
    version: u64,
    overload: bool,
    drain: bool,
}

impl Narrator<'_> {
    /// Ends only with an error: when a child has ended, or a line cannot be written.
    pub(super) async fn narrate(&self, stage: &mut Stage) -> Result<Infallible> {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = Told::default();
        loop {
            ticks.tick().await;
            stage.check()?;
            let tally = self.tally.borrow().clone();
            // Weir may be too busy to answer for a moment; the next look will tell.
            if let Ok(pool) = PoolView::read(self.admin).await {
                self.tell(&tally, &pool, &mut told)?;
                if tally.sent < tally.planned {
                    self.loaded.replace(Some(pool));
                }
            }
        }
    }

    fn tell(&self, tally: &Tally, pool: &PoolView, told: &mut Told) -> Result<()> {
        let now = tally.elapsed_s;
        let version = pool.snapshot.predictor.model_version;
        if version != told.version {
            say!("[{now:4.0} s] {}", swapped(told.version, version))?;
            told.version = version;
        }
        let (step_s, rate) = self.step;
        if now >= step_s && !told.overload {
            say!(
                "[{now:4.0} s] more than the pods can hold: {rate:.1} requests per second from here on"
            )?;
            told.overload = true;
        }
        if tally.planned > 0 && tally.sent == tally.planned && !told.drain {
            say!("[{now:4.0} s] everything is sent; waiting for the last answers")?;
            told.drain = true;
        }
        if now >= told.line_s + LINE_EVERY_S {
            say!("{}", self.line(tally, pool))?;
            told.line_s += LINE_EVERY_S;
        }
        Ok(())
    }

    fn line(&self, tally: &Tally, pool: &PoolView) -> String {
        let board = &pool.snapshot;
        let attained: Vec<String> = self
            .classes
            .iter()
            .zip(&tally.classes)
            .map(|(class, counts)| {
                let share = counts.attained as f64 / counts.over().max(1) as f64;
                format!("{} {:.1} %", class.name, share * 1e2)
            })
            .collect();
        let shed: usize = tally.classes.iter().map(|counts| counts.refused).sum();
        let model = match board.predictor.model_version {
            0 => "no model yet".to_owned(),
            version => format!("model v{version}"),
        };
        format!(
            "[{:4.0} s] sent {}, waiting {}, running {}, shed {shed}; attained: {}; {model}",
            tally.elapsed_s,
            tally.sent,
            board.waiting,
            board.in_flight,
            attained.join(", "),
        )
    }
}

fn swapped(from: u64, to: u64) -> String {
    match to {
        0 => "Weir put its model aside; the step-time formula predicts".to_owned(),
        _ if to < from => {
            format!("Weir went back to model v{to}, which predicts better than v{from}")
        }
        _ => format!("Weir swapped in model v{to}, trained on what it has measured so far"),
    }
}
