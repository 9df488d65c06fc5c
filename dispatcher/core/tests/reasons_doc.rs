//! docs/reasons.md has every reason that the code knows, and no other.

use std::{collections::BTreeSet, path::Path};

use weir_core::{Reason, RefusalReason, RequestId};

/// The names in the first column of the tables under a heading of a page.
fn listed(page: &str, heading: &str) -> Option<BTreeSet<String>> {
    let section = page.split_once(heading)?.1.split("\n# ").next()?;
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| Some(row.split('`').next()?.to_owned())).collect()
}

fn page() -> std::io::Result<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reasons.md"))
}

#[test]
fn every_reason_to_wait_is_documented() {
    // A match without a catch-all: a new reason does not compile until it stands here.
    let all = [
        Reason::NotConsidered,
        Reason::BehindItsLane,
        Reason::NoPodReady,
        Reason::BehindHead { head: RequestId(1) },
        Reason::PodsClaimed,
        Reason::PendingFull,
        Reason::StepFull,
        Reason::KvFull,
        Reason::BatchFull,
        Reason::AdaptersFull,
        Reason::PodsFull,
        Reason::KvKept,
        Reason::TtftOverSlo { ttft_ms: 1.0, slo_ms: 1.0 },
        Reason::TpotOverSlo { tpot_ms: 1.0, limit_ms: 1.0 },
        Reason::StallOverBudget { stall_ms: 1.0, at_risk: 1.0, bearable: 0.5 },
        Reason::WaitsForWarmPod,
        Reason::WaitsForFasterPod,
        Reason::Late,
        Reason::PoolSaturated { saturation: 1.0 },
        Reason::OverCapacity,
        Reason::PodsStale,
        Reason::FailureDomain,
        Reason::LatencyOverThreshold,
        Reason::Paused,
    ];
    let known = |reason: &Reason| match reason {
        Reason::NotConsidered
        | Reason::BehindItsLane
        | Reason::NoPodReady
        | Reason::BehindHead { .. }
        | Reason::PodsClaimed
        | Reason::PendingFull
        | Reason::StepFull
        | Reason::KvFull
        | Reason::BatchFull
        | Reason::AdaptersFull
        | Reason::PodsFull
        | Reason::KvKept
        | Reason::TtftOverSlo { .. }
        | Reason::TpotOverSlo { .. }
        | Reason::StallOverBudget { .. }
        | Reason::WaitsForWarmPod
        | Reason::WaitsForFasterPod
        | Reason::Late
        | Reason::PoolSaturated { .. }
        | Reason::OverCapacity
        | Reason::PodsStale
        | Reason::FailureDomain
        | Reason::LatencyOverThreshold
        | Reason::Paused => reason.name().to_owned(),
    };
    let names: BTreeSet<String> = all.iter().map(known).collect();
    let listed = listed(&page().unwrap(), "# When a request waits");
    assert_eq!(listed, Some(names));
    for reason in all {
        let [text, here] = [reason.text(|_| "it".into()), reason.here(|_| "it".into())];
        assert!(!text.is_empty() && !here.ends_with('.') && !text.ends_with('.'), "{text}");
    }
}

#[test]
fn every_reason_to_refuse_is_documented() {
    let names = RefusalReason::ALL.iter().map(|reason| reason.name().to_owned());
    let listed = listed(&page().unwrap(), "# When a request is refused");
    assert_eq!(listed, Some(names.collect()));
}
