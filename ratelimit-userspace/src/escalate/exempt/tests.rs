use std::net::IpAddr;

use ipnet::IpNet;

use super::{Exempt, Exempted, client};
use crate::config::{self, policy::Network};

fn network(text: &str) -> Network {
    let text = format!("interfaces: [{{ name: eth0 }}]\nnetwork:\n{text}\n");
    config::parse(text.as_bytes(), std::path::Path::new("rules.yaml")).unwrap().config.network.unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

const POLICY: &str = "  allow: [198.51.100.0/24, 2001:db8:a::1]
  management: [{ prefix: 203.0.113.0/24, ports: 22 }]";

#[test]
fn who_is_left_alone() {
    let network = network(POLICY);
    let (trusted_proxies, own) = ([net("10.0.0.0/24")], [ip("192.0.2.1")]);
    let exempted = Exempted { network: &network, trusted_proxies: &trusted_proxies, own: &own };
    for (address, why) in [
        ("127.0.0.2", Some(Exempt::Loopback)),
        ("::1", Some(Exempt::Loopback)),
        ("::ffff:127.0.0.1", Some(Exempt::Loopback)),
        ("0.0.0.0", Some(Exempt::NoClient)),
        ("ff02::1", Some(Exempt::NoClient)),
        ("255.255.255.255", Some(Exempt::NoClient)),
        ("192.0.2.1", Some(Exempt::Own)),
        ("::ffff:192.0.2.1", Some(Exempt::Own)),
        ("10.0.0.7", Some(Exempt::TrustedProxy)),
        ("198.51.100.9", Some(Exempt::Allowed)),
        ("2001:db8:a::1", Some(Exempt::Allowed)),
        ("203.0.113.9", Some(Exempt::Management)),
        ("192.0.2.2", None),
        ("2001:db8:b::1", None),
    ] {
        assert_eq!(exempted.why(ip(address)), why, "{address}");
    }
}

#[test]
fn a_client_is_what_rules_on_packets_take_for_one() {
    for (address, expected) in [
        ("192.0.2.2", "192.0.2.2/32"),
        ("::ffff:192.0.2.2", "192.0.2.2/32"),
        ("2001:db8:b:1:2:3:4:5", "2001:db8:b:1::/64"),
    ] {
        assert_eq!(client(ip(address), 64), net(expected));
    }
}

#[test]
fn prefixes_of_other_lengths_make_a_client_of_ipv6_alone() {
    assert_eq!(client(ip("2001:db8:b:1ff::5"), 56), net("2001:db8:b:100::/56"));
    assert_eq!(client(ip("192.0.2.9"), 56), net("192.0.2.9/32"));
}

#[test]
fn a_network_that_holds_somebody_who_is_left_alone_is_not_shed_as_a_whole() {
    let network = network(POLICY);
    let own = [ip("2001:db8:c::1")];
    let exempted = Exempted { network: &network, trusted_proxies: &[], own: &own };
    for (address, expected) in [
        ("2001:db8:b::7", "2001:db8:b::/64"),
        ("2001:db8:c::7", "2001:db8:c::7/128"),
        ("2001:db8:a::7", "2001:db8:a::7/128"),
    ] {
        let address = ip(address);
        assert_eq!(exempted.prefix(client(address, 64), address), net(expected));
    }
}
