//! Which rule a descriptor matches.

use super::*;

#[test]
fn the_exact_value_wins_then_the_longest_prefix_then_the_bare_key() {
    let book = book(vec![leaf("k=a*"), leaf("k"), leaf("k=abc"), leaf("k=ab*"), leaf("k=*")]);
    for (value, id) in [
        ("abc", "d/k=abc"),
        ("abcd", "d/k=ab*"),
        ("ab", "d/k=ab*"),
        ("ax", "d/k=a*"),
        ("x", "d/k=*"),
        ("", "d/k=*"),
    ] {
        assert_eq!(found(&book, &[("k", value)]), Some(id), "{value}");
    }
    assert_eq!(found(&book, &[("other", "abc")]), None);
}

#[test]
fn a_bare_key_matches_every_value() {
    let book = book(vec![leaf("k"), leaf("l=x")]);
    for value in ["", "x", "k", "a/b=c*%", "\u{0}"] {
        assert_eq!(found(&book, &[("k", value)]), Some("d/k"), "{value:?}");
    }
    assert_eq!(found(&book, &[("l", "y")]), None);
}

#[test]
fn envoys_first_wildcard_wins() {
    let descriptors = || vec![leaf("k=a*"), leaf("k=ab*"), leaf("k"), leaf("k=abc")];
    let native = book(descriptors());
    let envoy =
        RuleBook::new(&[Domain { compatibility: Compatibility::Envoy, ..domain("d", descriptors()) }], None);
    for (value, of_native, of_envoy) in [
        ("abd", "d/k=ab*", "d/k=a*"),
        ("abc", "d/k=abc", "d/k=abc"),
        ("ax", "d/k=a*", "d/k=a*"),
        ("x", "d/k", "d/k"),
    ] {
        assert_eq!(found(&native, &[("k", value)]), Some(of_native), "{value}");
        assert_eq!(found(&envoy, &[("k", value)]), Some(of_envoy), "{value}");
    }
}

#[test]
fn only_the_full_depth_matches() {
    let book = book(vec![config::Descriptor {
        rule: Some(policy(1)),
        ..branch("a", vec![branch("b=1", vec![leaf("c")])])
    }]);
    assert_eq!(found(&book, &[]), None);
    assert_eq!(found(&book, &[("a", "x")]), Some("d/a"));
    assert_eq!(found(&book, &[("a", "x"), ("b", "1")]), None);
    assert_eq!(found(&book, &[("a", "x"), ("b", "1"), ("c", "y")]), Some("d/a/b=1/c"));
    assert_eq!(found(&book, &[("a", "x"), ("b", "1"), ("c", "y"), ("e", "z")]), None);
    assert_eq!(found(&book, &[("b", "1"), ("a", "x")]), None);
}

#[test]
fn nothing_is_backtracked() {
    let book = book(vec![branch("a=x", vec![leaf("b=1")]), branch("a", vec![leaf("b=2")])]);
    assert_eq!(found(&book, &[("a", "x"), ("b", "1")]), Some("d/a=x/b=1"));
    assert_eq!(found(&book, &[("a", "x"), ("b", "2")]), None);
    assert_eq!(found(&book, &[("a", "y"), ("b", "2")]), Some("d/a/b=2"));
}

#[test]
fn domains_are_apart() {
    let book = RuleBook::new(&[domain("d", vec![leaf("k")]), domain("e", vec![leaf("l")])], None);
    assert_eq!(book.find("e", &descriptor(&[("k", "v")])).map(|rule| &*rule.id), None);
    assert_eq!(book.find("e", &descriptor(&[("l", "v")])).map(|rule| &*rule.id), Some("e/l"));
    assert_eq!(book.find("", &descriptor(&[("k", "v")])).map(|rule| &*rule.id), None);
}

#[test]
fn a_key_with_a_value_in_its_name_is_not_a_key_with_a_value() {
    let bare = book(vec![leaf("type_example"), leaf("user=x_path_y")]);
    assert_eq!(found(&bare, &[("type", "example")]), None);
    assert_eq!(found(&bare, &[("user", "x"), ("path", "y")]), None);

    let both = book(vec![leaf("a=1_b_2"), branch("a=1", vec![leaf("b=2")])]);
    assert_ne!(found(&both, &[("a", "1_b_2")]), found(&both, &[("a", "1"), ("b", "2")]));
}

#[test]
fn entries_of_different_descriptors_are_not_merged() {
    let book = book(vec![branch("A", vec![branch("B", vec![leaf("C")])])]);
    for entries in [&[("C", "3")][..], &[("A", "1"), ("B", "2")][..]] {
        assert_eq!(found(&book, entries), None);
    }
    assert_eq!(found(&book, &[("A", "1"), ("B", "2"), ("C", "3")]), Some("d/A/B/C"));
}

