//! The answers about pods, for people.

use crate::cli::{
    answers::{Adapter, Pod, PodRequest, Pods},
    output::{
        Sheet,
        figures::{count, many, off, percent, text, time},
        table::{Grid, Left, Right, facts},
    },
};

impl Pod {
    /// What it finds of what it is believed to have cached, where that is not all.
    fn found(&self) -> String {
        let less = self.cache_found.filter(|share| *share < 1.0);
        less.map(|share| format!("; it finds {} of what it should", percent(Some(share))))
            .unwrap_or_default()
    }

    /// The LoRA adapters that run there, each with its requests; nothing where none does and nothing bounds them.
    fn adapters(&self) -> String {
        let one = |adapter: &Adapter| {
            let more = if adapter.gives_way { " (gives way)" } else { "" };
            format!("{} {}{more}", adapter.name, adapter.requests)
        };
        let all: Vec<String> = self.adapters.iter().map(one).collect();
        let running = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
        match self.max_loras {
            Some(most) => format!("{running}; {most} at once"),
            None if all.is_empty() => String::new(),
            None => running,
        }
    }
}

impl Sheet for Pods {
    fn sheet(&self, wide: bool) -> String {
        let mut columns = vec![
            ("POOL", Left),
            ("POD", Left),
            ("STATE", Left),
            ("RESIDENTS", Right),
            ("STEP/TIGHTEST", Right),
            ("STALL", Right),
            ("KV", Right),
            ("NOTE", Left),
        ];
        if wide {
            columns.extend([
                ("PENDING", Right),
                ("ENGINE", Right),
                ("SCRAPED", Right),
                ("CLASS", Left),
                ("ADDRESS", Left),
                ("DISPATCHED", Right),
                ("TTFT OFF", Right),
                ("TPOT OFF", Right),
                ("LEDGER-SCRAPE", Right),
            ]);
        }
        let mut grid = Grid::new(&columns);
        for pod in &self.pods {
            grid.row([
                pod.pool.clone(),
                pod.pod.clone(),
                text(&pod.phase),
                pod.residents.to_string(),
                format!("{}/{}", time(pod.step_ms), time(pod.tightest_tpot_ms)),
                time(pod.stall_budget_ms),
                percent(pod.kv_usage),
                note(pod),
                pod.pending.to_string(),
                format!("{}+{}", pod.running, pod.queued),
                time(pod.scrape_age_ms),
                text(&pod.class),
                text(&pod.address),
                pod.dispatched.to_string(),
                off(pod.error_ttft),
                off(pod.error_tpot),
                count(pod.ledger_minus_scrape),
            ]);
        }
        grid.text_or("there is no pod")
    }
}

/// What is out of the ordinary.
pub(crate) fn note(pod: &Pod) -> String {
    if let Some(drain) = &pod.drain {
        if pod.is_drained() {
            return format!("drained, asked for {} ago", time(drain.since_ms));
        }
        if drain.left == 0 {
            return pod.awaited();
        }
        return format!("{} left, about {} more", drain.left, time(drain.expected_ms));
    }
    if let Some(breaker) = pod.breaker.as_ref().filter(|breaker| breaker.open) {
        return format!("breaker {}", breaker.words());
    }
    pod.full_with.map(|most| format!("says it is full with {most}")).unwrap_or_default()
}

impl Sheet for Pod {
    fn sheet(&self, wide: bool) -> String {
        let breaker = self.breaker.as_ref().map(|breaker| breaker.words()).unwrap_or_default();
        let mut out = facts(&[
            ("pod", self.pod.clone()),
            ("pool", self.pool.clone()),
            ("address", self.address.clone()),
            ("class", self.class.clone()),
            ("state", self.phase.clone()),
            ("drain", if self.drain.is_some() { note(self) } else { String::new() }),
            ("breaker", breaker),
            (
                "ledger",
                format!(
                    "{}, {} pending with {} tokens to compute, {} tokens of context",
                    many(self.residents, "resident"),
                    self.pending,
                    count(self.pending_tokens),
                    count(self.kv_tokens)
                ),
            ),
            (
                "scrape",
                format!(
                    "{} running, {} queued, {} of them by other pools, KV {}, {} old",
                    self.running,
                    self.queued,
                    self.elsewhere,
                    percent(self.kv_usage),
                    time(self.scrape_age_ms)
                ),
            ),
            (
                "KV cache",
                format!(
                    "{} tokens, prompts found again in up to {}",
                    count(self.kv_capacity_tokens),
                    count(self.prefix_capacity_tokens)
                ),
            ),
            ("adapters", self.adapters()),
            ("ledger less scrape", count(self.ledger_minus_scrape)),
            (
                "pace",
                format!(
                    "a step takes {}, the tightest resident wants {}, a stall may last {}",
                    time(self.step_ms),
                    time(self.tightest_tpot_ms),
                    time(self.stall_budget_ms)
                ),
            ),
            ("off by", format!("ttft {}, tpot {}", off(self.error_ttft), off(self.error_tpot))),
            (
                "dispatched",
                format!(
                    "{} with {} tokens, {} of them thought cached{}",
                    self.dispatched,
                    count(self.prompt_tokens),
                    count(self.cached_tokens),
                    self.found()
                ),
            ),
        ]);
        if !self.requests.is_empty() {
            out.push('\n');
            out += &residents(&self.requests, wide);
        }
        out
    }
}

