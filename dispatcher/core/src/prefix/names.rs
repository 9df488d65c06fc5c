//! The names of blocks in pieces of one size, so that prompts of any length come and go without an allocation each.

use std::iter::successors;

/// Names in a piece: with the number of the next piece 128 bytes.
const NAMES: usize = 15;
/// No piece.
const NONE: u32 = u32::MAX;

/// Some names in the order of their prompt: a piece and those that follow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    first: u32,
    /// How many.
    pub(super) len: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
struct Piece {
    names: [u64; NAMES],
    next: u32,
}

/// All pieces; those without names follow each other too.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    all: Vec<Piece>,
    vacant: u32,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { all: Vec::new(), vacant: NONE }
    }
}

impl Pieces {
    /// Keeps these names.
    pub(super) fn keep(&mut self, names: &[u64]) -> Names {
        let mut next = NONE;
        // The last piece first: each is told the one that follows it.
        for part in names.chunks(NAMES).rev() {
            let mut piece = Piece { names: [0; NAMES], next };
            piece.names.iter_mut().zip(part).for_each(|(place, name)| *place = *name);
            next = self.put(piece);
        }
        Names { first: next, len: names.len() as u32 }
    }

    /// How many of these names, from the first on, are those of `blocks`.
    pub(super) fn shared(&self, names: Names, blocks: &[u64]) -> usize {
        let most = blocks.len().min(names.len as usize);
        let blocks = blocks.get(..most).unwrap_or_default();
        let mut shared = 0;
        for (piece, part) in self.of(names).zip(blocks.chunks(NAMES)) {
            if piece.names.get(..part.len()) != Some(part) {
                return shared + piece.names.iter().zip(part).take_while(|(a, b)| a == b).count();
            }
            shared += part.len();
        }
        shared
    }

    /// Leaves the first `at` of these names, of which there are more, and keeps the others by themselves.
    pub(super) fn split(&mut self, names: &mut Names, at: usize) -> Names {
        let rest: Vec<u64> = self.begin(*names, usize::MAX).skip(at).collect();
        self.truncate(names, at);
        self.keep(&rest)
    }

    /// Leaves the first `at` of these names, of which there are more.
    pub(super) fn truncate(&mut self, names: &mut Names, at: usize) {
        names.len = at as u32;
        let mut last = names.first;
        for _ in 1..at.div_ceil(NAMES) {
            last = self.next(last);
        }
        let rest = self.next(last);
        if let Some(piece) = self.all.get_mut(last as usize) {
            piece.next = NONE;
        }
        self.vacate(rest);
    }

    /// The first of these names.
    pub(super) fn first(&self, names: Names) -> u64 {
        self.of(names).next().map_or(0, |piece| piece.names[0])
    }

    /// Some of these names, from the first on.
    pub(super) fn begin(&self, names: Names, len: usize) -> impl Iterator<Item = u64> {
        let all = self.of(names).flat_map(|piece| piece.names);
        all.take(len.min(names.len as usize))
    }

    /// Forgets these names.
    pub(super) fn forget(&mut self, names: Names) {
        self.vacate(names.first);
    }

    fn of(&self, names: Names) -> impl Iterator<Item = &Piece> {
        let at = |number: u32| self.all.get(number as usize);
        successors(at(names.first), move |piece| at(piece.next))
    }

    fn next(&self, number: u32) -> u32 {
        self.all.get(number as usize).map_or(NONE, |piece| piece.next)
    }

    /// Puts a piece where there is room and returns its number.
    fn put(&mut self, piece: Piece) -> u32 {
        let number = self.vacant;
        if let Some(room) = self.all.get_mut(number as usize) {
            self.vacant = room.next;
            *room = piece;
            return number;
        }
        self.all.push(piece);
        (self.all.len() - 1) as u32
    }

    /// Empties a piece and those that follow it.
    fn vacate(&mut self, mut number: u32) {
        while let Some(piece) = self.all.get_mut(number as usize) {
            let next = std::mem::replace(&mut piece.next, self.vacant);
            self.vacant = number;
            number = next;
        }
    }
}

#[cfg(test)]
impl Pieces {
    pub(super) fn all_of(&self, names: Names) -> Vec<u64> {
        self.begin(names, usize::MAX).collect()
    }

    /// Pieces, with those that are vacant.
    pub(super) fn room(&self) -> usize {
        self.all.len()
    }

    /// Pieces with names.
    pub(super) fn used(&self) -> usize {
        let vacant = Names { first: self.vacant, len: 0 };
        self.all.len() - self.of(vacant).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_kept_compared_and_split_as_a_list_would_be(
            lens in prop::collection::vec((1..70usize, any::<prop::sample::Index>(), any::<bool>()), 1..30),
        ) {
            let mut pieces = Pieces::default();
            let mut kept: Vec<(Names, Vec<u64>)> = Vec::new();
            for (number, (len, at, cut)) in (1..).zip(lens) {
                let list: Vec<u64> = (0..len as u64).map(|name| 1000 * number + name).collect();
                let mut names = pieces.keep(&list);
                let mut other = list.clone();
                other[at.index(len)] = 7;
                prop_assert_eq!(pieces.shared(names, &other), at.index(len));
                prop_assert_eq!(pieces.shared(names, &list[..at.index(len)]), at.index(len));
                let at = 1 + at.index(len);
                if at < len && cut {
                    pieces.truncate(&mut names, at);
                } else if at < len {
                    kept.push((pieces.split(&mut names, at), list[at..].to_vec()));
                }
                kept.push((names, list[..at.min(len)].to_vec()));
                if number % 3 == 2 {
                    pieces.forget(kept.remove(0).0);
                }
                for (names, list) in &kept {
                    prop_assert_eq!(&pieces.all_of(*names), list);
                    prop_assert_eq!(pieces.first(*names), list[0]);
                    prop_assert_eq!(pieces.shared(*names, list), list.len());
                }
                let used: usize = kept.iter().map(|(_, list)| list.len().div_ceil(NAMES)).sum();
                prop_assert_eq!(pieces.used(), used);
            }
        }
    }
}
