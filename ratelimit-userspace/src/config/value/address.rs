//! Addresses and prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::config::diagnostic::{Code, Mistake, Quoted};

/// Bits before the IPv4 address in `::ffff:a.b.c.d` (RFC 4291, section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

/// Reads an address or a prefix without host bits. An address stands for itself alone; an IPv4 address
/// mapped into IPv6 is the IPv4 address.
pub(in crate::config) fn prefix(text: &str) -> Result<IpNet, Mistake> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| not_an_address(text, address))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length = match length.map(|length| prefix_length(length, bits)) {
        None => bits,
        Some(Some(length)) => length,
        Some(None) => {
            let message = format!("{} has no prefix length from 0 to {bits} after the slash", Quoted(text));
            return Err(mistake(message));
        }
    };
    let (address, length) = match address {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if length >= MAPPED_BITS => (IpAddr::V4(v4), length - MAPPED_BITS),
            Some(_) => {
                let message = format!("{} holds IPv4 addresses and others", Quoted(text));
                return Err(mistake(message).expected("an IPv4 prefix, or a length of at least /96"));
            }
            None => (address, length),
        },
        IpAddr::V4(_) => (address, length),
    };
    let network = masked(address, length);
    if network.addr() == address {
        Ok(network)
    } else {
        let message = format!("{} has bits set beyond its prefix length", Quoted(text));
        Err(mistake(message)
            .expected(format!("the prefix {network} or the address {address}"))
            .nearest(Some(network.to_string())))
    }
}

fn mistake(message: String) -> Mistake {
    Mistake::new(Code::BadAddress, message)
}

/// `length` is at most the family's.
fn masked(address: IpAddr, length: u8) -> IpNet {
    let net = match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpNet::new(Ipv4Addr::from(u32::from(v4) & mask).into(), length)
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpNet::new(Ipv6Addr::from(u128::from(v6) & mask).into(), length)
        }
    };
    net.unwrap_or_else(|_| IpNet::from(address))
}

fn prefix_length(text: &str, bits: u8) -> Option<u8> {
    let canonical = super::is_digits(text) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|&length| canonical && length <= bits)
}

/// Names the usual slips.
fn not_an_address(text: &str, address: &str) -> Mistake {
    let mistake = mistake(format!("{} is neither an address nor a prefix", Quoted(text)));
    let meant = if let Some((bare, _zone)) = address.split_once('%') {
        bare.to_owned()
    } else if text != text.trim() || text.contains(' ') {
        text.replace(' ', "")
    } else if let Some(bare) = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        bare.to_owned()
    } else {
        let octet = |part: &str| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0".to_owned(),
            octet => octet.to_owned(),
        };
        let octets: Vec<_> = address.split('.').map(octet).collect();
        text.replacen(address, &octets.join("."), 1)
    };
    let valid = meant != text && meant.len() < text.len() && prefix(&meant).is_ok();
    mistake.nearest(valid.then_some(meant))
}
