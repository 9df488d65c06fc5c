//! The last five minutes, a second at a time: kept by a sampler on the admin thread from counters that
//! the scheduler keeps anyway, so that a page that is opened has a past to show.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use axum::{Json, extract::State};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use utoipa::ToSchema;
use weir_core::{
    Band,
    inspect::{Summary, Tally},
};

use super::{
    fault::{ErrorBody, Fault},
    seat::{Pool, Seat},
    take::Query,
};

/// Seconds kept.
pub const KEPT_S: usize = 300;

/// The last seconds of every pool.
#[derive(Debug)]
pub struct History(Vec<Mutex<Track>>);

/// One pool's.
#[derive(Debug, Default)]
struct Track {
    seconds: VecDeque<Second>,
    /// Counters at the last sample; `None` before the first, which only sets them.
    before: Option<Counted>,
    /// Number of the first ended request that was not seen yet.
    ended: u64,
}

/// Counters since the start.
#[derive(Clone, Debug, Default)]
struct Counted {
    bands: BTreeMap<i8, Ends>,
    refused: BTreeMap<&'static str, u64>,
}

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Ends {
    /// Requests that ended, refused ones included.
    pub sent: u64,
    /// Of them, whole responses inside their objectives.
    pub attained: u64,
    /// Of them, refused.
    pub refused: u64,
}

impl Ends {
    fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            attained: self.attained.saturating_sub(before.attained),
            refused: self.refused.saturating_sub(before.refused),
        }
    }

    fn add(&mut self, more: Self) {
        self.sent += more.sent;
        self.attained += more.attained;
        self.refused += more.refused;
    }
}

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Second {
    /// Its end, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What became of the requests that ended in it.
    #[serde(flatten)]
    pub ends: Ends,
    /// Requests waiting at its end.
    pub waiting: usize,
    /// Requests on pods at its end.
    pub in_flight: usize,
    /// Median time from arrival to the first token of what ended in it, in milliseconds.
    pub ttft_p50_ms: Option<f64>,
    /// Median of what was predicted for the same requests, in milliseconds.
    pub predicted_ttft_p50_ms: Option<f64>,
    /// The same by band, the highest first.
    pub bands: Vec<BandSecond>,
    /// Refusals by reason, those that happened.
    pub reasons: BTreeMap<&'static str, u64>,
}

/// One second of a band.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BandSecond {
    /// The band.
    pub band: i8,
    /// What became of its requests that ended in the second.
    #[serde(flatten)]
    pub ends: Ends,
}

/// The last seconds of a pool.
#[derive(Debug, Serialize, ToSchema)]
pub struct Seconds {
    /// The pool.
    pub pool: String,
    /// Its seconds, oldest first; at most 300.
    pub seconds: Vec<Second>,
}

/// Which pool is meant.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PoolQuery {
    /// The pool; may be left out when there is one.
    pub pool: Option<String>,
}

/// The last five minutes, a second at a time.
#[utoipa::path(
    get, path = "/history", tag = "overview", operation_id = "history", params(PoolQuery),
    responses((status = 200, body = Seconds), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn history(
    State(seat): State<Arc<Seat>>,
    Query(query): Query<PoolQuery>,
) -> Result<Json<Seconds>, Fault> {
    let of = move |seat: &Seat| {
        let pool = seat.pool(query.pool.as_deref())?;
        let seconds = seat.history().seconds(pool.index);
        Ok(Json(Seconds { pool: pool.name().to_owned(), seconds }))
    };
    seat.aside(of).await
}

/// Samples every pool once a second, for as long as it is driven.
pub(super) async fn sample(seat: Arc<Seat>) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        for pool in seat.pools(None).into_iter().flatten() {
            seat.history().take(pool);
        }
    }
}

impl History {
    /// Without a past.
    pub fn new(pools: usize) -> Self {
        Self((0..pools).map(|_| Mutex::default()).collect())
    }

    /// The seconds of a pool, oldest first.
    pub fn seconds(&self, pool: usize) -> Vec<Second> {
        let track = self.0.get(pool);
        track.map(|track| track.lock().seconds.iter().cloned().collect()).unwrap_or_default()
    }

