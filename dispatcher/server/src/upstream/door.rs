//! Pods that do not let a request in, or take no more for now.
//!
//! Which models a pod serves is known here, so a pod that knows nothing of one (404), or wants another key than the others (401,
//! 403), may have come back as something else. Or the request is wrong, and every pod says so. One tells from the other by asking
//! a second pod: nothing was computed at the first.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, response::Parts};

use super::sse::{Scan, error};
use crate::{fleet::Pod, h1::PodRequest};

/// Where what was said before is asked for by its name, which only the pod that said it knows.
const RESPONSES: &str = "/v1/responses";

/// What a pod said that did not let a request in.
pub(super) struct TurnedAway {
    pub head: Parts,
    pub bytes: Bytes,
    pub pod: Arc<Pod>,
    /// What it means by it.
    pub why: Why,
}

/// Why a pod did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It did not let it in.
    NotLetIn,
    /// It failed, which was held against it then.
    Failed,
    /// It takes no more for now.
    Full,
}

/// Whether this is the answer of a pod that takes no more for now: of vLLM and others whose queue is bounded, before anything is computed.
pub(super) fn is_full(status: StatusCode) -> bool {
    status == StatusCode::SERVICE_UNAVAILABLE
}

/// Whether a stream begins with the same: vLLM says so in an event to those that come all at once.
pub(super) fn says_full(begins: &[u8]) -> bool {
    // Hardly any stream begins so.
    if !error::may_say(begins) {
        return false;
    }
    let mut scan = Scan::default();
    scan.chunk(begins);
    scan.error == Some(StatusCode::SERVICE_UNAVAILABLE.as_u16()) && scan.carrying == 0
}

/// Whether this is the answer of a pod that does not let a request in, which another pod may.
pub(super) fn turns_away(status: StatusCode, request: &PodRequest) -> bool {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => true,
        StatusCode::NOT_FOUND => !request.path().starts_with(RESPONSES),
        _ => false,
    }
}
