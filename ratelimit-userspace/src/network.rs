//! Layer 3 and 4: everything that touches bpf(2). A [`config::policy::Network`](crate::config::policy::Network)
//! is [`compile`]d to maps and constants, loaded as a [`program`], and attached by [`links`]; [`state`] is
//! what outlives the process, [`description`] says what runs, [`counters`] reads what it counted.

pub mod compile;
pub mod counters;
pub mod description;
pub mod interfaces;
pub mod kernel;
pub mod links;
pub mod lists;
pub mod program;
pub mod state;
