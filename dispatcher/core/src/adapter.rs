//! LoRA adapters, and what tells one from another.

use std::{fmt, num::NonZeroU32};

/// Names an adapter wherever it is spoken of: made of its name alone, so that it is the same in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(NonZeroU32);

impl AdapterId {
    /// That of an adapter of this name. Two of two thousand share one by a chance of less than one in a thousand, and
    /// are then taken for one: their requests are served all the same.
    pub fn of(name: &str) -> Self {
        // FNV-1a of 64 bits, folded.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        let folded = (hash ^ (hash >> 32)) as u32;
        Self(NonZeroU32::new(folded).unwrap_or(NonZeroU32::MAX))
    }

    /// The one that is written so.
    pub fn parse(text: &str) -> Option<Self> {
        let number = u32::from_str_radix(text, 16).ok().and_then(NonZeroU32::new).map(Self)?;
        (number.to_string() == text).then_some(number)
    }
}

impl fmt::Display for AdapterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_same_id_in_every_process_and_others_have_others() {
        assert_eq!(AdapterId::of("sql").to_string(), "df617a86");
        let mut ids: Vec<AdapterId> =
            (0..2000).map(|number| AdapterId::of(&format!("lora-{number}"))).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 2000);
    }

    #[test]
    fn an_id_is_read_as_it_is_written_and_nothing_else() {
        let id = AdapterId::of("sql");
        assert_eq!(AdapterId::parse(&id.to_string()), Some(id));
        for other in ["", "00000000", "1", "DF617A86", "df617a86df617a86", "x"] {
            assert_eq!(AdapterId::parse(other), None, "{other}");
        }
    }
}
