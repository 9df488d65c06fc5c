//! `weir explain`: why a request waits, or what would become of one that nobody sent.

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    answers::{Look, Why, has},
    failure::Failure,
    output::{
        OutputArgs, Sheet,
        figures::drain,
        table::{facts, sentences},
    },
    queue::{looks, one},
    remote::{Admin, RemoteArgs},
};

/// Why a request waits, or what would become of one.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "weir explain [OPTIONS] REQUEST\n       weir explain [OPTIONS] --input-tokens <TOKENS>"
)]
pub(super) struct ExplainArgs {
    /// A request's id; without it a hypothetical request is described by the options and not sent
    #[arg(conflicts_with_all = ["input_tokens", "output_tokens", "ttft_ms", "tpot_ms", "band", "tenant", "adapter"])]
    request: Option<String>,
    /// Its prompt, in tokens
    #[arg(long, value_name = "TOKENS", required_unless_present = "request")]
    input_tokens: Option<u32>,
    /// Most tokens of its response, as a client's max_tokens; what is predicted below that counts
    #[arg(long, value_name = "TOKENS")]
    output_tokens: Option<u32>,
    /// Its objective for the first token, in milliseconds
    #[arg(long, value_name = "MS", value_parser = finite)]
    ttft_ms: Option<f64>,
    /// Its objective for the pace, in milliseconds per token
    #[arg(long, value_name = "MS", value_parser = finite)]
    tpot_ms: Option<f64>,
    /// Its band; below 0 is sheddable
    #[arg(long, allow_negative_numbers = true)]
    band: Option<i8>,
    /// Whose it is
    #[arg(long)]
    tenant: Option<String>,
    /// LoRA adapter that it asks for
    #[arg(long)]
    adapter: Option<String>,
    /// Model whose pool is meant; needed when there are several
    #[arg(long, value_name = "MODEL")]
    pool: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A number that JSON has: the body would say `null` for any other.
fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| "must be a number".to_owned())
}

impl ExplainArgs {
    fn body(&self) -> Value {
        let members = [
            ("pool", self.pool.clone().map(Value::from)),
            ("input_tokens", self.input_tokens.map(Value::from)),
            ("output_tokens", self.output_tokens.map(Value::from)),
            ("ttft_ms", self.ttft_ms.map(Value::from)),
            ("tpot_ms", self.tpot_ms.map(Value::from)),
            ("band", self.band.map(Value::from)),
            ("tenant", self.tenant.clone().map(Value::from)),
            ("adapter", self.adapter.clone().map(Value::from)),
        ];
        let set = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(set.collect::<Map<_, _>>())
    }
}

pub(super) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?;
    let format = args.output.output;
    match &args.request {
        Some(request) => one(&admin, format, request, args.pool.as_deref()),
        None => format.print::<Verdict>("explain", admin.post("/explain", &args.body())?),
    }
}

/// What would become of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Verdict {
    would: String,
    pod: Option<String>,
    reason: Why,
    waits_for: Why,
    explanation: String,
    queue_ahead: Option<f64>,
    predicted_wait_ms: Option<f64>,
    pods: Vec<Look>,
}

has! { Verdict: "would"; }

impl Sheet for Verdict {
    fn sheet(&self, wide: bool) -> String {
        let to = self.pod.as_deref().map(|pod| format!(" to {pod}")).unwrap_or_default();
        let ahead = self.queue_ahead.map(|ahead| match ahead {
            1.0 => "1 request".to_owned(),
            many => format!("{many:.0} requests"),
        });
        let ahead = ahead.unwrap_or_default();
        let reason = if self.waits_for.is_empty() { &self.reason } else { &self.waits_for };
        let wait = match (self.predicted_wait_ms, reason.name.as_str()) {
            (wait @ Some(_), _) => drain(wait),
            (None, "no_pod_ready") => "until a pod is ready".to_owned(),
            (None, "paused") => "until that is resumed".to_owned(),
            (None, _) => String::new(),
        };
        let mut out = facts(&[
            ("would", format!("{}{to}", self.would)),
            ("reason", reason.to_string()),
            ("ahead", ahead),
            ("wait", wait),
        ]);
        if !self.explanation.is_empty() {
            out.push('\n');
            out += &sentences(&self.explanation);
        }
        if !self.pods.is_empty() {
            out.push('\n');
            out += &looks(&self.pods, wide);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn an_objective_is_a_finite_number() {
        assert_eq!(finite("250.5"), Ok(250.5));
        for text in ["NaN", "inf", "-infinity", "1e999", "", "fast"] {
            assert!(finite(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_would_become_of_a_request_is_said_with_every_pod() {
        let verdict: Verdict = from_value(json!({
            "would": "wait", "pod": null, "reason": {"reason": "stall_over_budget", "stall_ms": 410.0, "at_risk": 0.31, "bearable": 0.02},
            "explanation": "its prefill would stall pod-0", "queue_ahead": 12, "predicted_wait_ms": 3100.0,
            "pods": [{"pod": "pod-0", "fits": false, "verdict": {"reason": "stall_over_budget"}}],
        }))
        .unwrap();
        let text = verdict.sheet(false);
        for part in ["wait", "at risk 0.31", "12 requests", "3.1s", "pod-0", "stall_over_budget"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_wait_without_an_end_in_sight_is_told_by_what_ends_it() {
        for (reason, end) in
            [("no_pod_ready", "until a pod is ready"), ("paused", "until that is resumed")]
        {
            let verdict = json!({"would": "wait", "reason": reason, "predicted_wait_ms": null});
            let text = from_value::<Verdict>(verdict).unwrap().sheet(false);
            assert!(text.contains(end), "{text}");
        }
    }
}
