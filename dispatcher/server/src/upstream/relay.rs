//! The response body: passes a pod's bytes on and keeps the request's lease until they end.
//!
//! Per chunk of a stream: a scan of its bytes, an atomic store, the pod's pulse. Nothing is parsed
//! or copied but a `usage` object, what has come of an event before its end, which is kept back, and
//! the text of an answer that another pod may go on with ([`super::migration`]). When the pod fails in
//! the middle of a stream and none goes on, the client gets an event that says so and then an error in
//! place of the end: a stream that merely stops looks complete to the OpenAI clients, and one that is
//! merely cut does to some. A body that is dropped before its end cuts the pod's connection and ends
//! the lease.

mod loss;

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use weir_core::EndKind;

use self::loss::{Given, Loss, Trouble};
use super::{
    Closing, Dialect,
    account::Account,
    ahead::Ahead,
    attempt::end_kind,
    blame,
    client::{Reply, WayBack},
    hold::Hold,
    migration::Migration,
    prefill::Computed,
    said::Passed as Parted,
    silence::Silence,
    sse::Scan,
    usage::Usage,
};
use crate::hub::Lease;

/// Why a response could not be passed on to its end. The connection to the client must be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// The pod's connection ended before its response.
    #[error("the pod was lost before the end of its response")]
    Lost,
    /// The pod kept silent for too long.
    #[error("the pod stopped sending")]
    Stalled,
    /// The process ends before the pod is done.
    #[error("this server is shutting down")]
    Closing,
}

impl RelayError {
    /// The `code` inside the stream and in metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Lost => "upstream_lost",
            Self::Stalled => "upstream_stalled",
            Self::Closing => "server_is_overloaded",
        }
    }
}

/// A response body.
pub struct RelayBody(State);

enum State {
    /// A response that was complete before it was answered.
    Whole(Bytes),
    /// That of a pod which computed a prompt for another.
    Computed(Box<Computed>),
    /// A response that is passed on as it comes.
    Live(Box<Live>),
    /// Nothing follows.
    Over,
}

impl RelayBody {
    pub(super) fn whole(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self(State::Over) } else { Self(State::Whole(bytes)) }
    }

    pub(super) fn computed(computed: Computed) -> Self {
        Self(State::Computed(Box::new(computed)))
    }

    /// The prompt that it is about, if it is; then nothing follows.
    pub(super) fn take_computed(&mut self) -> Option<Computed> {
        match std::mem::replace(&mut self.0, State::Over) {
            State::Computed(computed) => Some(*computed),
            _ => None,
        }
    }

    pub(super) fn live(relay: Relay) -> Self {
        Self(State::Live(Box::new(Live::new(relay))))
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let State::Live(live) = &mut self.0 else {
            let State::Whole(bytes) = std::mem::replace(&mut self.0, State::Over) else {
                return Poll::Ready(None);
            };
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        };
        let frame = ready!(live.poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || live.is_over() {
            self.0 = State::Over;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, State::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            State::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            State::Live(live) => live.size_hint(),
            State::Computed(_) | State::Over => SizeHint::with_exact(0),
        }
    }
}

/// A response that a pod is sending.
pub(super) struct Source {
    pub reply: Reply,
    pub way_back: WayBack,
}

/// What a live body is made of.
pub(super) struct Relay {
    pub source: Source,
    pub ahead: Ahead,
    pub lease: Box<Lease>,
    pub account: Box<Account>,
    /// For streams of events; anything else is passed on unread.
    pub scan: Option<Scan>,
    pub dialect: Dialect,
    /// How the request ends when its response is complete.
    pub kind: EndKind,
    /// For streams of events: only they have a first token to wait for.
    pub first_token_by: Option<Instant>,
    pub stall_timeout: Duration,
    /// For streams that another pod may go on with.
    pub migration: Option<Box<Migration>>,
    /// Ends it before its time.
    pub closing: Closing,
}

