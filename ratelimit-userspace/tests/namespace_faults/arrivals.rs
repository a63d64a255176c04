//! What arrives behind the limiter, counted by the kernel at the next hook that a packet passes, so that
//! nothing is lost to a reader that is late.

use std::{fmt::Write as _, net::IpAddr, process::Command};

use serde_json::Value;
use xtask::lab::capture;

use crate::{
    host::Host,
    party::{Party, Role},
};

const TABLE: &str = "arrivals";

/// Counts the packets of each party from now on, and keeps those of the flood from the sockets: nobody has to
/// refuse them.
pub(crate) fn count(host: &Host, parties: &[Party]) {
    let (mut counters, mut rules) = (String::new(), String::new());
    for (number, Party { role, address }) in parties.iter().enumerate() {
        let family = match address {
            IpAddr::V4(_) => "ip",
            IpAddr::V6(_) => "ip6",
        };
        let (port, verdict) = (role.port(), if *role == Role::Honest { "accept" } else { "drop" });
        let _ = writeln!(counters, "counter party{number} {{ }}");
        let _ =
            writeln!(rules, "{family} saddr {address} udp dport {port} counter name party{number} {verdict}");
    }
    let table = format!(
        "table netdev {TABLE} {{
            {counters}
            chain ingress {{ type filter hook ingress device eth0 priority 0; {rules} }}
        }}"
    );
    nft(host, &[&table]);
}

/// Packets of each party that arrived so far.
pub(crate) fn read(host: &Host, parties: &[Party]) -> Vec<u64> {
    let text = nft(host, &["--json", "list", "counters", "table", "netdev", TABLE]);
    let list: Value = serde_json::from_str(&text).expect("nft prints JSON");
    let counters = list["nftables"].as_array().expect("a list");
    let packets = |number: usize| {
        let name = format!("party{number}");
        let counter = counters.iter().map(|item| &item["counter"]).find(|item| item["name"] == *name);
        counter.and_then(|counter| counter["packets"].as_u64()).expect("the counter is there")
    };
    (0..parties.len()).map(packets).collect()
}

fn nft(host: &Host, arguments: &[&str]) -> String {
    let mut command: Command = host.lab.server.command("nft");
    capture(command.args(arguments)).expect("nft does it")
}
