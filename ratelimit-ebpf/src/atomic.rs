//! The atomics a bucket needs, as BPF has them.
//!
//! `core::sync::atomic` does not compile for BPF (LLVM cannot select atomic loads and stores). A fetching
//! operation must be `SeqCst`: with Relaxed ordering LLVM emits the form that does not return the previous
//! value (<https://github.com/llvm/llvm-project/issues/210280>). Needs Linux 5.12.

use core::{
    cell::UnsafeCell,
    intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd},
    ptr,
};

use ratelimit_common::bucket_table::Cell;

/// One word of a map value that several CPUs write.
#[repr(transparent)]
pub(crate) struct AtomicWord(UnsafeCell<u64>);

// SAFETY: every access goes through the volatile read and the atomic operations below.
unsafe impl Sync for AtomicWord {}

impl AtomicWord {
    #[inline(always)]
    pub(crate) const fn new(word: u64) -> Self {
        Self(UnsafeCell::new(word))
    }
}

impl Cell for AtomicWord {
    #[inline(always)]
    fn read(&self) -> u64 {
        // SAFETY: the pointer is valid and aligned, being derived from a reference; an aligned 8-byte
        // load is one instruction, hence atomic, and volatile keeps it from being repeated.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: the pointer is valid and aligned, being derived from a reference.
        let (previous, swapped) = unsafe {
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                self.0.get(),
                current,
                new,
            )
        };
        if swapped { Ok(previous) } else { Err(previous) }
    }

    #[inline(always)]
    fn add(&self, delta: u64) -> u64 {
        // SAFETY: the pointer is valid and aligned, being derived from a reference.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(self.0.get(), delta) }
    }

    #[inline(always)]
    fn write(&self, value: u64) {
        // SAFETY: as in `read`, of which this is the counterpart.
        unsafe { ptr::write_volatile(self.0.get(), value) }
    }
}
