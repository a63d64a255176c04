use proptest::prelude::*;

use super::*;

#[test]
fn an_address_may_have_a_port_and_brackets() {
    let cases = [
        ("192.0.2.1", Some("192.0.2.1")),
        ("192.0.2.1:8080", Some("192.0.2.1")),
        ("192.0.2.1:_gate-1.x", Some("192.0.2.1")),
        ("2001:db8::1", Some("2001:db8::1")),
        ("[2001:db8::1]", Some("2001:db8::1")),
        ("[2001:DB8::1]:443", Some("2001:db8::1")),
        ("::", Some("::")),
        ("::ffff:1.2.3.4", Some("1.2.3.4")),
        ("::ffff:102:304", Some("1.2.3.4")),
        ("[::ffff:1.2.3.4]:80", Some("1.2.3.4")),
        ("2001:db8::1.2.3.4", Some("2001:db8::102:304")),
        ("::1.2.3.4", Some("::102:304")),
        ("fe80::1%eth0", None),
        ("[fe80::1%25eth0]", None),
        ("[fe80::1%eth0]:80", None),
        ("unknown", None),
        ("_hidden", None),
        ("unix:", None),
        ("", None),
        (" 192.0.2.1", None),
        ("192.0.2.1:", None),
        ("192.0.2.1:123456", None),
        ("192.0.2.1:80x", None),
        ("192.0.2.01", None),
        ("192.0.2", None),
        ("3221225985", None),
        ("[192.0.2.1]", None),
        ("[2001:db8::1", None),
        ("2001:db8::1]", None),
        ("[2001:db8::1]80", None),
        ("[2001:db8::1]:", None),
        ("[]", None),
        ("192.0.2.1, 192.0.2.2", None),
    ];
    for (text, address) in cases {
        assert_eq!(node(text.as_bytes()), address.map(|text| text.parse().unwrap()), "{text}");
    }
    assert_eq!(node(b"192.0.2.1\xff"), None);
    assert_eq!(node(&[b'1'; 8192]), None);
}

#[test]
fn clients_are_told_apart_by_prefix() {
    let cases = [
        ("192.0.2.1", 32, 64, "192.0.2.1"),
        ("192.0.2.1", 24, 64, "192.0.2.0/24"),
        ("192.0.2.1", 1, 64, "128.0.0.0/1"),
        ("2001:db8::1", 32, 64, "2001:db8::/64"),
        ("2001:db8::2", 32, 64, "2001:db8::/64"),
        ("2001:db8:0:1::", 32, 64, "2001:db8:0:1::/64"),
        ("2001:db8::1", 32, 128, "2001:db8::1"),
        ("2001:db8:ffff::1", 32, 33, "2001:db8:8000::/33"),
    ];
    for (address, v4, v6, expected) in cases {
        assert_eq!(client(address.parse().unwrap(), v4, v6), expected);
    }
}

#[test]
fn a_prefix_of_mapped_addresses_is_one_of_ipv4() {
    let cases = [
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.1.2.3/128", "10.1.2.3/32"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::ffff:0:0/95", "::fffe:0:0/95"),
        ("2001:db8::a00:1/120", "2001:db8::a00:0/120"),
        ("10.1.2.3/8", "10.0.0.0/8"),
    ];
    for (prefix, canonical) in cases {
        assert_eq!(canonical_prefix(prefix.parse().unwrap()).to_string(), canonical);
    }
}

proptest! {
    #[test]
    fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = node(&bytes);
    }

    #[test]
    fn every_address_is_read_in_every_form(address: IpAddr, port: u16) {
        let canonical = Some(address.to_canonical());
        prop_assert_eq!(node(address.to_string().as_bytes()), canonical);
        let with_port = std::net::SocketAddr::new(address, port).to_string();
        prop_assert_eq!(node(with_port.as_bytes()), canonical);
    }
}
