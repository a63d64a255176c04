//! `ratelimit replay`, run as the binary it is on recordings written here. What judges packets needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test replay -- --include-ignored
//! ```

mod capture;
mod failures;
#[path = "../program/frame.rs"]
#[expect(dead_code, reason = "the tests of the program use the rest")]
mod frame;
mod judgement;
mod recording;
mod requests;
