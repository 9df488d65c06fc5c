//! The newest of what was found of the tokens per event.

/// A ring of them; none is below one.
#[derive(Clone, Debug)]
pub(super) struct Newest<const MANY: usize> {
    ring: [f32; MANY],
    seen: usize,
}

impl<const MANY: usize> Default for Newest<MANY> {
    fn default() -> Self {
        Self { ring: [1.0; MANY], seen: 0 }
    }
}

impl<const MANY: usize> Newest<MANY> {
    pub(super) fn learn(&mut self, per_event: f32) {
        if let Some(oldest) = self.ring.get_mut(self.seen % MANY) {
            *oldest = per_event;
        }
        self.seen += 1;
    }

    /// Those that are known.
    pub(super) fn oldest_to_newest(&self) -> impl Iterator<Item = f32> {
        let first = self.seen.saturating_sub(MANY);
        (first..self.seen).filter_map(|at| self.ring.get(at % MANY).copied())
    }

    /// The one that a share of them is no larger than, the lower one of two; `None` while fewer than `enough` were seen.
    pub(super) fn quantile(&self, share: f64, enough: usize) -> Option<f64> {
        let known = self.seen.min(MANY);
        let place = (known.checked_sub(1)? as f64 * share) as usize;
        if self.seen < enough {
            return None;
        }
        let ones = self.ring.iter().take(known).filter(|one| **one <= 1.0).count();
        // Mostly nothing need be put in order.
        if ones > place {
            return Some(1.0);
        }
        let mut ring = self.ring;
        let known = ring.get_mut(..known)?;
        Some(f64::from(*known.select_nth_unstable_by(place, f32::total_cmp).1))
    }
}
