use super::*;

fn interface(index: u32, name: &str, mtu: u32) -> Interface {
    Interface { index, name: name.to_owned(), mtu, ..Interface::default() }
}

#[test]
fn every_change_is_told_and_what_stays_is_not() {
    let before = [
        interface(1, "lo", 65_536),
        interface(2, "eth0", 1500),
        interface(3, "eth1", 1500),
        interface(4, "wan", 1500),
        interface(5, "eth3", 1500),
    ];
    let now = [
        interface(1, "lo", 65_536),
        interface(2, "lan0", 1500),
        interface(3, "eth1", 9000),
        interface(9, "wan", 1500),
    ];
    let mtu = Change::Mtu { name: "eth1".to_owned(), from: 1500, to: 9000 };
    let expected = [
        Change::Went("wan".to_owned()),
        Change::Went("eth3".to_owned()),
        Change::Renamed { from: "eth0".to_owned(), to: "lan0".to_owned() },
        mtu,
        Change::Came("wan".to_owned()),
    ];
    assert_eq!(changes(&before, &now), expected);
    assert_eq!(changes(&now, &now), []);
}

#[test]
fn a_new_name_for_an_old_index_is_no_new_interface() {
    let changes = changes(&[interface(2, "eth0", 1500)], &[interface(2, "lan0", 9000)]);
    assert!(!changes.iter().any(|change| matches!(change, Change::Came(_) | Change::Went(_))), "{changes:?}");
    assert_eq!(changes.len(), 2, "both the name and the MTU are told: {changes:?}");
}
