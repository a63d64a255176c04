//! What both sides of the kernel boundary share: packet parsing, the token bucket and the table that
//! holds buckets, the compiled policy and the counters.
//!
//! Everything here is pure: time, state and bytes come in as arguments, so the code that decides in the
//! kernel is the code that runs under proptest, loom and the fuzzer. Map layouts (`policy`, `record`)
//! are `repr(C)` without padding; [`record::ABI_VERSION`] changes when any of them does.

#![no_std]

pub mod address;
pub mod block_table;
pub mod blocks;
pub mod bucket_table;
pub mod charge;
pub mod gcra;
pub mod offenders;
pub mod overrides;
pub mod packet;
pub mod policy;
pub mod record;
pub mod sample;
pub mod sampler;
