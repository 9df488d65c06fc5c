//! One pod's paths.

use std::{
    cell::{Cell, RefCell},
    num::IntErrorKind,
    ops::Range,
    rc::Rc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use prometheus::proto::MetricFamily;
use serde_json::json;
use tokio::sync::watch;

use super::{
    ask::{Ask, Endpoint},
    body::{Cut, Reply},
    error::Refusal,
    fault::{Doom, Fault, Kind},
    handover::{RELEASE, Release},
    meters,
    sim::{Beside, Sim},
};
use crate::load::OUTPUT_TOKENS_HEADER;

/// What a pod answers with.
pub(super) type Answer = Response<Either<Full<Bytes>, Reply>>;

/// Empties the prefix cache, as a vLLM in development mode does.
const RESET: &str = "/reset_prefix_cache";
/// Names the rank that is to serve a request, among those behind its port.
const RANK_HEADER: &str = "x-data-parallel-rank";
/// Largest body that is read.
const BODY_BYTES: usize = 64 << 20;

/// One pod: its engine and the fault it shows.
pub(super) struct Pod {
    sim: Rc<Sim>,
    fault: Cell<Fault>,
    /// What `/metrics` is made of while it is stale.
    frozen: RefCell<Option<Vec<MetricFamily>>>,
    /// Counts faults posted, so that listeners notice and timers know theirs.
    posted: watch::Sender<u64>,
}

impl Pod {
    pub(super) fn new(sim: Rc<Sim>) -> Self {
        let posted = watch::Sender::new(0);
        Self { sim, fault: Cell::default(), frozen: RefCell::default(), posted }
    }

    /// Tells when another fault is posted.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.posted.subscribe()
    }

    /// Whether it refuses connections now.
    pub(super) fn refuses(&self) -> bool {
        self.fault.get().kind == Kind::Refuse
    }

    /// Answers one request that came to the port of these ranks; an error cuts the connection. `control` is set once the
    /// connection has posted a fault.
    pub(super) async fn answer(
        self: Rc<Self>,
        ranks: Range<u16>,
        control: Rc<Cell<bool>>,
        request: Request<Incoming>,
    ) -> Result<Answer, Cut> {
        let (parts, body) = request.into_parts();
        let get = parts.method == Method::GET;
        if let Some(endpoint) = Endpoint::of(parts.uri.path()) {
            return self.generate(endpoint, &ranks, &parts, body).await;
        }
        let answered = match parts.uri.path() {
            "/tokenize" | "/detokenize" | "/v1/messages/count_tokens"
                if parts.method == Method::POST =>
            {
                self.tokens(parts.uri.path(), body).await
            }
            "/fault" if parts.method == Method::POST => {
                control.set(true);
                self.post_fault(body).await
            }
            RELEASE if parts.method == Method::POST => self.release(body).await,
            RESET if parts.method == Method::POST => {
                if !self.sim.reset_prefix_cache() {
                    tracing::warn!("the prefix cache is in use and stays");
                }
                Ok(text_answer(String::new()))
            }
            "/fault" if get => Ok(json_answer(StatusCode::OK, json!(self.fault.get()).to_string())),
            "/v1/models" if get => {
                Ok(json_answer(StatusCode::OK, self.sim.models().json(self.sim.max_model_len())))
            }
            "/health" | "/ping" if get => Ok(text_answer(String::new())),
            "/metrics" | "/metrics/" if get => {
                Ok(self.metrics(&ranks, parts.uri.query().unwrap_or_default()))
            }
            "/sim/starts" if get => Ok(json_answer(StatusCode::OK, self.sim.starts().to_string())),
            "/tokenize"
            | "/detokenize"
            | "/v1/messages/count_tokens"
            | "/fault"
            | RELEASE
            | RESET
            | "/v1/models"
            | "/health"
            | "/ping"
            | "/metrics"
            | "/metrics/"
            | "/sim/starts" => Err(Refusal::MethodNotAllowed),
            _ => Err(Refusal::NotFound),
        };
        Ok(answered.unwrap_or_else(|refusal| refused(&refusal)))
    }

    async fn generate(
        self: &Rc<Self>,
        endpoint: Endpoint,
        ranks: &Range<u16>,
        parts: &http::request::Parts,
        body: Incoming,
    ) -> Result<Answer, Cut> {
        let refused = |refusal: &Refusal| match endpoint {
            Endpoint::Messages => json_answer(refusal.status(), refusal.json_of_messages()),
            _ => refused(refusal),
        };
        if parts.method != Method::POST {
            return Ok(refused(&Refusal::MethodNotAllowed));
        }
        let ask = match read(body).await {
            Ok(body) => Ask::read(endpoint, &body, self.sim.models(), self.sim.block_tokens()),
            Err(refusal) => Err(refusal),
        };
        let doom = self.strike();
        let reply = match (ask, doom) {
            (_, Some(Doom::Hang)) => std::future::pending().await,
            (_, Some(Doom::Status(status))) => Err(Refusal::Injected(status)),
            (Err(refusal), _) => Err(refusal),
            (Ok(ask), doom) => {
                let beside = beside(&parts.headers, ranks, doom);
                self.sim.begin(&ask, beside).map(|reply| (reply, ask.stream))
            }
        };
        match reply {
            Err(refusal) => Ok(refused(&refusal)),
            Ok((reply, true)) => Ok(stream_answer(reply)),
            Ok((reply, false)) => Ok(json_answer(StatusCode::OK, reply.whole().await?)),
        }
    }

    /// Text to tokens, or back. A token is its place among the tokens of its text.
    async fn tokens(&self, path: &str, body: Incoming) -> Result<Answer, Refusal> {
        let body = read(body).await?;
        let json: serde_json::Value = serde_json::from_slice(&body)
            .map_err(|error| Refusal::BadRequest(error.to_string()))?;
        let ids = json.get("tokens").and_then(serde_json::Value::as_array);
        let answer = if path == "/detokenize" {
            let ids = ids.ok_or_else(|| Refusal::BadRequest("Field required: tokens".into()))?;
            json!({"prompt": "the ".repeat(ids.len())})
        } else {
            let endpoint = match (path, json.get("messages")) {
                ("/tokenize", None) => Endpoint::Completions,
                _ => Endpoint::Chat,
            };
            let ask = Ask::read(endpoint, &body, self.sim.models(), self.sim.block_tokens())?;
            let count = ask.prompt_tokens();
            match path {
                "/tokenize" => json!({
                    "count": count, "max_model_len": self.sim.max_model_len(),
                    "tokens": (0..count).collect::<Vec<_>>(), "token_strs": null,
                }),
                _ => json!({"input_tokens": count}),
            }
        };
        Ok(json_answer(StatusCode::OK, answer.to_string()))
    }

    fn strike(&self) -> Option<Doom> {
        let mut fault = self.fault.get();
        let doom = fault.strike();
        self.fault.set(fault);
        doom
    }

    /// Another pod has read what was kept for it.
    async fn release(&self, body: Incoming) -> Result<Answer, Refusal> {
        let body = read(body).await?;
        let release: Release = serde_json::from_slice(&body)
            .map_err(|error| Refusal::BadRequest(error.to_string()))?;
        let released = self.sim.release(&release.remote_request_id);
        Ok(json_answer(StatusCode::OK, json!({ "released": released }).to_string()))
    }

    async fn post_fault(self: &Rc<Self>, body: Incoming) -> Result<Answer, Refusal> {
        let body = read(body).await?;
        let fault: Fault = serde_json::from_slice(&body)
            .map_err(|error| Refusal::BadRequest(error.to_string()))?;
        fault.check().map_err(|reason| Refusal::BadRequest(reason.to_owned()))?;
        let number = self.show(fault);
        if let Some(lasts) = fault.lasts() {
            let pod = Rc::clone(self);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(lasts).await;
                if *pod.posted.borrow() == number {
                    pod.show(Fault::default());
                }
            });
        }
        Ok(json_answer(StatusCode::OK, json!(fault).to_string()))
    }

    /// Replaces the fault that is shown and returns its number.
    fn show(&self, fault: Fault) -> u64 {
        let stale = fault.kind == Kind::StaleMetrics;
        *self.frozen.borrow_mut() = stale.then(|| self.sim.metrics());
        self.sim.slow(fault.slowness());
        self.sim.unstall();
        self.fault.set(fault);
        self.posted.send_modify(|number| *number += 1);
        *self.posted.borrow()
    }

    fn metrics(&self, ranks: &Range<u16>, query: &str) -> Answer {
        let frozen = self.frozen.borrow().clone();
        match meters::text(frozen.unwrap_or_else(|| self.sim.metrics()), query, ranks) {
            Ok(text) => text_answer(text),
            Err(error) => {
                tracing::error!(%error, "metrics could not be written");
                refused(&Refusal::Injected(500))
            }
        }
    }
}

