//! Requests that go on at another pod when theirs is lost, as often as the configuration allows.
//!
//! While nothing of an answer was passed on the request is sent again as it came, at its rank in the queue. Of a stream that has begun,
//! another pod is given the prompt with what was said (`continuation`) and its stream is made one with the first's
//! (`said`). That is a new request to the scheduler: it has its objectives from the moment its pod was lost, waits like any
//! other, and is in nobody's ledger twice. What it says is what a pod that had not failed might have said, not what this one would have:
//! the next token is drawn anew.
//!
//! # Promises
//! - Nothing that was passed on is passed on again, or changed.
//! - Where nobody goes on the client is told what it would be told without a migration.
//! - A request that fells pods fells one more at most for each migration that it is allowed.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::{EndKind, PodId, PromptSize, Request, RequestId, Time};

use super::{
    Upstream,
    attempt::end_kind,
    blame,
    client::Failure,
    continuation::continued,
    headers,
    priority::Urgency,
    relay::Source,
    said::{Passed, Said, plain},
    serve::How,
    silence::look,
};
use crate::{
    h1::PodRequest,
    hub::{Hub, Lease},
    patience::in_time,
};

/// What came of a request whose pod was lost: sent again from the start, gone on with, or not.
const AGAIN: &str = "again";
const CONTINUED: &str = "continued";
pub(super) const LOST: &str = "lost";

/// How often a call may go on at another pod.
#[derive(Clone, Copy, Debug)]
pub struct Migrates {
    /// So often.
    pub limit: u32,
    /// The first of as many numbers that it has for it.
    pub first: RequestId,
}

/// A request that may go on at another pod.
pub(super) struct Migration {
    upstream: Arc<Upstream>,
    hub: Arc<Hub>,
    request: Request,
    /// It as its client sent it.
    onward: PodRequest,
    own_priority: bool,
    left: u32,
    next: RequestId,
    said: Said,
}

/// A stream goes on.
pub(super) struct Moved {
    pub migration: Box<Migration>,
    pub lease: Box<Lease>,
    pub source: Source,
    /// When its first event is to be there.
    pub by: Instant,
}

/// What another pod is asked for.
struct Rest {
    body: Bytes,
    /// What of the answer is a part of it, in tokens and in bytes of text.
    tokens: u32,
    bytes: u32,
}

/// A stream on its way to another pod.
pub(super) type Moving = Pin<Box<dyn Future<Output = Result<Moved, Stayed>> + Send>>;

/// Why a stream does not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stayed {
    #[error("nobody can go on with such an answer")]
    Unfit,
    #[error("it has gone on as often as it may")]
    Spent,
    #[error("no pod took it: {0}")]
    Refused(&'static str),
    #[error("another pod answered {0}")]
    Answered(u16),
    #[error("another pod was lost too")]
    Lost,
}

impl Stayed {
    /// Whether yet another pod may go on.
    fn is_the_pods(&self) -> bool {
        match self {
            Self::Answered(status) => is_failure(*status),
            Self::Lost => true,
            Self::Unfit | Self::Spent | Self::Refused(_) => false,
        }
    }

    /// How a request ends that is given up for this.
    fn end(&self) -> EndKind {
        match self {
            Self::Answered(status) => end_kind(*status),
            _ => EndKind::PodFailed,
        }
    }
}

/// What comes of what was sent, unless its pod is out and stays so: two times in a row that it is asked, so often.
pub(super) async fn unless_out<T>(
    lease: &Lease,
    look: Duration,
    sent: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let (mut sent, mut was_out) = (pin!(sent), false);
    loop {
        if let Some(outcome) = in_time(Instant::now() + look, sent.as_mut()).await {
            return outcome;
        }
        let is_out = lease.is_out(false);
        if is_out && was_out {
            return Err(Failure::Silent);
        }
        was_out = is_out;
    }
}

/// Whether a pod that answers so has failed, and another one may not.
pub(super) const fn is_failure(status: u16) -> bool {
    matches!(status, 500 | 502..=504)
}

impl Migration {
    /// For a call to a pool, as the scheduler and as the pod gets it.
    pub(super) fn of(
        (upstream, hub): (&Arc<Upstream>, &Arc<Hub>),
        (request, onward): (&Request, &PodRequest),
        how: How,
        migrates: Option<Migrates>,
    ) -> Option<Box<Self>> {
        let Migrates { limit, first } = migrates?;
        Some(Box::new(Self {
            upstream: upstream.clone(),
            hub: hub.clone(),
            request: request.clone(),
            onward: onward.clone(),
            own_priority: how.own_priority,
            left: limit,
            next: first,
            said: Said::default(),
        }))
    }

    /// Whether it may go on at yet another pod.
    pub(super) const fn may_go_on(&self) -> bool {
        self.left > 0
    }

    /// Its pod was lost, and nothing of an answer was passed on: what is sent to another one, if it may be.
    pub(super) fn again(&mut self) -> Option<PodRequest> {
        self.left = self.left.checked_sub(1)?;
        self.counts(AGAIN);
        Some(self.onward.clone())
    }

    /// Tokens that were passed on before the stream of the pod that has it now.
    pub(super) fn before(&self) -> u32 {
        self.said.before()
    }

