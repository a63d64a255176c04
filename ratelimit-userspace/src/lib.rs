//! The userspace half of `ratelimit`: rules from disk into the kernel, counters out of it.
//!
//! Arrows run one way: [`daemon`] and [`replay`] use [`network`], which uses [`config`]. Only the modules
//! under [`network`] touch bpf(2).

pub mod config;
pub mod daemon;
pub mod network;
pub mod replay;
