//! The loop that sends every request on time and collects every outcome.

use std::{rc::Rc, time::Duration};

use tokio::{
    task::{JoinError, JoinSet, LocalSet},
    time::{Instant, MissedTickBehavior},
};

use super::{
    LoadPlan, LoadReport, Outcome, Record,
    call::{Shared, call},
    connect::Connections,
};

/// How often the watcher is told.
const WATCH_EVERY: Duration = Duration::from_millis(250);

/// How far a run has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Time since the start, in seconds.
    pub elapsed_s: f64,
    /// Requests the plan has.
    pub planned: usize,
    /// Requests sent.
    pub sent: usize,
    /// Per class, in the plan's order.
    pub classes: Vec<ClassTally>,
}

/// How far the requests of one class have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTally {
    /// Served to their end.
    pub ok: usize,
    /// Refused.
    pub refused: usize,
    /// Failed.
    pub failed: usize,
    /// Served inside both objectives.
    pub attained: usize,
}

impl ClassTally {
    /// Requests that are over.
    pub fn over(&self) -> usize {
        self.ok + self.refused + self.failed
    }
}

impl Tally {
    /// Requests sent and not over.
    pub fn in_flight(&self) -> usize {
        let over: usize = self.classes.iter().map(ClassTally::over).sum();
        self.sent.saturating_sub(over)
    }

    fn count(&mut self, record: &Record) {
        let Some(class) = self.classes.get_mut(record.class) else { return };
        class.attained += usize::from(record.attained);
        match record.outcome {
            Outcome::Ok => class.ok += 1,
            Outcome::Refused { .. } => class.refused += 1,
            Outcome::Failed(_) => class.failed += 1,
        }
    }
}

/// Replays the plan and returns when its last request is over. `watch` is called a few times a second and must be quick.
pub async fn run(plan: LoadPlan, watch: impl FnMut(&Tally)) -> LoadReport {
    LocalSet::new().run_until(Replay::new(plan, watch).run()).await
}

struct Replay<W> {
    shared: Rc<Shared>,
    calls: JoinSet<Option<Record>>,
    tally: Tally,
    records: Vec<Record>,
    watch: W,
}

impl<W: FnMut(&Tally)> Replay<W> {
    fn new(plan: LoadPlan, watch: W) -> Self {
        let tally = Tally {
            planned: plan.requests.len(),
            classes: vec![ClassTally::default(); plan.classes.len()],
            ..Tally::default()
        };
        let connections = Connections::new(plan.target.clone());
        let shared = Rc::new(Shared { plan, connections, start: Instant::now() });
        Self { shared, calls: JoinSet::new(), tally, records: Vec::new(), watch }
    }

    async fn run(mut self) -> LoadReport {
        let mut ticks = tokio::time::interval(WATCH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = self
                .shared
                .plan
                .requests
                .get(self.tally.sent)
                .map(|next| self.shared.start + next.at);
            if due.is_none() && self.calls.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = sleep_until(due) => self.send(),
                Some(ended) = self.calls.join_next() => self.end(ended),
                _ = ticks.tick() => {
                    self.tally.elapsed_s = self.shared.start.elapsed().as_secs_f64();
                    (self.watch)(&self.tally);
                }
            }
        }
        self.report()
    }

    fn send(&mut self) {
        self.calls.spawn_local(call(Rc::clone(&self.shared), self.tally.sent));
        self.tally.sent += 1;
    }

    /// A task that was lost is found by its missing record; see [`Self::report`].
    fn end(&mut self, ended: Result<Option<Record>, JoinError>) {
        match ended {
            Ok(Some(record)) => {
                self.tally.count(&record);
                self.records.push(record);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "a request's task was lost"),
        }
    }

    fn report(mut self) -> LoadReport {
        self.tally.elapsed_s = self.shared.start.elapsed().as_secs_f64();
        (self.watch)(&self.tally);
        self.records.sort_by_key(|record| record.index);
        LoadReport::new(&self.shared.plan, self.records, self.tally.elapsed_s)
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
