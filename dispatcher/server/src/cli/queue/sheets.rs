//! The answers about queues, for people.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::{
    answers::{Decision, Look, PodRequest, Queues, Request, Requests, Risk, Waiting, has},
    output::{
        Sheet,
        figures::{bytes, count, drain, flag, percent, text, time},
        table::{Grid, Left, Right, facts, plain, sentences},
    },
};

/// What is printed when no lane has anything in it.
const NOTHING: &str = "nothing waits";

/// Queues by lane.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Lanes(Queues);

has! {
    Lanes: "queues";
    Bands: "bands";
    Tenants: "tenants";
    Paused: "paused";
}

impl Sheet for Lanes {
    fn sheet(&self, wide: bool) -> String {
        let mut columns = vec![
            ("POOL", Left),
            ("LANE", Left),
            ("DEPTH", Right),
            ("OLDEST", Right),
            ("DRAIN", Right),
            ("LATE/TIGHT/OK", Right),
            ("WHY THE HEAD WAITS", Left),
        ];
        if wide {
            columns.extend([("BAND", Right), ("BYTES", Right), ("HEAD", Left), ("PATTERN", Left)]);
        }
        let mut grid = Grid::new(&columns);
        for lane in &self.0.queues {
            let paused = if lane.paused { "paused".to_owned() } else { lane.reason.to_string() };
            let row = [
                lane.pool.clone(),
                lane.lane.clone(),
                lane.depth.to_string(),
                time(lane.head_wait_ms),
                drain(lane.drain_ms),
                risk(lane.risk),
                text(&paused),
            ];
            let band = lane.band.to_string();
            let more = [band, bytes(lane.bytes), text(&lane.request_id), text(&lane.pattern)];
            grid.row(row.into_iter().chain(more));
        }
        grid.text_or(NOTHING)
    }
}

/// The three counts, the worst first.
fn risk(risk: Risk) -> String {
    format!("{}/{}/{}", risk.late, risk.tight, risk.ok)
}

/// Queues by band.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Bands(Queues);

impl Sheet for Bands {
    fn sheet(&self, _: bool) -> String {
        let mut grid = Grid::new(&[
            ("POOL", Left),
            ("BAND", Right),
            ("DEPTH", Right),
            ("BYTES", Right),
            ("OLDEST", Right),
            ("DRAIN", Right),
            ("LATE/TIGHT/OK", Right),
            ("NOTE", Left),
        ]);
        for band in &self.0.bands {
            grid.row([
                band.pool.clone(),
                band.band.to_string(),
                band.depth.to_string(),
                bytes(band.bytes),
                time(band.oldest_wait_ms),
                drain(band.drain_ms),
                risk(band.risk),
                flag(band.paused, "paused"),
            ]);
        }
        grid.text_or(NOTHING)
    }
}

/// Queues by tenant.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Tenants(Queues);

impl Sheet for Tenants {
    fn sheet(&self, _: bool) -> String {
        let mut grid = Grid::new(&[
            ("POOL", Left),
            ("TENANT", Left),
            ("DEPTH", Right),
            ("BYTES", Right),
            ("OLDEST", Right),
        ]);
        for tenant in &self.0.tenants {
            grid.row([
                tenant.pool.clone(),
                text(&tenant.tenant),
                tenant.depth.to_string(),
                bytes(tenant.bytes),
                time(tenant.oldest_wait_ms),
            ]);
        }
        grid.text_or(NOTHING)
    }
}

impl Sheet for Requests {
    fn sheet(&self, wide: bool) -> String {
        let mut columns = vec![
            ("REQUEST", Left),
            ("LANE", Left),
            ("TENANT", Left),
            ("AGE", Right),
            ("LEFT", Right),
            ("IN", Right),
            ("OUT", Right),
            ("WHY", Left),
        ];
        if wide {
            columns.extend([
                ("BAND", Right),
                ("ID", Right),
                ("SLACK", Right),
                ("TTFT SLO", Right),
                ("TPOT SLO", Right),
                ("BODY", Right),
                ("ATTEMPTS", Right),
            ]);
        }
        let mut grid = Grid::new(&columns);
        for request in &self.requests {
            grid.row(waiting_row(request));
        }
        grid.text_or(NOTHING)
    }
}

fn waiting_row(request: &Waiting) -> [String; 15] {
    [
        text(&request.request_id),
        text(&request.lane),
        text(request.tenant.as_deref().unwrap_or_default()),
        time(request.age_ms),
        time(request.deadline_ms),
        count(request.input_tokens),
        count(request.output_tokens),
        text(&request.reason.to_string()),
        request.band.to_string(),
        request.id.to_string(),
        time(request.slack_ms),
        time(request.ttft_slo_ms),
        time(request.tpot_slo_ms),
        bytes(request.body_bytes),
        request.attempts.to_string(),
    ]
}

impl Sheet for Request {
    fn sheet(&self, wide: bool) -> String {
        let mut parts = vec![facts(&about(self))];
        if !self.explanation.is_empty() {
            parts.push(sentences(&self.explanation));
        }
        if !self.pods.is_empty() {
            parts.push(looks(&self.pods, wide));
        }
        if !self.history.is_empty() {
            let line = |happened: &crate::cli::answers::requests::Happened| {
                format!("{:>8} ago  {}\n", time(happened.at_ms), plain(&happened.what))
            };
            parts.push(self.history.iter().map(line).collect());
        }
        parts.join("\n")
    }
}

