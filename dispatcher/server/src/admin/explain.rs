//! What would become of a request that is not sent.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::{
    Band, Slo,
    inspect::{Supposed, Supposition},
};

use super::{
    fault::{ErrorBody, Fault},
    seat::Seat,
    take::{Body, some_whole, whole},
};
use crate::api::objective::slo_from_ms;

/// A request that does not exist.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainAsk {
    /// The pool; may be left out when there is one.
    #[serde(default)]
    pub pool: Option<String>,
    /// Prompt tokens.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub input_tokens: u32,
    /// The client's bound on output tokens; left out: as long as such requests are.
    #[serde(default, deserialize_with = "some_whole")]
    #[schema(minimum = 0, maximum = 10_000_000)]
    pub output_tokens: Option<u32>,
    /// Its objective for the time from arrival to the first token, in milliseconds.
    #[serde(default)]
    #[schema(minimum = 0.001, maximum = 86_400_000)]
    pub ttft_ms: Option<f64>,
    /// Its objective for the time per output token, in milliseconds.
    #[serde(default)]
    #[schema(minimum = 0.001, maximum = 86_400_000)]
    pub tpot_ms: Option<f64>,
    /// Its band; left out: 0.
    #[serde(default, deserialize_with = "some_whole")]
    #[schema(minimum = -128, maximum = 127)]
    pub band: Option<i8>,
    /// Who would send it.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The LoRA adapter that it would ask for.
    #[serde(default)]
    pub adapter: Option<String>,
}

/// What would become of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explained {
    /// The pool.
    pub pool: String,
    /// What would become of it there.
    #[serde(flatten)]
    pub supposed: Supposed,
}

/// What would become of a request of these sizes and objectives. Nothing is sent and nothing changes.
#[utoipa::path(
    post, path = "/explain", tag = "requests", operation_id = "explain", request_body = ExplainAsk,
    responses((status = 200, body = Explained), (status = "4XX", body = ErrorBody))
)]
pub(super) async fn explain(
    State(seat): State<Arc<Seat>>,
    Body(ask): Body<ExplainAsk>,
) -> Result<Json<Explained>, Fault> {
    seat.aside(move |seat| said(seat, &ask).map(Json)).await
}

fn said(seat: &Seat, ask: &ExplainAsk) -> Result<Explained, Fault> {
    let supposition = supposition(ask)?;
    let pool = seat.pool(ask.pool.as_deref())?;
    // The ledger and the queue here are not those that it would meet.
    pool.decides()?;
    let supposed = pool.hub.suppose(&supposition);
    Ok(Explained { pool: pool.name().to_owned(), supposed })
}

const MOST_TOKENS: u32 = 10_000_000;

fn supposition(ask: &ExplainAsk) -> Result<Supposition, Fault> {
    let few = |tokens: u32, least: u32, name| {
        let why = format!("must be from {least} to {MOST_TOKENS}");
        let sane = (least..=MOST_TOKENS).contains(&tokens);
        if sane { Ok(tokens) } else { Err(Fault::parameter(name, why)) }
    };
    let slo = |value: Option<f64>, name| match value {
        None => Ok(None),
        Some(ms) => slo(ms).map(Some).ok_or_else(|| {
            Fault::parameter(name, "must be a time in milliseconds, from 0.001 to 86400000")
        }),
    };
    Ok(Supposition {
        input_tokens: few(ask.input_tokens, 1, "input_tokens")?,
        output_tokens: ask.output_tokens.map(|most| few(most, 0, "output_tokens")).transpose()?,
        slo: Slo { ttft: slo(ask.ttft_ms, "ttft_ms")?, tpot: slo(ask.tpot_ms, "tpot_ms")? },
        band: Band(ask.band.unwrap_or(0)),
        tenant: ask.tenant.as_deref().map(Arc::from),
        adapter: ask.adapter.as_deref().map(Arc::from),
    })
}

fn slo(ms: f64) -> Option<Duration> {
    (0.001..=86_400_000.0).contains(&ms).then(|| slo_from_ms(ms)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(body: &str) -> Result<Supposition, Fault> {
        supposition(&serde_json::from_str(body).unwrap())
    }

    #[test]
    fn a_hypothetical_request_is_checked_like_a_real_one() {
        let good = ask(r#"{"input_tokens": 4000, "ttft_ms": 500, "band": 1}"#).unwrap();
        assert_eq!((good.input_tokens, good.band), (4000, Band(1)));
        assert_eq!(good.slo.ttft, Some(Duration::from_millis(500)));
        for (body, name) in [
            (r#"{"input_tokens": 0}"#, "input_tokens"),
            (r#"{"input_tokens": 20000000}"#, "input_tokens"),
            (r#"{"input_tokens": 1, "output_tokens": 20000000}"#, "output_tokens"),
            (r#"{"input_tokens": 1, "ttft_ms": -1}"#, "ttft_ms"),
            (r#"{"input_tokens": 1, "tpot_ms": 0}"#, "tpot_ms"),
        ] {
            let Err(Fault::Parameter { param, .. }) = ask(body) else { panic!("{body} passed") };
            assert_eq!(param.as_deref(), Some(name), "{body}");
        }
    }
}
