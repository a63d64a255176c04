//! Load-time constants. The verifier knows their values, so a branch on one costs nothing.

use aya_ebpf::Global;

/// Bits of [`ratelimit_common::policy::stage`].
#[unsafe(no_mangle)]
pub(crate) static STAGES: Global<u64> = Global::new(0);
/// First half of the key of the table's hash.
#[unsafe(no_mangle)]
pub(crate) static HASH_KEY_0: Global<u64> = Global::new(0);
/// Second half of it.
#[unsafe(no_mangle)]
pub(crate) static HASH_KEY_1: Global<u64> = Global::new(0);
/// `CLOCK_MONOTONIC` in nanoseconds when the table was made: the zero of ticks.
#[unsafe(no_mangle)]
pub(crate) static EPOCH: Global<u64> = Global::new(0);
/// Number of sets in the table, a power of two, minus 1.
#[unsafe(no_mangle)]
pub(crate) static SET_MASK: Global<u64> = Global::new(0);
/// Number of sets in the operator's table of blocked addresses.
#[unsafe(no_mangle)]
pub(crate) static BLOCK_SETS: Global<u32> = Global::new(0);
/// Bits of an IPv4 source that make one client.
#[unsafe(no_mangle)]
pub(crate) static SOURCE_BITS_V4: Global<u32> = Global::new(0);
/// Bits of an IPv6 source that make one client.
#[unsafe(no_mangle)]
pub(crate) static SOURCE_BITS_V6: Global<u32> = Global::new(0);
/// One of [`ratelimit_common::policy::when_full`].
#[unsafe(no_mangle)]
pub(crate) static WHEN_FULL: Global<u32> = Global::new(0);
