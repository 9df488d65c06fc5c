//! What is in a hub's mailbox.

use std::sync::Arc;

use tokio::sync::oneshot;
use weir_core::{Event, PodId, Refusal, Request, RequestId};

use super::{Lease, errand::Missed};
use crate::fleet::Pod;

/// The answer to an admitted request. Boxed, for the room of an answer is kept as long as the request waits.
pub(super) type Verdict = Result<Box<Lease>, Box<Refusal>>;

/// Where a verdict goes.
pub(super) type Waiter = oneshot::Sender<Verdict>;

/// Something for the desk.
#[derive(Debug)]
pub(super) enum Message {
    /// A request arrived; its ticket waits.
    Admit(Box<Request>, Waiter),
    /// Its pod has nothing of a request; its ticket waits again.
    Retry(RequestId, Missed, Waiter),
    /// The pod of a request is not reached by who was to send it there; its ticket waits again.
    Decline(RequestId, Waiter),
    /// A ticket was dropped before its verdict.
    Cancel(RequestId),
    /// A pod joined.
    PodUp(Arc<Pod>),
    /// A pod's process has ended, and everything that ran there with it.
    PodRestarted(PodId),
    /// A pod may be in another phase than before.
    PodChanged(PodId),
    /// Anything else.
    Event(Event),
}