    /// Whole events are to be passed on. `may_fail`: one of them says that the pod failed.
    pub(super) fn pass(&mut self, events: Bytes, may_fail: bool) -> Passed {
        self.said.pass(events, may_fail)
    }

    /// See [`Said::last_words`].
    pub(super) fn last_words(&self, rest: Bytes) -> Bytes {
        self.said.last_words(rest)
    }

    /// Whether another pod could go on with what was passed on.
    pub(super) fn can_go_on(&self) -> bool {
        self.left > 0 && self.rest(self.said.before()).is_some()
    }

    /// The pod that had it is lost: another one is to go on.
    pub(super) fn go_on(mut self: Box<Self>, lost: &Lease) -> Result<Moving, Stayed> {
        let said = self.said.before() + lost.dispatch().tokens(self.said.events);
        let Rest { body, tokens, bytes } = self.rest(said).ok_or(Stayed::Unfit)?;
        self.left = self.left.checked_sub(1).ok_or(Stayed::Spent)?;
        let onward = self.onward.with_body(body);
        let request = self.due_from(lost.clock().now(), (tokens, bytes), onward.body.len());
        self.said.goes_on(tokens);
        Ok(Box::pin(self.moves(request, onward, lost.pod().id)))
    }

    /// What is left for another pod when so many tokens were said.
    fn rest(&self, said: u32) -> Option<Rest> {
        let text = self.said.text()?;
        let plain = plain(text)?;
        let bytes = u32::try_from(plain.len()).unwrap_or(u32::MAX);
        // Templates cut blanks off the end of a message.
        let (body, tokens) = match plain.trim().is_empty() {
            true => (self.onward.body.clone(), 0),
            false => (continued(&self.onward.body, text, said)?, said),
        };
        Some(Rest { body, tokens, bytes })
    }

    /// The request as the scheduler is told of it when so much was said.
    fn due_from(&mut self, now: Time, (tokens, bytes): (u32, u32), body_bytes: usize) -> Request {
        let id = self.next;
        self.next.0 += 1;
        let whole = &self.request;
        Request {
            id,
            arrived: now,
            prompt: match whole.prompt {
                PromptSize::Bytes(own) => PromptSize::Bytes(own.saturating_add(bytes)),
                PromptSize::Tokens(own) => PromptSize::Tokens(own.saturating_add(tokens)),
            },
            max_output_tokens: whole
                .max_output_tokens
                .map(|most| most.saturating_sub(tokens).max(1)),
            body_bytes: u32::try_from(body_bytes).unwrap_or(u32::MAX),
            // Its client waits for the next event, and no longer than for any other.
            expires: now.plus(self.upstream.config().stall_timeout),
            immediate: false,
            ..whole.clone()
        }
    }

    async fn moves(
        mut self: Box<Self>,
        request: Request,
        mut onward: PodRequest,
        lost: PodId,
    ) -> Result<Moved, Stayed> {
        let config = self.upstream.config();
        let inject = config.inject_priority && !self.own_priority;
        let urgency = inject.then(|| Urgency::of(&request, &onward.body));
        let name = request.name.clone();
        let mut ticket = self.hub.admit(request);
        let mut may_return = false;
        loop {
            let lease = ticket.verdict().await;
            let lease = lease.map_err(|refusal| Stayed::Refused(refusal.reason.name()))?;
            if !may_return && lease.pod().id == lost && lease.others_are_ready() {
                // Its caches draw it there, and its breaker has not opened yet.
                lease.undelivered(&mut ticket);
                may_return = true;
                continue;
            }
            if let Some(urgency) = &urgency {
                onward.body = urgency.with_priority(lease.clock().now(), lease.dispatch());
            }
            let now = Instant::now();
            let by = now + self.upstream.config().answer_limit(true);
            let sent = self.upstream.send((lease.pod(), &name), &onward, now, by);
            let look = look(self.upstream.config().stall_timeout);
            let stayed = match unless_out(&lease, look, sent).await {
                Ok((head, reply)) => {
                    if head.status.is_success() && headers::is_event_stream(&head.headers) {
                        let way_back = self.upstream.way_back(lease.pod().id);
                        self.counts(CONTINUED);
                        let source = Source { reply, way_back };
                        return Ok(Moved { migration: self, lease, source, by });
                    }
                    let status = head.status.as_u16();
                    blame::answered(&lease, status, false);
                    Stayed::Answered(status)
                }
                Err(Failure::Unsent(reason)) => {
                    if reason.is_the_pods() {
                        blame::undelivered(&lease);
                    }
                    lease.undelivered(&mut ticket);
                    continue;
                }
                Err(Failure::Lost(_) | Failure::Silent) => {
                    blame::unanswered(&lease);
                    Stayed::Lost
                }
            };
            match self.left.checked_sub(1).filter(|_| stayed.is_the_pods()) {
                Some(left) => self.left = left,
                None => {
                    lease.end(stayed.end(), None, None);
                    return Err(stayed);
                }
            }
            lease.undelivered(&mut ticket);
        }
    }

    fn counts(&self, outcome: &'static str) {
        self.upstream.metrics().migrated(self.hub.model(), outcome);
    }
}
