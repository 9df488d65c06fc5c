//! Tables by the numbers of requests.
//!
//! Numbers are counted up, and what a table holds at a time is mostly of one stretch of them: requests that came together
//! wait and leave together. So entries lie in blocks in the order in which they came, and a page for each 64 numbers says
//! where. Whoever goes through a queue in its order then finds the next in the processor's caches, however long the queue
//! is; in a hash table each is somewhere else.
//!
//! Nor is there a moment in which a long queue is moved from a table to a larger one: blocks and pages stay where they are,
//! come one at a time, and go when nothing is left in them. Numbers in no order are found as well, with a page for each.

use crate::{
    RequestId,
    spread::{NumberMap, slim},
};

/// Numbers of a page, and entries of a block: a bit of a word for each.
const MANY: usize = u64::BITS as usize;
/// Empty pages kept for numbers to come, at most.
const SPARE_PAGES: usize = 8;

/// Where numbers that follow each other lie.
#[derive(Debug)]
struct Page {
    /// The numbers that are here.
    held: u64,
    /// Where the entry of each is, over all blocks.
    places: [u32; MANY],
}

impl Page {
    const EMPTY: Self = Self { held: 0, places: [0; MANY] };

    fn place(&self, number: usize) -> Option<usize> {
        let place = *self.places.get(number)?;
        (self.held >> number & 1 == 1).then_some(place as usize)
    }

    fn note(&mut self, number: usize, place: usize) {
        if let Some(known) = self.places.get_mut(number) {
            *known = place as u32;
            self.held |= 1 << number;
        }
    }
}

/// Entries side by side.
#[derive(Debug)]
struct Block<T> {
    /// The places that are taken.
    held: u64,
    /// As many as there are places, or none.
    entries: Box<[Option<T>]>,
}

impl<T> Block<T> {
    /// One that takes no memory before something is in it.
    fn empty() -> Self {
        Self { held: 0, entries: Box::default() }
    }

    const fn is_full(&self) -> bool {
        self.held == u64::MAX
    }

    /// Takes an entry into the first place that is free.
    fn put(&mut self, entry: T) -> usize {
        if self.entries.is_empty() {
            self.entries = (0..MANY).map(|_| None).collect();
        }
        let place = self.held.trailing_ones() as usize;
        if let Some(free) = self.entries.get_mut(place) {
            *free = Some(entry);
            self.held |= 1 << place;
        }
        place
    }

    fn take(&mut self, place: usize) -> Option<T> {
        let entry = self.entries.get_mut(place)?.take()?;
        self.held &= !(1 << place);
        Some(entry)
    }

    fn forget_memory(&mut self) {
        if self.held == 0 {
            self.entries = Box::default();
        }
    }
}

/// Entries in the order in which they came, as far as there was no room before.
#[derive(Debug)]
struct Blocks<T> {
    all: Vec<Block<T>>,
    /// Those that are not full. What comes goes into the last of them, which alone keeps its memory when it is empty.
    open: Vec<usize>,
}

impl<T> Blocks<T> {
    /// Lays an entry down; where.
    fn put(&mut self, entry: T) -> Option<usize> {
        let at = self.open.last().copied().unwrap_or_else(|| {
            self.open.push(self.all.len());
            self.all.push(Block::empty());
            self.all.len() - 1
        });
        let block = self.all.get_mut(at)?;
        let place = block.put(entry);
        if block.is_full() {
            self.open.pop();
        }
        Some(at * MANY + place)
    }

    /// Takes an entry up.
    fn take(&mut self, place: usize) -> Option<T> {
        let at = place / MANY;
        let block = self.all.get_mut(at)?;
        let was_full = block.is_full();
        let entry = block.take(place % MANY);
        let last = self.open.last().copied();
        if was_full {
            self.open.push(at);
            last.and_then(|last| self.all.get_mut(last)).map(Block::forget_memory);
        } else if last != Some(at) {
            block.forget_memory();
        }
        entry
    }

    #[inline]
    fn get(&self, place: usize) -> Option<&T> {
        self.all.get(place / MANY)?.entries.get(place % MANY)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.all.get_mut(place / MANY)?.entries.get_mut(place % MANY)?.as_mut()
    }
}

/// A table by the numbers of requests.
#[derive(Debug)]
pub struct ById<T> {
    pages: NumberMap<u64, Box<Page>>,
    /// Pages without a number, kept for their memory.
    #[expect(clippy::vec_box, reason = "the boxes go from page to page as they are")]
    spare: Vec<Box<Page>>,
    blocks: Blocks<T>,
    len: usize,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        let blocks = Blocks { all: Vec::new(), open: Vec::new() };
        Self { pages: NumberMap::default(), spare: Vec::new(), blocks, len: 0 }
    }
}

