use proptest::prelude::*;

use super::*;

#[test]
fn a_path_has_its_first_versioned_segment() {
    let cases = [
        ("/v1/users", Some("v1")),
        ("/api/v22/v3", Some("v22")),
        ("/V1/v", None),
        ("/v1beta/x", None),
        ("/v1.2", None),
        ("/vpn", None),
        ("/", None),
    ];
    for (path, version) in cases {
        assert_eq!(of_path(path), version, "{path}");
    }
}

#[test]
fn both_ways_to_ask_for_a_media_type_of_a_version_are_one() {
    let cases = [
        ("application/vnd.example.v2+json", Some("v2")),
        ("application/vnd.example-v2+json; q=0.5", Some("v2")),
        ("Application/Vnd.Example.V2+JSON", Some("v2")),
        ("application/vnd.github.v3.raw+json", Some("v3")),
        ("application/json; version=2", Some("v2")),
        ("application/json;q=1; Version = \"2\"", Some("v2")),
        ("application/json; version=v2", Some("v2")),
        ("application/json; version=2.1", Some("v2.1")),
        ("application/json; version=2024-10-01", Some("2024-10-01")),
        ("text/html, application/vnd.example.v2+json, application/json;version=3", Some("v2")),
        ("application/vnd.example+v2", None),
        ("application/json; version=", None),
        ("*/*", None),
        ("", None),
        (",;=,/;version", None),
    ];
    for (accept, version) in cases {
        assert_eq!(of_accept(accept).as_deref(), version, "{accept}");
    }
}

proptest! {
    #[test]
    fn any_accept_header_can_be_read(accept in "(\\PC|[,;=/.v0-9\"+ ]){0,40}") {
        let _ = of_accept(&accept);
        let _ = of_path(&accept);
    }
}
