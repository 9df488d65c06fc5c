//! A walk over JSON as programs write it, without serde: over what need not be read it only steps.
//!
//! Believed are plain keys and values that are well formed, on one line, not nested too deep. Of anything else, sound or not, nothing is
//! said, and serde says what it is.

use std::ops::Range;

use memchr::memchr2;
use wide::u8x16;

/// Bytes that are looked at together.
const BLOCK: usize = 64;
/// What backslashes escape most, beside themselves and quotes.
const USUAL: [u8; 2] = [b'n', b't'];

/// Where a piece stands that was read from there. `None` when it is not a part of it.
pub fn place_of(piece: &[u8], within: &[u8]) -> Option<Range<usize>> {
    let from = piece.as_ptr().addr().checked_sub(within.as_ptr().addr())?;
    let to = from.checked_add(piece.len())?;
    (to <= within.len()).then_some(from..to)
}

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

    /// What lies ahead, from the next byte that is no space.
    pub fn ahead(&mut self) -> &'a [u8] {
        self.spaces();
        self.rest()
    }

    /// That value, if it comes next. It is one in brackets and well formed: whatever follows, it ends there.
    pub fn value_like(&mut self, known: &str) -> Option<&'a str> {
        self.spaces();
        let end = self.at + known.len();
        let value = self.text.get(self.at..end).filter(|value| *value == known)?;
        self.at = end;
        Some(value)
    }

    /// A string, from quote to quote.
    fn string(&mut self) -> Option<()> {
        (self.peek()? == b'"').then_some(())?;
        let text = self.text.as_bytes();
        let mut at = self.at + 1;
        let end = loop {
            at += quote_or_backslash(text.get(at..)?)?;
            if text.get(at) == Some(&b'"') {
                break at;
            }
            match escaped_run(text, at)? {
                Run::Closed(quote) => break quote,
                Run::Plain(next) => at = next,
            }
        };
        self.at = end + 1;
        Some(())
    }

    /// Anything without others inside.
    fn scalar(&mut self) -> Option<()> {
        let rest = self.rest();
        let word = match self.peek()? {
            b'"' => return self.string(),
            b't' => "true",
            b'f' => "false",
            b'n' => "null",
            _ => {
                self.at += number(rest)?;
                return Some(());
            }
        };
        rest.starts_with(word.as_bytes()).then_some(())?;
        self.at += word.len();
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
                        if bracket == b'[' && self.peek()?.is_ascii_digit() {
                            self.at += whole_numbers(self.rest());
                        }
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

/// Where the first quote or backslash is, in most strings at hand.
fn quote_or_backslash(text: &[u8]) -> Option<usize> {
    const WANTED: [u8; 2] = [b'"', b'\\'];
    let [quote, backslash] = WANTED;
    let Some((near, far)) = text.split_first_chunk() else {
        return memchr2(quote, backslash, text);
    };
    let found = any_of(u8x16::new(*near), WANTED).to_bitmask();
    if found > 0 {
        return Some(found.trailing_zeros() as usize);
    }
    Some(near.len() + memchr2(quote, backslash, far)?)
}

/// How a part of a string ends in which escapes are near each other.
enum Run {
    /// At the string's end, the quote there.
    Closed(usize),
    /// With bytes that are nothing but text; the next escape, or the end, is further on.
    Plain(usize),
}

/// Steps from the backslash there over escapes that are near each other, ends of lines or quoted words.
fn escaped_run(text: &[u8], mut at: usize) -> Option<Run> {
    let mut escapes = Escapes::default();
    loop {
        let (rest, mut last) = (text.get(at..)?, [b' '; BLOCK]);
        let block = match rest.first_chunk() {
            Some(block) => block,
            None => {
                last.get_mut(..rest.len())?.copy_from_slice(rest);
                &last
            }
        };
        let (quotes, backslashes) = (places(block, [b'"']), places(block, [b'\\']));
        let escaped = escapes.of(backslashes);
        let ends = quotes & !escaped;
        // Before the end, if it is here.
        let mut odd = escaped & !(quotes | backslashes) & !ends & ends.wrapping_sub(1);
        if odd & odd.wrapping_sub(1) > 0 {
            odd &= !places(block, USUAL);
        }
        if odd & odd.wrapping_sub(1) > 0 {
            odd &= !numbered(block);
        }
        while odd > 0 {
            is_escape(text.get(at + odd.trailing_zeros() as usize..)?).then_some(())?;
            odd &= odd - 1;
        }
        if ends > 0 {
            return Some(Run::Closed(at + ends.trailing_zeros() as usize));
        }
        (rest.len() >= BLOCK).then_some(())?;
        at += BLOCK;
        if quotes | backslashes == 0 {
            return Some(Run::Plain(at));
        }
    }
}

/// Where the block has one of these bytes.
fn places<const N: usize>(block: &[u8; BLOCK], bytes: [u8; N]) -> u64 {
    places_in(block, |part| any_of(part, bytes))
}

/// Where the block has bytes that are looked for: a bit for each place, the first the lowest.
fn places_in(block: &[u8; BLOCK], wanted: impl Fn(u8x16) -> u8x16) -> u64 {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().fold(0, |places, part| {
        places << 16 | u64::from(wanted(u8x16::new(*part)).to_bitmask() & 0xffff)
    })
}

/// Where the block has the `u` of an escape by number, with all its digits.
fn numbered(block: &[u8; BLOCK]) -> u64 {
    let hex = places_in(block, |part| {
        let lower = part | u8x16::splat(0x20);
        within(part, b'0', b'9') | within(lower, b'a', b'f')
    });
    places(block, [b'u']) & hex >> 1 & hex >> 2 & hex >> 3 & hex >> 4
}

/// Bytes of the whole numbers at the start of an array that have a comma behind them, and perhaps a space behind that: the prompt may
/// be in tokens. Only whole blocks are looked at.
fn whole_numbers(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    // Of the byte before the block, in the lowest bit: whether it is a digit, a comma, a zero that begins a number.
    let (mut digit, mut comma, mut zero) = (0, 0, 0);
    let mut numbers = 0;
    for (at, block) in (0..).step_by(BLOCK).zip(blocks) {
        let digits = places_in(block, |part| within(part, b'0', b'9'));
        let (commas, spaces) = (places(block, [b',']), places(block, [b' ']));
        let behind_digits = digits << 1 | digit;
        let zeros = places(block, [b'0']) & !behind_digits;
        let faults = !(digits | commas | spaces)
            | commas & !behind_digits
            | spaces & !(commas << 1 | comma)
            | digits & (zeros << 1 | zero);
        if faults > 0 {
            break;
        }
        if commas > 0 {
            numbers = at + BLOCK - commas.leading_zeros() as usize;
        }
        (digit, comma, zero) = (digits >> 63, commas >> 63, zeros >> 63);
    }
    numbers
}

/// Which of them lie between two bytes.
fn within(part: u8x16, first: u8, last: u8) -> u8x16 {
    let from_first = part - u8x16::splat(first);
    from_first.simd_eq(from_first.min(u8x16::splat(last - first)))
}

/// Which of them are one of these bytes.
fn any_of<const N: usize>(part: u8x16, bytes: [u8; N]) -> u8x16 {
    let equal = bytes.map(|byte| part.simd_eq(u8x16::splat(byte)));
    equal.into_iter().fold(u8x16::ZERO, |any, one| any | one)
}

/// What backslashes escape, block by block.
#[derive(Default)]
struct Escapes {
    /// The first bit: the next block begins with a byte that is escaped.
    carried: u64,
}

impl Escapes {
    /// The bytes of the next block that follow a backslash which is not escaped itself.
    fn of(&mut self, backslashes: u64) -> u64 {
        let behind = backslashes << 1 | self.carried;
        if backslashes & behind == 0 {
            self.carried = backslashes >> 63;
            return behind;
        }
        // Several in a row: every other one escapes.
        let mut escaped = std::mem::take(&mut self.carried);
        let mut left = backslashes & !escaped;
        while left > 0 {
            let escapes = left & left.wrapping_neg();
            self.carried = escapes >> 63;
            escaped |= escapes << 1;
            left &= !(escapes | escapes << 1);
        }
        escaped
    }
}

/// Whether the bytes begin with one that may stand behind a backslash, and have what it needs.
fn is_escape(bytes: &[u8]) -> bool {
    match bytes.split_first() {
        Some((b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', _)) => true,
        Some((b'u', after)) => {
            after.get(..4).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }
        _ => false,
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
