//! The memory that all connections of a thread read into.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of one read. A stream sends some hundred at a time, a long answer as many as fit.
const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

/// Reads once, and lets `take` have what was read, which is nothing at the end of the stream.
pub(super) fn poll_read<S, T>(
    stream: &mut S,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>>
where
    S: AsyncRead + Unpin,
{
    SCRATCH.with_borrow_mut(|scratch| {
        let mut read = ReadBuf::new(scratch);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(take(read.filled())))
    })
}
