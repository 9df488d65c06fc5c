//! What was published: "Predicted-Latency Based Scheduling for LLMs" (llm-d).

/// Names of the policies that were compared, Weir, and chance, as a list of arguments.
pub(super) const POLICIES: &str =
    "round-robin,load-prefix,load-prefix-322,predicted-latency,weir,random";
/// Published columns of the production table.
pub(super) const COLUMNS: [&str; 4] = [ROUND_ROBIN, "load-prefix", BASE, "predicted-latency"];
/// What a Kubernetes service does with new connections. Users come in order, so round robin meets each on the same pod again.
pub(super) const RANDOM: &str = "random";
/// Their Kubernetes default and "No Gateway".
pub(super) const ROUND_ROBIN: &str = "round-robin";
/// Whom ratios of the production ladder are over: the best heuristic, tuned for this workload.
pub(super) const BASE: &str = "load-prefix-322";

/// How predicted latency was said to stand to another policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Better.
    Better,
    /// Comparable, or as good.
    Alike,
}

/// A claim about predicted latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) over: &'static str,
    pub(super) says: Says,
}

const fn claim(over: &'static str, says: Says) -> Claim {
    Claim { over, says }
}

/// Best in the table, and not called even in the text: A, B and ShareGPT.
pub(super) const BEST: [Claim; 3] = [
    claim(ROUND_ROBIN, Says::Better),
    claim(RANDOM, Says::Better),
    claim("load-prefix", Says::Better),
];
/// "Comparably to load+prefix, while still outperforming standard Kubernetes load balancing" (C); "as well as the load+prefix aware
/// routing with weights (1, 1, 1)" (D).
pub(super) const COMPARABLE: [Claim; 3] = [
    claim(ROUND_ROBIN, Says::Better),
    claim(RANDOM, Says::Better),
    claim("load-prefix", Says::Alike),
];

/// A column of the production table.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Round robin, (1,1,1), (3,2,2), predicted latency; in seconds or milliseconds, only ratios of which are used.
    pub(super) values: [f64; 4],
}

/// The production table.
pub(super) const PRODUCTION: [Column; 6] = [
    Column { name: "E2E p50", values: [15.98, 16.42, 13.42, 9.06] },
    Column { name: "E2E p95", values: [38.85, 35.06, 26.55, 22.57] },
    Column { name: "TTFT p50", values: [4.47, 2.86, 3.38, 0.97] },
    Column { name: "TTFT p95", values: [24.04, 18.06, 16.78, 11.34] },
    Column { name: "TPOT p50", values: [35.0, 39.0, 28.0, 22.0] },
    Column { name: "TPOT p99", values: [93.0, 103.0, 63.0, 53.0] },
];
