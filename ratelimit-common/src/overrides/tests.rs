use super::Client;
use crate::address::Address;

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let address = |last: u8| {
        let mut octets = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        octets[15] = last;
        Address::v6(octets)
    };
    assert_eq!(Client::of(&address(1), 64), Client::of(&address(2), 64));
    assert_ne!(Client::of(&address(1), 128), Client::of(&address(2), 128));
    assert_ne!(Client::of(&address(0), 64), Client::of(&address(0), 128), "another length is another client");
}

#[test]
fn an_ipv4_address_is_a_client_of_its_own() {
    let [one, other] = [1, 2].map(|last| Address::v4([192, 0, 2, last]));
    assert_ne!(Client::of(&one, 64), Client::of(&other, 64));
    assert_eq!(Client::of(&one, 64), Client::of(&one, 48));
}
