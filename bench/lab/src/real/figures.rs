//! What a run comes to.

use super::{Got, Slice};
use crate::load::{Class, Percentiles};

/// The figures that are compared. Latencies are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) ttft: Percentiles,
    pub(crate) tpot: Percentiles,
    /// Share of all compared requests inside both objectives.
    pub(crate) attained: f64,
    /// The same of each class; `None` without a request of it.
    pub(crate) attained_by_class: Vec<Option<f64>>,
    /// Requests that were not served.
    pub(crate) not_served: usize,
}

impl Figures {
    /// The compared requests of a run, with `added_ms` on every TTFT.
    pub(crate) fn of(slice: &Slice, run: &[Got], added_ms: f64) -> Self {
        let compared = run.get(slice.compared()).unwrap_or_default();
        let later = |got: &Got| Got { ttft_ms: got.ttft_ms.map(|ms| ms + added_ms), ..*got };
        Self::over(&slice.classes, &compared.iter().map(later).collect::<Vec<_>>())
    }

    /// Of these requests.
    pub(crate) fn over(classes: &[Class], all: &[Got]) -> Self {
        let met = |got: &&Got| {
            let class = classes.get(got.class);
            class.zip(got.ttft_ms).is_some_and(|(class, ttft_ms)| class.met(ttft_ms, got.tpot_ms))
        };
        let share = |of: &dyn Fn(&Got) -> bool| {
            let sent = all.iter().filter(|got| of(got)).count();
            let attained = all.iter().filter(|got| of(got)).filter(met).count();
            (sent > 0).then(|| attained as f64 / sent as f64)
        };
        Self {
            ttft: Percentiles::of(all.iter().filter_map(|got| got.ttft_ms)),
            tpot: Percentiles::of(all.iter().filter_map(|got| got.tpot_ms)),
            attained: share(&|_| true).unwrap_or_default(),
            attained_by_class: (0..classes.len())
                .map(|class| share(&|got| got.class == class))
                .collect(),
            not_served: all.iter().filter(|got| got.ttft_ms.is_none()).count(),
        }
    }
}
