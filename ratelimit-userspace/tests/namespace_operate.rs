//! A daemon that is operated: files that change, blocks, trials, a next program, and what must stay reachable.
//! In real network namespaces, through the `ratelimit` binary. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_operate -- --include-ignored
//! ```

#[path = "namespace_operate/blocks.rs"]
mod blocks;
#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_lifecycle/host.rs"]
mod host;
#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_traffic/ledger.rs"]
mod ledger;
#[path = "namespace_operate/management.rs"]
mod management;
#[path = "namespace_operate/next.rs"]
mod next;
#[path = "namespace_operate/reload.rs"]
mod reload;
#[path = "namespace_operate/terminal.rs"]
mod terminal;
#[path = "namespace_operate/trial.rs"]
mod trial;
#[path = "namespace_operate/watching.rs"]
mod watching;

use std::{
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use host::Host;
use serde_json::Value;

/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// A policy for `eth0`, in YAML flow style, with a small table.
fn policy(network: &str) -> String {
    format!("interfaces: [{{ name: eth0 }}]\nnetwork: {{ sources: {{ capacity: 1024 }}, {network} }}\n")
}

/// So many datagrams of a source pass, and for an hour none after them.
fn datagrams(burst: u64) -> String {
    let limit = format!("per: source, rate: 1/h, burst: {burst}");
    format!("rules: [{{ name: udp, match: {{ protocol: udp }}, limits: [{{ {limit} }}] }}]")
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

/// Names the host's daemon to a verb.
fn address(command: &mut Command, host: &Host) {
    command.arg("--admin-socket").arg(host.file("admin.sock")).arg("--pin-dir").arg(host.pin_dir());
}

/// Runs a verb to its end, with the socket of the host's daemon.
fn run(host: &Host, arguments: &[&str]) -> Output {
    let socket = host.file("admin.sock");
    let socket = socket.to_str().expect("text");
    host.verb(&[arguments, &["--admin-socket", socket]].concat())
}

/// What a verb that succeeds prints.
fn tell(host: &Host, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(host, arguments);
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// Why a verb fails.
fn refusal(host: &Host, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = run(host, arguments);
    assert_eq!(status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&stdout));
    String::from_utf8(stderr).expect("text")
}

/// What a verb that succeeds prints with `--json`.
fn json(host: &Host, arguments: &[&str]) -> Value {
    serde_json::from_str(&tell(host, &[arguments, &["--json"]].concat())).expect("JSON")
}
