//! Who sends to the protected host, and what each may.

use std::net::IpAddr;

use xtask::lab::frame;

use crate::host::Host;

/// What a source of the rule `fast` may send.
pub(crate) const RATE: u64 = 300;
pub(crate) const BURST: u64 = 50;
/// What a source of the rule `slow` may send in an hour, and what all sources of the rule `shared` may.
pub(crate) const SLOW: u64 = 5;
pub(crate) const SHARED: u64 = 20;

/// A kind of sender. Each sends to a port of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// An address of the client's own that stays well within its limit.
    Honest,
    /// Floods against a bucket that fills again quickly.
    Fast,
    /// Floods against one that is empty for hours.
    Slow,
    /// Floods against one that all sources share.
    Shared,
    /// Floods from an address that is always denied.
    Denied,
    /// As `Fast`, but at times denied.
    Listed,
    /// As `Fast`, but blocked by a command at the beginning.
    Blocked,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Party {
    pub(crate) role: Role,
    pub(crate) address: IpAddr,
}

impl Role {
    /// Which rule its packets meet when no list has the source.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Fast | Self::Denied | Self::Listed | Self::Blocked => "fast",
            Self::Slow => "slow",
            Self::Shared => "shared",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Honest => 5001,
            Self::Fast | Self::Denied | Self::Listed | Self::Blocked => 5002,
            Self::Slow => 5003,
            Self::Shared => 5004,
        }
    }
}

/// All senders; of each role as many by IPv4 as by IPv6.
pub(crate) fn all(host: &Host) -> Vec<Party> {
    let link = &host.lab.link;
    let mut parties = vec![
        Party { role: Role::Honest, address: link.client.ipv4.into() },
        Party { role: Role::Honest, address: link.client.ipv6.into() },
    ];
    let roles = [
        (Role::Fast, 3),
        (Role::Slow, 2),
        (Role::Shared, 2),
        (Role::Denied, 1),
        (Role::Listed, 2),
        (Role::Blocked, 1),
    ];
    let roles = roles.into_iter().flat_map(|(role, count)| std::iter::repeat_n(role, count));
    let sources = frame::sources_v4(16).zip(frame::sources_v6(16));
    for (role, (v4, v6)) in roles.zip(sources) {
        parties.extend([v4, v6].map(|address| Party { role, address }));
    }
    parties
}

/// The policy, in YAML flow style. The list of denied sources is a file beside it.
pub(crate) fn policy() -> String {
    let rule = |role: Role, limit: &str| {
        let (name, port) = (role.rule(), role.port());
        format!(
            "{{ name: {name}, match: {{ protocol: udp, destination_port: {port} }}, limits: [{{ {limit} }}] }}"
        )
    };
    let rules = [
        // A wire holds at most 256 frames, so that is the most that can come at once, however late.
        rule(Role::Honest, "per: source, rate: 1000/s, burst: 1000"),
        rule(Role::Fast, &format!("per: source, rate: {RATE}/s, burst: {BURST}")),
        rule(Role::Slow, &format!("per: source, rate: 1/h, burst: {SLOW}")),
        rule(Role::Shared, &format!("per: rule, rate: 1/h, burst: {SHARED}")),
    ];
    format!(
        "interfaces: [{{ name: eth0, mode: native }}]\n\
         network: {{ sources: {{ capacity: 16384 }}, deny_files: [deny.txt], rules: [\n  {}\n] }}\n",
        rules.join(",\n  ")
    )
}
