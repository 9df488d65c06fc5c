//! What shows that a value comes from one who knows the secret, and when it was said.
//!
//! Both ends of a call prove that they know the secret, each by a number of the other's that is used once. Whoever stands between two
//! that know it can pass these proofs on, also back to where they come from. So every value from then on is sealed, by a key that
//! the secret and both numbers give: what way it goes, how many went before it that way, and its bytes. Who passes values on can end a
//! call and read what is said, but say nothing, leave nothing out and turn nothing round.

use std::io;

use hmac::{Hmac, Mac as _};
use rand::{TryRngCore as _, rngs::OsRng};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// A number that nobody guesses, or a digest.
pub(super) type Nonce = [u8; 32];

/// Bytes of a seal: as many as a forger would have to guess at once.
pub(super) const SEAL: usize = 16;

/// One that was never used.
///
/// # Errors
/// When the system has none to give.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    OsRng.try_fill_bytes(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Caller,
    Called,
}

/// What only those can say who know the secret, and to this call alone. `nonces`: that of the caller, and that of who is called.
pub(super) fn proof(secret: &[u8; 32], side: Side, nonces: [&Nonce; 2]) -> Nonce {
    let [caller, called] = nonces;
    sign(&key(secret), &[&[side as u8], caller, called])
}

/// The seals of what one side of a call says, in order.
#[derive(Debug)]
pub(super) struct Seals {
    key: Key,
    /// How many there were.
    count: u64,
}

impl Seals {
    /// Of a call that has these two numbers.
    pub(super) fn new(secret: &[u8; 32], side: Side, nonces: [&Nonce; 2]) -> Self {
        let [caller, called] = nonces;
        // No proof is of so many bytes: nobody can have one signed for him.
        let session = sign(&key(secret), &[b"session", &[side as u8], caller, called]);
        Self { key: key(&session), count: 0 }
    }

    /// That of the next value.
    pub(super) fn next(&mut self, value: &[u8]) -> [u8; SEAL] {
        let signed = sign(&self.key, &[&self.count.to_le_bytes(), value]);
        self.count += 1;
        let mut seal = [0; SEAL];
        seal.iter_mut().zip(signed).for_each(|(to, byte)| *to = byte);
        seal
    }

    /// Whether the next value has its seal.
    pub(super) fn fits(&mut self, value: &[u8], seal: &[u8]) -> bool {
        self.next(value).ct_eq(seal).into()
    }
}

/// What a key signs; the blocks that are the same for all of it are digested once.
type Key = Hmac<Sha256>;

fn key(bytes: &[u8; 32]) -> Key {
    // One that is shorter than a block is filled up with zeros.
    let mut block = [0; 64];
    block.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    Key::new((&block).into())
}

fn sign(key: &Key, parts: &[&[u8]]) -> Nonce {
    let mut signed = key.clone();
    parts.iter().for_each(|part| signed.update(part));
    signed.finalize().into_bytes().into()
}
