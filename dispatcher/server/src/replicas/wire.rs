//! What travels between dispatchers: values by postcard, each behind its length, and before its seal once both ends have proved
//! that they know the secret.
//!
//! Both ends are of one version of the program, or nearly: [`PROTOCOL`] is another one whenever a value is, and dispatchers of
//! different ones decide apart, which an upgrade is short enough for. A value that is too long or unreadable ends the call.

use std::io;

use bytes::{Buf, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::tcp::OwnedWriteHalf,
    time::timeout,
};

use super::{
    MISSED, SILENT,
    rank::Rank,
    seal::{Nonce, SEAL, Seals},
};
use crate::hub::{
    errand::{Errand, Lore, Word},
    held::Held,
};

/// What the values are. A test holds their bytes against those that belong to this number.
pub(super) const PROTOCOL: u16 = 10;

/// Longest value: the names of a prompt's blocks are most of it, of which there are a few thousand.
const LONGEST: usize = 1 << 20;
/// Longest value of one that has not proved yet that it knows the secret: the name of a model is most of it.
const LONGEST_UNPROVED: usize = 1 << 12;
/// Bytes that are due to be written, above which nothing more is made ready.
const ROOM: usize = 1 << 18;
/// Bytes of a length.
const PREFIX: usize = size_of::<u32>();

/// First of all, who calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The caller's [`PROTOCOL`].
    pub protocol: u16,
    /// A number that was never used: who is called proves by it that it knows the secret.
    pub nonce: Nonce,
    /// The pool it is about, by its model.
    pub model: String,
}

/// What a caller is told first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Welcome {
    /// Who is called knows the secret; so does the caller, if it says its own [`proof`](super::seal::proof).
    Prove {
        /// A number that was never used.
        nonce: Nonce,
        /// The proof of who is called.
        proof: Nonce,
    },
    /// It may ask. This is sealed, and so is all that comes after it.
    Come(Rank),
    /// It may not.
    Stay(Why),
}

/// Why a caller may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(super) enum Why {
    /// Values are understood otherwise there.
    #[error(
        "it speaks protocol {0} and this one {PROTOCOL}; they decide apart until both are of one version"
    )]
    Protocol(u16),
    /// The secrets differ.
    #[error("its secret is another one")]
    Secret,
    /// There is no such pool.
    #[error("it has no such pool")]
    Model,
    /// It was asked to stop.
    #[error("it is stopping")]
    Leaving,
}

/// From who asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Asks {
    /// A sign of life, which is answered.
    Beat,
    /// Something to be done.
    Errand(Errand),
}

/// From who decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Says {
    /// A sign of life.
    Beat,
    /// Whatever came before a sign of life of the caller's, one for each, the scheduler knows of.
    Done,
    /// A verdict.
    Word(Word),
    /// What an operator holds: all of it, whenever it is something else.
    Held(Held),
    /// What it has come to know.
    Lore(Lore),
    /// It decides no longer.
    Farewell,
}

/// Appends a value behind its length.
///
/// # Errors
/// When it cannot be written, or not be read at the other end.
pub(super) fn put<T: Serialize>(value: &T, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    out.extend([0; PREFIX]);
    let bytes = postcard::to_extend(value, std::mem::take(out)).map_err(io::Error::other)?;
    *out = bytes;
    let length = out.len() - start - PREFIX;
    if length > LONGEST {
        return Err(too_long(length));
    }
    let length = (length as u32).to_le_bytes();
    out.iter_mut().skip(start).zip(length).for_each(|(to, byte)| *to = byte);
    Ok(())
}

/// Values that are due to be written.
///
/// Who waits until all of it is written does not read meanwhile: of two that have much to say each would wait for the other to read,
/// and a verdict that has come would not be heard. So what the other end does not take at once is written while its owner reads on.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: Vec<u8>,
    seals: Option<Seals>,
    /// Beats of its owner since the other end took some of it, or nothing was due.
    stuck: u32,
}

