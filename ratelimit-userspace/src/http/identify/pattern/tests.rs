use proptest::prelude::*;

use super::*;

#[test]
fn stars_stay_within_a_segment_or_cross_segments() {
    let cases = [
        ("/api/**", &["/api", "/api/", "/api/x", "/api/x/y/"][..], &["/", "/apix", "/apix/y", "/x/api"][..]),
        ("/api/*", &["/api/", "/api/x"], &["/api", "/api/x/", "/api/x/y"]),
        ("/api/*/users", &["/api/v1/users"], &["/api/users", "/api/v1/x/users", "/api/v1/users/"]),
        ("/**", &["/", "/a", "/a/b", "*"], &[]),
        ("**", &["/", "/a", "/a/b", "*"], &[]),
        ("/**/*", &["/", "/a", "/a/b"], &["*"]),
        ("*", &["/", "/a"], &["*", "/a/b"]),
        ("/**/x", &["/x", "/a/x", "/a/b/x", "/x/x"], &["/", "/x/", "/ax"]),
        ("/a/**/b/**/c", &["/a/b/c", "/a/1/b/2/3/c", "/a/b/b/c/c"], &["/a/c", "/a/b", "/a/b/c/d"]),
        ("/*.js", &["/a.js", "/.js", "/a.js.js"], &["/a.jsx", "/a/b.js"]),
        ("/a*b*c", &["/abc", "/axxbxbc", "/abcc"], &["/ac", "/abcd"]),
        ("/a**b", &["/ab", "/axb"], &["/a/b"]),
        ("/caf%c3%a9/%7Ex", &["/caf%C3%A9/~x"], &["/caf%C3%A9/x"]),
        ("/a?", &[], &["/a", "/ab"]),
        ("/[ab]{c,d}", &["/[ab]{c,d}"], &["/ac"]),
    ];
    for (pattern, good, bad) in cases {
        let compiled = PathPattern::new(pattern);
        for path in good {
            assert!(compiled.matches(path), "{pattern} should match {path}");
        }
        for path in bad {
            assert!(!compiled.matches(path), "{pattern} should not match {path}");
        }
    }
}

#[test]
fn a_pattern_that_backtracks_is_quick() {
    let pattern = PathPattern::new(&"/**/*a*".repeat(30));
    assert!(!pattern.matches(&"/b".repeat(20_000)));
    assert!(
        !PathPattern::new(&format!("/{}b", "*a".repeat(50))).matches(&format!("/{}", "a".repeat(20_000)))
    );
}

#[test]
fn a_star_before_a_host_is_one_label_or_more() {
    let below = HostPattern::new("*.example.com");
    assert!(below.matches("a.example.com"));
    assert!(below.matches("b.a.example.com"));
    assert!(!below.matches("example.com"));
    assert!(!below.matches(".example.com"));
    assert!(!below.matches("badexample.com"));
    assert!(HostPattern::new("example.com").matches("example.com"));
    assert!(!HostPattern::new("example.com").matches("a.example.com"));
}

/// What a pattern means, without regard to time.
fn model(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", pattern @ ..], path) => (0..=path.len()).any(|taken| model(pattern, &path[taken..])),
        ([first, pattern @ ..], [segment, path @ ..]) => {
            model_text(first.as_bytes(), segment.as_bytes()) && model(pattern, path)
        }
        _ => false,
    }
}

fn model_text(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', pattern @ ..], text) => (0..=text.len()).any(|taken| model_text(pattern, &text[taken..])),
        ([wanted, pattern @ ..], [byte, text @ ..]) => wanted == byte && model_text(pattern, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn patterns_match_what_they_mean(
        pattern in "(/(\\*\\*|[ab*]{1,3})){1,5}",
        path in "(/[ab]{1,3}){0,5}/?",
    ) {
        let path = super::super::path::normalise(&path);
        let expected = model(
            &pattern.split('/').collect::<Vec<_>>(),
            &path.split('/').collect::<Vec<_>>(),
        );
        prop_assert_eq!(PathPattern::new(&pattern).matches(&path), expected);
    }
}
