//! What is read of a response before its head is passed on.
//!
//! A response that is not streamed is held until it is complete, so that a pod that is lost on the way can still be answered for. It is
//! held on until its client has taken it, and clients may take their time; so there is a bound for all of them together
//! ([`crate::budget`]). A response that finds no room is passed on as it comes: its pod is read as fast as its client reads.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::client::Reply;
use crate::{
    budget::{Memory, Part},
    h1::BadReply,
};

/// Chunks of a response that were read before its head was passed on.
#[derive(Default)]
pub(super) struct Ahead {
    chunks: VecDeque<Bytes>,
    /// Whether they are all of it.
    pub complete: bool,
    /// What they take of the memory for all.
    part: Option<Part>,
}

impl Ahead {
    /// Reads until there are more than enough bytes, or no room for more, or the response ends.
    pub(super) async fn read(
        reply: &mut Reply,
        enough: usize,
        memory: &Memory,
    ) -> Result<Self, BadReply> {
        let mut ahead = Self::default();
        let mut bytes = 0;
        while bytes <= enough && memory.fits(&mut ahead.part, bytes) {
            let Some(chunk) = reply.data().await.transpose()? else {
                ahead.complete = true;
                return Ok(ahead);
            };
            bytes += chunk.len();
            ahead.chunks.push_back(chunk);
        }
        ahead.complete = reply.is_over();
        Ok(ahead)
    }

    /// The next chunk that is left.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.pop_front();
        if self.chunks.is_empty() {
            self.part = None;
        }
        chunk
    }

    /// All of them, in one piece from now on.
    pub(super) fn whole(&mut self) -> &[u8] {
        if self.chunks.len() > 1 {
            let all = concatenated(&self.chunks);
            self.chunks = [all].into();
        }
        self.chunks.front().map_or(&[], |all| all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that are left.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// All of them in one piece; copied only if there is more than one. They count until they are gone.
    pub(super) fn joined(mut self) -> Bytes {
        let all = if self.chunks.len() < 2 {
            self.chunks.pop_front().unwrap_or_default()
        } else {
            concatenated(&self.chunks)
        };
        match self.part.take() {
            Some(part) => part.keep(all),
            None => all,
        }
    }
}

fn concatenated(chunks: &VecDeque<Bytes>) -> Bytes {
    let mut all = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
    chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
    all.freeze()
}
