//! Whose packets are never shed for what requests did, and how much of an address makes a client.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::policy::Network;

/// Why a client is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exempt {
    /// Packets of this host to itself.
    Loopback,
    /// No client has such an address: it is unspecified, multicast or broadcast.
    NoClient,
    /// An address of this host.
    Own,
    /// In `trusted_proxies`: what it passes on are the requests of others.
    TrustedProxy,
    /// In `allow`.
    Allowed,
    /// In the prefix of a `management` entry.
    Management,
    /// Several identities that are known live there, and no rule is named to put them under.
    Shared,
}

/// Those who are left alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exempted<'a> {
    pub(super) network: &'a Network,
    pub(super) trusted_proxies: &'a [IpNet],
    /// The addresses of this host.
    pub(super) own: &'a [IpAddr],
}

/// Everybody of an address who is one client to the rules on packets, for IPv6; an IPv4 address stands for
/// itself alone.
pub(super) fn client(address: IpAddr, ipv6_prefix: u8) -> IpNet {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => IpNet::from(address),
        address @ IpAddr::V6(_) => {
            IpNet::new(address, ipv6_prefix).map_or_else(|_| IpNet::from(address), |client| client.trunc())
        }
    }
}

// === impl Exempt ===

impl Exempt {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Loopback => "it is the loopback",
            Self::NoClient => "no client has such an address",
            Self::Own => "it is an address of this host",
            Self::TrustedProxy => "it is in `trusted_proxies`",
            Self::Allowed => "it is in `allow`",
            Self::Management => "it is in `management`",
            Self::Shared => "several identities that are known live there",
        }
    }
}

// === impl Exempted ===

impl Exempted<'_> {
    /// Why an address is left alone.
    pub(super) fn why(&self, address: IpAddr) -> Option<Exempt> {
        let address = address.to_canonical();
        let holds = |prefix: &IpNet| prefix.contains(&address);
        if address.is_loopback() {
            Some(Exempt::Loopback)
        } else if address.is_unspecified() || address.is_multicast() || is_broadcast(address) {
            Some(Exempt::NoClient)
        } else if self.own.contains(&address) {
            Some(Exempt::Own)
        } else if self.trusted_proxies.iter().any(holds) {
            Some(Exempt::TrustedProxy)
        } else if self.network.allow.iter().any(holds) {
            Some(Exempt::Allowed)
        } else if self.network.management.iter().any(|entry| holds(&entry.prefix)) {
            Some(Exempt::Management)
        } else {
            None
        }
    }

    /// What is shed of a client: all of it, or only the address that offended where somebody who is left alone
    /// is within it, such as this host itself.
    pub(super) fn prefix(&self, client: IpNet, address: IpAddr) -> IpNet {
        let within = |prefix: &IpNet| client.contains(prefix);
        let management = self.network.management.iter().map(|entry| &entry.prefix);
        let spares = self.own.iter().any(|own| client.contains(own))
            || self.trusted_proxies.iter().chain(&self.network.allow).chain(management).any(within);
        if spares { IpNet::from(address.to_canonical()) } else { client }
    }
}

fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_broadcast())
}

#[cfg(test)]
mod tests;
