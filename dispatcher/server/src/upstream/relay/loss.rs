//! What becomes of a stream whose pod is lost: another one goes on with it, or its client is told.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use weir_core::EndKind;

use super::{Live, Passed, RelayError};
use crate::upstream::{
    ahead::Ahead,
    attempt::end_kind,
    blame,
    hold::Hold,
    migration::{Moved, Moving, Stayed},
    sse::Scan,
};

/// Time between the event that reports a failure and the cut: the server must have begun to write the one before it meets the
/// other, and a client whose connection is reset then needs a moment to take it.
const CUT_AFTER: Duration = Duration::from_millis(20);

/// What has gone wrong with a stream, and comes next.
pub(super) enum Trouble {
    /// The pod said that it failed, and what it says behind that is kept back.
    Failed(Given),
    /// Another pod is to go on; what is said if none does.
    Moves(Moving, Loss),
    /// The failure was reported inside the stream; the cut is next.
    Cut(RelayError),
}

/// How a stream was lost.
pub(super) enum Loss {
    /// The pod has not finished it.
    Broken(RelayError),
    /// The pod said so.
    Given(Given),
}

/// What a pod said that gave an answer up: an error, or that the answer was aborted, as vLLM's engine ends those that it has when it is
/// told to end.
pub(super) struct Given {
    /// Its words, which the client is not given while another pod may go on.
    rest: BytesMut,
    /// The status of its error.
    status: Option<u16>,
    /// Tokens that came before.
    tokens: u32,
}

impl Given {
    pub(super) fn new(rest: &[&[u8]], status: Option<u16>, tokens: u32) -> Self {
        Self { rest: rest.concat().as_slice().into(), status, tokens }
    }
}

/// Most bytes that are kept back of what a pod says behind its failure.
const MOST: usize = 64 << 10;

impl Live {
    /// The pod failed, or is not waited for. Its connection is cut and the lease ends now. Another pod goes on where one may; else the
    /// client is told next.
    #[cold]
    pub(super) fn loses(&mut self, mut loss: Loss) -> Passed {
        (self.source, self.ahead) = (None, Ahead::default());
        // After the stream has said so the client has everything.
        let lease = self.lease.take()?;
        let begun = self.account.has_begun();
        let code = match loss {
            Loss::Broken(error) => {
                blame::cut(&lease, error, begun);
                error.code()
            }
            Loss::Given(Given { status: Some(status), .. }) => {
                blame::turned_out_bad(&lease, status, begun);
                "error"
            }
            Loss::Given(_) => {
                blame::cut(&lease, RelayError::Lost, begun);
                "abort"
            }
        };
        let known = self.account.known();
        let (request_id, trace_id) = (&*known.request_id, known.trace());
        let pod = &*lease.pod().name;
        tracing::warn!(request_id, trace_id, pod, code, "response broken off");
        let is_closing = matches!(loss, Loss::Broken(RelayError::Closing));
        let migration = self.migration.take().filter(|_| !is_closing);
        if let (Loss::Given(given), Some(migration)) = (&mut loss, &migration) {
            given.rest = migration.last_words(given.rest.split().freeze()).into();
        }
        let moving = migration.map(|migration| migration.go_on(&lease));
        let usage = self.scan.as_ref().and_then(|scan| scan.usage).unwrap_or_default();
        // A pod that is not waited for has not failed: to it and to what is learned it is as if the client had left.
        if !is_closing {
            let kind = match loss {
                Loss::Given(Given { status: Some(status), .. }) => end_kind(status),
                Loss::Broken(_) | Loss::Given(_) => EndKind::PodFailed,
            };
            lease.end(kind, usage.completion_tokens, usage.prompt_tokens);
        }
        match moving {
            Some(Ok(moving)) => {
                self.hold = Hold::default();
                self.trouble = Some(Box::new(Trouble::Moves(moving, loss)));
                Some(Ok(Bytes::new()))
            }
            Some(Err(why)) => self.stays(&why, loss),
            None => self.tells(loss),
        }
    }