impl Out {
    /// From now on values are sealed.
    pub(super) fn seal(&mut self, seals: Seals) {
        self.seals = Some(seals);
    }

    /// Appends a value.
    ///
    /// # Errors
    /// When it cannot be written, or not be read at the other end.
    pub(super) fn put<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        if self.bytes.is_empty() {
            self.stuck = 0;
        }
        let start = self.bytes.len() + PREFIX;
        put(value, &mut self.bytes)?;
        let value = self.bytes.get(start..).unwrap_or_default();
        let seal = self.seals.as_mut().map(|seals| seals.next(value));
        self.bytes.extend(seal.iter().flatten());
        Ok(())
    }

    /// Whether anything is due.
    pub(super) fn is_due(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether more may be made ready.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < ROOM
    }

    /// Counts a beat of its owner. One that takes some at a time is there.
    ///
    /// # Errors
    /// When the other end takes nothing.
    pub(super) fn beat(&mut self) -> io::Result<()> {
        self.stuck += u32::from(self.is_due());
        in_time(self.stuck)
    }

    /// Writes what the other end takes at once.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) fn offer(&mut self, to: &OwnedWriteHalf) -> io::Result<()> {
        while self.is_due() {
            match to.try_write(&self.bytes) {
                Ok(taken) => self.took(taken)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes some of what is due once the other end takes it. Nothing is lost when this is dropped.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) async fn write(&mut self, to: &mut OwnedWriteHalf) -> io::Result<()> {
        let taken = to.write(&self.bytes).await?;
        self.took(taken)
    }

    /// Writes all of it, to an end that has nothing to say meanwhile.
    ///
    /// # Errors
    /// When the connection fails, or the other end takes nothing for too long.
    pub(super) async fn send(&mut self, to: &mut OwnedWriteHalf) -> io::Result<()> {
        while self.is_due() {
            timeout(SILENT, self.write(to)).await??;
        }
        Ok(())
    }

    fn took(&mut self, taken: usize) -> io::Result<()> {
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes.drain(..taken);
        self.stuck = 0;
        Ok(())
    }
}

/// Values as they come.
#[derive(Debug)]
pub(super) struct Values<R> {
    from: R,
    bytes: BytesMut,
    /// Beats of its owner since any came.
    quiet: u32,
    /// Longest one that is taken: what is announced is kept until it is whole.
    longest: usize,
    seals: Option<Seals>,
}

impl<R: AsyncRead + Unpin> Values<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, bytes: BytesMut::new(), quiet: 0, longest: LONGEST_UNPROVED, seals: None }
    }

    /// From now on values are sealed, and may be long.
    pub(super) fn seal(&mut self, seals: Seals) {
        self.seals = Some(seals);
        self.longest = LONGEST;
    }

    /// Counts a beat of its owner. A part of a value is a sign of life.
    ///
    /// # Errors
    /// When nothing has come for so long that nobody is there any more.
    pub(super) fn beat(&mut self) -> io::Result<()> {
        self.quiet += 1;
        in_time(self.quiet)
    }

    /// Nobody has listened meanwhile.
    pub(super) const fn excuse(&mut self) {
        self.quiet = 0;
    }

    /// The next one. What has come of it is kept when this is dropped.
    ///
    /// # Errors
    /// When the connection ends or fails, and when what came is no such value, or not sealed as it has to be.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            if let Some(value) = self.take()? {
                return Ok(value);
            }
            if self.from.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.quiet = 0;
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some((prefix, rest)) = self.bytes.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > self.longest {
            return Err(too_long(length));
        }
        let Some((value, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let mut whole = PREFIX + length;
        if let Some(seals) = &mut self.seals {
            let Some(seal) = rest.get(..SEAL) else { return Ok(None) };
            if !seals.fits(value, seal) {
                let why = "a value that is not sealed by who knows the secret";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            whole += SEAL;
        }
        let value = postcard::from_bytes(value);
        self.bytes.advance(whole);
        value.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn in_time(beats: u32) -> io::Result<()> {
    if beats > MISSED { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

fn too_long(length: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a value of {length} bytes"))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
