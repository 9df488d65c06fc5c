//! What the end of a request says of its pod: to its breaker, and to the metrics.
//!
//! Told of once per request, by whoever sees it end. A client that leaves says nothing, nor does a request that the pod
//! refuses as wrong: that is an answer as good as any. That requests to a pod fail is said in the log once in a row.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::RelayError;
use crate::{fleet::Pod, hub::Lease};

/// Nothing of the request reached the pod.
pub(super) fn undelivered(pod: &Pod) {
    say(pod, pod.breaker.failed());
}

/// The pod has the request and did not answer.
pub(super) fn unanswered(pod: &Pod) {
    count(&pod.answers.none);
    say(pod, pod.breaker.failed());
}

/// The first token of the answer came.
pub(super) fn begun(lease: &Lease) {
    lease.pod().breaker.begins();
}

/// The answer was passed on to its end. `status`: its own, or that of the error that it turned out to be; `begun`: after its
/// first token.
pub(super) fn answered(lease: &Lease, status: u16, begun: bool) {
    let pod = lease.pod();
    let (counter, said) = match status {
        ..400 => (&pod.answers.good, None),
        400..500 => (&pod.answers.refused, None),
        // It says itself that it takes nothing.
        503 => (&pod.answers.failed, Some(pod.breaker.failed())),
        500 | 502 | 504 => (&pod.answers.failed, Some(answered_badly(lease, begun))),
        // It cannot do what was asked, and says so.
        _ => (&pod.answers.failed, None),
    };
    count(counter);
    match said {
        Some(said) => say(pod, said),
        None => pod.breaker.succeeded(),
    }
}

/// The answer was broken off; `begun`: after its first token.
pub(super) fn cut(lease: &Lease, error: RelayError, begun: bool) {
    let pod = lease.pod();
    let said = match error {
        RelayError::Closing => return,
        RelayError::Stalled => pod.breaker.failed(),
        RelayError::Lost => answered_badly(lease, begun),
    };
    count(&pod.answers.cut);
    say(pod, said);
}

fn answered_badly(lease: &Lease, begun: bool) -> bool {
    lease.pod().breaker.answered_badly(begun, lease.others_are_ready())
}

fn say(pod: &Pod, said: bool) {
    if said {
        let (pod, taken_out) = (&*pod.name, pod.breaker.is_open());
        tracing::warn!(pod, taken_out, "requests to the pod fail");
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
