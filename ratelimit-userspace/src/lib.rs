//! The userspace half of `ratelimit`: rules from disk into the kernel, counters out of it, and limits on
//! requests.
//!
//! Arrows run one way: [`daemon`], [`escalate`] and [`replay`] use [`network`] and [`http`], which use [`config`] and know
//! nothing of each other. Only the modules under [`network`] touch bpf(2).

pub mod admin;
pub mod config;
pub mod crowdsec;
pub mod daemon;
pub mod escalate;
pub mod http;
pub mod network;
pub mod replay;
pub mod text;
mod whole_file;
