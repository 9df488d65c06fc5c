//! What the end of a request says of its pod: to its breaker, and to the metrics.
//!
//! Told of once per request, by whoever sees it end. A client that leaves says nothing, nor does a request that the pod
//! refuses as wrong: that is an answer as good as any, unless another pod takes the same. That requests to a pod fail is said in
//! the log once in a row.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::StatusCode;

use super::RelayError;
use crate::{
    fleet::{Failing, Pod},
    hub::Lease,
};

/// Nothing of the request reached the pod.
pub(super) fn undelivered(lease: &Lease) {
    fails(lease, Failing::Undelivered);
}

/// The pod has the request and did not answer.
pub(super) fn unanswered(lease: &Lease) {
    count(&lease.pod().answers.none);
    fails(lease, Failing::Unanswered);
}

/// The first token of the answer came.
pub(super) fn begun(lease: &Lease) {
    lease.pod().breaker.begins();
}

/// The answer was passed on to its end. `status`: its own; `begun`: after its first token.
pub(super) fn answered(lease: &Lease, status: u16, begun: bool) {
    let pod = lease.pod();
    let (counter, failing) = match status {
        ..300 => (&pod.answers.good, None),
        400..500 => (&pod.answers.refused, None),
        // It says itself that it takes nothing.
        503 => (&pod.answers.failed, Some(Failing::Unwilling)),
        500 | 502 | 504 => (&pod.answers.failed, Some(Failing::Badly { begun })),
        // It cannot do what was asked, and says so; or it points elsewhere, where Weir does not go.
        _ => (&pod.answers.failed, None),
    };
    count(counter);
    match failing {
        Some(failing) => fails(lease, failing),
        None => pod.breaker.succeeded(),
    }
}

/// A request that a pod did not let in has the answer of another one, `lease`'s. If that is a good one, the first is at fault.
pub(super) fn turned_away(pod: &Pod, lease: &Lease, status: StatusCode) {
    refused(pod);
    if status.is_success() {
        let failing = Failing::Badly { begun: false };
        pod.fails(failing, true);
        lease.hold_against_another(pod, failing);
    }
}

/// A pod takes no more for now. Of one that has nothing else to do that is a failure.
pub(super) fn full(lease: &Lease) {
    count(&lease.pod().answers.failed);
    if lease.is_alone() {
        fails(lease, Failing::Unwilling);
    }
}

/// A pod refused a request.
pub(super) fn refused(pod: &Pod) {
    count(&pod.answers.refused);
}

/// The answer turned out to be an error, of this status, inside a stream that had begun as a good one. One that lays it on the
/// request says nothing of the pod: there are engines that say so of their own crash.
pub(super) fn turned_out_bad(lease: &Lease, status: u16, begun: bool) {
    match status {
        400..500 => count(&lease.pod().answers.refused),
        _ => answered(lease, status, begun),
    }
}

/// The answer was broken off; `begun`: after its first token.
pub(super) fn cut(lease: &Lease, error: RelayError, begun: bool) {
    let failing = match error {
        RelayError::Closing => return,
        RelayError::Stalled => Failing::Unanswered,
        RelayError::Lost => Failing::Badly { begun },
    };
    count(&lease.pod().answers.cut);
    fails(lease, failing);
}

fn fails(lease: &Lease, failing: Failing) {
    lease.pod().fails(failing, lease.others_are_ready());
    // And to whoever gave it, who may have no requests of his own there.
    lease.hold_against(failing);
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