/// The requests on a pod: objective, prediction, and what they have come to.
fn residents(requests: &[PodRequest], wide: bool) -> String {
    let mut columns = vec![
        ("REQUEST", Left),
        ("BAND", Right),
        ("STATE", Left),
        ("TTFT", Right),
        ("PREDICTED", Right),
        ("SLO", Right),
        ("TPOT", Right),
        ("PREDICTED", Right),
        ("SLO", Right),
        ("TOKENS", Right),
    ];
    if wide {
        columns.extend([("WAITED", Right), ("ID", Right)]);
    }
    let mut grid = Grid::new(&columns);
    for request in requests {
        grid.row([
            text(&request.request_id),
            request.band.to_string(),
            if request.decoding { "decodes" } else { "prefill" }.to_owned(),
            time(request.ttft_ms),
            time(request.predicted_ttft_ms),
            time(request.ttft_slo_ms),
            time(request.tpot_ms),
            time(request.predicted_tpot_ms),
            time(request.tpot_slo_ms),
            request.tokens.to_string(),
            time(request.wait_ms),
            request.id.to_string(),
        ]);
    }
    grid.text_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_draining_pod_and_an_open_breaker_are_noted() {
        let pod = |value| from_value::<Pod>(value).unwrap();
        let draining =
            pod(json!({"phase": "draining", "drain": {"left": 3, "expected_ms": 9000.0}}));
        assert_eq!(note(&draining), "3 left, about 9.0s more");
        let broken = pod(json!({"breaker": {"open": true, "failures": 4, "reason": "refused"}}));
        assert_eq!(note(&broken), "breaker open, 4 failures: refused");
        let once = pod(json!({"breaker": {"open": true, "failures": 1}}));
        assert_eq!(note(&once), "breaker open, 1 failure");
        assert_eq!(note(&pod(json!({"phase": "ready", "breaker": {"open": false}}))), "");
        assert_eq!(note(&pod(json!({"full_with": 12}))), "says it is full with 12");
    }

    #[test]
    fn the_adapters_of_a_pod_are_said_with_how_many_it_runs() {
        let said = |value| from_value::<Pod>(value).unwrap().adapters();
        assert_eq!(said(json!({})), "");
        assert_eq!(said(json!({"max_loras": 2})), "none; 2 at once");
        let two = json!([{"name": "sql", "requests": 3}, {"name": "tax", "requests": 1, "gives_way": true}]);
        assert_eq!(
            said(json!({"adapters": two, "max_loras": 2})),
            "sql 3, tax 1 (gives way); 2 at once"
        );
        assert_eq!(said(json!({"adapters": [{"name": "sql", "requests": 3}]})), "sql 3");
    }

    #[test]
    fn a_pod_that_finds_less_than_it_should_is_said_to() {
        let text = |found: Option<f64>| {
            let pod: Pod = from_value(json!({"cached_tokens": 10, "cache_found": found})).unwrap();
            pod.sheet(false)
        };
        assert!(
            text(Some(0.35)).contains("10 of them thought cached; it finds 35% of what it should")
        );
        for all in [Some(1.0), None] {
            assert!(!text(all).contains("finds"));
        }
    }

    #[test]
    fn one_pod_shows_its_requests_with_objective_and_pace() {
        let pod: Pod = from_value(json!({
            "pool": "m", "pod": "pod-0", "phase": "ready", "step_ms": 31.0, "tightest_tpot_ms": 50.0,
            "residents": 1, "error_ttft": 0.94, "error_tpot": 0.03,
            "requests": [{"id": 3, "request_id": "r-3", "decoding": true, "tpot_slo_ms": 50.0, "tpot_ms": 32.4}],
        }))
        .unwrap();
        let text = pod.sheet(false);
        assert!(text.contains("a step takes 31ms, the tightest resident wants 50ms"), "{text}");
        assert!(text.contains("1 resident, 0 pending"), "{text}");
        assert!(text.contains("ttft 94%, tpot 3%"), "{text}");
        assert!(
            text.contains("r-3") && text.contains("decodes") && text.contains("32ms"),
            "{text}"
        );
    }
}
