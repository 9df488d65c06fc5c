//! One file for each pool: replaced as a whole, and read only if it is whole.
//!
//! It begins with a mark, the number of its [`FORMAT`] and a checksum of what follows, which are the values of [`Kept`]. So a file that
//! was cut off, or written by a dispatcher of another kind, is none.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use weir_core::{Learned, prefix::Cached};
use xxhash_rust::xxh3::xxh3_64;

use crate::{files::replace, fleet::pod::Witness, hub::held::Held};

/// What the values are, and what numbers in them stand for: how blocks are named, the sizes of prompts, the coefficients of a step's
/// time. A test holds their bytes against those that belong to this number.
pub(super) const FORMAT: u16 = 1;

/// What a file begins with.
const MARK: &[u8; 10] = b"weir state";
/// Characters of a model in a file's name: enough for people to tell them apart.
const NAMED: usize = 64;
/// No file is larger, in bytes: a thousand pods of the largest kind have less.
const LARGEST: u64 = 1 << 30;

/// What is kept of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Its model.
    pub model: String,
    /// When it was written, in milliseconds of Unix time.
    pub written_ms: u64,
    /// What an operator holds.
    pub held: Held,
    /// What was learned.
    pub learned: Learned,
    /// What pods have cached.
    pub pods: Vec<KeptPod>,
}

/// What one pod has cached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptPod {
    /// Its address.
    pub address: String,
    /// What its process said of itself.
    pub witness: Witness,
    /// What is cached there.
    pub cached: Cached,
}

/// Why there is a file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// It cannot be read.
    #[error(transparent)]
    Unread(#[from] io::Error),
    /// It is not whole, or no such file.
    #[error("it is cut off or damaged")]
    Damaged,
    /// It was written by another version.
    #[error("it is of format {0} and this version reads {FORMAT}")]
    Format(u16),
    /// It is another model's.
    #[error("it is of model {0:?}")]
    Model(String),
}

/// Where a model's file is.
pub(super) fn path(dir: &Path, model: &str) -> PathBuf {
    let plain =
        |one: char| if one.is_ascii_alphanumeric() || "-_.".contains(one) { one } else { '_' };
    let named: String = model.chars().map(plain).take(NAMED).collect();
    dir.join(format!("{named}-{:016x}.state", xxh3_64(model.as_bytes())))
}

/// The bytes of a file.
///
/// # Errors
/// When a value cannot be written.
pub(super) fn bytes(kept: &Kept) -> io::Result<Vec<u8>> {
    let values = postcard::to_allocvec(kept).map_err(io::Error::other)?;
    let mut bytes = MARK.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(xxh3_64(&values).to_le_bytes());
    bytes.extend(values);
    Ok(bytes)
}

/// What these bytes are.
fn understood(bytes: &[u8]) -> Result<Kept, Unusable> {
    let parts = || {
        let rest = bytes.strip_prefix(MARK)?;
        let (format, rest) = rest.split_first_chunk()?;
        let (sum, values) = rest.split_first_chunk()?;
        Some((u16::from_le_bytes(*format), u64::from_le_bytes(*sum), values))
    };
    let (format, sum, values) = parts().ok_or(Unusable::Damaged)?;
    if format != FORMAT {
        return Err(Unusable::Format(format));
    }
    if xxh3_64(values) != sum {
        return Err(Unusable::Damaged);
    }
    postcard::from_bytes(values).map_err(|_| Unusable::Damaged)
}

/// Reads a model's file; `None` where there is none.
///
/// # Errors
/// When it cannot be used.
pub(super) fn read(dir: &Path, model: &str) -> Result<Option<Kept>, Unusable> {
    let path = path(dir, model);
    let bytes =
        match fs::metadata(&path).and_then(|of| within(of.len())).and_then(|()| fs::read(&path)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    let kept = understood(&bytes)?;
    if kept.model == model { Ok(Some(kept)) } else { Err(Unusable::Model(kept.model)) }
}

fn within(bytes: u64) -> io::Result<()> {
    let why = || io::Error::new(ErrorKind::FileTooLarge, format!("it has {bytes} bytes"));
    if bytes > LARGEST { Err(why()) } else { Ok(()) }
}

/// Replaces a model's file. Names of tenants are in it: it is for its owner alone.
///
/// # Errors
/// When the folder cannot be written.
pub(super) fn write(dir: &Path, model: &str, bytes: &[u8]) -> io::Result<()> {
    let whole = path(dir, model);
    replace(&whole, &whole.with_extension("part"), bytes, 0o600)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