#[test]
fn each_of_a_thousand_rules_is_found() {
    let prefixes = (0..1_000).map(|number| leaf(&format!("p=route-{number}/*")));
    let values = (0..1_000).map(|number| leaf(&format!("v={number}")));
    let keys = (0..1_000).map(|number| leaf(&format!("k{number}")));
    let book = book(prefixes.chain(values).chain(keys).collect());
    assert_eq!(book.rules().count(), 3_000);
    for number in 0..1_000 {
        let [value, path, key] = [format!("{number}"), format!("route-{number}/x"), format!("k{number}")];
        let expected = [format!("d/v={number}"), format!("d/p=route-{number}%2F*"), format!("d/k{number}")];
        for (entry, id) in [("v", &*value), ("p", &*path), (&*key, "x")].into_iter().zip(&expected) {
            assert_eq!(found(&book, &[entry]), Some(id.as_str()));
        }
    }
    assert_eq!(found(&book, &[("v", "1000")]), None);
    assert_eq!(found(&book, &[("p", "route-1000/x")]), None);
}

#[test]
fn prefixes_end_between_characters() {
    let book = book(vec![leaf("k=\u{e9}*"), leaf("k=xy*")]);
    assert_eq!(found(&book, &[("k", "\u{e9}t\u{e9}")]), Some("d/k=\u{e9}*"));
    assert_eq!(found(&book, &[("k", "x\u{e9}")]), None);
    assert_eq!(found(&book, &[("k", "\u{1f980}")]), None);
}

#[test]
fn rules_are_in_file_order_and_known_by_their_ids() {
    let named = ruled("a=x", config::Rule { name: Some("first".to_owned()), ..policy(1) });
    let with_child = config::Descriptor { rule: Some(policy(1)), ..branch("b", vec![leaf("c")]) };
    let book = RuleBook::new(&[domain("d", vec![named, with_child]), domain("c", vec![leaf("z=*")])], None);
    let rules: Vec<_> = book.rules().map(|rule| (&*rule.label, &*rule.id, &*rule.domain)).collect();
    let expected =
        [("first", "d/a=x", "d"), ("d/b", "d/b", "d"), ("d/b/c", "d/b/c", "d"), ("c/z=*", "c/z=*", "c")];
    assert_eq!(rules, expected);
    for rule in book.rules() {
        assert!(Arc::ptr_eq(book.rule(&rule.id).unwrap(), rule));
    }
    assert!(book.rule("first").is_none());
}

#[test]
fn ids_are_never_the_same_for_different_rules() {
    let parts = ["", "a", "a=b", "a/b", "*", "%", "%2F", "a*", "=", "/", "\n", "\u{85}", "\u{0}"];
    let mut ids = HashSet::new();
    let mut rules = 0;
    for name in parts {
        for key in parts {
            for value in parts {
                let patterns = [
                    ValuePattern::Any,
                    ValuePattern::Exact(value.to_owned()),
                    ValuePattern::Prefix(value.to_owned()),
                ];
                // A bare key is the same whatever the value.
                for pattern in patterns.into_iter().skip(usize::from(!value.is_empty())) {
                    let nested = leaf("x");
                    let one = config::Descriptor {
                        key: key.to_owned(),
                        value: pattern,
                        ..config::Descriptor { rule: Some(policy(1)), ..branch("", vec![nested]) }
                    };
                    let book = RuleBook::new(&[domain(name, vec![one])], None);
                    ids.extend(book.rules().map(|rule| rule.id.to_string()));
                    rules += 2;
                }
            }
        }
    }
    assert_eq!(ids.len(), rules);
    assert!(ids.iter().all(|id| !id.contains(char::is_control)));
    assert!(ids.contains("a%2Fb/a%3Db=a%2A*/x"), "{ids:?}");
}

#[test]
fn values_of_bare_keys_and_wildcards_tell_counters_apart_unless_they_share() {
    let share = |descriptor| config::Descriptor { share_threshold: true, ..descriptor };
    let book = book(vec![
        branch("a", vec![branch("b=1", vec![branch("c=x*", vec![share(leaf("d=y*"))])])]),
        share(leaf("shared=*")),
        leaf("exact=1"),
    ]);
    let counted: Vec<_> = book.rules().map(|rule| (&*rule.id, &*rule.counted)).collect();
    let expected: [(&str, &[usize]); 3] =
        [("d/a/b=1/c=x*/d=y*", &[0, 2]), ("d/shared=*", &[]), ("d/exact=1", &[])];
    assert_eq!(counted, expected);
}
