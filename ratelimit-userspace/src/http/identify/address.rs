//! Addresses: one form for each, and what is a client of them.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A prefix, as IPv4 if it holds nothing but IPv4 addresses in IPv6 form. Host bits are zero.
pub(super) fn canonical_prefix(prefix: IpNet) -> IpNet {
    match prefix.trunc() {
        IpNet::V6(net) if net.prefix_len() >= 96 => {
            let mapped = net.addr().to_ipv4_mapped();
            let v4 = mapped.and_then(|address| Ipv4Net::new(address, net.prefix_len() - 96).ok());
            v4.map_or(IpNet::V6(net), IpNet::V4)
        }
        other => other,
    }
}

/// An address of a forwarding header (RFC 7239, section 6): with or without a port, IPv6 with or without
/// brackets. Obfuscated and unknown ones are none, as are addresses with a zone: it means nothing here.
pub(super) fn node(text: &[u8]) -> Option<IpAddr> {
    // Longer than any address with any port.
    const LONGEST: usize = 128;
    let text = str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST)?;
    let address = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return None;
        }
        IpAddr::V6(address.parse::<Ipv6Addr>().ok()?)
    } else {
        match text.split_once(':') {
            Some((address, port)) if !port.contains(':') => {
                IpAddr::V4(address.parse().ok().filter(|_| is_port(port))?)
            }
            _ => text.parse().ok()?,
        }
    };
    Some(address.to_canonical())
}

/// A number of at most five digits, or an obfuscated port.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// The prefix that an address belongs to; the address alone if the prefix is that long.
pub(super) fn client(address: IpAddr, ipv4_prefix: u8, ipv6_prefix: u8) -> String {
    let (prefix, whole) = match address {
        IpAddr::V4(v4) => (Ipv4Net::new(v4, ipv4_prefix).ok().map(IpNet::V4), 32),
        IpAddr::V6(v6) => (Ipv6Net::new(v6, ipv6_prefix).ok().map(IpNet::V6), 128),
    };
    match prefix {
        Some(prefix) if prefix.prefix_len() < whole => prefix.trunc().to_string(),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests;
