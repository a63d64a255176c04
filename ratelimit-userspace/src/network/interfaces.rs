//! Network interfaces as rtnetlink shows them: never /sys/class/net, which after `nsenter --net` still
//! lists the namespace that mounted it.

mod remark;

use std::{fmt, io, net::IpAddr};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkInfo, LinkLayerType, LinkMessage, LinkXdp},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::{Deserialize, Serialize};

pub use self::remark::remark;

/// `XDP_FLAGS_*` of `linux/if_link.h`.
mod flags {
    pub(super) const SKB_MODE: u32 = 1 << 1;
    pub(super) const DRV_MODE: u32 = 1 << 2;
    pub(super) const HW_MODE: u32 = 1 << 3;
    pub(super) const REPLACE: u32 = 1 << 4;
}

/// Bytes for one datagram. The kernel makes those that follow no larger than the largest buffer that it has
/// seen so far (`netlink_dump` in the kernel's `net/netlink/af_netlink.c`), and a dump ends at the first
/// message that does not fit: a buffer that is only as large as the datagram that waits is too small.
const DATAGRAM: usize = 1 << 16;

/// One interface of this process's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its index, unique in the namespace while it lives.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Bytes of layer 3 in one frame.
    pub mtu: u32,
    /// The XDP programs on it: at most one a mode.
    pub programs: Vec<Attached>,
    /// What the kernel calls its kind, as in `vlan`; empty for a card.
    pub kind: String,
    /// Its frames have no Ethernet header.
    pub headless: bool,
    /// What it belongs to, as a port to its bridge.
    pub upper: Option<Upper>,
    /// The interface that its frames come through, if that is in this namespace.
    pub lower: Option<String>,
    /// The interfaces that belong to it.
    pub members: Vec<String>,
}

/// An interface that others belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its id in the kernel.
    pub program_id: u32,
    /// Where it runs.
    pub mode: Mode,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the driver, before the kernel allocates a buffer.
    Native,
    /// In the kernel's generic receive path, behind the driver.
    Generic,
    /// In the device.
    Offloaded,
}

/// What rtnetlink says of the interfaces around one, by index.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    upper: Option<u32>,
    lower: Option<u32>,
}

/// All interfaces of this namespace.
pub fn list() -> io::Result<Vec<Interface>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut interfaces = Vec::new();
    exchange(NETLINK_ROUTE, request, NLM_F_DUMP, |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            interfaces.push((Around::of(&link), Interface::from(link)));
        }
    })?;
    Ok(related(&interfaces))
}

/// The addresses of this namespace's interfaces.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let mut addresses = Vec::new();
    exchange(NETLINK_ROUTE, request, NLM_F_DUMP, |message| {
        if let RouteNetlinkMessage::NewAddress(message) = message {
            // At the ends of a tunnel `Address` is the other one.
            let local = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            let address = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            addresses.extend(local.or(address));
        }
    })?;
    Ok(addresses)
}

/// Gives the interfaces around each their names.
fn related(list: &[(Around, Interface)]) -> Vec<Interface> {
    let find = |index: u32| list.iter().map(|(_, it)| it).find(|it| it.index == index);
    let name = |it: &Interface| it.name.clone();
    let related = list.iter().map(|(around, interface)| Interface {
        upper: around.upper.and_then(find).map(|it| Upper { name: name(it), kind: it.kind.clone() }),
        lower: around.lower.and_then(find).map(name),
        members: list
            .iter()
            .filter(|(other, _)| other.upper == Some(interface.index))
            .map(|(_, it)| name(it))
            .collect(),
        ..interface.clone()
    });
    related.collect()
}

/// Takes a program off an interface that was attached without a link, if it still is that program.
pub(crate) fn detach_without_link(index: u32, mode: Mode, program: std::os::fd::RawFd) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![LinkAttribute::Xdp(vec![
        LinkXdp::Fd(-1),
        LinkXdp::ExpectedFd(program.cast_unsigned()),
        LinkXdp::Flags(mode.flags() | flags::REPLACE),
    ])];
    exchange(NETLINK_ROUTE, RouteNetlinkMessage::SetLink(link), NLM_F_ACK, |_| ())
}

/// Sends one request and hands every answer to `receive` until the kernel says that it is done.
pub(super) fn exchange<T>(
    protocol: isize,
    request: T,
    flags: u16,
    mut receive: impl FnMut(T),
) -> io::Result<()>
where
    T: NetlinkSerializable + NetlinkDeserializable,
{
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;

    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(request));
    message.header.flags = NLM_F_REQUEST | flags;
    message.header.sequence_number = 1;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut datagram = Vec::with_capacity(DATAGRAM);
    loop {
        datagram.clear();
        socket.recv(&mut datagram, 0)?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let answer = NetlinkMessage::<T>::deserialize(rest).map_err(io::Error::other)?;
            // Messages are aligned to four bytes; the last one may lack its padding.
            let length = (answer.header.length as usize).next_multiple_of(4).min(rest.len());
            rest = &rest[length..];
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => receive(inner),
                NetlinkPayload::Done(done) if done.code == 0 => return Ok(()),
                // The answers so far are not all.
                NetlinkPayload::Done(done) => return Err(io::Error::from_raw_os_error(-done.code)),
                // A code of zero is the acknowledgement that NLM_F_ACK asks for.
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

/// The interface whose name is most like `name`, if any is near.
pub(crate) fn nearest<'a>(name: &str, interfaces: &'a [Interface]) -> Option<&'a str> {
    interfaces
        .iter()
        .map(|interface| (strsim::damerau_levenshtein(name, &interface.name), interface.name.as_str()))
        .filter(|(distance, _)| *distance <= name.len().div_ceil(2))
        .min()
        .map(|(_, name)| name)
}