    /// What became of a pool's requests by band, and over how many seconds.
    pub fn attained(&self, pool: usize) -> (f64, BTreeMap<i8, Ends>) {
        let mut bands = BTreeMap::<i8, Ends>::new();
        let Some(track) = self.0.get(pool).map(Mutex::lock) else { return (0.0, bands) };
        for band in track.seconds.iter().flat_map(|second| &second.bands) {
            bands.entry(band.band).or_default().add(band.ends);
        }
        (track.seconds.len() as f64, bands)
    }

    fn take(&self, pool: Pool<'_>) {
        let Some(track) = self.0.get(pool.index) else { return };
        let mut track = track.lock();
        let seen = pool.hub.sampling(track.ended);
        track.ended = seen.next_ended;
        let counted = Counted::of(&seen.summary);
        let Some(before) = track.before.replace(counted.clone()) else { return };
        let mut second = second(&counted, &before);
        second.at_unix_ms = pool.hub.clock().unix_ms();
        second.waiting = seen.summary.waiting;
        second.in_flight = seen.summary.in_flight;
        let firsts = seen.ended.iter().filter_map(|one| one.ttft_ms.zip(one.predicted_ttft_ms));
        let (measured, predicted) = firsts.unzip();
        second.ttft_p50_ms = median(measured);
        second.predicted_ttft_p50_ms = median(predicted);
        track.push(second);
    }
}

impl Counted {
    fn of(summary: &Summary) -> Self {
        let ends = |(band, tally): &(Band, Tally)| {
            let ends = Ends { sent: tally.sent, attained: tally.attained, refused: tally.refused };
            (band.0, ends)
        };
        Self {
            bands: summary.bands.iter().map(ends).collect(),
            refused: summary.refused.iter().map(|(why, count)| (why.name(), *count)).collect(),
        }
    }
}

impl Track {
    fn push(&mut self, second: Second) {
        if self.seconds.len() == KEPT_S {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }
}

/// What happened between two samples.
fn second(now: &Counted, before: &Counted) -> Second {
    let mut second = Second::default();
    for (band, ends) in now.bands.iter().rev() {
        let ends = ends.since(before.bands.get(band).copied().unwrap_or_default());
        second.ends.add(ends);
        second.bands.push(BandSecond { band: *band, ends });
    }
    for (reason, count) in &now.refused {
        let more = count.saturating_sub(before.refused.get(reason).copied().unwrap_or(0));
        if more > 0 {
            second.reasons.insert(reason, more);
        }
    }
    second
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(sent: u64, attained: u64, refused: u64) -> Ends {
        Ends { sent, attained, refused }
    }

    #[test]
    fn a_second_is_what_was_counted_since_the_one_before() {
        let before = Counted {
            bands: BTreeMap::from([(0, ends(10, 8, 1))]),
            refused: BTreeMap::from([("ttl", 4), ("no_pods", 2)]),
        };
        let now = Counted {
            bands: BTreeMap::from([(0, ends(13, 10, 2)), (1, ends(1, 1, 0))]),
            refused: BTreeMap::from([("ttl", 5), ("no_pods", 2)]),
        };
        let second = second(&now, &before);
        assert_eq!(second.ends, ends(4, 3, 1));
        assert_eq!(second.bands[0], BandSecond { band: 1, ends: ends(1, 1, 0) });
        assert_eq!(second.bands[1], BandSecond { band: 0, ends: ends(3, 2, 1) });
        assert_eq!(second.reasons, BTreeMap::from([("ttl", 1)]));
    }

    #[test]
    fn five_minutes_are_kept_and_counted() {
        let history = History::new(1);
        for number in 0..KEPT_S as u64 + 20 {
            let band = BandSecond { band: 2, ends: ends(1, number % 2, 0) };
            let second = Second { at_unix_ms: number, bands: vec![band], ..Second::default() };
            history.0[0].lock().push(second);
        }
        let seconds = history.seconds(0);
        assert_eq!((seconds.len(), seconds[0].at_unix_ms), (KEPT_S, 20));
        let (window_s, bands) = history.attained(0);
        assert_eq!((window_s, bands[&2]), (300.0, ends(300, 150, 0)));
    }

    #[test]
    fn a_median_is_of_numbers() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![f64::NAN]), None);
        assert_eq!(median(vec![3.0, 1.0, f64::INFINITY, 2.0]), Some(2.0));
    }
}