    /// Nobody goes on with it.
    fn stays(&mut self, why: &Stayed, loss: Loss) -> Passed {
        let known = self.account.known();
        let (request_id, trace_id) = (&*known.request_id, known.trace());
        tracing::info!(request_id, trace_id, %why, "no other pod goes on with a response");
        self.account.stays();
        self.tells(loss)
    }

    /// The client is told of a loss.
    fn tells(&mut self, loss: Loss) -> Passed {
        let error = match loss {
            Loss::Broken(error) => error,
            Loss::Given(Given { rest, status, tokens }) => {
                let usage = self.scan.as_ref().and_then(|scan| scan.usage).unwrap_or_default();
                let kind = status.map_or(self.kind, end_kind);
                self.account_for(kind, status, (usage, Some(tokens)));
                self.account.passed(rest.len());
                return Some(Ok(rest.freeze()));
            }
        };
        let of_events = self.scan.is_some();
        self.account.broken_off(of_events.then_some(error.code()));
        if !of_events {
            return Some(Err(error));
        }
        self.trouble = Some(Box::new(Trouble::Cut(error)));
        self.silence.timer.set(CUT_AFTER);
        Some(Ok(self.dialect.failure(error, self.hold.is_torn())))
    }

    #[cold]
    pub(super) fn poll_trouble(&mut self, trouble: Trouble, cx: &mut Context<'_>) -> Poll<Passed> {
        match trouble {
            Trouble::Failed(given) => self.poll_rest(given, cx),
            Trouble::Moves(..) if self.closing.is_said() => {
                Poll::Ready(self.tells(Loss::Broken(RelayError::Closing)))
            }
            Trouble::Moves(mut moving, loss) => match moving.as_mut().poll(cx) {
                Poll::Pending => {
                    self.trouble = Some(Box::new(Trouble::Moves(moving, loss)));
                    Poll::Pending
                }
                Poll::Ready(Ok(moved)) => Poll::Ready(self.goes_on(moved)),
                Poll::Ready(Err(why)) => Poll::Ready(self.stays(&why, loss)),
            },
            Trouble::Cut(error) => {
                if self.silence.timer.poll(cx).is_pending() {
                    self.trouble = Some(Box::new(Trouble::Cut(error)));
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    /// Waits for the end of what a pod says that gave an answer up.
    fn poll_rest(&mut self, mut given: Given, cx: &mut Context<'_>) -> Poll<Passed> {
        let is_whole = |live: &Self| live.scan.as_ref().is_some_and(|scan| scan.done);
        while !is_whole(self) && !self.closing.is_said() && given.rest.len() < MOST {
            let Some(source) = self.source.as_mut().filter(|source| !source.reply.is_over()) else {
                break;
            };
            match source.reply.poll_data(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    self.scan.iter_mut().for_each(|scan| scan.chunk(&chunk));
                    given.rest.extend_from_slice(&chunk);
                }
                Poll::Ready(_) => break,
                Poll::Pending if self.silence.poll(cx, || false).is_ready() => break,
                Poll::Pending => {
                    self.trouble = Some(Box::new(Trouble::Failed(given)));
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(self.loses(Loss::Given(given)))
    }

    /// Another pod goes on with it.
    fn goes_on(&mut self, moved: Moved) -> Passed {
        let Moved { migration, lease, source, by } = moved;
        let known = self.account.known();
        let (request_id, trace_id) = (&*known.request_id, known.trace());
        let pod = &*lease.pod().name;
        tracing::info!(request_id, trace_id, pod, "response goes on at another pod");
        self.account.moved(&lease);
        self.before = migration.before();
        self.silence = self.silence.of_next(by);
        self.scan = Some(Scan::default());
        (self.source, self.lease) = (Some(source), Some(lease));
        self.migration = Some(migration);
        Some(Ok(Bytes::new()))
    }
}