impl<T> ById<T> {
    /// Puts something in; what was there by this number before.
    pub fn insert(&mut self, id: RequestId, entry: T) -> Option<T> {
        let (page, number) = split(id);
        let spare = || self.spare.pop().unwrap_or_else(|| Box::new(Page::EMPTY));
        let page = self.pages.entry(page).or_insert_with(spare);
        if let Some(known) = page.place(number).and_then(|place| self.blocks.get_mut(place)) {
            return Some(std::mem::replace(known, entry));
        }
        page.note(number, self.blocks.put(entry)?);
        self.len += 1;
        None
    }

    /// Takes something out.
    pub fn remove(&mut self, id: RequestId) -> Option<T> {
        let (page_number, number) = split(id);
        let page = self.pages.get_mut(&page_number)?;
        let place = page.place(number)?;
        page.held &= !(1 << number);
        if page.held == 0 {
            let empty = self.pages.remove(&page_number);
            self.spare.extend(empty.filter(|_| self.spare.len() < SPARE_PAGES));
            slim(&mut self.pages);
        }
        self.len -= 1;
        self.blocks.take(place)
    }

    /// What has this number.
    #[inline]
    pub fn get(&self, id: RequestId) -> Option<&T> {
        self.blocks.get(self.place(id)?)
    }

    /// What has this number, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        self.blocks.get_mut(self.place(id)?)
    }

    #[inline]
    fn place(&self, id: RequestId) -> Option<usize> {
        let (page, number) = split(id);
        self.pages.get(&page)?.place(number)
    }

    /// Everything in the table, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.blocks.all.iter().flat_map(|block| block.entries.iter().flatten())
    }

    /// Everything in the table, in no order, to change it.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.all.iter_mut().flat_map(|block| block.entries.iter_mut().flatten())
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The page of a number, and which of its numbers that is.
const fn split(id: RequestId) -> (u64, usize) {
    (id.0 / MANY as u64, (id.0 % MANY as u64) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..3u8, 0..200u64, any::<bool>()), 0..600)) {
            let (mut table, mut plain) = (ById::default(), HashMap::new());
            for (at, (what, id, far)) in steps.into_iter().enumerate() {
                // Of every second number the page is far from all others.
                let id = RequestId(if far { id.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { id });
                match what {
                    0 => prop_assert_eq!(table.remove(id), plain.remove(&id)),
                    1 => prop_assert_eq!(table.get_mut(id), plain.get_mut(&id)),
                    _ => prop_assert_eq!(table.insert(id, at), plain.insert(id, at)),
                }
                prop_assert_eq!(table.get(id), plain.get(&id));
                prop_assert_eq!((table.len(), table.is_empty()), (plain.len(), plain.is_empty()));
            }
            let sorted = |values: Vec<usize>| {
                let mut values = values;
                values.sort_unstable();
                values
            };
            prop_assert_eq!(
                sorted(table.values().copied().collect()),
                sorted(plain.into_values().collect())
            );
        }
    }

    fn memory(table: &ById<u64>) -> usize {
        table.blocks.all.iter().filter(|block| !block.entries.is_empty()).count()
    }

    #[test]
    fn it_gives_back_what_a_burst_took_and_keeps_what_it_holds() {
        const BURST: u64 = 100_000;
        let stay = |id: &u64| id % 1000 == 7;
        for backwards in [false, true] {
            let mut table = ById::default();
            for id in (0..BURST).map(RequestId) {
                table.insert(id, id.0);
            }
            let most = memory(&table);
            for id in (0..BURST).filter(|id| !stay(id)) {
                let id = RequestId(if backwards { BURST - 1 - id } else { id });
                let known = table.get(id).copied();
                assert_eq!((known, table.remove(id)), (Some(id.0), Some(id.0)));
            }
            assert_eq!((table.len(), table.pages.len()), (100, 100));
            assert!(most >= 1562 && memory(&table) <= 101, "{most}, {}", memory(&table));
            assert!(table.pages.capacity() < 4096);
            let ids = (0..BURST).filter(stay).map(|id| if backwards { BURST - 1 - id } else { id });
            assert!(ids.map(RequestId).all(|id| table.remove(id) == Some(id.0)));
            assert!(table.is_empty() && memory(&table) <= 1);
        }
    }

    #[test]
    fn nothing_is_moved_while_it_grows() {
        let mut table = ById::default();
        table.insert(RequestId(0), 0);
        let place = table.get(RequestId(0)).map(std::ptr::from_ref);
        for id in 1..100_000 {
            table.insert(RequestId(id), id);
        }
        assert_eq!(table.get(RequestId(0)).map(std::ptr::from_ref), place);
    }

    #[test]
    fn a_stretch_that_moves_on_takes_no_more_room() {
        let mut table = ById::default();
        for id in 0..100_000 {
            table.insert(RequestId(id), id);
            let gone = id.checked_sub(1000).map(|gone| table.remove(RequestId(gone)));
            assert!(gone.is_none_or(|gone| gone == id.checked_sub(1000)));
        }
        assert!(table.blocks.all.len() <= 17, "{}", table.blocks.all.len());
        assert!(table.pages.len() <= 17 && table.pages.capacity() <= 28, "{}", table.pages.len());
    }
}
