//! The tables' races, in every interleaving of two CPUs:
//! `RUSTFLAGS="--cfg loom" cargo test -p ratelimit-common --test loom --release`.
#![cfg(loom)]

mod blocks;
mod buckets;

use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst, fence},
    },
    thread,
};
use ratelimit_common::bucket_table::Cell;

/// loom takes `SeqCst` operations for acquire-release ones, but knows `SeqCst` fences: the order that a
/// locked instruction, or the kernel's fully ordered atomics, gives for nothing.
struct Word(AtomicU64);

impl Word {
    fn new(word: u64) -> Self {
        Self(AtomicU64::new(word))
    }
}

impl Cell for Word {
    fn read(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        let result = self.0.compare_exchange(current, new, SeqCst, SeqCst);
        fence(SeqCst);
        result
    }

    fn add(&self, delta: u64) -> u64 {
        let previous = self.0.fetch_add(delta, SeqCst);
        fence(SeqCst);
        previous
    }

    fn write(&self, value: u64) {
        self.0.store(value, SeqCst);
    }
}

/// Runs two CPUs on a memory in every interleaving; `check` gets what each returned.
fn explore<M: Sync + Send + 'static, R: Send + 'static>(
    make: impl Fn() -> M + Sync + Send + 'static,
    first: impl Fn(&M) -> R + Copy + Sync + Send + 'static,
    second: impl Fn(&M) -> R + Copy + Sync + Send + 'static,
    check: impl Fn(&M, R, R) + Sync + Send + 'static,
) {
    let mut builder = Builder::new();
    builder.max_branches = 10_000;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    builder.check(move || {
        counted.fetch_add(1, SeqCst);
        let memory = Arc::new(make());
        let other = Arc::clone(&memory);
        let handle = thread::spawn(move || second(&other));
        let returned = first(&memory);
        let other_returned = handle.join().unwrap();
        check(&memory, returned, other_returned);
    });
    eprintln!("{} interleavings", runs.load(SeqCst));
}
