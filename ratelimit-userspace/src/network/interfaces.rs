//! Network interfaces as rtnetlink shows them: never /sys/class/net, which after `nsenter --net` still
//! lists the namespace that mounted it.

use std::{fmt, io};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage, LinkXdp},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::{Deserialize, Serialize};

/// `XDP_FLAGS_*` of `linux/if_link.h`.
mod flags {
    pub(super) const SKB_MODE: u32 = 1 << 1;
    pub(super) const DRV_MODE: u32 = 1 << 2;
    pub(super) const HW_MODE: u32 = 1 << 3;
    pub(super) const REPLACE: u32 = 1 << 4;
}

/// One interface of this process's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index, unique in the namespace while it lives.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Bytes of layer 3 in one frame.
    pub mtu: u32,
    /// The XDP programs on it: at most one a mode.
    pub programs: Vec<Attached>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the driver, before the kernel allocates a buffer.
    Native,
    /// In the kernel's generic receive path, behind the driver.
    Generic,
    /// In the device.
    Offloaded,
}

/// All interfaces of this namespace.
pub fn list() -> io::Result<Vec<Interface>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut interfaces = Vec::new();
    exchange(request, NLM_F_DUMP, |message| {
        if let RouteNetlinkMessage::NewLink(link) = message {
            interfaces.push(Interface::from(link));
        }
    })?;
    Ok(interfaces)
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
    exchange(RouteNetlinkMessage::SetLink(link), NLM_F_ACK, |_| ())
}

/// Sends one request and hands every answer to `receive` until the kernel says that it is done.
fn exchange(
    request: RouteNetlinkMessage,
    flags: u16,
    mut receive: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;

    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(request));
    message.header.flags = NLM_F_REQUEST | flags;
    message.header.sequence_number = 1;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let answer =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            // Messages are aligned to four bytes; the last one may lack its padding.
            let length = (answer.header.length as usize).next_multiple_of(4).min(rest.len());
            rest = &rest[length..];
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => receive(inner),
                NetlinkPayload::Done(_) => return Ok(()),
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
        let mut interface =
            Self { index: link.header.index, name: String::new(), mtu: 0, programs: Vec::new() };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name = name,
                LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
                LinkAttribute::Xdp(attributes) => {
                    interface.programs = attributes.iter().filter_map(Attached::from_attribute).collect();
                }
                _ => {}
            }
        }
        interface
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
        Interface { index: 1, name: name.to_owned(), mtu: 1500, programs: Vec::new() }
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let interfaces = list().expect("rtnetlink answers without privilege");
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").expect("lo");
        assert_eq!(loopback.index, 1);
        assert!(loopback.mtu >= 1500, "{loopback:?}");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let interfaces = [interface("lo"), interface("eth0"), interface("enp3s0f1")];
        assert_eq!(nearest("eth1", &interfaces), Some("eth0"));
        assert_eq!(nearest("enp3s0f0", &interfaces), Some("enp3s0f1"));
        assert_eq!(nearest("wlan7", &interfaces), None);
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
