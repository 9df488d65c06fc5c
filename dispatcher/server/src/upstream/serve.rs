//! One request's way: admit, wait for a pod, go there.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Response;
use weir_core::{Refusal, Request, RequestId};

use super::{
    Dialect, Upstream,
    account::{Facts, Given, Refused, Wait},
    attempt::{Asks, Attempt},
    migration::{Migrates, Migration},
    prefill::{self, Prefill},
    priority::Urgency,
    relay::RelayBody,
};
use crate::{
    h1::{BadReply, PodRequest},
    hub::Hub,
    telemetry::trace::Known,
};

/// A request to be served.
#[derive(Debug)]
pub struct Call {
    /// It as the pod gets it. Nothing of it is a piece of the connection's buffer, which is not to be held while the request
    /// waits.
    pub onward: PodRequest,
    /// What its client reads.
    pub dialect: Dialect,
    /// Whether the body has a priority of its own, beside which none is written.
    pub own_priority: bool,
    /// What the scheduler is told of it.
    pub request: Request,
    /// Its names in logs and for the client.
    pub known: Known,
    /// Name of its objective in the configuration: a label of its metrics.
    pub objective: Arc<str>,
    /// Who may compute its prompt for the pod that answers, and a second number of it, by which it waits for others meanwhile.
    pub prefill: Option<(Arc<Prefill>, RequestId)>,
    /// How often it may go on at another pod; `None`: never.
    pub migrates: Option<Migrates>,
}

/// Why there is no response to pass on.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The scheduler refused it; nothing was sent.
    #[error("refused: {}", .0.reason.name())]
    Refused(Refusal),
    /// The pod was lost after the request was sent. It may have worked on it, so that the request
    /// is not sent again, or no more.
    #[error("pod {pod} was lost after the request was sent")]
    PodLost {
        /// The pod's name.
        pod: Arc<str>,
        /// What the connection said; `None` when it just ended.
        #[source]
        reason: Option<BadReply>,
    },
    /// The pod took the request and did not answer in time.
    #[error("pod {pod} did not answer within {limit:?}")]
    Timeout {
        /// The pod's name.
        pod: Arc<str>,
        /// The time it had.
        limit: Duration,
    },
    /// The process ends before the pod has answered.
    #[error("closed before pod {pod} had answered")]
    Closing {
        /// The pod's name.
        pod: Arc<str>,
    },
}

/// A request for which there is no response to pass on, with what its answer needs.
#[derive(Debug)]
pub struct Unserved {
    /// Why.
    pub fault: Fault,
    /// Which.
    pub id: RequestId,
    /// Its names in logs and for the client.
    pub known: Known,
    /// Name of its objective in the configuration.
    pub objective: Arc<str>,
    /// Where it was to be served.
    pub hub: Arc<Hub>,
}

/// Serves one request through a pool: it is admitted at once, and the future is the wait and all that follows.
///
/// Dropping the future at any point cancels the request, or aborts the pod's call. What is relayed
/// and what a leaving client abandons is counted in `request_done` here; a [`Fault`] is counted
/// there by the caller, who decides its status. Refusals by reason are counted here.
///
/// # Errors
/// The fault to answer with; nothing of a response has been passed on then.
pub fn serve<'a>(
    hub: &Arc<Hub>,
    upstream: &'a Arc<Upstream>,
    call: Call,
) -> impl Future<Output = Served> + use<'a> {
    serving(hub, upstream, call)
}

/// The same by the future's own name.
fn serving<'a>(hub: &Arc<Hub>, upstream: &'a Arc<Upstream>, mut call: Call) -> Serving<'a> {
    if let Some(prefill) = prefill::asked(hub, upstream, &mut call) {
        return Serving::Goes(Box::pin(prefill::in_parts(hub.clone(), upstream, call, prefill)));
    }
    let Call { onward, dialect, own_priority, request, known, objective, migrates, .. } = call;
    let facts = Facts::of((upstream, hub), (&request, onward.body.len()), (known, objective));
    let how = How { dialect, own_priority, prefills: false };
    let migration = Migration::of((upstream, hub), (&request, &onward), how, migrates);
    let waiting = Waiting::enter((upstream, hub), (request, onward), how, facts);
    Serving::Waits(waiting.with(migration))
}

