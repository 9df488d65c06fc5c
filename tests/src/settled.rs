//! What must hold once a scenario is over, whatever it did.

use serde_json::Value;

use crate::{MODEL, Stage, eventually};

impl Stage {
    /// Asserts that nothing is left behind: nothing waits, nothing is in flight, no pod is charged for
    /// anything, every request that arrived has exactly one outcome, and no pod that runs works on
    /// anything or was given a request twice.
    ///
    /// # Panics
    /// When something is left behind.
    pub async fn assert_settled(&mut self) {
        eventually("the dispatcher is idle", async || {
            let snapshot = self.weir.snapshot().await;
            if is_idle(&snapshot) { Ok(()) } else { Err(snapshot) }
        })
        .await;
        self.assert_counters_add_up().await;
        for pod in &mut self.pods {
            if !pod.is_up() {
                continue;
            }
            eventually("the pod is idle", async || {
                let busy = pod.busy().await;
                if busy == 0.0 { Ok(()) } else { Err(busy) }
            })
            .await;
            let metrics = pod.metrics().await;
            let twice = metrics.sum("sim:duplicate_starts_total", &[]);
            assert_eq!(twice, 0.0, "requests that were started twice on one pod");
        }
    }

    async fn assert_counters_add_up(&self) {
        let snapshot = self.weir.snapshot().await;
        let counters = &snapshot["counters"];
        let arrived = count(&counters["arrived"]);
        let refused = counters["refused"].as_array().expect("refusals are a list");
        let refused: u64 = refused.iter().map(|of| count(&of[1])).sum();
        let ended = ["completed", "failed", "client_gone", "cancelled"];
        let ended: u64 = ended.iter().map(|name| count(&counters[name])).sum();
        assert_eq!(arrived, ended + refused, "{counters:#}");
        // A response is counted when its body is dropped, a moment after the ledger is credited.
        eventually("every request is counted once in the metrics", async || {
            let metrics = self.weir.metrics().await;
            let done = metrics.sum("weir_requests_total", &[("model", MODEL)]);
            // Who goes on at another pod arrives once more.
            let goes_on = [("outcome", "continued")];
            let done = done + metrics.sum("weir_migrations_total", &goes_on);
            if done == arrived as f64 { Ok(()) } else { Err((done, arrived)) }
        })
        .await;
    }
}

fn is_idle(snapshot: &Value) -> bool {
    let pods = snapshot["pods"].as_array().expect("pods are a list");
    let free = |pod: &Value| count(&pod["residents"]) + count(&pod["pending"]) == 0;
    let gauges = ["waiting", "waiting_bytes", "in_flight", "late"];
    gauges.iter().all(|name| count(&snapshot[name]) == 0) && pods.iter().all(free)
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no count: {value}"))
}