fn about(request: &Request) -> Vec<(&'static str, String)> {
    let waiting = &request.waiting;
    let is_waiting = request.state == "waiting";
    let while_waiting = |text: String| if is_waiting { text } else { String::new() };
    let left = match waiting.deadline_ms {
        Some(left) if left < 0.0 => format!("{} past its objective", time(Some(-left))),
        left => format!("{} to its objective, slack {}", time(left), time(waiting.slack_ms)),
    };
    let state = format!("{} {}", request.state, flag(waiting.late, "late"));
    let objective = [waiting.ttft_slo_ms, waiting.tpot_slo_ms].map(time);
    let tokens = [waiting.input_tokens, waiting.output_tokens].map(count);
    vec![
        ("request", waiting.called().to_string()),
        ("state", state.trim_end().to_owned()),
        ("pool", waiting.pool.clone()),
        ("pod", request.pod.clone().unwrap_or_default()),
        ("lane", waiting.lane.clone()),
        ("band", waiting.band.to_string()),
        ("tenant", waiting.tenant.clone().unwrap_or_default()),
        ("age", while_waiting(time(waiting.age_ms))),
        ("left", while_waiting(left)),
        ("objective", format!("ttft {}, tpot {}", objective[0], objective[1])),
        ("tokens", while_waiting(format!("{} in, {} out predicted", tokens[0], tokens[1]))),
        ("waits for", while_waiting(waiting.reason.to_string())),
        ("decided", request.decision.as_ref().map(decided).unwrap_or_default()),
        ("so far", request.running.as_ref().map(so_far).unwrap_or_default()),
        ("ended", ended(request)),
    ]
}

fn decided(decision: &Decision) -> String {
    let pod = decision.pod.as_deref().map(|pod| format!(" to {pod}")).unwrap_or_default();
    let why = decision.why();
    let why = if why.is_empty() { why } else { format!(": {why}") };
    format!("{}{pod} {} ago{why}", decision.kind, time(decision.at_ms))
}

fn so_far(running: &PodRequest) -> String {
    let (ttft, tpot) = (time(running.ttft_ms), time(running.tpot_ms));
    format!("ttft {ttft} after dispatch, tpot {tpot}, {} tokens", running.tokens)
}

fn ended(request: &Request) -> String {
    if request.outcome.is_empty() {
        return String::new();
    }
    let objective = if request.attained { "objectives met" } else { "objectives not met" };
    let times = [request.total_ms, request.ttft_ms, request.tpot_ms].map(time);
    format!(
        "{} after {}: ttft {}, tpot {}, {objective}",
        request.outcome, times[0], times[1], times[2]
    )
}

/// The pods as a request sees them: those that fit first, as they came.
pub(crate) fn looks(pods: &[Look], wide: bool) -> String {
    let mut columns = vec![
        ("POD", Left),
        ("FITS", Left),
        ("TTFT", Right),
        ("HEADROOM", Right),
        ("TPOT", Right),
        ("UNCACHED", Right),
        ("BACKLOG", Right),
        ("STALL/BUDGET", Right),
        ("WHY NOT", Left),
    ];
    if wide {
        columns.extend([
            ("PHASE", Left),
            ("CACHED", Right),
            ("PENDING", Right),
            ("RESIDENTS", Right),
            ("KV AFTER", Right),
            ("CLAIMED BY", Left),
            ("IN WORDS", Left),
        ]);
    }
    let mut grid = Grid::new(&columns);
    for look in pods {
        grid.row([
            look.pod.clone(),
            if look.fits { "yes" } else { "no" }.to_owned(),
            time(look.ttft_ms),
            time(look.headroom_ms),
            time(look.tpot_ms),
            count(look.uncached_tokens),
            count(look.backlog_tokens),
            format!("{}/{}", time(look.stall_ms), time(look.stall_budget_ms)),
            look.verdict.to_string(),
            look.phase.clone(),
            count(look.cached_tokens),
            look.pending.to_string(),
            look.residents.to_string(),
            percent(look.kv_after),
            look.claimed_by
                .as_ref()
                .filter(|by| !by.is_null())
                .map(Value::to_string)
                .unwrap_or_default(),
            look.text.clone(),
        ]);
    }
    grid.text_or("there is no pod")
}

/// What is paused after a change.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Paused {
    paused: Vec<Value>,
}

impl Sheet for Paused {
    fn sheet(&self, _: bool) -> String {
        if self.paused.is_empty() {
            return "nothing is paused\n".to_owned();
        }
        let name = |place: &Value| match place {
            Value::String(name) => format!("paused: {}\n", plain(name)),
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| match value {
                    Value::Null => None,
                    Value::String(text) => Some(format!("{name} {}", plain(text))),
                    other => Some(format!("{name} {other}")),
                };
                let members: Vec<_> = members.iter().filter_map(member).collect();
                format!("paused: {}\n", members.join(", "))
            }
            other => format!("paused: {other}\n"),
        };
        self.paused.iter().map(name).collect()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
