//! What of the traffic is looked at to say how many pods it takes.
//!
//! Pods are bought for the busiest hour, and a few stretches from anywhere in a day miss it. So all of the traffic is gone
//! through where that can be afforded, every request counted once; of longer traffic stretches that are spread evenly over it,
//! and the busiest one beside them. Traffic that is shorter than a run has to be is gone through again and again, which shows
//! what waits, and no peaks that it does not have.

use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;

use crate::{
    bounds::MOST_REQUESTS,
    sim::SimRequest,
    study::{Setting, least_requests, warm_up_of},
    workload::{Means, Objectives, Replay, Source, Stretch},
};

/// Requests that are simulated for each number of pods, about: seconds, and a minute where there are many pods.
const AFFORDABLE: usize = 1_000_000;
/// KV blocks that the prompts of a run name at most, eight bytes each.
const MOST_BLOCKS: usize = 1 << 26;
/// Traffic of at least so many of these has a busiest one; of shorter traffic it is a tenth that is told.
pub(super) const HOUR_S: f64 = 3600.0;
const LEAST_HOURS: f64 = 2.0;
const TENTH: f64 = 10.0;

/// The traffic at its own rate.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    replay: Arc<Replay>,
    /// Where each seed starts; a seed without a place starts anywhere.
    starts: Vec<Stretch>,
    /// What is told of it.
    pub(super) looked: Looked,
}

/// How much was looked at, and what peaks there are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Looked {
    /// Requests of the traffic.
    pub requests: usize,
    /// Requests of a run, those of its warm-up included.
    pub requests_per_run: usize,
    /// Runs for each number of pods.
    pub runs: u64,
    /// Share of the traffic's requests that is counted.
    pub share: f64,
    /// Requests that a run takes for a load to show.
    pub least_requests: usize,
    /// Length of the stretch whose rate is the highest, in seconds: an hour, or a tenth of the traffic.
    pub busiest_s: f64,
    /// That rate, in requests per second.
    pub busiest_rps: f64,
}

impl Traffic {
    /// Chooses what is looked at. Runs are no shorter than the setting's, nor than a load takes to show.
    pub(super) fn of(replay: Arc<Replay>, setting: &Setting, seeds: u64) -> Self {
        Self::within(replay, setting, seeds, AFFORDABLE)
    }

    /// The same where so many requests can be afforded.
    pub(super) fn within(
        replay: Arc<Replay>,
        setting: &Setting,
        seeds: u64,
        affordable: usize,
    ) -> Self {
        let (rows, own_rps) = (replay.rows(), replay.own_rps());
        let least_requests = least_requests(setting, own_rps / setting.capacity_rps());
        let each = setting.requests.max(least_requests).min(MOST_REQUESTS);
        let whole = with_warm_up(rows);
        let can_be_whole = whole <= affordable && replay.blocks() <= MOST_BLOCKS;
        let (starts, requests_per_run) = if whole <= each {
            (Vec::new(), each)
        } else if can_be_whole {
            (all_of_it(rows, seeds, affordable), whole)
        } else {
            (spread(&replay, each, seeds, affordable), each)
        };
        let runs = if starts.is_empty() { seeds } else { starts.len() as u64 };
        // Seeds that go through all of it count the same requests.
        let different = if can_be_whole { 1.0 } else { runs as f64 };
        let counted = requests_per_run - warm_up_of(requests_per_run);
        let busiest_s =
            if replay.span_s() >= LEAST_HOURS * HOUR_S { HOUR_S } else { replay.span_s() / TENTH };
        let looked = Looked {
            requests: rows,
            requests_per_run,
            runs,
            share: (counted as f64 * different / rows as f64).min(1.0),
            least_requests,
            busiest_s,
            busiest_rps: replay.most_within(busiest_s) as f64 / busiest_s,
        };
        Self { replay, starts, looked }
    }

    /// The setting with this as its traffic.
    pub(super) fn in_place_of(&self, setting: &Setting) -> Setting {
        let (source, requests) = (Arc::new(self.clone()), self.looked.requests_per_run);
        Setting { source, requests, ..setting.clone() }
    }

    /// The seeds of the runs.
    pub(super) fn seeds(&self) -> Vec<u64> {
        (1..=self.looked.runs).collect()
    }

    pub(super) fn own_rps(&self) -> f64 {
        self.replay.own_rps()
    }
}

/// Requests of a run that counts so many.
fn with_warm_up(counted: usize) -> usize {
    let mut all = counted;
    while all - warm_up_of(all) < counted {
        all += 1;
    }
    all
}

/// All rows once, after a warm-up of the last ones.
fn all_of_it(rows: usize, seeds: u64, affordable: usize) -> Vec<Stretch> {
    let whole = with_warm_up(rows);
    let before = warm_up_of(whole);
    let seeds = usize::try_from(seeds).unwrap_or(usize::MAX);
    vec![Stretch { from: rows - before, before }; (affordable / whole).clamp(1, seeds.max(1))]
}

/// Stretches of so many requests, whose counted parts begin at equal distances, and the one with the most requests per second.
fn spread(replay: &Replay, each: usize, seeds: u64, affordable: usize) -> Vec<Stretch> {
    let (rows, warm_up) = (replay.rows(), warm_up_of(each));
    let seeds = usize::try_from(seeds).unwrap_or(usize::MAX);
    let count = (affordable / each.max(1)).max(seeds).min(rows);
    let at = |row: usize| Stretch { from: (row + rows - warm_up) % rows, before: 0 };
    let spread = (0..count).map(|place| at(place * rows / count));
    spread.chain([at(replay.busiest(each - warm_up))]).collect()
}

impl Source for Traffic {
    fn name(&self) -> &str {
        self.replay.name()
    }

    fn means(&self) -> Means {
        self.replay.means()
    }

    fn fingerprint(&self) -> u64 {
        self.replay.fingerprint()
    }

    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        let place = usize::try_from(seed.saturating_sub(1)).unwrap_or(usize::MAX);
        match self.starts.get(place) {
            Some(start) => self.replay.stretch(*start, rate_rps, count, objectives, seed),
            None => self.replay.requests(rate_rps, count, objectives, seed),
        }
    }
}
