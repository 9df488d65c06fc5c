//! What one pod is believed to have cached, for another index to believe as well.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    PrefixIndex,
    ring::{Answer, Kept, Ring},
    segments::Held,
};
use crate::PodId;

/// What a pod holds, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached(pub Vec<Part>);

/// Some of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// Blocks that follow each other in a prompt. They need not be its first ones: what is before them is in the first one's name.
    Prompt(#[serde(with = "as_bytes")] Arc<[u64]>),
    /// An answer that is over, or its beginning.
    Answer {
        /// Name of the prompt that it is to; 0 where nobody will ask for it, as once there is another one to that prompt.
        to: u64,
        /// Its blocks.
        blocks: u32,
        /// Those that are held of them, the first ones.
        held: u32,
    },
}

impl Part {
    /// Names in it.
    pub(super) fn names(&self) -> usize {
        match self {
            Self::Prompt(names) => names.len(),
            Self::Answer { .. } => 1,
        }
    }
}

impl Cached {
    /// Blocks that are held.
    pub fn len(&self) -> usize {
        let held = |part: &Part| match part {
            Part::Prompt(names) => names.len(),
            Part::Answer { held, .. } => *held as usize,
        };
        self.0.iter().map(held).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same in pieces of some `names` each, the youngest first: recalled in that order they come to the same.
    pub fn in_pieces(mut self, names: usize) -> Vec<Self> {
        let mut pieces = Vec::new();
        while !self.0.is_empty() {
            let (mut piece, mut room) = (Vec::new(), names.max(1));
            while room > 0
                && let Some(part) = self.0.pop()
            {
                let part = match part {
                    Part::Prompt(all) if all.len() > room => {
                        let (first, rest) = all.split_at(room);
                        self.0.push(Part::Prompt(rest.into()));
                        Part::Prompt(first.into())
                    }
                    whole => whole,
                };
                room -= part.names();
                piece.push(part);
            }
            piece.reverse();
            pieces.push(Self(piece));
        }
        pieces
    }
}

impl PrefixIndex {
    /// What a pod holds of prompts and answers that it does not use.
    pub fn cached(&self, pod: PodId) -> Cached {
        let Some(ring) = self.rings.get(&pod) else { return Cached::default() };
        let parts = ring.oldest_to_youngest().filter_map(|kept| match kept {
            Kept::Segment(id) => self.segments.names_held(id, pod).map(Part::Prompt),
            Kept::Answer(Answer { to, blocks, held }) => Some(Part::Answer { to, blocks, held }),
            Kept::Nothing => None,
        });
        Cached(parts.collect())
    }

    /// Takes note that a pod holds this, all of which is older than what it is known to hold here: as much of it as there is room for.
    ///
    /// The youngest comes first, so that a segment is there before those below it, which are older.
    pub fn recall(&mut self, pod: PodId, cached: &Cached) {
        let before = self.len_of(pod);
        for part in cached.0.iter().rev() {
            let room = self.rings.get(&pod).map_or(0, Ring::room_left);
            match part {
                _ if room == 0 => break,
                Part::Prompt(names) => {
                    self.recall_prompt(pod, names.get(..room).unwrap_or(names));
                }
                Part::Answer { to, blocks, held } => {
                    let held = (*held).min(*blocks).min(room as u32);
                    let answer = Answer { to: *to, blocks: *blocks, held };
                    self.rings.entry(pod).and_modify(|ring| ring.recall_answer(answer));
                }
            }
        }
        self.version += u64::from(self.len_of(pod) > before);
    }

    fn recall_prompt(&mut self, pod: PodId, names: &[u64]) {
        self.find_path(names);
        let Some(ring) = self.rings.get_mut(&pod) else { return };
        for id in &self.path {
            let Some(segment) = self.segments.get_mut(*id) else { continue };
            let len = segment.len();
            match segment.whole(pod) {
                Ok((_, blocks)) => ring.len += blocks,
                Err(place) => {
                    let slot = ring.add_oldest(Kept::Segment(*id));
                    segment.holders.insert(place, Held { pod, slot, len, users: 0 });
                    ring.len += len as usize;
                }
            }
        }
    }
}

/// Names of blocks as so many bytes: they are as good as random, and any other way to write them is longer.
pub mod as_bytes {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    /// Writes them.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn serialize<S: Serializer>(names: &Arc<[u64]>, to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = names.iter().flat_map(|name| name.to_le_bytes()).collect();
        to.serialize_bytes(&bytes)
    }

    /// Reads them from a format that lends its bytes.
    ///
    /// # Errors
    /// When there are none, or the last is not whole.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u64]>, D::Error> {
        let bytes = <&[u8]>::deserialize(from)?;
        let (names, []) = bytes.as_chunks() else {
            return Err(D::Error::custom("a name of a block is cut off"));
        };
        Ok(names.iter().map(|name| u64::from_le_bytes(*name)).collect())
    }
}
