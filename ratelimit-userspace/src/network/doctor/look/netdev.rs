//! What drivers say of XDP, from the kernel's generic netlink family `netdev` (Linux 6.3).

use std::{collections::HashMap, io};

use netlink_packet_core::{DecodeError, Emitable, NlasIterator, ParseableParametrized, parse_u32, parse_u64};
use netlink_packet_generic::{GenlFamily, GenlHeader};

use super::ethtool::dump;
use crate::network::doctor::facts::XdpFeatures;

// linux/netdev.h: NETDEV_CMD_DEV_GET, NETDEV_A_DEV_*, and bits of enum netdev_xdp_act.
const DEV_GET: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const BASIC: u64 = 1;
const RX_SG: u64 = 32;

/// A request for all interfaces, or what is told of one.
#[derive(Debug, Default)]
struct Device {
    index: u32,
    features: u64,
}

/// What the driver of each interface can do, by its index.
pub(super) fn xdp_features() -> io::Result<HashMap<u32, XdpFeatures>> {
    let mut all = HashMap::new();
    dump(Device::default(), |Device { index, features }| {
        let features = XdpFeatures { native: features & BASIC != 0, multi_buffer: features & RX_SG != 0 };
        all.insert(index, features);
    })?;
    Ok(all)
}

impl GenlFamily for Device {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        DEV_GET
    }

    fn version(&self) -> u8 {
        1
    }
}

/// The request has no attributes.
impl Emitable for Device {
    fn buffer_len(&self) -> usize {
        0
    }

    fn emit(&self, _: &mut [u8]) {}
}

impl ParseableParametrized<[u8], GenlHeader> for Device {
    fn parse_with_param(payload: &[u8], _: GenlHeader) -> Result<Self, DecodeError> {
        let mut device = Self::default();
        for attribute in NlasIterator::new(payload) {
            let attribute = attribute?;
            match attribute.kind() {
                IFINDEX => device.index = parse_u32(attribute.value())?,
                XDP_FEATURES => device.features = parse_u64(attribute.value())?,
                _ => {}
            }
        }
        Ok(device)
    }
}
