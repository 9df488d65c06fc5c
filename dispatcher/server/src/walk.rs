//! A walk over JSON as programs write it, without serde: over what need not be read it only steps.
//!
//! Believed are plain keys and values that are well formed, on one line, not nested too deep. Of anything else, sound or not, nothing is
//! said, and serde says what it is.

use memchr::memchr2;

/// A place in a text in which spaces are all the white space that there is.
pub struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    /// At its beginning.
    pub const fn of(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Whether all that lies behind is believed: what separates lines outside of strings is not allowed inside of them.
    pub fn is_believed(&self) -> bool {
        let walked = self.text.as_bytes().get(..self.at).unwrap_or_default();
        walked.iter().fold(u8::MAX, |least, byte| least.min(*byte)) >= b' '
    }

    /// Whether nothing but spaces is left.
    pub fn is_over(&mut self) -> bool {
        self.spaces();
        self.at == self.text.len()
    }

    /// How far it has come.
    pub const fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// The next byte that is no space.
    pub fn next(&mut self) -> Option<u8> {
        self.spaces();
        let byte = self.peek();
        self.at += 1;
        byte
    }

    /// Steps over that byte.
    pub fn takes(&mut self, byte: u8) -> Option<()> {
        (self.next() == Some(byte)).then_some(())
    }

    /// A key without escapes, and the colon after it.
    pub fn key(&mut self) -> Option<&'a str> {
        self.spaces();
        let from = self.at + 1;
        self.string()?;
        let key = self.text.get(from..self.at - 1)?;
        self.takes(b':')?;
        (!key.contains('\\')).then_some(key)
    }

    /// A value as it is written.
    pub fn value(&mut self) -> Option<&'a str> {
        self.spaces();
        let from = self.at;
        match self.peek()? {
            b'{' | b'[' => self.nest()?,
            _ => self.scalar()?,
        }
        self.text.get(from..self.at)
    }

    /// A string, from quote to quote.
    fn string(&mut self) -> Option<()> {
        (self.peek()? == b'"').then_some(())?;
        self.at += 1;
        loop {
            self.at += memchr2(b'"', b'\\', self.rest())?;
            let (first, after) = self.rest().split_first()?;
            if *first == b'"' {
                self.at += 1;
                return Some(());
            }
            self.at += match after.first()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                b'u' if after.get(1..5)?.iter().all(u8::is_ascii_hexdigit) => 6,
                _ => return None,
            };
        }
    }

    /// Anything without others inside.
    fn scalar(&mut self) -> Option<()> {
        if self.peek()? == b'"' {
            return self.string();
        }
        let rest = self.rest();
        let word =
            [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word));
        self.at += match word {
            Some(word) => word.len(),
            None => number(rest)?,
        };
        Some(())
    }

    /// An object or an array with all that is inside.
    fn nest(&mut self) -> Option<()> {
        // What is open: a bit each, the innermost the lowest, set for an object; above them one that marks the end.
        let mut open = 1_u64;
        loop {
            self.spaces();
            match self.peek()? {
                bracket @ (b'{' | b'[') => {
                    (open.leading_zeros() > 0).then_some(())?;
                    open = open << 1 | u64::from(bracket == b'{');
                    self.at += 1;
                    self.spaces();
                    if !matches!(self.peek()?, b'}' | b']') {
                        self.member(open)?;
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            while open > 1 {
                match (self.next()?, open & 1) {
                    (b',', _) => {
                        self.member(open)?;
                        break;
                    }
                    (b'}', 1) | (b']', 0) => open >>= 1,
                    _ => return None,
                }
            }
            if open == 1 {
                return Some(());
            }
        }
    }

    /// What is before a value: in an object its key.
    fn member(&mut self, open: u64) -> Option<()> {
        if open & 1 == 1 {
            self.spaces();
            self.string()?;
            self.takes(b':')?;
        }
        Some(())
    }
}

/// Bytes of the number at the start.
fn number(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        let after = bytes.get(from..).unwrap_or_default();
        after.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
    let mut end = usize::from(at(0) == b'-');
    let whole = digits(end);
    if whole == 0 || (whole > 1 && at(end) == b'0') {
        return None;
    }
    end += whole;
    if at(end) == b'.' {
        let fraction = digits(end + 1);
        (fraction > 0).then_some(())?;
        end += 1 + fraction;
    }
    if matches!(at(end), b'e' | b'E') {
        let sign = usize::from(matches!(at(end + 1), b'+' | b'-'));
        let exponent = digits(end + 1 + sign);
        (exponent > 0).then_some(())?;
        end += 1 + sign + exponent;
    }
    Some(end)
}
