//! One request on the wire, from its bytes to its record.

use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{
    Failure, LoadPlan, MaxTokens, Outcome, Planned, Record, connect::Connections, sse::Events,
};
use crate::prompt;

/// Tells a simulated pod how long the answer would become; a real server ignores it.
pub(crate) const OUTPUT_TOKENS_HEADER: &str = "x-sim-output-tokens";
const OBJECTIVE_HEADER: &str = "x-llm-d-inference-objective";
const DROPPED_HEADER: &str = "x-llm-d-request-dropped-reason";
/// Bytes of JSON around the text, the model's name not counted.
const ENVELOPE_BYTES: usize = 160;

/// What the tasks of a run share.
pub(super) struct Shared {
    pub(super) plan: LoadPlan,
    pub(super) connections: Connections,
    pub(super) start: Instant,
}

/// When what arrived.
#[derive(Default)]
struct Seen {
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    tokens: u32,
}

/// Sends the plan's request of this number and follows it to its end.
pub(super) async fn call(shared: Rc<Shared>, index: usize) -> Option<Record> {
    let planned = shared.plan.requests.get(index)?;
    let mut seen = Seen::default();
    let request = match request(&shared.plan, planned, index) {
        Ok(request) => request,
        Err(error) => {
            let outcome = failed_to_connect(error.to_string());
            return Some(record(&shared, (index, planned), Instant::now(), seen, outcome));
        }
    };
    let sent = Instant::now();
    let exchange = exchange(&shared.connections, request, &mut seen);
    let outcome = match tokio::time::timeout(shared.plan.timeout, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Failed(Failure::Timeout),
    };
    Some(record(&shared, (index, planned), sent, seen, outcome))
}

fn request(plan: &LoadPlan, planned: &Planned, index: usize) -> http::Result<Request<Full<Bytes>>> {
    let class = plan.classes.get(planned.class).map_or("", |class| class.name.as_str());
    let mut request = Request::post("/v1/chat/completions");
    if let Some(key) = &plan.target.key {
        request = request.header(header::AUTHORIZATION, key);
    }
    request
        .header(header::HOST, &plan.target.host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "text/event-stream")
        .header("x-request-id", format!("load-{:x}-{index}", plan.run))
        .header(OBJECTIVE_HEADER, class)
        .header(OUTPUT_TOKENS_HEADER, planned.output_tokens)
        .body(Full::new(body(plan, planned, index)))
}

/// The body of a request.
pub(crate) fn body(plan: &LoadPlan, planned: &Planned, index: usize) -> Bytes {
    let text_bytes = planned.input_tokens as usize * prompt::BYTES_PER_TOKEN;
    let mut out = Vec::with_capacity(text_bytes + plan.model.len() + ENVELOPE_BYTES);
    out.extend_from_slice(b"{\"model\":");
    out.extend_from_slice(serde_json::Value::from(plan.model.as_str()).to_string().as_bytes());
    out.extend_from_slice(b",\"messages\":[{\"role\":\"user\",\"content\":\"");
    let unique = (plan.run << 24) ^ index as u64;
    prompt::write_text(&mut out, planned.input_tokens, &planned.prefix, unique);
    out.extend_from_slice(b"\"}],\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    if let Some(max_tokens) = plan.max_tokens.of(planned) {
        out.extend_from_slice(format!(",\"max_tokens\":{max_tokens}").as_bytes());
    }
    if plan.max_tokens == MaxTokens::Exactly {
        out.extend_from_slice(b",\"ignore_eos\":true");
    }
    out.push(b'}');
    out.into()
}

async fn exchange(
    connections: &Connections,
    request: Request<Full<Bytes>>,
    seen: &mut Seen,
) -> Outcome {
    let (response, sender) = match connections.send(request).await {
        Ok(answered) => answered,
        Err(detail) => return failed_to_connect(detail),
    };
    let (outcome, whole) = match response.status() {
        StatusCode::OK => stream(response, seen).await,
        status => refusal(status, response).await,
    };
    if whole {
        connections.give_back(sender).await;
    }
    outcome
}

fn failed_to_connect(detail: String) -> Outcome {
    Outcome::Failed(Failure::Connection { detail })
}

/// Reads a stream; also returns whether the body ended as HTTP wants it, so that the connection is good for another.
async fn stream(response: Response<Incoming>, seen: &mut Seen) -> (Outcome, bool) {
    let (mut events, mut body) = (Events::new(), response.into_body());
    let mut whole = true;
    while let Some(frame) = body.frame().await {
        let now = Instant::now();
        let Ok(frame) = frame else {
            whole = false;
            break;
        };
        if frame.data_ref().is_some_and(|data| events.feed(data)) {
            seen.first_token.get_or_insert(now);
            seen.last_token = Some(now);
        }
        seen.tokens = events.completion_tokens.unwrap_or(events.chunks.saturating_sub(1));
    }
    let outcome = match events.error {
        Some(code) => Outcome::Failed(Failure::InBand { code }),
        None if events.done && whole => Outcome::Ok,
        None => Outcome::Failed(Failure::Truncated),
    };
    (outcome, whole)
}

async fn refusal(status: StatusCode, response: Response<Incoming>) -> (Outcome, bool) {
    let reason = response.headers().get(DROPPED_HEADER).and_then(|value| value.to_str().ok());
    let outcome = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            Outcome::Refused { reason: reason.unwrap_or_default().to_owned() }
        }
        status => Outcome::Failed(Failure::Status { status: status.as_u16() }),
    };
    let whole = response.into_body().collect().await.is_ok();
    (outcome, whole)
}

fn record(
    shared: &Shared,
    (index, planned): (usize, &Planned),
    sent: Instant,
    seen: Seen,
    outcome: Outcome,
) -> Record {
    let ms = |later: Instant| later.duration_since(sent).as_secs_f64() * 1e3;
    let ttft_ms = seen.first_token.map(ms);
    let tpot_ms = match (ttft_ms, seen.last_token.map(ms)) {
        (Some(first), Some(last)) if seen.tokens > 1 => {
            Some((last - first) / f64::from(seen.tokens - 1))
        }
        _ => None,
    };
    let class = shared.plan.classes.get(planned.class);
    let met = class.zip(ttft_ms).is_some_and(|(class, ttft_ms)| class.met(ttft_ms, tpot_ms));
    let due = shared.start + planned.at;
    Record {
        index,
        class: planned.class,
        at_s: planned.at.as_secs_f64(),
        lag_ms: sent.saturating_duration_since(due).as_secs_f64() * 1e3,
        attained: met && outcome == Outcome::Ok,
        outcome,
        ttft_ms,
        tpot_ms,
        e2e_ms: ms(Instant::now()),
        input_tokens: planned.input_tokens,
        output_tokens: seen.tokens,
    }
}
