//! The lock-out guard: whether a change would shed the very connection through which it is asked for.
//!
//! It keeps people from a slip, not from themselves: what it goes by is the environment of the asker's
//! processes, and whoever insists has `--force`.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ipnet::IpNet;
use ratelimit_common::{
    address::Address,
    packet::{ABSENT, Fragment, Packet},
    policy::{action, stage},
    record::Reason,
};

use super::compile::Compiled;
use crate::config::policy::Network;

#[cfg(test)]
mod tests;

/// What sshd tells the processes of a connection: client address, client port, server address, server port.
const SSH_CONNECTION: &[u8] = b"SSH_CONNECTION=";
/// Where operators come in, when their connection does not say.
const SSH_PORT: u16 = 22;
/// More parents than any process has: they may change while they are followed.
const MAX_PARENTS: usize = 256;

const TCP: u32 = 6;
const SYN: u32 = 0x02;
const PSH: u32 = 0x08;
const ACK: u32 = 0x10;
/// What a connection needs to stand and to be made again: the flags and the length of a frame over IPv4, as
/// Linux sends it with timestamps; the last is a keystroke.
const SEGMENTS: [(u32, u32); 3] = [(SYN, 74), (ACK, 66), (PSH | ACK, 102)];
/// The header of IPv6 is that much longer.
const LONGER_IN_IPV6: u32 = 20;

/// An operator's own connection to this host, which a change should not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Where the operator sits.
    pub client: SocketAddr,
    /// The end of the connection on this host, where known.
    pub server: Option<SocketAddr>,
}

/// The SSH connection that a process belongs to: the nearest one that it or one of its parents was told of.
/// `sudo` and `su` clear the environment of what they start, not their own.
pub fn session_of(pid: u32) -> Option<Session> {
    let mut pid = pid;
    for _ in 0..MAX_PARENTS {
        // The first process belongs to nobody's connection.
        if pid <= 1 {
            return None;
        }
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if let Some(session) = in_environment(&environment) {
            return Some(session);
        }
        pid = parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    }
    None
}

/// Which list or rule of a policy would shed a connection, in words that follow a colon.
///
/// Only what is certain counts: lists, and rules with a rate of zero, neither in a policy that only monitors.
/// Packets on the loopback interface are nobody's to shed.
pub fn policy_sheds(compiled: &Compiled, session: &Session) -> Option<String> {
    let ends = Ends::of(session);
    if compiled.stages & stage::MONITOR != 0 || ends.client.ip().is_loopback() {
        return None;
    }
    segments(&ends).into_iter().find_map(|(packet, length)| match compiled.lists.judge(&packet) {
        Some(Reason::Denied) => Some(format!("`deny` covers {}", ends.client.ip())),
        Some(_) => None,
        None => {
            let index = compiled.classify(&packet, length)?;
            let rule = &compiled.rules[index];
            let sheds = rule.zero_limit != 0 && rule.action == action::SHED;
            let name = &compiled.descriptions[index].name;
            let port = ends.server.port();
            sheds.then(|| {
                format!(
                    "the rule `{name}` has a rate of zero and meets {} to port {port}",
                    words(packet.tcp_flags)
                )
            })
        }
    })
}

/// Whether a block of `prefix` would shed a connection, unless `network` keeps it safe from blocks. A block
/// may outlive a mode: that the policy only monitors makes nobody safe.
pub fn block_sheds(prefix: &IpNet, network: &Network, session: &Session) -> bool {
    let Ends { client, server } = Ends::of(session);
    let address = client.ip();
    let allowed = network.allow.iter().any(|allow| allow.contains(&address));
    let managed = network.management.iter().any(|entry| {
        entry.prefix.contains(&address) && entry.ports.iter().any(|ports| ports.contains(&server.port()))
    });
    prefix.contains(&address) && !address.is_loopback() && !allowed && !managed
}

/// Both ends of a connection, of one family.
struct Ends {
    client: SocketAddr,
    server: SocketAddr,
}

// === impl Ends ===

impl Ends {
    /// Where the end on this host is not known, it is the port of SSH at an address that no rule names.
    fn of(session: &Session) -> Self {
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        let client = canonical(session.client);
        let nowhere = match client.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let server = match session.server.map(canonical) {
            Some(server) if server.is_ipv4() == client.is_ipv4() => server,
            Some(server) => SocketAddr::new(nowhere, server.port()),
            None => SocketAddr::new(nowhere, SSH_PORT),
        };
        Self { client, server }
    }
}

/// The packets that a connection needs, from the client, with the lengths of their frames.
fn segments(ends: &Ends) -> [(Packet, u32); 3] {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => Address::v4(address.octets()),
        IpAddr::V6(address) => Address::v6(address.octets()),
    };
    let Ends { client, server } = ends;
    let longer = if client.is_ipv6() { LONGER_IN_IPV6 } else { 0 };
    SEGMENTS.map(|(tcp_flags, length)| {
        let packet = Packet {
            source: address(client.ip()),
            destination: address(server.ip()),
            protocol: TCP,
            source_port: client.port().into(),
            destination_port: server.port().into(),
            tcp_flags,
            icmp_type: ABSENT,
            vlan: ABSENT,
            fragment: Fragment::None,
            neighbour: false,
            malformed: None,
            chain_too_long: false,
            cut: false,
        };
        (packet, length + longer)
    })
}

fn words(tcp_flags: u32) -> &'static str {
    if tcp_flags & SYN != 0 { "new connections (SYN)" } else { "its segments (ACK)" }
}

/// The connection that an environment, `NAME=value` and a zero byte each, tells of.
fn in_environment(environment: &[u8]) -> Option<Session> {
    let value = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(SSH_CONNECTION))?;
    let mut words = str::from_utf8(value).ok()?.split_ascii_whitespace();
    let mut end = || {
        let address = words.next()?;
        // A zone id says which link a link-local address is on; packets do not carry it.
        let address = address.split_once('%').map_or(address, |(address, _zone)| address);
        Some(SocketAddr::new(address.parse().ok()?, words.next()?.parse().ok()?))
    };
    Some(Session { client: end()?, server: end() })
}

/// The parent in a `/proc/PID/stat`: `PID (NAME) STATE PARENT …`, where the name may hold anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}
