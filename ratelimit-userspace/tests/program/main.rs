//! The real program on real frames, by `BPF_PROG_TEST_RUN`, attached to nothing and mostly on a virtual
//! clock: rules files in, verdicts and counters out. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test program -- --include-ignored
//! ```

mod adoption;
mod blocks;
mod counters;
mod frame;
mod full_table;
mod layer3;
mod limiter;
mod malformed;
mod management;
mod matches;
mod next;
mod processors;
mod rates;
mod rule_blocks;
mod sampling;
mod verifier;
