//! Sources, as operators write them and as the maps hold them.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ratelimit_common::{
    address::{Address, Family},
    blocks::Kind,
};

use super::BlocksError;

/// A prefix in the one form that it has here: an IPv4 address mapped into IPv6 is the IPv4 address.
pub(super) fn canonical(prefix: IpNet) -> Result<IpNet, BlocksError> {
    const MAPPED_BITS: u8 = 96;
    if prefix.addr() != prefix.network() {
        return Err(BlocksError::HostBits { prefix, network: prefix.trunc() });
    }
    let IpNet::V6(v6) = prefix else { return Ok(prefix) };
    let Some(v4) = v6.addr().to_ipv4_mapped() else { return Ok(prefix) };
    let length = v6.prefix_len().checked_sub(MAPPED_BITS);
    let v4 = length.and_then(|length| Ipv4Net::new(v4, length).ok());
    v4.map(IpNet::V4).ok_or(BlocksError::Mapped { prefix })
}

/// The address of a prefix that is a single one.
pub(super) fn single(prefix: &IpNet) -> Option<Address> {
    (prefix.prefix_len() == prefix.max_prefix_len()).then(|| address_of(prefix.addr()))
}

pub(in crate::network) fn address_of(address: IpAddr) -> Address {
    match address {
        IpAddr::V4(address) => Address::v4(address.octets()),
        IpAddr::V6(address) => Address::v6(address.octets()),
    }
}

/// The prefix of a length that covers an address.
pub(in crate::network) fn net_of(address: &Address, length: u32) -> IpNet {
    let length = u8::try_from(length).unwrap_or(u8::MAX);
    match address.family {
        Family::V4 => {
            let address = address.v4_octets().into();
            Ipv4Net::new(address, length).unwrap_or_else(|_| address.into()).trunc().into()
        }
        Family::V6 => {
            let address = address.v6_octets().into();
            Ipv6Net::new(address, length).unwrap_or_else(|_| address.into()).trunc().into()
        }
    }
}

pub(super) fn kind(prefix: &IpNet) -> Kind {
    let is_single = prefix.prefix_len() == prefix.max_prefix_len();
    match (prefix, is_single) {
        (IpNet::V4(_), true) => Kind::V4,
        (IpNet::V6(_), true) => Kind::V6,
        (IpNet::V4(_), false) => Kind::PrefixV4,
        (IpNet::V6(_), false) => Kind::PrefixV6,
    }
}
