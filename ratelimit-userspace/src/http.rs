//! Limits on requests: `identify -> descriptors -> rules -> plan -> commit -> answer`.
//!
//! Nothing here knows of BPF. [`algorithm`] decides, given state, time and cost; [`rules`] finds what
//! applies; [`limiter`] puts both together over a [`store`]; [`identify`] turns a request into
//! descriptors; `serve` is how others ask.

#![forbid(unsafe_code)]

pub mod algorithm;
pub mod ask;
pub mod client;
pub mod clock;
pub mod explain;
pub mod identify;
pub mod limiter;
pub mod metrics;
pub mod reserve;
pub mod rules;
pub mod serve;
pub mod store;
pub mod trace;
pub mod wire;
pub mod witness;
pub mod words;
