//! A request on its way: send, try another pod if nothing was sent or it turned the request away, answer.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode, response::Parts};
use tokio::time::Instant;
use weir_core::{EndKind, RefusalReason};

use super::{
    Closing, Dialect, Fault, Unserved, Upstream,
    account::Account,
    ahead::Ahead,
    blame,
    client::{Failure, Reply, UnsentReason},
    door::{self, TurnedAway, Why},
    headers,
    migration::{Migration, is_failure, unless_out},
    prefill::Computed,
    priority::Urgency,
    relay::{Relay, RelayBody, RelayError, Source},
    said::is_aborted,
    serve::Served,
    silence::look,
    sse::Scan,
    usage::{self, Usage},
};
use crate::{
    h1::{BadReply, PodRequest},
    hub::{Lease, Ticket},
    patience::in_time,
};

/// What of an answer is asked for.
#[derive(Clone, Copy)]
pub(super) struct Asks {
    /// Whether it comes in a stream, for which a pod has less time.
    pub streamed: bool,
    /// Whether it is to compute a prompt for another pod.
    pub prefills: bool,
    /// What its client reads.
    pub dialect: Dialect,
}

/// A request on its way to a pod.
pub(super) struct Attempt<'a> {
    upstream: &'a Upstream,
    // Boxed, for it goes from hand to hand, and what holds it is to be small.
    account: Box<Account>,
    asks: Asks,
    /// What the pod before said.
    turned_away: Option<Box<TurnedAway>>,
    /// By which it may go on at another pod.
    migration: Option<Box<Migration>>,
    /// What its priority is made of, if one is written.
    urgency: Option<Box<Urgency>>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        upstream: &'a Upstream,
        account: Box<Account>,
        asks: Asks,
        (migration, urgency): (Option<Box<Migration>>, Option<Box<Urgency>>),
    ) -> Self {
        Self { upstream, account, asks, turned_away: None, migration, urgency }
    }

    /// The time a pod has to answer.
    fn limit(&self) -> Duration {
        self.upstream.config().answer_limit(self.asks.streamed)
    }

    /// Sends the request to the pod that it was given, and to another while nothing of it was sent; once more where that one
    /// turned it away.
    ///
    /// This and [`Self::pass`] are no `async fn`: those keep what they were given beside what they make of it.
    #[expect(clippy::manual_async_fn, reason = "it is smaller so")]
    pub(super) fn deliver(
        mut self,
        mut lease: Box<Lease>,
        mut request: PodRequest,
        mut ticket: Ticket,
    ) -> impl Future<Output = Served> {
        async move {
            loop {
                self.account.dispatched(lease.dispatch(), lease.pod());
                if !self.asks.streamed {
                    self.account.lets_the_prompt_go();
                }
                if let Some(urgency) = &self.urgency {
                    request.body = urgency.with_priority(lease.clock().now(), lease.dispatch());
                }
                match self.pass(lease, request, &mut ticket).await {
                    Ok(served) => return served,
                    Err(unsent) => (self, request) = unsent,
                }
                // The prompt of a request need not wait for another pod that prefills.
                let verdict = match self.asks.prefills {
                    true => ticket.verdict_at_once().await,
                    false => ticket.verdict().await,
                };
                lease = match verdict {
                    Ok(lease) => lease,
                    Err(refusal) => {
                        let spent = refusal.reason == RefusalReason::Undeliverable;
                        let said = self.turned_away.take();
                        if let Some(said) = said.filter(|said| spent || said.why != Why::Full) {
                            return Ok(self.repeat(*said));
                        }
                        self.account.refused(&refusal);
                        return Err(self.account.unserved(Fault::Refused(refusal), refusal.id));
                    }
                };
            }
        }
    }

    /// Sends the request and answers; gives both back when it is to go to another pod.
    #[expect(clippy::manual_async_fn, reason = "it is smaller so")]
    fn pass(
        mut self,
        lease: Box<Lease>,
        request: PodRequest,
        ticket: &mut Ticket,
    ) -> impl Future<Output = Result<Served, (Self, PodRequest)>> {
        async move {
            let now = Instant::now();
            let deadline = now + self.limit();
            let to = (&**lease.pod(), &*self.account.known().request_id);
            let sent = self.upstream.send(to, &request, now, deadline);
            let closing = self.upstream.closing();
            let outcome = match &self.migration {
                Some(migration) if migration.may_go_on() => {
                    let look = look(self.upstream.config().stall_timeout);
                    unless(closing, Box::pin(unless_out(&lease, look, sent))).await
                }
                _ => unless(closing, sent).await,
            };
            let served = match outcome {
                Some(Ok((head, reply))) => {
                    // Kept no longer than it may be needed.
                    let again = streams(&head)
                        || door::is_full(head.status)
                        || self.may_be_the_pods(&head, &request, &lease);
                    let again = again.then_some(request);
                    let answer = self.answer(lease, (head, reply), deadline, (again, ticket));
                    return Box::pin(answer).await;
                }
                None => Err(self.closed(&lease)),
                Some(Err(Failure::Lost(reason))) => {
                    return self.lost(*lease, Some(reason), ticket).map(Err);
                }
                Some(Err(Failure::Silent)) => return self.silent(*lease, ticket).map(Err),
                Some(Err(Failure::Unsent(reason))) => {
                    self.unsent(*lease, &reason, ticket);
                    return Err((self, request));
                }
            };
            Ok(served)
        }
    }

    /// The pod answered: a stream is passed on from its first bytes, anything else once it is
    /// complete. Gives the request back where it is to go to another pod.
    async fn answer(
        mut self,
        lease: Box<Lease>,
        (mut head, mut reply): (Parts, Reply),
        deadline: Instant,
        (again, ticket): (Option<PodRequest>, &mut Ticket),
    ) -> Result<Served, (Self, PodRequest)> {
        let of_events = headers::is_event_stream(&head.headers);
        let streams = streams(&head);
        let enough = if streams { 0 } else { self.upstream.config().buffer_bytes };
        let reading = soon(deadline, Ahead::read(&mut reply, enough, self.upstream.memory()));
        let mut ahead = match unless(self.upstream.closing(), reading).await {
            Some(Some(Ok(ahead))) => ahead,
            Some(Some(Err(reason))) => return self.lost(*lease, Some(reason), ticket).map(Err),
            Some(None) => return self.silent(*lease, ticket).map(Err),
            None => return Ok(Err(self.closed(&lease))),
        };
        if streams && ahead.complete && self.asks.dialect.says_the_end() && ahead.is_empty() {
            return self.lost(*lease, None, ticket).map(Err);
        }
        headers::own(&mut head, &lease, self.account.waited(), of_events);
        let way_back = self.upstream.way_back(lease.pod().id);
        let turned_away = match streams {
            true => door::says_full(ahead.whole()).then_some(Why::Full),
            false if !ahead.complete => None,
            false if door::is_full(head.status) => Some(Why::Full),
            false => Some(Why::NotLetIn),
        };
        if let Some((request, why)) = again.zip(turned_away) {
            if ahead.complete {
                way_back.give(reply);
            }
            return Err((self.ask_another(*lease, (head, ahead), why, ticket), request));
        }
        if !streams
            && self.has_failed(head.status, &mut ahead)
            && lease.others_are_ready()
            && let Some(request) = self.again()
        {
            way_back.give(reply);
            match head.status.as_u16() {
                200 => blame::cut(&lease, RelayError::Lost, false),
                status => blame::answered(&lease, status, false),
            }
            return Err((self.ask_another(*lease, (head, ahead), Why::Failed, ticket), request));
        }
        if let Some(said) = self.turned_away.take().filter(|said| said.why == Why::NotLetIn) {
            blame::turned_away(&said.pod, &lease, head.status);
        }
        self.account.answered(head.status);
        let body = if !streams && ahead.complete {
            way_back.give(reply);
            self.whole(lease, head.status, ahead)
        } else {
            let source = Source { reply, way_back };
            self.live(lease, head.status, ahead, source, streams.then_some(deadline))
        };
        Ok(Ok(Response::from_parts(head, body)))
    }

    /// Whether another pod would tell if this answer is the pod's fault or the request's.
    fn may_be_the_pods(&self, head: &Parts, request: &PodRequest, lease: &Lease) -> bool {
        self.turned_away.as_ref().is_none_or(|said| said.why == Why::Full)
            && door::turns_away(head.status, request)
            && lease.others_are_ready()
    }

    /// Whether an answer of which nothing was passed on says that another pod may give a better one, where it may be asked.
    fn has_failed(&self, status: StatusCode, ahead: &mut Ahead) -> bool {
        let may_fail = self.migration.is_some() && ahead.complete;
        may_fail
            && match status.as_u16() {
                status if is_failure(status) => true,
                200 => self.asks.dialect == Dialect::Completions && is_aborted(ahead.whole()),
                _ => false,
            }
    }

    /// What goes to another pod, if it may, now that one has failed.
    fn again(&mut self) -> Option<PodRequest> {
        let request = self.migration.as_mut()?.again()?;
        self.urgency.iter_mut().for_each(|urgency| urgency.body = request.body.clone());
        Some(request)
    }

    /// The pod turned the request away, which was not worked on: the next pod that it is given answers it, and tells by that whose
    /// fault it was, where the first did not let it in.
    fn ask_another(
        mut self,
        lease: Lease,
        (head, ahead): (Parts, Ahead),
        why: Why,
        ticket: &mut Ticket,
    ) -> Self {
        let (request_id, trace_id) = self.names();
        let (pod, status) = (lease.pod().clone(), head.status.as_u16());
        tracing::info!(request_id, trace_id, pod = %pod.name, status, "request turned away");
        self.account.missed(|| format!("turned away: {status}"));
        if why == Why::Full {
            blame::full(&lease);
            lease.turned_away(ticket);
        } else {
            lease.undelivered(ticket);
        }
        // What a stream says of it is no answer to pass on.
        self.turned_away = (!streams(&head))
            .then(|| Box::new(TurnedAway { head, bytes: ahead.joined(), pod, why }));
        self
    }

    /// No other pod took what one turned away: that is the answer.
    fn repeat(mut self, said: TurnedAway) -> Response<RelayBody> {
        let TurnedAway { head, bytes, pod, why } = said;
        if why == Why::NotLetIn {
            blame::refused(&pod);
        }
        self.account.answered(head.status);
        self.account.passed(bytes.len());
        self.account.finished((end_kind(head.status.as_u16()), None), Usage::default(), None);
        Response::from_parts(head, RelayBody::whole(bytes))
    }

    fn whole(mut self, lease: Box<Lease>, status: StatusCode, ahead: Ahead) -> RelayBody {
        let bytes = ahead.joined();
        let usage = usage::last_in(&bytes).unwrap_or_default();
        let kind = end_kind(status.as_u16());
        blame::answered(&lease, status.as_u16(), false);
        if self.asks.prefills && status == StatusCode::OK {
            return self.computed(lease, bytes, usage);
        }
        lease.end(kind, usage.completion_tokens, usage.prompt_tokens);
        self.account.passed(bytes.len());
        self.account.finished((kind, None), usage, None);
        RelayBody::whole(bytes)
    }

    /// A prompt is computed: what was asked for is seen to its end, and its pod keeps it.
    fn computed(mut self, mut lease: Box<Lease>, said: Bytes, usage: Usage) -> RelayBody {
        let now = lease.clock().now();
        self.account.token(now);
        lease.first_token();
        lease.carried(1, now);
        self.account.finished((EndKind::Complete, None), usage, None);
        RelayBody::computed(Computed { said, lease, usage })
    }

    fn live(
        self,
        lease: Box<Lease>,
        status: StatusCode,
        ahead: Ahead,
        source: Source,
        streams_by: Option<Instant>,
    ) -> RelayBody {
        let scan = streams_by.map(|_| Scan::default());
        let can_go_on = scan.is_some() && self.asks.dialect == Dialect::Completions;
        RelayBody::live(Relay {
            source,
            ahead,
            lease,
            account: self.account,
            scan,
            dialect: self.asks.dialect,
            kind: end_kind(status.as_u16()),
            first_token_by: streams_by,
            stall_timeout: self.upstream.config().stall_timeout,
            migration: self.migration.filter(|_| can_go_on),
            closing: self.upstream.closing().clone(),
        })
    }

    /// By what it is known in log lines.
    fn names(&self) -> (&str, Option<&str>) {
        let known = self.account.known();
        (&known.request_id, known.trace())
    }

    fn unsent(&mut self, lease: Lease, reason: &UnsentReason, ticket: &mut Ticket) {
        let pod = &lease.pod().name;
        let (request_id, trace_id) = self.names();
        tracing::info!(request_id, trace_id, %pod, %reason, "request not delivered");
        self.account.missed(|| reason.to_string());
        if reason.is_the_pods() {
            blame::undelivered(&lease);
        }
        lease.undelivered(ticket);
    }

    fn lost(
        self,
        lease: Lease,
        reason: Option<BadReply>,
        ticket: &mut Ticket,
    ) -> Result<Box<Unserved>, (Self, PodRequest)> {
        let error = reason.as_ref().map(tracing::field::display);
        let (request_id, trace_id) = self.names();
        let pod = lease.pod().name.clone();
        tracing::warn!(request_id, trace_id, %pod, error, "pod lost before its answer");
        self.failed(Fault::PodLost { pod, reason }, lease, ticket)
    }

    fn silent(
        self,
        lease: Lease,
        ticket: &mut Ticket,
    ) -> Result<Box<Unserved>, (Self, PodRequest)> {
        let limit = self.limit();
        let (request_id, trace_id) = self.names();
        let pod = lease.pod().name.clone();
        tracing::warn!(request_id, trace_id, %pod, "pod did not answer in time");
        self.failed(Fault::Timeout { pod, limit }, lease, ticket)
    }

    /// The pod has failed: another one is to answer, if it may.
    fn failed(
        mut self,
        fault: Fault,
        lease: Lease,
        ticket: &mut Ticket,
    ) -> Result<Box<Unserved>, (Self, PodRequest)> {
        blame::unanswered(&lease);
        if let Some(request) = self.again() {
            self.account.missed(|| fault.to_string());
            lease.undelivered(ticket);
            return Err((self, request));
        }
        let id = lease.id();
        lease.end(EndKind::PodFailed, None, None);
        self.account.pod_failed();
        Ok(self.account.unserved(fault, id))
    }

    /// The pod is not waited for, and has not failed: the lease ends as when the client leaves.
    fn closed(self, lease: &Lease) -> Box<Unserved> {
        let pod = lease.pod().name.clone();
        let (request_id, trace_id) = self.names();
        tracing::warn!(request_id, trace_id, %pod, "closed before the pod's answer");
        self.account.unserved(Fault::Closing { pod }, lease.id())
    }
}

/// Whether a response is a stream of events.
fn streams(head: &Parts) -> bool {
    head.status.is_success() && headers::is_event_stream(&head.headers)
}

/// What comes of this before its time is up. Mostly it is there at the first look, and then no timer is made.
async fn soon<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(output) => Some(output),
        Poll::Pending => Box::pin(in_time(deadline, future)).await,
    }
}

/// What comes of this, unless what runs is to end first.
async fn unless<F: Future>(closing: &Closing, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Pending if closing.is_said() => Poll::Ready(None),
        outcome => outcome.map(Some),
    })
    .await
}

/// How a request ends that was answered with this status; a redirect is nothing served.
pub(super) const fn end_kind(status: u16) -> EndKind {
    match status {
        200..300 => EndKind::Complete,
        400..500 => EndKind::BadRequest,
        _ => EndKind::PodError,
    }
}
