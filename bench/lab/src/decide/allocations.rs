//! How often a thread has allocated.
//!
//! The binary's allocator is the system's own, with a count per thread in front: one addition to a thread's own variable, far
//! below what an allocation costs. Where the binary does not install it (tests), the count stays at nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// Allocations and reallocations of this thread so far.
pub fn count() -> u64 {
    COUNT.with(Cell::get)
}

fn note() {
    // A thread that is being torn down may allocate and has no variables any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; there is no other way to count"
)]
// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is the one asked for here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is the one asked for here.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.realloc(block, layout, size) }
    }
}
