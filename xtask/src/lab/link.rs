//! A wire between two namespaces.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    process::Command,
};

use anyhow::{Context as _, Result};
use nix::net::if_::if_nametoindex;

use super::{Namespace, process::capture};

/// A veth pair; it goes with either of its namespaces.
#[derive(Clone, Debug)]
pub struct Link {
    /// The end in the first namespace, with host number 1.
    pub client: Interface,
    /// The end in the second namespace, with host number 2.
    pub server: Interface,
}

/// One end of a wire.
#[derive(Clone, Debug)]
pub struct Interface {
    /// `eth` and the number of the link.
    pub device: String,
    /// Interface index in its namespace.
    pub index: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Address with a prefix of 24 bits.
    pub ipv4: Ipv4Addr,
    /// Address with a prefix of 64 bits, usable at once (no duplicate detection).
    pub ipv6: Ipv6Addr,
}

// === impl Link ===

impl Link {
    /// Joins the namespaces by link `number`: devices `eth<number>`, networks `10.77.<number>.0/24` and
    /// `fd00:77:<number>::/64`. Two links between the same namespaces need different numbers.
    pub fn new(client: &Namespace, server: &Namespace, number: u8) -> Result<Self> {
        let device = format!("eth{number}");
        let mac = |host| [0x02, 0, 0x0a, 0x4d, number, host];
        capture(
            Command::new("ip")
                .args(["link", "add", &device, "address", &mac_text(mac(1))])
                .args(["netns", client.name(), "type", "veth", "peer", "name", &device])
                .args(["address", &mac_text(mac(2)), "netns", server.name()]),
        )
        .with_context(|| format!("failed to join {} and {}", client.name(), server.name()))?;
        let end = |namespace, host| Interface::configure(namespace, &device, number, host, mac(host));
        Ok(Self { client: end(client, 1)?, server: end(server, 2)? })
    }
}

// === impl Interface ===

impl Interface {
    fn configure(namespace: &Namespace, device: &str, number: u8, host: u8, mac: [u8; 6]) -> Result<Self> {
        let ipv4 = Ipv4Addr::new(10, 77, number, host);
        let ipv6 = Ipv6Addr::new(0xfd00, 0x77, number.into(), 0, 0, 0, 0, host.into());
        namespace.ip(&format!(
            "address add {ipv4}/24 dev {device}\n\
             address add {ipv6}/64 dev {device} nodad\n\
             link set {device} up"
        ))?;
        let index = namespace
            .run(|| if_nametoindex(device))
            .with_context(|| format!("failed to find {device} in {}", namespace.name()))?;
        Ok(Self { device: device.to_owned(), index, mac, ipv4, ipv6 })
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}
