//! Real traffic between network namespaces, through the `ratelimit` binary and the program that it attached:
//! what arrives, what is shed, and that the counters tell the same. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_traffic -- --include-ignored
//! ```

#[path = "namespace_traffic/client.rs"]
mod client;
#[path = "namespace_traffic/flood.rs"]
mod flood;
#[path = "namespace_traffic/frames.rs"]
mod frames;
#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_lifecycle/host.rs"]
mod host;
#[path = "namespace_traffic/ledger.rs"]
mod ledger;
#[path = "namespace_traffic/neighbours.rs"]
mod neighbours;
#[path = "namespace_traffic/restart.rs"]
mod restart;
#[path = "namespace_traffic/sockets.rs"]
mod sockets;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A policy for the protected end of the wire, in YAML flow style, with a small table.
fn policy(mode: &str, network: &str) -> String {
    format!(
        "interfaces: [{{ name: eth0, mode: {mode} }}]\nnetwork: {{ sources: {{ capacity: 16384 }}, {network} }}\n"
    )
}

/// Asks again until there is an answer.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
