use proptest::prelude::*;

use super::*;

#[test]
fn spellings_of_a_path_are_one() {
    let cases = [
        ("/", "/"),
        ("", "/"),
        ("*", "*"),
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("/A/b", "/A/b"),
        ("//a///b//", "/a/b/"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a//../b", "/b"),
        ("/../../a", "/a"),
        ("/a/b/..", "/a/"),
        ("/a/.", "/a/"),
        ("/..", "/"),
        ("/a/...", "/a/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/%61pi/%7Euser/%2d%2E%5f", "/api/~user/-._"),
        ("/a/%2e%2e/b", "/b"),
        ("/a/%2E/b", "/a/b"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%2f..%2fb", "/a%2F..%2Fb"),
        ("/%c3%a9", "/%C3%A9"),
        ("/é", "/%C3%A9"),
        ("/%3fx%3D", "/%3Fx%3D"),
        ("/a b\u{7f}", "/a%20b%7F"),
        ("/100%", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/%4", "/%254"),
        ("/%%34%31", "/%2541"),
        ("/a;p=1,2@x:y!$&'()*+=", "/a;p=1,2@x:y!$&'()*+="),
        ("a/b", "/a/b"),
    ];
    for (path, normal) in cases {
        assert_eq!(normalise(path), normal, "{path}");
    }
}

#[test]
fn a_target_is_taken_apart() {
    let cases = [
        ("/a?x=1", None, "/a", Some("x=1")),
        ("/a?x=1?y#f?z", None, "/a", Some("x=1?y")),
        ("/a#f?x", None, "/a", None),
        ("/a?", None, "/a", Some("")),
        ("?x=1", None, "/", Some("x=1")),
        ("http://example.com", Some("example.com"), "/", None),
        ("HTTPS://user@Example.com:8443/a/../b?x", Some("user@Example.com:8443"), "/b", Some("x")),
        ("http://example.com?x=/y", Some("example.com"), "/", Some("x=/y")),
        ("http:///a", None, "/a", None),
        ("//example.com/a", None, "/example.com/a", None),
        ("/http://example.com/a", None, "/http:/example.com/a", None),
        ("1http://x/a", None, "/1http:/x/a", None),
        ("*", None, "*", None),
        ("example.com:443", None, "/example.com:443", None),
    ];
    for (text, authority, path, query) in cases {
        let target = Target::parse(text);
        assert_eq!((target.authority, &*target.path, target.query), (authority, path, query), "{text}");
    }
}

#[test]
fn a_path_that_needs_nothing_is_not_copied() {
    assert!(matches!(normalise("/api/users/7"), Cow::Borrowed(_)));
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing(path in "(\\PC|[/.%]|%2[eEfF5]|%[0-9a-f]{2}|/){0,40}") {
        let once = normalise(&path).into_owned();
        prop_assert_eq!(normalise(&once), once.as_str());
        let parsed = Target::parse(&path).path.into_owned();
        prop_assert_eq!(&*Target::parse(&parsed).path, parsed.as_str());
    }

    #[test]
    fn a_normal_path_has_no_way_up_and_no_empty_segment(path in "(/|\\.|%2[eEfF]|a|%|2|5){0,30}") {
        let normal = normalise(&path);
        prop_assert!(normal.starts_with('/'));
        let segments: Vec<_> = normal[1..].split('/').collect();
        let (last, others) = segments.split_last().unwrap();
        prop_assert!(![".", ".."].contains(last), "{}", normal);
        prop_assert!(others.iter().all(|segment| !["", ".", ".."].contains(segment)), "{}", normal);
    }
}
