//! Gives back to the system what a burst took and has left.
//!
//! glibc keeps what is freed for the next allocations, all of it while one small block at the far end is in use. So a thread
//! of its own compares, every few seconds, what is resident with what is in use, and has the allocator give back whole pages
//! when much has lain unused since its last look. While it does, a thread that wants memory beyond its own small store waits:
//! 12 to 15 ms for 250 MB, once after a burst. Under another C library this does nothing.
//!
//! docs/decisions/003-the-allocator.md has what was measured for this and against other allocators.

use std::{fs, time::Duration};

use tokio::{select, time::sleep};

use crate::worker::Stop;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Unused memory that is not worth the trouble.
const SPARE_BYTES: u64 = 32 << 20;

/// Looks until it is told to stop.
pub async fn watch(mut stop: Stop) {
    let mut patience = Patience::default();
    loop {
        select! {
            () = stop.requested() => return,
            () = sleep(LOOK) => {}
        }
        let Some(unused) = unused_bytes() else { continue };
        if patience.is_over(unused) {
            give_back();
            let left = unused_bytes().unwrap_or_default();
            patience.settle(left);
            tracing::debug!(unused, left, "unused memory was given back");
        }
    }
}

/// Whether it is time.
#[derive(Debug, Default)]
struct Patience {
    /// Unused at the last look.
    before: u64,
    /// What could not be given back the last time: pieces of pages that are in use.
    stuck: u64,
}

impl Patience {
    /// Whether much more lies unused than could not be given back, now and at the last look.
    fn is_over(&mut self, unused: u64) -> bool {
        let lasting = unused.min(self.before);
        self.before = unused;
        self.stuck = self.stuck.min(unused);
        lasting > SPARE_BYTES.max(2 * self.stuck)
    }

    fn settle(&mut self, left: u64) {
        (self.before, self.stuck) = (left, left);
    }
}

/// What is resident and not in use; `None` where nobody says.
fn unused_bytes() -> Option<u64> {
    let resident = anonymous_bytes()?;
    // Asking the allocator holds it up for a moment, and there is nothing to gain.
    let used = if resident > SPARE_BYTES { allocator::used_bytes()? } else { resident };
    Some(resident.saturating_sub(used))
}

/// Memory of this process that is no file's.
fn anonymous_bytes() -> Option<u64> {
    bytes_of("RssAnon:")
}

/// The most memory that this process has had at once, files' with it; `None` where nobody says.
pub fn most_bytes() -> Option<u64> {
    bytes_of("VmHWM:")
}

/// What Linux says of this process's memory under a name, the colon with it.
fn bytes_of(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kb = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(kb.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Has the allocator give back every whole page that is free.
pub fn give_back() {
    allocator::trim();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    /// Bytes handed out, in all arenas and mapped on their own.
    #[expect(unsafe_code, reason = "the allocator's own account has no safe door")]
    pub(super) fn used_bytes() -> Option<u64> {
        // SAFETY: takes nothing, may be called by any thread, and returns numbers by value.
        let account = unsafe { libc::mallinfo2() };
        u64::try_from(account.uordblks + account.hblkhd).ok()
    }

    #[expect(
        unsafe_code,
        reason = "the allocator gives back when it is told to, by this call alone"
    )]
    pub(super) fn trim() {
        // SAFETY: may be called by any thread at any time; it touches free memory only.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod allocator {
    pub(super) const fn used_bytes() -> Option<u64> {
        None
    }

    pub(super) const fn trim() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn only_what_lies_unused_for_a_while_is_given_back_and_what_is_stuck_is_let_be() {
        let mut patience = Patience::default();
        let mut is_over = |mb: u64| patience.is_over(mb * MB);
        assert!(!is_over(500), "seen for the first time");
        assert!(!is_over(30), "used again");
        assert!(!is_over(400));
        assert!(is_over(400));
        patience.settle(90 * MB);
        let mut is_over = |mb: u64| patience.is_over(mb * MB);
        assert!(!is_over(150) && !is_over(170), "little beside what is stuck");
        assert!(!is_over(200) && is_over(200));
        patience.settle(90 * MB);
        let mut is_over = |mb: u64| patience.is_over(mb * MB);
        assert!(!is_over(10), "what was stuck is free");
        assert!(!is_over(60) && is_over(60));
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_is_freed_between_what_is_kept_is_unused_until_it_is_given_back() {
        const PIECE: usize = 16 << 10;
        let pieces = 200 * (MB as usize) / PIECE;
        let mut held: Vec<Option<Vec<u8>>> = (0..pieces).map(|_| Some(vec![1; PIECE])).collect();
        let most = anonymous_bytes().unwrap();
        for (number, piece) in held.iter_mut().enumerate() {
            *piece = piece.take().filter(|_| number % 50 == 0);
        }
        let unused = unused_bytes().unwrap();
        give_back();
        let left = anonymous_bytes().unwrap();
        assert!(unused > 100 * MB && left + 100 * MB < most, "{unused} unused, {most} to {left}");
        assert!(held.iter().flatten().all(|piece| piece.iter().all(|byte| *byte == 1)));
    }
}
