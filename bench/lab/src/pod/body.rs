//! A call as the HTTP side holds it: a body that streams, or a future of the whole answer. Dropping it aborts the call.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::{
    call::{Call, Next},
    sim::Sim,
};

/// The connection is cut because a fault says so.
#[derive(Debug, thiserror::Error)]
#[error("cut by a fault")]
pub(super) struct Cut;

/// The HTTP side of a call.
pub(super) struct Reply {
    sim: Rc<Sim>,
    call: Rc<RefCell<Call>>,
}

impl Reply {
    pub(super) fn new(sim: Rc<Sim>, call: Rc<RefCell<Call>>) -> Self {
        Self { sim, call }
    }

    /// Waits for the whole answer.
    pub(super) async fn whole(self) -> Result<String, Cut> {
        poll_fn(|context| match self.call.borrow_mut().next(context.waker()) {
            Next::Bytes(_) | Next::Wait => Poll::Pending,
            Next::Cut => Poll::Ready(Err(Cut)),
            Next::End => Poll::Ready(Ok(())),
        })
        .await?;
        Ok(self.call.borrow().whole())
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.sim.abandon(&self.call);
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.call.borrow_mut().next(context.waker()) {
            Next::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Next::Wait => Poll::Pending,
            Next::Cut => Poll::Ready(Some(Err(Cut))),
            Next::End => Poll::Ready(None),
        }
    }
}
