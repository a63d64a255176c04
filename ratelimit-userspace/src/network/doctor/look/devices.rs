//! The interfaces of this network namespace: rtnetlink first, then what other places know of each.

mod link;
mod sysfs;

use std::{collections::HashMap, fmt::Display, io};

use aya::programs::loaded_programs;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use self::link::Link;
use super::{ethtool, netdev};
use crate::network::{
    doctor::facts::{Device, Program, Unseen},
    interfaces::exchange,
    links::{Links, Standing},
    state::StateDir,
};

pub(super) fn look(state: &StateDir, hidden: bool, unseen: &mut Vec<Unseen>) -> Vec<Device> {
    let mut tell = |what: &str, why: &dyn Display| {
        unseen.push(Unseen { what: what.to_owned(), why: why.to_string() });
    };
    let links = list().unwrap_or_else(|error| {
        tell("the network interfaces", &error);
        Vec::new()
    });
    let mut features = ethtool::features()
        .inspect_err(|error| tell("the offloads of interfaces", error))
        .unwrap_or_default();
    let channels =
        ethtool::channels().inspect_err(|error| tell("the queues of interfaces", error)).unwrap_or_default();
    // Kernels before 6.3 do not tell, and then it is found out by attaching.
    let xdp = netdev::xdp_features().unwrap_or_default();
    let standing = (!hidden).then(|| Links::new(state.links()).standing().unwrap_or_default());
    let names = if links.iter().any(|link| !link.programs.is_empty()) { names() } else { HashMap::new() };

    let name_of = |index: u32| links.iter().find(|link| link.index == index).map(|link| &link.name);
    let devices = links.iter().map(|link| {
        let Link { index, name, mtu, up, no_ethernet, kind, .. } = link;
        let features = features.remove(index);
        let upper = link.upper.and_then(|upper| links.iter().find(|link| link.index == upper));
        let programs = link.programs.iter().map(|program| Program {
            id: program.program_id,
            name: names.get(&program.program_id).cloned(),
            mode: program.mode,
            ours: standing.as_ref().map(|standing| is_ours(standing, name, program.program_id)),
        });
        Device {
            index: *index,
            name: name.clone(),
            mtu: *mtu,
            up: *up,
            no_ethernet: *no_ethernet,
            kind: kind.clone(),
            driver: link.parent.as_ref().and_then(sysfs::driver),
            lower: link.lower.and_then(name_of).cloned(),
            upper: upper.map(|upper| (upper.name.clone(), upper.kind.clone())),
            bond_mode_without_native: link.bond_mode_without_native.clone(),
            programs: programs.collect(),
            channels: channels.get(index).copied(),
            fixed_features: features.as_ref().map(|it| it.fixed.clone()).unwrap_or_default(),
            features: features.map(|it| it.active),
            xdp: xdp.get(index).copied(),
            received: link.received,
            missed: link.missed,
            interrupts: link.parent.as_ref().and_then(sysfs::interrupts),
            steered_queues: sysfs::steered_queues(name, *index),
        }
    });
    devices.collect()
}

fn list() -> io::Result<Vec<Link>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut links = Vec::new();
    exchange(NETLINK_ROUTE, request, NLM_F_DUMP, |message| {
        if let RouteNetlinkMessage::NewLink(message) = message {
            links.push(Link::from(message));
        }
    })?;
    Ok(links)
}

/// Whether one of the pinned links carries this program on this interface.
fn is_ours(standing: &[Standing], name: &str, program: u32) -> bool {
    standing.iter().any(|link| link.mode.is_some() && link.name == name && link.program_id == Some(program))
}

/// The names of all loaded programs, by id; none without the privilege to look them up.
fn names() -> HashMap<u32, String> {
    loaded_programs()
        .filter_map(Result::ok)
        .filter_map(|program| Some((program.id(), program.name_as_str()?.to_owned())))
        .collect()
}
