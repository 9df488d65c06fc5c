//! The pools' gauges, read off their snapshots.

use weir_core::{Phase, PodView, Snapshot};

use super::series::{self};
use crate::telemetry::{exposition::Page, series::Series};

impl Page {
    /// Notes a pool under the other systems' names. Means and spreads are over every known pod, by its
    /// last scrape.
    pub(in crate::telemetry) fn compat_pool(&mut self, model: &str, of: &Snapshot) {
        let all = |value: fn(&PodView) -> f64| of.pods.iter().map(value).collect::<Vec<f64>>();
        let (kv, queue, running) = (
            all(|pod| f64::from(pod.kv_usage)),
            all(|pod| f64::from(pod.queued)),
            all(|pod| f64::from(pod.running)),
        );
        self.spread(model, [&series::POOL_KV, &series::OLD_POOL_KV], &series::POOL_KV_SPREAD, &kv);
        let names = [&series::POOL_QUEUE, &series::OLD_POOL_QUEUE];
        self.spread(model, names, &series::POOL_QUEUE_SPREAD, &queue);
        let names = [&series::POOL_RUNNING, &series::OLD_POOL_RUNNING];
        self.spread(model, names, &series::POOL_RUNNING_SPREAD, &running);
        let ready = of.pods.iter().filter(|pod| pod.phase == Phase::Ready).count() as f64;
        self.set(&series::POOL_READY, &[model], ready);
        self.set(&series::OLD_POOL_READY, &[model], ready);
        for pod in &of.pods {
            let queued = f64::from(pod.queued);
            self.set(&series::POD_QUEUE, &[model, &pod.name], queued);
            self.set(&series::OLD_POD_QUEUE, &[model, &pod.name], queued);
        }
    }

    fn spread(&mut self, model: &str, mean: [&Series; 2], spread: &Series, values: &[f64]) {
        let count = values.len().max(1) as f64;
        // The sum of nothing is -0, which is no level to show.
        let level = (0.0 + values.iter().sum::<f64>()) / count;
        let squares = values.iter().map(|value| (value - level).powi(2));
        let variance = (0.0 + squares.sum::<f64>()) / count;
        mean.iter().for_each(|series| self.set(series, &[model], level));
        self.set(spread, &[model], variance.sqrt());
    }
}
