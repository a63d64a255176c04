use http::HeaderValue;
use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

const PROXY: &str = "10.0.0.9";

fn clients(source: ClientAddress) -> Clients {
    Clients::new(source, &["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()])
}

fn headers(name: &HeaderName, lines: &[&[u8]]) -> HeaderMap {
    let lines = lines.iter().map(|line| (name.clone(), HeaderValue::from_bytes(line).unwrap()));
    lines.collect()
}

/// The client that the lines of a header tell of.
fn find(source: ClientAddress, peer: Option<&str>, lines: &[&str]) -> Option<String> {
    let name = if source == ClientAddress::Forwarded { header::FORWARDED } else { X_FORWARDED_FOR };
    let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    let peer = peer.map(|peer| peer.parse().unwrap());
    clients(source).find(peer, &headers(&name, &lines)).map(|client| client.to_string())
}

fn x_forwarded_for(peer: &str, lines: &[&str]) -> String {
    find(ClientAddress::XForwardedFor, Some(peer), lines).unwrap()
}

fn forwarded(peer: &str, lines: &[&str]) -> String {
    find(ClientAddress::Forwarded, Some(peer), lines).unwrap()
}

#[test]
fn the_first_untrusted_address_from_the_right_is_the_client() {
    let cases = [
        (PROXY, &["203.0.113.7"][..], "203.0.113.7"),
        (PROXY, &["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (PROXY, &["198.51.100.1,203.0.113.7\t, 10.0.0.1 ,10.0.0.2"], "203.0.113.7"),
        (PROXY, &["198.51.100.1", "203.0.113.7, 10.0.0.1", "10.0.0.2"], "203.0.113.7"),
        (PROXY, &["203.0.113.7:4711, [fd00::1]:443"], "203.0.113.7"),
        (PROXY, &["::ffff:203.0.113.7, ::ffff:10.0.0.1"], "203.0.113.7"),
        ("::ffff:10.0.0.9", &["203.0.113.7"], "203.0.113.7"),
        ("fd00::9", &["2001:db8::7"], "2001:db8::7"),
    ];
    for (peer, lines, client) in cases {
        assert_eq!(x_forwarded_for(peer, lines), client, "{lines:?}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_itself() {
    assert_eq!(x_forwarded_for("203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
    assert_eq!(x_forwarded_for("::ffff:203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
}

#[test]
fn where_all_are_trusted_the_furthest_is_the_client() {
    assert_eq!(x_forwarded_for(PROXY, &["10.0.0.1, 10.0.0.2"]), "10.0.0.1");
    assert_eq!(x_forwarded_for(PROXY, &[]), PROXY);
}

#[test]
fn what_is_no_address_ends_the_walk_at_the_last_trusted_one() {
    let cases = [
        (&["198.51.100.1, unknown, 10.0.0.2"][..], "10.0.0.2"),
        (&["198.51.100.1, fe80::1%eth0"], PROXY),
        (&["198.51.100.1, _hidden"], PROXY),
        (&["198.51.100.1, , 10.0.0.2"], "10.0.0.2"),
        (&["198.51.100.1,"], PROXY),
        (&[""], PROXY),
        (&["198.51.100.1", ""], PROXY),
        (&["198.51.100.1 203.0.113.7"], PROXY),
        (&["\"203.0.113.7\""], PROXY),
    ];
    for (lines, client) in cases {
        assert_eq!(x_forwarded_for(PROXY, lines), client, "{lines:?}");
    }
}

#[test]
fn a_unix_socket_is_trusted_and_has_no_address() {
    let find = |lines| find(ClientAddress::XForwardedFor, None, lines);
    assert_eq!(find(&["198.51.100.1, 203.0.113.7"]).as_deref(), Some("203.0.113.7"));
    assert_eq!(find(&["10.0.0.1"]).as_deref(), Some("10.0.0.1"));
    assert_eq!(find(&["unknown"]), None);
    assert_eq!(find(&[]), None);
}

#[test]
fn only_the_configured_header_is_read() {
    let mut both = headers(&X_FORWARDED_FOR, &[b"203.0.113.1"]);
    both.insert(header::FORWARDED, HeaderValue::from_static("for=203.0.113.2"));
    both.insert("x-real-ip", HeaderValue::from_static("203.0.113.3"));
    let client = |source| clients(source).find(Some(PROXY.parse().unwrap()), &both).unwrap().to_string();
    assert_eq!(client(ClientAddress::XForwardedFor), "203.0.113.1");
    assert_eq!(client(ClientAddress::Forwarded), "203.0.113.2");
    assert_eq!(client(ClientAddress::Peer), PROXY);
}

#[test]
fn forwarded_has_parameters_and_quoted_strings() {
    let cases = [
        (&["for=203.0.113.7"][..], "203.0.113.7"),
        (&["For=203.0.113.7;proto=https;by=10.0.0.1"], "203.0.113.7"),
        (&["proto=https;FOR=\"203.0.113.7:80\""], "203.0.113.7"),
        (&["for=\"[2001:db8::7]:4711\""], "2001:db8::7"),
        (&["for=\"[2001:db8::7]\";host=\"a,b;for=c\""], "2001:db8::7"),
        (&["host=\"a\\\",\\\\\";for=203.0.113.7, for=10.0.0.1"], "203.0.113.7"),
        (&["for=\"2\\03.0.113.7\""], "203.0.113.7"),
        (&["for=198.51.100.1, for=203.0.113.7 ; proto=http , for=10.0.0.2"], "203.0.113.7"),
        (&["for=198.51.100.1", "for=203.0.113.7,for=10.0.0.1"], "203.0.113.7"),
        (&["for=2001:db8::7"], "2001:db8::7"),
        (&["for=[2001:db8::7]:80;"], "2001:db8::7"),
        (&[";for=203.0.113.7;;"], "203.0.113.7"),
    ];
    for (lines, client) in cases {
        assert_eq!(forwarded(PROXY, lines), client, "{lines:?}");
    }
}

#[test]
fn a_forwarded_element_without_an_address_ends_the_walk() {
    let cases = [
        "for=198.51.100.1, for=unknown",
        "for=198.51.100.1, for=_gazonk",
        "for=198.51.100.1, for=\"_gazonk:80\"",
        "for=198.51.100.1, by=10.0.0.1",
        "for=198.51.100.1, for=203.0.113.7;for=203.0.113.8",
        "for=198.51.100.1, for=\"203.0.113.7",
        "for=198.51.100.1, for=203.0.113.7\"",
        "for=198.51.100.1, for=203.0.113.7;host",
        "for=198.51.100.1, for=203.0.113.7 x;host=a",
        "for=198.51.100.1, for=\"203.0.113.7\"x",
        "for=198.51.100.1, 203.0.113.7",
        "for=198.51.100.1, ",
        "for=198.51.100.1, for=\"[fe80::1%eth0]\"",
        "for=198.51.100.1, for=",
    ];
    for line in cases {
        assert_eq!(forwarded(PROXY, &[line]), PROXY, "{line}");
    }
}

#[test]
fn what_a_client_writes_cannot_hide_what_the_proxy_adds() {
    for spoof in ["for=\"", "for=\"a, for=\\\"", "for=\"\\", "\"", ";;,,\\\"", "for=198.51.100.1, \"\"\""] {
        assert_eq!(forwarded(PROXY, &[&format!("{spoof}, for=203.0.113.7")]), "203.0.113.7", "{spoof}");
        assert_eq!(
            forwarded(PROXY, &[&format!("{spoof}, for=\"[2001:db8::7]:80\"")]),
            "2001:db8::7",
            "{spoof}"
        );
        assert_eq!(forwarded(PROXY, &[spoof, "for=203.0.113.7"]), "203.0.113.7", "{spoof}");
    }
}

#[test]
fn long_headers_take_little_time() {
    let elements = vec!["10.0.0.1"; 200_000].join(",");
    assert_eq!(x_forwarded_for(PROXY, &[&format!("203.0.113.7,{elements}")]), "203.0.113.7");
    let elements = vec!["for=10.0.0.1"; 200_000].join(",");
    assert_eq!(forwarded(PROXY, &[&format!("for=203.0.113.7,{elements}")]), "203.0.113.7");
    for noise in [",", "\"", "\\", "\\\"", ";", "=", "for=\"", "a", "::"] {
        let line = noise.repeat(200_000);
        assert_eq!(x_forwarded_for(PROXY, &[&line]), PROXY, "{noise}");
        assert_eq!(forwarded(PROXY, &[&line]), PROXY, "{noise}");
    }
}

#[test]
fn a_proxy_that_nobody_trusts_is_noticed() {
    let peer = Some(PROXY.parse().unwrap());
    let named = headers(&X_FORWARDED_FOR, &[b"203.0.113.7"]);
    for source in [ClientAddress::Peer, ClientAddress::XForwardedFor, ClientAddress::Forwarded] {
        let nobody = Clients::new(source, &[]);
        assert!(nobody.overlooks(peer, &named));
        assert!(nobody.overlooks(peer, &headers(&header::FORWARDED, &[b"for=203.0.113.7"])));
        assert!(!nobody.overlooks(peer, &HeaderMap::new()));
        assert!(!nobody.overlooks(None, &named));
    }
    assert!(clients(ClientAddress::Peer).overlooks(peer, &named));
    assert!(!clients(ClientAddress::XForwardedFor).overlooks(peer, &named));
}

/// What the walk means, over elements that are all well formed or all the same as one that is not.
fn model(peer: IpAddr, elements: &[Option<IpAddr>]) -> IpAddr {
    let clients = clients(ClientAddress::XForwardedFor);
    let mut client = peer;
    for element in elements.iter().rev() {
        match element {
            Some(address) if clients.trusted.get(client).is_some() => client = *address,
            _ => break,
        }
    }
    client
}

fn address() -> impl Strategy<Value = Option<IpAddr>> {
    let addresses: &[&str] = &["10.0.0.1", "10.0.0.2", "fd00::1", "203.0.113.7", "2001:db8::7"];
    proptest::option::weighted(0.9, select(addresses).prop_map(|text| text.parse().unwrap()))
}

proptest! {
    #[test]
    fn the_walk_is_that_of_the_model(
        elements in vec(address(), 1..8),
        splits in vec(any::<bool>(), 8),
        peer in select(&[PROXY, "203.0.113.9"][..]),
    ) {
        let peer: IpAddr = peer.parse().unwrap();
        let text = |element: &Option<IpAddr>| element.map_or("?".to_owned(), |address| address.to_string());
        let pair = |element: &Option<IpAddr>| format!("for=\"{}\"", match element {
            Some(IpAddr::V6(v6)) => format!("[{v6}]"),
            other => text(other),
        });
        // The same elements over one line or several.
        let lines = |texts: Vec<String>| {
            let mut lines = vec![texts[0].clone()];
            for (text, split) in texts.into_iter().skip(1).zip(&splits) {
                if *split { lines.push(text) } else {
                    let line = lines.last_mut().unwrap();
                    *line = format!("{line}, {text}");
                }
            }
            lines
        };
        let find = |source, name: HeaderName, lines: Vec<String>| {
            let lines: Vec<_> = lines.iter().map(String::as_bytes).collect();
            clients(source).find(Some(peer), &headers(&name, &lines)).unwrap()
        };
        let expected = model(peer, &elements);
        let x = lines(elements.iter().map(text).collect());
        prop_assert_eq!(find(ClientAddress::XForwardedFor, X_FORWARDED_FOR, x), expected);
        let pairs = lines(elements.iter().map(pair).collect());
        prop_assert_eq!(find(ClientAddress::Forwarded, header::FORWARDED, pairs), expected);
    }

    #[test]
    fn any_header_can_be_read(line in vec(any::<u8>().prop_filter("a header", |byte| *byte >= 32 && *byte != 127), 0..80)) {
        for (source, name) in [
            (ClientAddress::XForwardedFor, X_FORWARDED_FOR),
            (ClientAddress::Forwarded, header::FORWARDED),
        ] {
            prop_assert!(clients(source).find(Some(PROXY.parse().unwrap()), &headers(&name, &[&line])).is_some());
        }
    }

    #[test]
    fn elements_are_those_of_a_reader_from_the_left(
        elements in vec("(for=\"([a,;]|\\\\\\\\|\\\\\"){0,4}\"|b)", 1..6),
    ) {
        let line = elements.join(",");
        let mut split: Vec<_> = Elements::of(line.as_bytes()).map(|element| str::from_utf8(element).unwrap()).collect();
        split.reverse();
        prop_assert_eq!(split, elements);
    }
}