/// A response that is passed on as it comes.
struct Live {
    /// `None` once the pod has nothing more to say.
    source: Option<Source>,
    ahead: Ahead,
    /// `None` once the request is over, which for a stream is where it says so.
    lease: Option<Box<Lease>>,
    account: Box<Account>,
    scan: Option<Scan>,
    hold: Hold,
    dialect: Dialect,
    kind: EndKind,
    silence: Silence,
    closing: Closing,
    /// By which another pod may go on with it.
    migration: Option<Box<Migration>>,
    /// Tokens that were passed on before the pod's own.
    before: u32,
    /// What has gone wrong.
    trouble: Option<Box<Trouble>>,
}

type Passed = Option<Result<Bytes, RelayError>>;

impl Live {
    fn new(relay: Relay) -> Self {
        let clock = relay.lease.clock();
        let silence = Silence::new(clock, relay.first_token_by, relay.stall_timeout);
        let silence = if relay.migration.is_some() { silence.that_asks() } else { silence };
        Self {
            source: Some(relay.source),
            ahead: relay.ahead,
            lease: Some(relay.lease),
            account: relay.account,
            scan: relay.scan,
            hold: Hold::default(),
            dialect: relay.dialect,
            kind: relay.kind,
            silence,
            closing: relay.closing,
            migration: relay.migration,
            before: 0,
            trouble: None,
        }
    }

    fn is_over(&self) -> bool {
        self.source.is_none() && self.ahead.is_empty() && self.trouble.is_none()
    }

    /// Known for what is passed on unread; a stream may get an event of ours at its end.
    fn size_hint(&self) -> SizeHint {
        if self.scan.is_some() {
            return SizeHint::default();
        }
        let ahead = self.ahead.bytes();
        let rest = self.source.as_ref().map_or(Some(0), |source| source.reply.left());
        rest.map_or_else(SizeHint::default, |rest| SizeHint::with_exact(ahead + rest))
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        loop {
            let passed = ready!(self.poll_passed(cx));
            // Of an event whose end has not come nothing passes yet.
            if !matches!(&passed, Some(Ok(chunk)) if chunk.is_empty()) {
                return Poll::Ready(passed.map(|passed| passed.map(Frame::data)));
            }
        }
    }

    fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<Passed> {
        if let Some(chunk) = self.ahead.next() {
            return Poll::Ready(Some(Ok(self.passes(chunk))));
        }
        if let Some(trouble) = self.trouble.take() {
            return self.poll_trouble(*trouble, cx);
        }
        if self.closing.is_said() && self.lease.is_some() {
            return Poll::Ready(self.loses(Loss::Broken(RelayError::Closing)));
        }
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        match source.reply.poll_data(cx) {
            Poll::Ready(Some(Ok(chunk))) => {
                // The server asks no more once the length says that this was the last.
                let last = source.reply.is_over();
                let passed = self.passes(chunk);
                if last && self.trouble.is_none() && !self.is_short() && self.hold.is_empty() {
                    self.ends();
                }
                Poll::Ready(Some(Ok(passed)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(self.loses(Loss::Broken(RelayError::Lost))),
            Poll::Ready(None) => Poll::Ready(self.stops()),
            Poll::Pending => {
                let Self { lease, account, migration, .. } = self;
                let is_out = || {
                    lease.as_ref().is_some_and(|lease| lease.is_out(account.has_begun()))
                        && migration.as_ref().is_some_and(|migration| migration.can_go_on())
                };
                ready!(self.silence.poll(cx, is_out));
                Poll::Ready(self.loses(Loss::Broken(RelayError::Stalled)))
            }
        }
    }

    /// A chunk came: what is passed on now.
    fn passes(&mut self, chunk: Bytes) -> Bytes {
        let now = self.silence.clock.now();
        let (Some(scan), Some(lease)) = (&mut self.scan, &mut self.lease) else {
            if self.scan.is_none() {
                self.silence.sign_of_life(now);
            }
            self.account.passed(chunk.len());
            return chunk;
        };
        let (events, carrying) = (scan.events, scan.carrying);
        scan.chunk(&chunk);
        let mut passed = self.hold.pass(chunk, scan.between_events() || scan.done);
        if self.hold.is_torn() {
            // What is not read whole cannot be gone on with.
            self.migration = None;
        }
        if let Some(migration) = &mut self.migration {
            let failure = scan.error.filter(|status| *status >= 500);
            passed = match migration.pass(passed, failure.is_some()) {
                Parted::All(events) => events,
                Parted::UpTo(events, rest) => {
                    let tokens = lease.dispatch().tokens(scan.carrying);
                    let given = Given::new(&[&rest, &self.hold.rest()], failure, tokens);
                    self.trouble = Some(Box::new(Trouble::Failed(given)));
                    events
                }
            };
        }
        self.account.passed(passed.len());
        if scan.events != events {
            self.silence.sign_of_life(now);
            lease.pod().pulse.chunk(now);
            if scan.carrying > carrying {
                lease.carried(scan.carrying, now);
                self.account.token(now);
                if carrying == 0 {
                    lease.first_token();
                    blame::begun(lease);
                    self.silence.first_token();
                }
            } else if carrying > 0 {
                lease.stopped(now);
                self.account.stopped(now);
            } else {
                self.silence.event(now);
            }
        } else if self.hold.is_torn() && scan.is_in_data() {
            // An event that is too long to be kept back comes as fast as the client takes it.
            self.silence.sign_of_life(now);
        }
        if scan.done && self.trouble.is_none() {
            // The engine is done with it, whenever the connection gets to its end.
            self.completes();
        }
        passed
    }

    /// The response stopped without an error.
    fn stops(&mut self) -> Passed {
        if let Some(scan) = &mut self.scan {
            scan.finish();
        }
        if self.is_short() {
            return self.loses(Loss::Broken(RelayError::Lost));
        }
        self.ends();
        let rest = self.hold.rest();
        self.account.passed(rest.len());
        (!rest.is_empty()).then_some(Ok(rest))
    }

    /// Whether a stream that ends here is broken. Behind an error there are engines that say no end.
    fn is_short(&self) -> bool {
        let is_open = |scan: &Scan| !scan.done && scan.error.is_none();
        self.dialect.says_the_end() && self.scan.as_ref().is_some_and(is_open)
    }

    fn ends(&mut self) {
        self.completes();
        if let Some(Source { reply, way_back }) = self.source.take() {
            way_back.give(reply);
        }
    }

    fn completes(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let scan = self.scan.as_ref();
        let error = scan.and_then(|scan| scan.error);
        let kind = error.map_or(self.kind, end_kind);
        let begun = self.account.has_begun();
        match error {
            Some(status) => blame::turned_out_bad(&lease, status, begun),
            None => blame::answered(&lease, self.account.status(), begun),
        }
        let usage = scan.and_then(|scan| scan.usage).unwrap_or_default();
        let counted = scan.map(|scan| lease.dispatch().tokens(scan.carrying));
        lease.end(kind, usage.completion_tokens, usage.prompt_tokens);
        self.account_for(kind, error, (usage, counted));
    }

    /// The response is over as far as the client is concerned, for whom what another pod had said before is part of it.
    fn account_for(
        &mut self,
        kind: EndKind,
        error: Option<u16>,
        (usage, counted): (Usage, Option<u32>),
    ) {
        self.migration = None;
        let counted = counted.map(|counted| counted + self.before);
        self.account.finished((kind, error), usage.after(self.before), counted);
    }
}

impl fmt::Debug for RelayBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Whole(_) => "whole",
            State::Computed(_) => "computed",
            State::Live(_) => "live",
            State::Over => "over",
        };
        f.debug_tuple("RelayBody").field(&state).finish()
    }
}