/// How a request is served.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// What its client reads.
    pub dialect: Dialect,
    /// Whether the body has a priority of its own.
    pub own_priority: bool,
    /// Whether it is to compute a prompt for another pod.
    pub prefills: bool,
}

/// A request that waits for its verdict, with all that it takes to send it.
pub(super) struct Waiting<'a> {
    /// Its wait.
    wait: Wait<'a>,
    /// It as the pod gets it.
    request: PodRequest,
    /// What its priority is made of, if one is written.
    urgency: Option<Box<Urgency>>,
    /// What it asks for.
    asks: Asks,
    /// By which it may go on at another pod.
    migration: Option<Box<Migration>>,
}

impl<'a> Waiting<'a> {
    /// Lets a request in, as the scheduler and as the pod gets it, of which this is known.
    pub(super) fn enter(
        (upstream, hub): (&'a Upstream, &Arc<Hub>),
        (request, onward): (Request, PodRequest),
        how: How,
        facts: Facts,
    ) -> Self {
        let How { dialect, own_priority, prefills } = how;
        let asks = Asks { streamed: request.streamed && !prefills, prefills, dialect };
        let inject = upstream.config().inject_priority && !own_priority;
        let urgency = inject.then(|| Box::new(Urgency::of(&request, &onward.body)));
        let wait = Wait::enter(upstream, hub, request, facts);
        Self { wait, request: onward, urgency, asks, migration: None }
    }

    /// The same, which may go on at another pod by this.
    pub(super) fn with(self, migration: Option<Box<Migration>>) -> Self {
        Self { migration, ..self }
    }

    /// Waits for a pod, or a refusal.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Box<Refused>>> {
        self.wait.poll(cx)
    }

    /// It is served elsewhere, with what is known of it.
    pub(super) fn withdraw(mut self) -> Option<Facts> {
        self.wait.withdraw()
    }

    /// Sends it to the pod that it was given.
    pub(super) fn go(self, given: Given) -> Pin<Box<dyn Future<Output = Served> + Send + 'a>> {
        let Self { wait, request, urgency, asks, migration } = self;
        let Given { lease, account, ticket } = given;
        let attempt = Attempt::new(wait.upstream, account, asks, (migration, urgency));
        Box::pin(attempt.deliver(lease, request, ticket))
    }
}

/// A request that is served; see [`serve`].
///
/// A hundred thousand of these may wait. So it is no `async fn`, which would keep what it was given beside what becomes of it,
/// and what sends and answers is boxed when its time comes.
enum Serving<'a> {
    /// It has no verdict yet.
    Waits(Waiting<'a>),
    /// It goes to its pod, and comes back.
    Goes(Pin<Box<dyn Future<Output = Served> + Send + 'a>>),
    /// It is over.
    Over,
}

impl Future for Serving<'_> {
    type Output = Served;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Served> {
        let this = self.get_mut();
        if let Self::Waits(waiting) = this {
            let given = ready!(waiting.poll(cx));
            let Self::Waits(waiting) = std::mem::replace(this, Self::Over) else {
                return Poll::Pending;
            };
            match given {
                Ok(given) => *this = Self::Goes(waiting.go(given)),
                Err(refused) => return Poll::Ready(Err(refused.unserved())),
            }
        }
        match this {
            Self::Goes(goes) => goes.as_mut().poll(cx),
            Self::Waits(_) | Self::Over => Poll::Pending,
        }
    }
}

/// A response to pass on, or why there is none.
pub(super) type Served = Result<Response<RelayBody>, Box<Unserved>>;
