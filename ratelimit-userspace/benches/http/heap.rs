//! How much memory is allocated: an allocator that counts, while it is asked to.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

/// The system's allocator, counted.
struct Counted;

#[global_allocator]
static HEAP: Counted = Counted;

/// Off, an allocation costs no more than the look at this: figures in nanoseconds are taken so.
static COUNTING: AtomicBool = AtomicBool::new(false);

/// Bytes that were asked for while counting, less those that were given back.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// What `work` leaves allocated, in bytes as asked for, and what it returns.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (i64, T) {
    let before = LIVE.load(Relaxed);
    COUNTING.store(true, Relaxed);
    let made = work();
    COUNTING.store(false, Relaxed);
    (LIVE.load(Relaxed) - before, made)
}

fn count(allocated: usize, freed: usize) {
    if COUNTING.load(Relaxed) {
        // Both are at most `isize::MAX`.
        LIVE.fetch_add(allocated.cast_signed() as i64 - freed.cast_signed() as i64, Relaxed);
    }
}

// SAFETY: every call goes to `System`, which keeps the contract, with the arguments as they came.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller keeps the contract of `realloc`, and `block` came from `System`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`, and `block` came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}
