//! [`Ticket`]: the wait of an admitted request for its verdict.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::sync::oneshot;
use weir_core::{Band, Refusal, RefusalReason, RequestId};

use super::{
    Hub, Lease,
    message::{Verdict, Waiter},
};

/// A request's place in the queue.
///
/// Dropping it takes the request out: before the verdict it is cancelled, and a lease that was on
/// its way is given back.
#[derive(Debug)]
pub struct Ticket {
    hub: Arc<Hub>,
    id: RequestId,
    /// Terminated once the verdict was received.
    verdict: oneshot::Receiver<Verdict>,
}

impl Ticket {
    pub(super) fn new(hub: Arc<Hub>, id: RequestId) -> (Self, Waiter) {
        let (waiter, verdict) = oneshot::channel();
        (Self { hub, id, verdict }, waiter)
    }

    /// That of a request which has its verdict.
    pub(super) fn spent(hub: Arc<Hub>, id: RequestId) -> Self {
        let (mut ticket, _) = Self::new(hub, id);
        // Nobody answers any more, and to have seen that is to have heard.
        let _ = ticket.verdict.try_recv();
        ticket
    }

    /// Waits for the scheduler to give the request a pod or refuse it. May be dropped and called
    /// again; the verdict is not lost.
    ///
    /// # Errors
    /// The refusal, with its reason.
    pub fn verdict(&mut self) -> impl Future<Output = Result<Box<Lease>, Refusal>> {
        // One pointer: an `async fn` would keep each step of the wait.
        poll_fn(|cx| self.poll_verdict(cx))
    }

    /// The verdict if it is there, or that nobody takes the request: for those who have somewhere else to go.
    ///
    /// # Errors
    /// The refusal, with its reason.
    pub fn verdict_at_once(&mut self) -> impl Future<Output = Result<Box<Lease>, Refusal>> {
        poll_fn(|cx| match self.poll_verdict(cx) {
            Poll::Pending => Poll::Ready(Err(nobody_answers(self.id))),
            verdict => verdict,
        })
    }

    /// The hub that it came to.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The same, for those who wait for something else too.
    pub fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<Lease>, Refusal>> {
        if self.verdict.is_terminated() {
            return Poll::Ready(Err(nobody_answers(self.id)));
        }
        let answer = ready!(Pin::new(&mut self.verdict).poll(cx));
        Poll::Ready(answer.map_or_else(
            |_| Err(nobody_answers(self.id)),
            |verdict| verdict.map_err(|refusal| *refusal),
        ))
    }

    /// Waits again, for the request's next attempt.
    pub(super) fn wait_again(&mut self) -> Waiter {
        let (waiter, verdict) = oneshot::channel();
        self.verdict = verdict;
        waiter
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.verdict.is_terminated() {
            return;
        }
        self.verdict.close();
        // A lease that arrived already ends its request itself, here. One that arrives too late
        // comes back to its sender, which sees that this end is closed.
        if self.verdict.try_recv().is_err() {
            self.hub.cancel(self.id);
        }
    }
}

/// For a ticket that is asked once too often, or whose id was used twice.
pub(super) fn nobody_answers(id: RequestId) -> Refusal {
    Refusal {
        id,
        band: Band::default(),
        reason: RefusalReason::Undeliverable,
        waited: Duration::ZERO,
        retry_after: Duration::from_secs(1),
    }
}
