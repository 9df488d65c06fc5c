//! [`Lease`]: the claim of one dispatched request on one pod.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use weir_core::{Dispatch, End, EndKind, Event, RequestId, Time};

use super::{Hub, Ticket, errand::Missed};
use crate::{
    clock::Clock,
    fleet::{Failing, Pod},
};

/// A claim on a pod's capacity, held by whoever talks to the pod and, once there is a response, by
/// the response body.
///
/// It ends exactly once: by [`Lease::end`], by [`Lease::undelivered`] and the like, or by being dropped, which
/// means that the client has gone.
#[derive(Debug)]
pub struct Lease {
    hub: Arc<Hub>,
    pod: Arc<Pod>,
    dispatch: Dispatch,
    events: Arc<AtomicU32>,
    /// When the last event with some of the answer was relayed.
    carried_at: Option<Time>,
    /// The same of the last event of any kind after the first of those.
    last_event_at: Option<Time>,
    over: bool,
}

impl Lease {
    pub(super) fn new(
        hub: Arc<Hub>,
        pod: Arc<Pod>,
        dispatch: Dispatch,
        events: Arc<AtomicU32>,
    ) -> Self {
        let (carried_at, last_event_at) = (None, None);
        Self { hub, pod, dispatch, events, carried_at, last_event_at, over: false }
    }

    /// The request.
    pub fn id(&self) -> RequestId {
        self.dispatch.id
    }

    /// The pod it may use.
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// Whether the pool has a pod besides this one that takes requests.
    pub fn others_are_ready(&self) -> bool {
        self.hub.others_are_ready(self.pod.id)
    }

    /// Whether the pod will hardly go on with what it has, while another one takes requests: it does not answer; or, of an answer that
    /// has `begun`, it is in the pool no more.
    pub fn is_out(&self, begun: bool) -> bool {
        let is_gone = || !self.hub.pods().iter().any(|pod| pod.id == self.pod.id);
        (self.pod.breaker.is_open() || (begun && is_gone())) && self.others_are_ready()
    }

    /// Whether its request is the only one on the pod, as far as is known here.
    pub fn is_alone(&self) -> bool {
        self.hub.look(|scheduler, _| scheduler.requests_on(self.pod.id) <= 1)
    }

    /// The request did not go well: told to whoever decides, if that is another dispatcher.
    pub fn hold_against(&self, failing: Failing) {
        self.hub.hold_against(&self.pod, failing);
    }

    /// The same of another pod, by what this one did.
    pub fn hold_against_another(&self, pod: &Pod, failing: Failing) {
        self.hub.hold_against(pod, failing);
    }

    /// The clock that its times count on.
    pub fn clock(&self) -> Clock {
        self.hub.clock()
    }

    /// The decision behind it.
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// The first token was relayed. One message; to be called once.
    pub fn first_token(&self) {
        self.hub.post(Event::FirstToken(self.dispatch.id));
    }

    /// `total` events with some of the answer have been relayed, the last one at `now`. Called per chunk: one relaxed store,
    /// no message.
    pub fn carried(&mut self, total: u32, now: Time) {
        (self.carried_at, self.last_event_at) = (Some(now), Some(now));
        self.events.store(total, Relaxed);
    }

    /// An event without any of the answer was relayed after its first token: of the token that stops an answer there is
    /// nothing else.
    pub fn stopped(&mut self, now: Time) {
        self.last_event_at = Some(now);
    }

    /// Nothing of the request reached the pod: it goes back to its lane and `ticket` waits for the
    /// next verdict.
    pub fn undelivered(mut self, ticket: &mut Ticket) {
        self.over = true;
        self.hub.retry(self.dispatch.id, Missed::Unreached, ticket.wait_again());
    }

    /// The pod took nothing of the request, for it takes no more for now: it goes back to its lane and `ticket` waits for the next
    /// verdict.
    pub fn turned_away(mut self, ticket: &mut Ticket) {
        self.over = true;
        self.hub.retry(self.dispatch.id, Missed::Full, ticket.wait_again());
    }

    /// Whoever was to send the request does not reach the pod: it goes back to its lane and `ticket` waits for the next verdict.
    pub fn decline(mut self, ticket: &mut Ticket) {
        self.over = true;
        self.hub.decline(self.dispatch.id, ticket.wait_again());
    }

    /// The request is in the ledger of another dispatcher from now on.
    pub fn part(mut self) {
        self.over = true;
        self.hub.part_with(self.dispatch.id);
    }

    /// The request is over. Counts are those from `usage`.
    pub fn end(mut self, kind: EndKind, output_tokens: Option<u32>, prompt_tokens: Option<u32>) {
        let event = self.close(kind, output_tokens, prompt_tokens);
        self.hub.post(event);
    }

    /// Ends it without posting: for the hub itself, when nobody took it.
    pub(super) fn forfeit(mut self) -> Event {
        self.close(EndKind::ClientGone, None, None)
    }

    fn close(
        &mut self,
        kind: EndKind,
        output_tokens: Option<u32>,
        prompt_tokens: Option<u32>,
    ) -> Event {
        self.over = true;
        // An engine counts the token that stops an answer, and who counts events does not.
        let last_token_at = output_tokens.map_or(self.carried_at, |_| self.last_event_at);
        Event::End(End {
            id: self.dispatch.id,
            kind,
            output_tokens,
            events: self.events.load(Relaxed),
            prompt_tokens,
            last_token_at,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.over {
            let event = self.close(EndKind::ClientGone, None, None);
            self.hub.post(event);
        }
    }
}
