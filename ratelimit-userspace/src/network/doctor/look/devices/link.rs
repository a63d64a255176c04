//! An interface as rtnetlink shows it.

use netlink_packet_route::link::{
    BondMode, BondXmitHashPolicy, InfoBond, InfoData, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType,
    LinkMessage,
};

use crate::network::interfaces::{Attached, Interface};

/// What rtnetlink shows of one interface.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) programs: Vec<Attached>,
    pub(super) up: bool,
    pub(super) no_ethernet: bool,
    pub(super) kind: String,
    pub(super) lower: Option<u32>,
    pub(super) upper: Option<u32>,
    pub(super) bond_mode_without_native: Option<String>,
    /// The bus and the name of the device on it.
    pub(super) parent: Option<(String, String)>,
    pub(super) received: u64,
    pub(super) missed: u64,
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let layer = message.header.link_layer_type;
        let mut link = Self {
            up: message.header.flags.contains(LinkFlags::Up),
            no_ethernet: !matches!(layer, LinkLayerType::Ether | LinkLayerType::Loopback),
            ..Self::default()
        };
        let (mut bus, mut device) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Link(index) => link.lower = Some(*index),
                LinkAttribute::Controller(index) => link.upper = Some(*index),
                LinkAttribute::ParentDevName(name) => device = Some(name.clone()),
                LinkAttribute::ParentDevBusName(name) => bus = Some(name.clone()),
                LinkAttribute::LinkInfo(info) => link.read_info(info),
                LinkAttribute::Stats64(statistics) => {
                    (link.received, link.missed) = (statistics.rx_packets, statistics.rx_missed_errors);
                }
                _ => {}
            }
        }
        link.parent = bus.zip(device);
        let Interface { index, name, mtu, programs, .. } = Interface::from(message);
        Self { index, name, mtu, programs, ..link }
    }
}

impl Link {
    fn read_info(&mut self, info: &[LinkInfo]) {
        for info in info {
            match info {
                LinkInfo::Kind(kind) => self.kind = kind.to_string(),
                LinkInfo::Data(InfoData::Bond(bond)) => self.bond_mode_without_native = without_native(bond),
                _ => {}
            }
        }
    }
}

/// The mode of a bond, if it has no native XDP (`bond_xdp_check` in the kernel's
/// `drivers/net/bonding/bond_main.c`).
fn without_native(bond: &[InfoBond]) -> Option<String> {
    let mode = bond.iter().find_map(|attribute| match attribute {
        InfoBond::Mode(mode) => Some(*mode),
        _ => None,
    })?;
    let by_vlan = bond.contains(&InfoBond::XmitHashPolicy(BondXmitHashPolicy::VlanSrcMac));
    let name = match mode {
        BondMode::BalanceXor if by_vlan => "balance-xor with xmit_hash_policy vlan+srcmac",
        BondMode::Ieee8023Ad if by_vlan => "802.3ad with xmit_hash_policy vlan+srcmac",
        BondMode::Broadcast => "broadcast",
        BondMode::BalanceTlb => "balance-tlb",
        BondMode::BalanceAlb => "balance-alb",
        _ => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bonds_have_native_xdp_in_the_modes_of_the_kernel() {
        let mode = |mode| without_native(&[InfoBond::Mode(mode)]);
        for native in
            [BondMode::BalanceRr, BondMode::ActiveBackup, BondMode::BalanceXor, BondMode::Ieee8023Ad]
        {
            assert_eq!(mode(native), None);
        }
        for (without, name) in [
            (BondMode::Broadcast, "broadcast"),
            (BondMode::BalanceTlb, "balance-tlb"),
            (BondMode::BalanceAlb, "balance-alb"),
        ] {
            assert_eq!(mode(without).as_deref(), Some(name));
        }
        let by_vlan =
            [InfoBond::Mode(BondMode::Ieee8023Ad), InfoBond::XmitHashPolicy(BondXmitHashPolicy::VlanSrcMac)];
        assert!(without_native(&by_vlan).is_some_and(|mode| mode.contains("vlan+srcmac")));
    }

    #[test]
    fn frames_of_tunnels_without_a_link_layer_are_recognised() {
        let with = |layer| {
            let mut message = LinkMessage::default();
            message.header.link_layer_type = layer;
            Link::from(message).no_ethernet
        };
        assert!(with(LinkLayerType::None) && with(LinkLayerType::Ppp) && with(LinkLayerType::Tunnel));
        assert!(!with(LinkLayerType::Ether) && !with(LinkLayerType::Loopback));
    }
}
