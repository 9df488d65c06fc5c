//! A body in chunks (RFC 9112, section 7.1), taken apart as it comes.
//!
//! Lines must end in CRLF: a bare line feed is where proxies and servers have disagreed about the end of a message.

use smallvec::SmallVec;

use super::BadReply;

/// Most bytes that go with one chunk beside its data: its extensions, and with the last one the trailers. Not of a whole body:
/// a stream is as long as its answer.
pub(super) const MOST_ASIDE_BYTES: usize = 16 << 10;

/// Hexadecimal digits of a chunk's size; any size fits that a counter holds.
const MOST_DIGITS: u8 = 15;

/// Pieces of data in one read.
pub(super) type Pieces<'a> = SmallVec<[&'a [u8]; 4]>;

/// How far a body has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    at: At,
    /// Bytes of the chunk's extensions, and of the trailers, so far.
    aside: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The size of a chunk, of which this many digits came.
    Size {
        size: u64,
        digits: u8,
    },
    /// Blanks between the size and an extension or the end of its line.
    SizeBlank {
        size: u64,
    },
    /// What follows the size up to the end of its line.
    Extension {
        size: u64,
    },
    /// The line feed after the size.
    SizeEnd {
        size: u64,
    },
    /// The data, of which this much is left.
    Data {
        left: u64,
    },
    /// The end of the line after the data.
    DataCr,
    DataLf,
    /// The name of a trailer, `empty` until something of it came; an empty line is the end.
    TrailerName {
        empty: bool,
    },
    TrailerValue,
    TrailerEnd,
    /// The line feed of the empty line.
    End,
    Over,
}

impl Chunks {
    pub(super) const fn new() -> Self {
        Self { at: At::Size { size: 0, digits: 0 }, aside: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Takes the next bytes and adds the data in them to `pieces`. Returns what is left after the end of the body.
    pub(super) fn take<'a>(
        &mut self,
        mut bytes: &'a [u8],
        pieces: &mut Pieces<'a>,
    ) -> Result<&'a [u8], BadReply> {
        while let (Some((byte, rest)), false) = (bytes.split_first(), self.is_over()) {
            if let At::Data { left } = self.at {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, after) = bytes.split_at(count);
                pieces.push(data);
                let left = left - count as u64;
                self.at = if left == 0 { At::DataCr } else { At::Data { left } };
                bytes = after;
                continue;
            }
            self.at = self.step(*byte)?;
            bytes = rest;
        }
        Ok(bytes)
    }

    fn step(&mut self, byte: u8) -> Result<At, BadReply> {
        Ok(match (self.at, byte) {
            (At::Size { size, digits }, _) => return self.size(size, digits, byte),
            (At::SizeBlank { size }, _) => return self.size_end(size, byte),
            (At::Extension { size }, b'\r') => At::SizeEnd { size },
            (At::Extension { .. }, b'\n') => return Err(BadReply::Malformed("bare line feed")),
            (at @ At::Extension { .. }, _) => self.aside(at)?,
            (At::SizeEnd { size: 0 } | At::TrailerEnd, b'\n') => At::TrailerName { empty: true },
            (At::SizeEnd { size }, b'\n') => At::Data { left: size },
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => {
                self.aside = 0;
                At::Size { size: 0, digits: 0 }
            }
            (At::TrailerName { empty: true }, b'\r') => At::End,
            (At::TrailerName { empty: false }, b':') => self.aside(At::TrailerValue)?,
            (At::TrailerName { .. }, _) if is_token(byte) => {
                self.aside(At::TrailerName { empty: false })?
            }
            (At::TrailerValue, b'\r') => At::TrailerEnd,
            (At::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => self.aside(At::TrailerValue)?,
            (At::End, b'\n') => At::Over,
            _ => return Err(BadReply::Malformed("line in a body in chunks")),
        })
    }

    fn size(&mut self, size: u64, digits: u8, byte: u8) -> Result<At, BadReply> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            if digits == MOST_DIGITS {
                return Err(BadReply::Malformed("chunk too large"));
            }
            return Ok(At::Size { size: size << 4 | u64::from(digit), digits: digits + 1 });
        }
        if digits == 0 {
            return Err(BadReply::Malformed("chunk without a size"));
        }
        self.size_end(size, byte)
    }

    /// What may follow the digits of a size, and the blanks after them.
    fn size_end(&mut self, size: u64, byte: u8) -> Result<At, BadReply> {
        match byte {
            b'\r' => Ok(At::SizeEnd { size }),
            b';' => self.aside(At::Extension { size }),
            b' ' | b'\t' => self.aside(At::SizeBlank { size }),
            _ => Err(BadReply::Malformed("chunk size")),
        }
    }

    fn aside(&mut self, next: At) -> Result<At, BadReply> {
        self.aside += 1;
        if self.aside > MOST_ASIDE_BYTES {
            return Err(BadReply::Malformed("chunk extensions and trailers too long"));
        }
        Ok(next)
    }
}

/// Whether a byte may be in the name of a field (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
