//! Frames that are not plain ones: jumbo, in fragments, tagged.

use std::net::IpAddr;

use xtask::lab::{Flood, Plan, frame};

use crate::{
    PATIENCE,
    client::{PORT, arrive, families, receiver, send},
    host::Host,
    ledger::{Ledger, unjudged},
    policy,
};

/// A payload that makes a frame of more than two pages.
const JUMBO: usize = 8200;
/// Headers of Ethernet and UDP, and the largest IP header here.
const HEADERS_V4: u64 = 14 + 20 + 8;
const HEADERS_V6: u64 = 14 + 40 + 8;

/// Addresses of the client beside its first ones, and networks of such addresses. An IPv6 address that is
/// denied as such cannot even resolve its neighbours.
const OTHERS: [&str; 2] = ["10.77.0.9", "fd00:77::9"];
const DENIED: &str = "deny: [10.77.0.8/29, \"fd00:77::8/125\"]";

fn others(host: &Host) -> [IpAddr; 2] {
    let [v4, v6] = OTHERS;
    host.lab
        .client
        .ip(&format!("address add {v4}/24 dev eth0\naddress add {v6}/64 dev eth0 nodad"))
        .expect("two more addresses");
    OTHERS.map(|address| address.parse().expect("an address"))
}

fn set_mtu(host: &Host, mtu: u32) {
    for namespace in [&host.lab.client, &host.lab.server] {
        namespace.ip(&format!("link set eth0 mtu {mtu}")).expect("an MTU");
    }
}

/// Each source may send nine jumbo datagrams, nearly ten, and for hours no more.
const NINE: &str = "rules: [{ name: datagrams, match: { protocol: udp, destination_port: 5000 },
  limits: [{ per: source, bandwidth: 8bit/s, burst: 82kB }] }]";

fn nine_jumbo_datagrams(host: &Host) {
    for (number, (from, to)) in (1..).zip(families(host)) {
        let receiver = receiver(host, to);
        send(host, from, to, 20, JUMBO);
        Ledger::after(host, "datagrams", number * 20);
        arrive(&receiver, 9, JUMBO);
    }
    let ledger = Ledger::read(host);
    let of = |packets: u64| packets * (2 * JUMBO as u64 + HEADERS_V4 + HEADERS_V6);
    assert_eq!(ledger.packets("datagrams"), (18, 22));
    assert_eq!(ledger.bytes("datagrams"), (of(9), of(11)), "bytes are those of whole frames");
    assert_eq!(ledger.event("beyond_first_buffer"), 0);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn jumbo_frames_are_counted_and_limited_whole() {
    let host = Host::new("jumbo");
    set_mtu(&host, 9000);
    let _daemon = host.start(&policy("native", NINE));
    nine_jumbo_datagrams(&host);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn an_mtu_may_grow_after_attachment() {
    let host = Host::new("grown");
    let _daemon = host.start(&policy("native", NINE));
    set_mtu(&host, 9000);
    nine_jumbo_datagrams(&host);
    assert_eq!(host.interfaces(), [("eth0".to_owned(), "native".to_owned(), true)]);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn generic_mode_sees_jumbo_frames_whole_too() {
    let host = Host::new("generic-jumbo");
    set_mtu(&host, 9000);
    let _daemon = host.start(&policy("generic", NINE));
    nine_jumbo_datagrams(&host);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn every_fragment_is_judged() {
    /// Four fragments of at most 1500 octets by either family.
    const LARGE: usize = 5000;
    let host = Host::new("fragments");
    let rule = "rules: [{ name: datagrams, match: { protocol: udp }, limits: [{ per: source, rate: 1/h, burst: 10 }] }]";
    let _daemon = host.start(&policy("native", &format!("{DENIED}, {rule}")));
    let before = unjudged(&host);
    let others = others(&host);
    for (number, ((from, to), denied)) in (1..).zip(families(&host).into_iter().zip(others)) {
        let receiver = receiver(&host, to);
        send(&host, denied, to, 1, LARGE);
        // The same wire, so these come after those.
        send(&host, from, to, 3, LARGE);
        let ledger = Ledger::after(&host, "datagrams", number * 12);
        assert_eq!(ledger.reason("denied").shed.packets, number * 4, "every fragment, not only the first");
        // Two datagrams whole; of the third, two fragments are missing.
        arrive(&receiver, 2, LARGE);
        assert_eq!(ledger.packets("datagrams"), (number * 10, number * 2));
    }
    assert_eq!(unjudged(&host), before);
}

/// The frame with tags, outermost first.
fn tagged(mut frame: Vec<u8>, tags: &[(u16, u16)]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(kind, id)| [kind.to_be_bytes(), id.to_be_bytes()].concat());
    frame.splice(12..12, tags);
    frame
}

#[test]
#[ignore = "requires root: network namespaces"]
fn tags_hide_nothing() {
    /// 802.1Q and 802.1ad.
    const INNER: u16 = 0x8100;
    const OUTER: u16 = 0x88a8;
    let host = Host::new("tags");
    let sources: Vec<IpAddr> = frame::sources_v4(2).chain(frame::sources_v6(2)).collect();
    let [friend_v4, denied_v4, friend_v6, denied_v6] = sources[..] else { panic!("four sources") };
    let _daemon = host.start(&policy(
        "native",
        &format!(
            "deny: [{denied_v4}, \"{denied_v6}\"], rules: [
              {{ name: guests, match: {{ vlan: 7 }}, limits: [{{ per: source, rate: 1/h, burst: 2 }}] }},
              {{ name: datagrams, match: {{ protocol: udp, destination_port: {PORT} }},
                 limits: [{{ per: source, rate: 1/h, burst: 5 }}] }}]"
        ),
    ));
    let before = unjudged(&host);
    let untagged: &[(u16, u16)] = &[];
    for (route, friend, denied) in
        [(host.lab.route_v4(), friend_v4, denied_v4), (host.lab.route_v6(), friend_v6, denied_v6)]
    {
        let datagram = |source, tags: &[(u16, u16)]| tagged(route.udp(source, 4000, PORT, b"x"), tags);
        let ways: [&[(u16, u16)]; 3] = [untagged, &[(INNER, 5)], &[(OUTER, 9), (INNER, 5)]];
        let mut frames: Vec<_> = ways.iter().flat_map(|tags| vec![datagram(friend, tags); 3]).collect();
        frames.extend(ways.iter().map(|tags| datagram(denied, tags)));
        frames.extend(vec![datagram(friend, &[(INNER, 7)]); 3]);
        frames.push(datagram(friend, &[(OUTER, 9), (INNER, 5), (INNER, 6)]));
        let packets = Some(frames.len() as u64);
        let plan = Plan { frames, duration: PATIENCE, packets, rate: None, cpu: None };
        host.lab.flood(plan).and_then(Flood::wait).expect("they leave");
    }
    Ledger::after(&host, "datagrams", 18);
    let ledger = Ledger::after(&host, "guests", 6);
    assert_eq!(ledger.packets("datagrams"), (10, 8), "one bucket, tagged or not");
    assert_eq!(ledger.packets("guests"), (4, 2));
    assert_eq!(ledger.reason("denied").shed.packets, 6);
    assert_eq!(unjudged(&host), before);
    assert_eq!(Ledger::read(&host).reason("malformed_vlan").shed.packets, 2);
}
