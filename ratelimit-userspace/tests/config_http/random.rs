//! No input makes it panic.

use std::{fs, path::Path};

use proptest::prelude::*;
use ratelimit::config::{self, Failure};

use crate::fixture::{Files, stored};

/// Pieces of both kinds of files, so that random ones get past the first look.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "http:",
            "rules:",
            "rules.d",
            "listen:",
            "identify:",
            "match:",
            "path:",
            "descriptors:",
            "key:",
            "value:",
            "rate_limit:",
            "unit:",
            "window:",
            "requests_per_unit:",
            "burst:",
            "algorithm:",
            "align:",
            "timezone:",
            "overrides:",
            "tier:",
            "replaces:",
            "name:",
            "domain:",
            "network:",
            "map:",
            "by:",
            "client_ip",
            "path_template:",
            "capture:",
            "segments:",
            "soft_margin:",
            "max_delay:",
            "cost:",
            "unlimited: true",
            "token_bucket",
            "leaky_bucket",
            "sliding_log",
            "calendar",
            "month",
            "interval",
            "delay",
            "soft",
            "30s",
            "1.5h",
            "10%",
            "0.05%",
            "18446744073709551615",
            "-1",
            "0",
            "a*",
            "**",
            "/{id}",
            " ",
            "\n",
            "\n  ",
            "\n    - ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            "&a ",
            "*a",
            "!x ",
            "? ",
            ": ",
            "|",
            "'",
            "\"",
            "#",
            "\u{feff}",
            "ä",
            "\t",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ]
}

/// An invalid file has at least one error, and every error a message.
fn check(main: &str, rules: &str) {
    let (files, _) =
        Files::new(&[("main.yaml", &main.replace('«', "")), ("rules.d/api.yaml", &rules.replace('«', ""))]);
    if let Err(failure) = files.load() {
        let Failure::Invalid { errors, .. } = &failure else { panic!("{failure}") };
        assert!(!errors.is_empty() && errors.iter().all(|error| !error.message.is_empty()));
    }
}

fn spliced(text: &str, at: prop::sample::Index, cut: usize, put: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let at = at.index(characters.len());
    let end = (at + cut).min(characters.len());
    characters[..at].iter().copied().chain(put.chars()).chain(characters[end..].iter().copied()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_pieces_make_it_panic(
        main in prop::collection::vec(piece(), 0..48), rules in prop::collection::vec(piece(), 0..48),
    ) {
        check(&main.concat(), &rules.concat());
        check("http: { rules: rules.d }", &format!("domain: a\ndescriptors: [{{ {} }}]", rules.concat()));
        let section = format!("http: {{ rules: rules.d, {} }}", main.concat());
        let _ = config::parse(section.as_bytes(), Path::new("none/main.yaml"));
    }

    #[test]
    fn no_change_to_valid_files_makes_it_panic(
        at in any::<prop::sample::Index>(), cut in 0_usize..40, put in piece(),
    ) {
        let main = fs::read_to_string(stored("example.yaml")).unwrap();
        let rules = fs::read_to_string(stored("rules.d/api.yaml")).unwrap();
        check(&main, &spliced(&rules, at, cut, &put));
        check(&spliced(&main, at, cut, &put), &rules);
    }

    #[test]
    fn no_limit_makes_it_panic(keys in prop::collection::vec(
        (
            prop::sample::select(vec![
                "requests_per_unit", "unit", "window", "algorithm", "burst", "refill", "segments", "rounding",
                "count_denied", "align", "timezone", "enforcement", "soft_margin", "on_limit", "max_delay",
                "unlimited", "cost",
            ]),
            prop::sample::select(vec![
                "0", "1", "7", "18446744073709551615", "second", "month", "1ns", "3650d", "fixed_window",
                "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "interval", "3600", "up", "true",
                "calendar", "first", "UTC", "soft", "100%", "delay",
            ]),
        ),
        0..9,
    )) {
        let keys: Vec<_> = keys.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
        let keys = keys.join(", ");
        let rules = format!(
            "domain: a\ndescriptors: [{{ key: a, rate_limit: {{ {keys} }}, overrides: [{{ tier: x, {keys} }}] }}]"
        );
        check("http: { rules: rules.d }", &rules);
    }
}
