//! Memory of which many have a part, and there is so much for all of them together.
//!
//! What is small is not counted, so that usual requests and responses ask nobody. Of what is larger, whoever keeps it has a
//! [`Part`], which is given back when that is dropped: with the bytes themselves, wherever they are, by [`Part::keep`].

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;

/// Bytes of each that are not counted.
pub const UNCOUNTED_BYTES: usize = 64 << 10;

/// What all have of it together.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

/// What one has of it.
#[derive(Debug)]
pub struct Part<B: Deref<Target = Budget> = Arc<Budget>> {
    of: B,
    taken: usize,
}

/// A budget and how large it is.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What all have of it.
    pub budget: Arc<Budget>,
    /// What all may have.
    pub most: usize,
}

impl Memory {
    /// Nothing is taken yet.
    pub fn of(most: usize) -> Self {
        Self { budget: Arc::default(), most }
    }

    /// Whether so many bytes fit, for which this is the part then.
    pub fn fits(&self, part: &mut Option<Part>, bytes: usize) -> bool {
        bytes <= UNCOUNTED_BYTES
            || part.get_or_insert_with(|| Part::of(self.budget.clone())).grow(bytes, self.most)
    }
}

impl Budget {
    /// Bytes that are taken.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl<B: Deref<Target = Budget>> Part<B> {
    /// Nothing yet.
    pub const fn of(budget: B) -> Self {
        Self { of: budget, taken: 0 }
    }

    /// Takes what so many bytes need, if all together have no more than `most` then.
    pub fn grow(&mut self, bytes: usize, most: usize) -> bool {
        let more = bytes.saturating_sub(UNCOUNTED_BYTES).saturating_sub(self.taken);
        if more == 0 {
            return true;
        }
        let fits = self.of.0.fetch_add(more, Relaxed).saturating_add(more) <= most;
        if fits {
            self.taken += more;
        } else {
            self.of.0.fetch_sub(more, Relaxed);
        }
        fits
    }

    /// Whether anything was taken.
    pub const fn is_counted(&self) -> bool {
        self.taken > 0
    }
}

impl Part {
    /// The same bytes, with which the part is given back when nobody has any of them any more.
    pub fn keep(self, bytes: Bytes) -> Bytes {
        if self.taken == 0 { bytes } else { Bytes::from_owner(Kept { bytes, _part: self }) }
    }
}

impl<B: Deref<Target = Budget>> Drop for Part<B> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.of.0.fetch_sub(self.taken, Relaxed);
        }
    }
}

/// Bytes and what was taken for them.
struct Kept {
    bytes: Bytes,
    _part: Part,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_counts_until_the_last_of_it_is_gone() {
        let budget = Arc::new(Budget::default());
        let mut part = Part::of(budget.clone());
        assert!(part.grow(UNCOUNTED_BYTES, 0), "usual ones ask nobody");
        assert!(part.grow(UNCOUNTED_BYTES + 100, 100));
        assert!(part.grow(UNCOUNTED_BYTES + 50, 100), "it has that already");
        assert!(!part.grow(UNCOUNTED_BYTES + 101, 100));
        assert_eq!(budget.bytes(), 100, "nothing is taken where it does not fit");
        let mut kept = part.keep(Bytes::from_static(b"abcdef"));
        let tail = kept.split_off(3);
        assert_eq!((&*kept, &*tail), (&b"abc"[..], &b"def"[..]));
        drop(kept);
        assert_eq!(budget.bytes(), 100);
        drop(tail);
        assert_eq!(budget.bytes(), 0);
    }
}
