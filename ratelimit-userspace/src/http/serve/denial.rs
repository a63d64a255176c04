//! Who hears of a denial: whoever has the packets of such clients shed.

use std::net::IpAddr;

use super::listener::Peer;
use crate::{
    config::http::ADDRESS_KEYS,
    http::{
        ask::{Answer, Ask, Client, Whose},
        clock::Now,
        witness::Witness,
    },
};

/// Tells of a request that was denied, once for each rule that denied it and escalates.
///
/// Only askers on this host are heard: the packets of clients elsewhere do not arrive here. What is only read
/// or given back is no request, and neither is one that was denied for want of memory.
pub(super) fn tell(witness: &dyn Witness, ask: &Ask<'_>, answer: &Answer, peer: Peer, now: Now) {
    if ask.peek || answer.refusal.is_some() || !peer.is_here() {
        return;
    }
    let denied = ask.descriptors.iter().zip(&answer.statuses).filter_map(|(descriptor, status)| {
        let rule = status.rule.as_deref().filter(|rule| rule.policy.escalate.is_some());
        rule.filter(|_| !status.allowed && descriptor.hits > 0)
    });
    let mut client = None;
    for (index, rule) in denied.clone().enumerate() {
        if denied.clone().take(index).any(|told| std::ptr::eq(told, rule)) {
            continue;
        }
        if client.is_none() {
            client = client_of(ask);
        }
        let Some(client) = client else { return };
        witness.denied(client, rule, now);
    }
}

/// Tells of an identity that is known to be behind an address, whatever becomes of its request.
pub(super) fn tell_of_identity(witness: &dyn Witness, ask: &Ask<'_>, peer: Peer, now: Now) {
    if let Whose::Client(Some(Client { address, identity: Some(identity) })) = ask.whose
        && peer.is_here()
    {
        witness.identified(address, identity, now);
    }
}

fn client_of(ask: &Ask<'_>) -> Option<IpAddr> {
    match ask.whose {
        Whose::Client(client) => client.map(|client| client.address),
        Whose::Described => {
            let mut entries = ask.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
            entries
                .find(|entry| ADDRESS_KEYS.contains(&&*entry.key))
                .and_then(|entry| entry.value.parse().ok())
        }
    }
}

// === impl Peer ===

impl Peer {
    /// Whether it is on this host.
    fn is_here(self) -> bool {
        match self {
            Self::Unix => true,
            Self::Address(address) => address.is_loopback(),
        }
    }
}

#[cfg(test)]
mod tests;
