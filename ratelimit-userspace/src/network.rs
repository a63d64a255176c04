//! Layer 3 and 4: everything that touches bpf(2). A [`config::policy::Network`](crate::config::policy::Network)
//! is [`compile`]d to maps and constants, loaded as a [`program`], and attached by [`links`]; [`state`] is
//! what outlives the process, [`description`] says what runs, [`counters`] reads what it counted, and
//! [`blocks`] change while it runs.

pub mod blocks;
pub mod buckets;
pub mod compile;
pub mod counters;
pub mod description;
pub mod doctor;
pub mod explain;
pub mod follow;
pub mod in_force;
pub mod interfaces;
pub mod kernel;
pub mod links;
pub mod lists;
pub mod lockout;
pub mod mapping;
pub mod next;
pub mod overrides;
pub mod program;
pub mod samples;
pub mod show;
pub mod state;
pub mod talkers;
pub mod trace;
pub mod trial;
