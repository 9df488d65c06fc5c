//! A number in decimal digits, without memory of its own: lengths and names are written for every request.

/// Digits of the largest number.
const MOST: usize = 20;

/// The digits of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits {
    text: [u8; MOST],
    /// Where they begin.
    from: usize,
}

impl Digits {
    /// Those of this number.
    pub(crate) fn of(number: u64) -> Self {
        let (mut text, mut from, mut rest) = ([b'0'; MOST], MOST, number);
        for digit in text.iter_mut().rev() {
            // Below ten.
            *digit += (rest % 10) as u8;
            from -= 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Self { text, from }
    }

    /// The same as text.
    pub(crate) fn as_str(&self) -> &str {
        let digits = self.text.get(self.from..).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_as_everybody_writes_it() {
        for number in [0, 7, 10, 99, 100, 1_234_567_890, u64::MAX - 1, u64::MAX] {
            assert_eq!(Digits::of(number).as_str(), number.to_string());
        }
    }
}
