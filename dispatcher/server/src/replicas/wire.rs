//! What travels between dispatchers: values by postcard, each behind its length.
//!
//! Both ends are of one version of the program, or nearly: [`PROTOCOL`] is another one whenever a value is, and dispatchers of
//! different ones decide apart, which an upgrade is short enough for. A value that is too long or unreadable ends the call.

use std::io;

use bytes::{Buf, BytesMut};
use rand::{TryRngCore as _, rngs::OsRng};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::rank::Rank;
use crate::hub::{
    errand::{Errand, Lore, Word},
    held::Held,
};

/// What the values are. A test holds their bytes against those that belong to this number.
pub(super) const PROTOCOL: u16 = 2;

/// Longest value: the names of a prompt's blocks are most of it, of which there are a few thousand.
const LONGEST: usize = 1 << 20;
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
    /// Who is called knows the secret; so does the caller, if it says its own [`proof`].
    Prove {
        /// A number that was never used.
        nonce: Nonce,
        /// The proof of who is called.
        proof: Nonce,
    },
    /// It may ask.
    Come(Rank),
    /// It may not.
    Stay(Why),
}

/// A number that nobody guesses, or a digest.
pub(super) type Nonce = [u8; 32];

/// One that was never used.
///
/// # Errors
/// When the system has none to give.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    OsRng.try_fill_bytes(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// Who proves that it knows the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Caller,
    Called,
}

/// What only those can say who know the secret, and to this call alone. `nonces`: that of the caller, and that of who is called.
pub(super) fn proof(secret: &[u8; 32], side: Side, nonces: [&Nonce; 2]) -> Nonce {
    let [caller, called] = nonces;
    let inner = |pad: u8| {
        let mut hash = Sha256::new();
        hash.update(secret.map(|byte| byte ^ pad));
        hash
    };
    // HMAC, with a key that is shorter than a block.
    let rest = |pad: u8| [pad; 32];
    let mut hash = inner(0x36);
    hash.update(rest(0x36));
    hash.update([side as u8]);
    hash.update(caller);
    hash.update(called);
    let digest = hash.finalize();
    let mut hash = inner(0x5c);
    hash.update(rest(0x5c));
    hash.update(digest);
    hash.finalize().into()
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
    /// A sign of life.
    Beat,
    /// Something to be done.
    Errand(Errand),
}

/// From who decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Says {
    /// A sign of life.
    Beat,
    /// A verdict.
    Word(Word),
    /// What an operator holds: all of it, whenever it is something else.
    Held(Held),
    /// What it has come to know.
    Lore(Lore),
    /// It decides no longer.
    Farewell,
}

/// Appends a value.
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

/// Values as they come.
#[derive(Debug)]
pub(super) struct Values<R> {
    from: R,
    bytes: BytesMut,
}

impl<R: AsyncRead + Unpin> Values<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, bytes: BytesMut::new() }
    }

    /// The next one. What has come of it is kept when this is dropped.
    ///
    /// # Errors
    /// When the connection ends or fails, and when what came is no such value.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            if let Some(value) = self.take()? {
                return Ok(value);
            }
            if self.from.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(prefix) = self.bytes.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > LONGEST {
            return Err(too_long(length));
        }
        let Some(value) = self.bytes.get(PREFIX..PREFIX + length) else { return Ok(None) };
        let value = postcard::from_bytes(value);
        self.bytes.advance(PREFIX + length);
        value.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn too_long(length: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a value of {length} bytes"))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