fn beside<'a>(headers: &'a HeaderMap, ranks: &'a Range<u16>, doom: Option<Doom>) -> Beside<'a> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    Beside {
        request_id: headers.get("x-request-id").map(HeaderValue::as_bytes),
        output_tokens: text(OUTPUT_TOKENS_HEADER).and_then(|value| value.parse().ok()),
        ranks,
        rank: text(RANK_HEADER).and_then(integer),
        doom,
    }
}

/// The integer that a text is, or the one next to it that there is room for; what is none is ignored, as by vLLM
/// (`_get_data_parallel_rank`).
fn integer(text: &str) -> Option<i64> {
    match text.parse::<i64>() {
        Ok(integer) => Some(integer),
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => Some(i64::MAX),
            IntErrorKind::NegOverflow => Some(i64::MIN),
            _ => None,
        },
    }
}

async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let whole = Limited::new(body, BODY_BYTES).collect().await;
    Ok(whole.map_err(|error| Refusal::BadRequest(error.to_string()))?.to_bytes())
}

fn refused(refusal: &Refusal) -> Answer {
    json_answer(refusal.status(), refusal.json())
}

fn json_answer(status: StatusCode, json: String) -> Answer {
    let mut answer = whole_answer(json, "application/json");
    *answer.status_mut() = status;
    answer
}

fn text_answer(text: String) -> Answer {
    whole_answer(text, "text/plain; version=0.0.4; charset=utf-8")
}

fn whole_answer(text: String, kind: &'static str) -> Answer {
    with_kind(Either::Left(Full::new(text.into())), kind)
}

fn stream_answer(reply: Reply) -> Answer {
    with_kind(Either::Right(reply), "text/event-stream; charset=utf-8")
}

fn with_kind(body: Either<Full<Bytes>, Reply>, kind: &'static str) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
