//! Pods that do not let a request in.
//!
//! Which models a pod serves is known here, so a pod that knows nothing of one (404), or wants another key than the others (401,
//! 403), may have come back as something else. Or the request is wrong, and every pod says so. One tells from the other by asking
//! a second pod: nothing was computed at the first.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, response::Parts};

use crate::{fleet::Pod, h1::PodRequest};

/// Where what was said before is asked for by its name, which only the pod that said it knows.
const RESPONSES: &str = "/v1/responses";

/// What a pod said that did not let a request in.
pub(super) struct TurnedAway {
    pub head: Parts,
    pub bytes: Bytes,
    pub pod: Arc<Pod>,
    /// Whether it failed, which was held against it then.
    pub is_blamed: bool,
}

/// Whether this is the answer of a pod that does not let a request in, which another pod may.
pub(super) fn turns_away(status: StatusCode, request: &PodRequest) -> bool {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => true,
        StatusCode::NOT_FOUND => !request.path().starts_with(RESPONSES),
        _ => false,
    }
}