// === impl Mode ===

impl Mode {
    fn flags(self) -> u32 {
        match self {
            Self::Native => flags::DRV_MODE,
            Self::Generic => flags::SKB_MODE,
            Self::Offloaded => flags::HW_MODE,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
        })
    }
}

// === wire conversions ===

impl From<LinkMessage> for Interface {
    fn from(link: LinkMessage) -> Self {
        let layer = link.header.link_layer_type;
        let mut interface = Self {
            index: link.header.index,
            headless: !matches!(layer, LinkLayerType::Ether | LinkLayerType::Loopback),
            ..Self::default()
        };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name = name,
                LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
                LinkAttribute::Xdp(attributes) => {
                    interface.programs = attributes.iter().filter_map(Attached::from_attribute).collect();
                }
                LinkAttribute::LinkInfo(info) => {
                    let kind = info.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                    interface.kind = kind.unwrap_or_default();
                }
                _ => {}
            }
        }
        interface
    }
}

impl Around {
    fn of(link: &LinkMessage) -> Self {
        let mut around = Self::default();
        let mut elsewhere = false;
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Controller(index) => around.upper = Some(*index),
                LinkAttribute::Link(index) => around.lower = Some(*index),
                LinkAttribute::LinkNetNsId(_) => elsewhere = true,
                _ => {}
            }
        }
        // An index of another namespace is none of this one's.
        around.lower = around.lower.filter(|_| !elsewhere);
        around
    }
}

impl Attached {
    /// The kernel names the program of each mode in an attribute of its own.
    fn from_attribute(attribute: &LinkXdp) -> Option<Self> {
        let (program_id, mode) = match *attribute {
            LinkXdp::DrvProgId(id) => (id, Mode::Native),
            LinkXdp::SkbProgId(id) => (id, Mode::Generic),
            LinkXdp::HwProgId(id) => (id, Mode::Offloaded),
            _ => return None,
        };
        (program_id != 0).then_some(Self { program_id, mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str) -> Interface {
        Interface { index: 1, name: name.to_owned(), ..Interface::default() }
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let interfaces = list().expect("rtnetlink answers without privilege");
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").expect("lo");
        assert_eq!(loopback.index, 1);
        assert!(loopback.mtu >= 1500, "{loopback:?}");
    }

    #[test]
    fn the_addresses_of_this_host_are_listed() {
        let addresses = addresses().expect("rtnetlink answers without privilege");
        assert!(addresses.contains(&IpAddr::from([127, 0, 0, 1])), "{addresses:?}");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let interfaces = [interface("lo"), interface("eth0"), interface("enp3s0f1")];
        assert_eq!(nearest("eth1", &interfaces), Some("eth0"));
        assert_eq!(nearest("enp3s0f0", &interfaces), Some("enp3s0f1"));
        assert_eq!(nearest("wlan7", &interfaces), None);
    }

    #[test]
    fn the_interfaces_around_one_are_named() {
        let one = |index, name: &str, kind: &str, upper, lower| {
            let kind = kind.to_owned();
            (Around { upper, lower }, Interface { index, kind, ..interface(name) })
        };
        let list = related(&[
            one(2, "eth0", "", Some(4), None),
            one(3, "eth1", "", Some(4), None),
            one(4, "bond0", "bond", None, None),
            one(5, "bond0.7", "vlan", None, Some(4)),
            one(6, "wan", "macvlan", None, Some(99)),
        ]);
        let bond = Some(Upper { name: "bond0".to_owned(), kind: "bond".to_owned() });
        assert_eq!((&list[0].upper, &list[1].upper), (&bond, &bond));
        assert_eq!(list[2].members, ["eth0", "eth1"]);
        assert_eq!(list[3].lower.as_deref(), Some("bond0"));
        assert_eq!(list[4].lower, None);
    }

    #[test]
    fn an_interface_beneath_that_is_in_another_namespace_is_not_taken_for_one_of_this() {
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::Link(2), LinkAttribute::LinkNetNsId(0)];
        assert_eq!(Around::of(&link).lower, None);
        link.attributes.pop();
        assert_eq!(Around::of(&link).lower, Some(2));
    }

    #[test]
    fn each_program_is_taken_with_its_mode() {
        let mut link = LinkMessage::default();
        link.header.index = 7;
        link.attributes = vec![
            LinkAttribute::IfName("eth7".to_owned()),
            LinkAttribute::Xdp(vec![
                LinkXdp::ProgId(5),
                LinkXdp::DrvProgId(0),
                LinkXdp::SkbProgId(5),
                LinkXdp::Flags(0),
            ]),
        ];
        let interface = Interface::from(link);
        assert_eq!((interface.index, interface.name.as_str()), (7, "eth7"));
        assert_eq!(interface.programs, [Attached { program_id: 5, mode: Mode::Generic }]);
    }
}
