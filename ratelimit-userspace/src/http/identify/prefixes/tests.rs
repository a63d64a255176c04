use ipnet::{Ipv4Net, Ipv6Net};
use proptest::{collection::vec, prelude::*};

use super::*;

fn table(prefixes: &[&'static str]) -> PrefixTable<&'static str> {
    PrefixTable::new(prefixes.iter().map(|prefix| (prefix.parse().unwrap(), *prefix)))
}

fn get(table: &PrefixTable<&'static str>, address: &str) -> Option<&'static str> {
    table.get(address.parse().unwrap())
}

#[test]
fn the_longest_prefix_wins() {
    let table = table(&["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "255.0.0.0/8", "2001:db8::/32", "::/0"]);
    let cases = [
        ("9.255.255.255", None),
        ("10.0.0.0", Some("10.0.0.0/8")),
        ("10.1.2.2", Some("10.1.0.0/16")),
        ("10.1.2.3", Some("10.1.2.3/32")),
        ("10.1.2.4", Some("10.1.0.0/16")),
        ("10.255.255.255", Some("10.0.0.0/8")),
        ("11.0.0.0", None),
        ("255.255.255.255", Some("255.0.0.0/8")),
        ("::ffff:10.1.2.3", Some("10.1.2.3/32")),
        ("::", Some("::/0")),
        ("2001:db8::1", Some("2001:db8::/32")),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some("::/0")),
    ];
    for (address, prefix) in cases {
        assert_eq!(get(&table, address), prefix, "{address}");
    }
}

#[test]
fn an_empty_table_has_nothing() {
    assert_eq!(get(&table(&[]), "10.0.0.0"), None);
    assert_eq!(get(&table(&["0.0.0.0/0"]), "255.255.255.255"), Some("0.0.0.0/0"));
    assert_eq!(get(&table(&["0.0.0.0/0"]), "::1"), None);
}

#[test]
fn a_million_prefixes_are_no_burden() {
    let prefix = |index: u32| IpNet::V4(Ipv4Net::new_assert((index << 12).into(), 20));
    let table = PrefixTable::new((0..1_000_000).map(|index| (prefix(index), index)));
    for index in (0_u32..1_000_000).step_by(7) {
        assert_eq!(table.get(IpAddr::from(((index << 12) + 4095).to_be_bytes())), Some(index));
    }
}

/// Prefixes that often touch and nest, and addresses near them.
fn v4() -> impl Strategy<Value = (u32, u8)> {
    (0_u32..16, 26_u8..=32)
        .prop_map(|(address, length)| (u32::MAX - 7 + (address & 7) * (address >> 3), length))
}

proptest! {
    #[test]
    fn a_table_agrees_with_a_scan(
        v4 in vec(v4(), 0..12),
        v6 in vec((0_u128..16, 120_u8..=128), 0..12),
        address in 0_u32..80,
    ) {
        let v4 = v4.into_iter().map(|(address, length)| IpNet::V4(Ipv4Net::new_assert(address.into(), length)));
        let v6 = v6.into_iter().map(|(address, length)| IpNet::V6(Ipv6Net::new_assert(address.into(), length)));
        let mut prefixes: Vec<_> = v4.chain(v6).map(|prefix| prefix.trunc()).collect();
        prefixes.sort();
        prefixes.dedup();
        let table = PrefixTable::new(prefixes.iter().map(|prefix| (*prefix, *prefix)));
        let addresses = [
            IpAddr::V4((u32::MAX - address).into()),
            IpAddr::V4(address.into()),
            IpAddr::V6(u128::from(address).into()),
        ];
        for address in addresses {
            let holding = prefixes.iter().filter(|prefix| prefix.contains(&address));
            prop_assert_eq!(table.get(address), holding.max_by_key(|prefix| prefix.prefix_len()).copied());
        }
    }
}
