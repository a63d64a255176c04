use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap_or_else(|error| panic!("{text} {error}"))
}

#[test]
fn each_part_means_what_it_says() {
    for (text, yes, no) in [
        ("eth0", &["eth0"][..], &["eth", "eth00", "eth1", ""][..]),
        ("eth*", &["eth", "eth0", "eth10.4"], &["et", "veth0", "lo"]),
        ("*", &["a", "eth0"], &["lo"]),
        ("l*", &["lan", "lo0"], &["lo"]),
        ("lo", &["lo"], &["lo0"]),
        ("eth?", &["eth0", "ethx"], &["eth", "eth10"]),
        ("eth[0-2x]", &["eth0", "eth2", "ethx"], &["eth3", "eth-", "eth"]),
        ("eth[!0-2]", &["eth3", "ethx"], &["eth0", "eth1", "eth"]),
        ("e*p*s?", &["eps0", "enp3s1", "enpps0"], &["enp3s", "ens3", "enp3s10"]),
        ("*0", &["eth0", "0", "00"], &["eth01", "eth"]),
        ("a[*]b[?]", &["a*b?"], &["axb?", "a*bx"]),
        ("a[]]", &["a]"], &["a[", "a"]),
        ("a[]-a]", &["a]", "a^", "aa"], &["a[", "ab"]),
        ("a[!]]", &["a[", "ab"], &["a]"]),
        ("a[-x]", &["a-", "ax"], &["aw"]),
        ("a[x-]", &["a-", "ax"], &["ay"]),
        ("a]", &["a]"], &["a"]),
        ("ä?", &["äx"], &["a", "äö"]),
    ] {
        let read = pattern(text);
        for name in yes {
            assert!(read.matches(name), "{text} {name}");
        }
        for name in no {
            assert!(!read.matches(name), "{text} {name}");
        }
    }
}

#[test]
fn what_is_no_pattern_says_why() {
    for (text, error) in [
        ("eth[", PatternError::Open),
        ("eth[0-9", PatternError::Open),
        ("eth[]", PatternError::Empty),
        ("eth[!]", PatternError::Empty),
        ("eth[9-0]", PatternError::Reversed),
        ("eth[ä]", PatternError::NotAscii),
    ] {
        assert_eq!(Pattern::new(text), Err(error), "{text}");
    }
}

#[test]
fn a_common_name_is_an_example() {
    for (a, b, common) in [
        ("eth*", "eth0", Some("eth0")),
        ("eth*", "*0", Some("eth0")),
        ("eth*", "e*", Some("eth")),
        ("eth[0-4]", "eth[4-9]", Some("eth4")),
        ("eth[0-4]", "eth[5-9]", None),
        ("eth*", "en*", None),
        ("eth?", "eth", None),
        ("*a*", "*b*", Some("ab")),
        // Each alone fits into a name, both do not.
        ("aaaaaaaaaa*", "*bbbbbbbbbb", None),
        ("aaaaaaaaaa*", "*bbbbb", Some("aaaaaaaaaabbbbb")),
        // The loopback interface is nobody's but its name's.
        ("l?", "?o", None),
        ("l*", "lo", None),
        ("l*", "*o", Some("l0o")),
    ] {
        let common = common.map(str::to_owned);
        for (a, b) in [(a, b), (b, a)] {
            let found = pattern(a).common(&pattern(b));
            assert_eq!(found.is_some(), common.is_some(), "{a} {b} {found:?}");
            assert_eq!(found.as_deref().map(str::len), common.as_deref().map(str::len), "{a} {b} {found:?}");
            assert!(found.is_none_or(|name| pattern(a).matches(&name) && pattern(b).matches(&name)));
        }
    }
}

/// Tries every way to share the name out among the parts.
fn naive(parts: &[Part], name: &[u8]) -> bool {
    match (parts.split_first(), name.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((Part::Star, rest)), None) => naive(rest, name),
        (Some((Part::Star, rest)), Some((_, after))) => naive(rest, name) || naive(parts, after),
        (Some((Part::One(_), _)), None) => false,
        (Some((Part::One(set), rest)), Some((byte, after))) => set.has(*byte) && naive(rest, after),
    }
}

fn text() -> impl Strategy<Value = String> {
    let part = select(&["a", "b", "*", "?", "[ab]", "[!a]", "[b-d]"][..]);
    vec(part, 1..7).prop_map(|parts| parts.concat())
}

fn name() -> impl Strategy<Value = String> {
    "[abcd]{1,6}"
}

proptest! {
    #[test]
    fn matching_is_what_the_parts_say(text in text(), name in name()) {
        let read = pattern(&text);
        prop_assert_eq!(read.matches(&name), naive(&read.parts, name.as_bytes()));
    }

    #[test]
    fn a_name_that_both_mean_is_found(a in text(), b in text(), name in name()) {
        let (a, b) = (pattern(&a), pattern(&b));
        let common = a.common(&b);
        if let Some(common) = &common {
            prop_assert!(a.matches(common) && b.matches(common) && common.len() <= MAX_BYTES);
        }
        if a.matches(&name) && b.matches(&name) {
            let common = common.expect("there is one");
            prop_assert!(common.len() <= name.len());
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,20}") {
        if let Ok(read) = Pattern::new(&text) {
            read.matches(&text);
            read.common(&read);
        }
    }
}
