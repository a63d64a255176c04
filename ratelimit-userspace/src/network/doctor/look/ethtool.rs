//! Offloads and queues, from the kernel's generic netlink family `ethtool`: one dump for all interfaces.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    io,
};

use ethtool::{
    EthtoolAttr, EthtoolChannelAttr, EthtoolFeatureAttr, EthtoolFeatureBit, EthtoolHeader, EthtoolMessage,
};
use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_DUMP, ParseableParametrized};
use netlink_packet_generic::{
    GenlFamily, GenlHeader, GenlMessage,
    ctrl::{GenlCtrl, GenlCtrlCmd, nlas::GenlCtrlAttrs},
};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::network::{doctor::facts::Channels, interfaces::exchange};

/// The names of offloads of an interface.
#[derive(Debug, Default)]
pub(super) struct Features {
    /// Those that are on.
    pub(super) active: BTreeSet<String>,
    /// Those that cannot be changed.
    pub(super) fixed: BTreeSet<String>,
}

/// Offloads, by the index of the interface.
pub(super) fn features() -> io::Result<HashMap<u32, Features>> {
    let mut all = HashMap::new();
    dump(EthtoolMessage::new_feature_get(None), |message| {
        let mut index = None;
        let mut features = Features::default();
        let names = |bits: Vec<EthtoolFeatureBit>| {
            bits.into_iter().filter(|bit| bit.value).map(|bit| bit.name).collect()
        };
        for attribute in message.nlas {
            match attribute {
                EthtoolAttr::Feature(EthtoolFeatureAttr::Header(header)) => index = index_in(&header),
                EthtoolAttr::Feature(EthtoolFeatureAttr::Active(bits)) => features.active = names(bits),
                EthtoolAttr::Feature(EthtoolFeatureAttr::NoChange(bits)) => features.fixed = names(bits),
                _ => {}
            }
        }
        all.extend(index.map(|index| (index, features)));
    })?;
    Ok(all)
}

/// Queues, by the index of the interface; those whose driver does not tell are left out.
pub(super) fn channels() -> io::Result<HashMap<u32, Channels>> {
    let mut all = HashMap::new();
    dump(EthtoolMessage::new_channel_get(None), |message| {
        let mut index = None;
        let (mut rx, mut combined) = ((0, 0), (0, 0));
        for attribute in message.nlas {
            match attribute {
                EthtoolAttr::Channel(EthtoolChannelAttr::Header(header)) => index = index_in(&header),
                EthtoolAttr::Channel(EthtoolChannelAttr::RxCount(count)) => rx.0 = count,
                EthtoolAttr::Channel(EthtoolChannelAttr::RxMax(count)) => rx.1 = count,
                EthtoolAttr::Channel(EthtoolChannelAttr::CombinedCount(count)) => combined.0 = count,
                EthtoolAttr::Channel(EthtoolChannelAttr::CombinedMax(count)) => combined.1 = count,
                _ => {}
            }
        }
        let is_combined = combined.1 > 0;
        let receive_max = if is_combined { combined.1 } else { rx.1 };
        let channels = Channels { receive: rx.0 + combined.0, receive_max, combined: is_combined };
        all.extend(index.map(|index| (index, channels)));
    })?;
    Ok(all)
}

fn index_in(header: &[EthtoolHeader]) -> Option<u32> {
    header.iter().find_map(|attribute| match attribute {
        EthtoolHeader::DevIndex(index) => Some(*index),
        _ => None,
    })
}

/// Asks a family for all that it has.
pub(super) fn dump<F>(request: F, mut receive: impl FnMut(F)) -> io::Result<()>
where
    F: GenlFamily + Emitable + ParseableParametrized<[u8], GenlHeader> + Debug,
{
    let mut message = GenlMessage::from_payload(request);
    message.set_resolved_family_id(family(F::family_name())?);
    exchange(NETLINK_GENERIC, message, NLM_F_DUMP, |answer| receive(answer.payload))
}

/// The number that the kernel gave to a family.
fn family(name: &str) -> io::Result<u16> {
    let attributes = vec![GenlCtrlAttrs::FamilyName(name.to_owned())];
    let request = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: attributes });
    let mut number = None;
    exchange(NETLINK_GENERIC, request, NLM_F_ACK, |answer| {
        number = answer.payload.nlas.into_iter().find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(number) => Some(number),
            _ => None,
        });
    })?;
    number.ok_or_else(|| io::Error::other(format!("the kernel has no netlink family `{name}`")))
}
