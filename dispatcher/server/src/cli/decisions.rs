//! `weir decisions`: what was decided lately, why, and what lost.

use clap::Args;
use serde_json::Value;

use super::{
    answers::{self, Decision, Decisions, decisions::Alternative},
    failure::Failure,
    output::{
        OutputArgs, Sheet,
        figures::{text, time},
        table::{Grid, Left, Right},
    },
    remote::{Admin, RemoteArgs, path::Path},
};

/// What was decided lately.
#[derive(Clone, Debug, Args)]
pub(super) struct DecisionsArgs {
    /// Model whose pool is meant; all of them when left out
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
    /// Those about one request, by its x-request-id; where none is remembered the exit code is 66
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// Most decisions, the newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    limit: u32,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &DecisionsArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?;
    let path = Path::new("/decisions")
        .with("pool", args.pool.as_ref())
        .with("limit", Some(args.limit))
        .with("request_id", args.request.as_ref());
    let (format, answer) = (args.output.output, admin.get(path.as_str())?);
    if let Some(request) = &args.request {
        known(request, &answer)?;
    }
    format.print::<Decisions>("decisions", answer)
}

/// Whether anything is remembered of the request that was asked for.
fn known(request: &str, answer: &Value) -> Result<(), Failure> {
    let of_it: Decisions = answers::read(answer.clone())
        .map_err(|error| Failure::not_understood("decisions", error))?;
    if of_it.decisions.is_empty() {
        let said = format!("no decision on the request {request:?} is remembered");
        return Err(Failure::NotFound(said));
    }
    Ok(())
}

impl Sheet for Decisions {
    fn sheet(&self, wide: bool) -> String {
        self.grid(wide).text_or("no decision is remembered yet")
    }
}

impl Decisions {
    fn grid(&self, wide: bool) -> Grid {
        let mut columns = vec![
            ("AGO", Right),
            ("REQUEST", Left),
            ("BAND", Right),
            ("DECISION", Left),
            ("POD", Left),
            ("WAITED", Right),
            ("TTFT", Right),
            ("TPOT", Right),
            ("WHY", Left),
        ];
        if wide {
            columns.extend([("INSTEAD OF", Left), ("POOL", Left), ("ID", Right)]);
        }
        let mut grid = Grid::new(&columns);
        self.decisions.iter().for_each(|decision| grid.row(row(decision)));
        grid
    }
}

fn row(decision: &Decision) -> [String; 12] {
    let lost: Vec<_> = decision.alternatives.iter().map(Alternative::words).collect();
    [
        time(decision.at_ms),
        text(&decision.request_id),
        decision.band.to_string(),
        text(&decision.kind),
        text(decision.pod.as_deref().unwrap_or_default()),
        time(decision.wait_ms),
        time(decision.ttft_ms),
        time(decision.tpot_ms),
        text(&decision.why()),
        text(&lost.join("; ")),
        text(&decision.pool),
        decision.id.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn a_decision_names_its_pod_its_reason_and_what_lost() {
        let decisions: Decisions = from_value(json!({"decisions": [
            {"at_ms": 120.0, "request_id": "r-9", "kind": "dispatch", "pod": "pod-1", "reason": "fits",
             "waited_for": {"reason": "pods_claimed"},
             "wait_ms": 310.0, "ttft_ms": 410.0, "tpot_ms": 31.0, "band": 0,
             "alternatives": [{"pod": "pod-0", "verdict": {"reason": "kv_full"}, "ttft_ms": 380.0},
                              {"pod": "pod-2", "verdict": null, "ttft_ms": 35.0, "kept": true}]},
            {"at_ms": 150.0, "request_id": "r-8", "kind": "refuse", "pod": null, "reason": "predicted_wait", "band": -10},
        ]}))
        .unwrap();
        let text = decisions.sheet(true);
        let row = text.lines().nth(1).unwrap();
        for part in [
            "r-9",
            "dispatch",
            "pod-1",
            "310ms",
            "fits, waited for pods_claimed",
            "pod-0 ttft 380ms kv_full; pod-2 ttft 35ms kept_for_long_prompts",
        ] {
            assert!(row.contains(part), "{part}: {text}");
        }
        assert!(text.contains("predicted_wait"), "{text}");
        assert!(!decisions.sheet(false).contains("kv_full"));
        assert_eq!(Decisions::default().sheet(false), "no decision is remembered yet\n");
    }

    #[test]
    fn a_request_of_which_no_decision_is_remembered_is_not_found() {
        let failure = known("nosuch", &json!({"decisions": []})).unwrap_err();
        assert_eq!(failure.code(), 66);
        assert_eq!(failure.to_string(), "no decision on the request \"nosuch\" is remembered");
        let decided = json!({"decisions": [{"request_id": "r-9", "kind": "dispatch"}]});
        assert_eq!(known("r-9", &decided), Ok(()));
        assert_eq!(known("r-9", &json!({})).unwrap_err().code(), 1, "that is another answer");
    }
}
