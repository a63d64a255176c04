use super::*;

fn peer(address: &str) -> Peer {
    Peer::Address(address.parse().unwrap())
}

/// Access with both tokens, `asks` and `writes`, and 10.0.0.0/8 allowed.
fn access() -> Access {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        Some(path)
    };
    Access::new(&Config {
        allow_from: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        token_file: file("ask", "asks\n"),
        write_token_file: file("write", "  writes\r\n"),
    })
    .unwrap()
}

fn with(token: &str) -> Rights {
    access().rights(peer("192.0.2.1"), Some(&HeaderValue::from_str(token).unwrap()))
}

#[test]
fn this_host_may_do_everything_and_others_nothing() {
    let closed = Access::new(&Config::default()).unwrap();
    for local in [Peer::Unix, peer("127.0.0.1"), peer("127.9.9.9"), peer("::1")] {
        assert_eq!(closed.rights(local, None), Rights::Write, "{local:?}");
    }
    for other in [peer("192.0.2.1"), peer("10.0.0.1"), peer("2001:db8::1")] {
        assert_eq!(closed.rights(other, None), Rights::None, "{other:?}");
    }
}

#[test]
fn allowed_networks_may_ask_and_not_write() {
    assert_eq!(access().rights(peer("10.1.2.3"), None), Rights::Ask);
    assert_eq!(access().rights(peer("fd00::7"), None), Rights::Ask);
    assert_eq!(access().rights(peer("11.0.0.1"), None), Rights::None);
}

#[test]
fn tokens_give_their_rights_from_everywhere() {
    assert_eq!(with("Bearer asks"), Rights::Ask);
    assert_eq!(with("Bearer writes"), Rights::Write);
    assert_eq!(with("bEARER  writes "), Rights::Write, "the scheme has no case, spaces do not count");
    let allowed = access().rights(peer("10.0.0.1"), Some(&HeaderValue::from_static("Bearer writes")));
    assert_eq!(allowed, Rights::Write, "an allowed network does not lower what a token gives");
}

#[test]
fn other_tokens_give_nothing() {
    for token in ["Bearer", "Bearer ", "Bearer ask", "Bearer asks2", "Bearer ASKS", "Basic asks", "asks", ""]
    {
        assert_eq!(with(token), Rights::None, "{token}");
    }
    let tokenless = Access::new(&Config::default()).unwrap();
    assert_eq!(tokenless.rights(peer("192.0.2.1"), Some(&HeaderValue::from_static("Bearer "))), Rights::None);
}

#[test]
fn the_refusal_says_what_would_help() {
    let closed = Access::new(&Config::default()).unwrap();
    assert_eq!(closed.demand(Rights::Ask, Rights::None), Err(AccessError::Forbidden));
    assert_eq!(access().demand(Rights::Ask, Rights::None), Err(AccessError::Unauthenticated));
    assert_eq!(access().demand(Rights::Write, Rights::Ask), Err(AccessError::NeedsWrite));
    assert_eq!(access().demand(Rights::Write, Rights::Write), Ok(()));
    assert_eq!(access().demand(Rights::Ask, Rights::Write), Ok(()));
}

#[test]
fn token_files_must_hold_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let read = || Access::new(&Config { token_file: Some(path.clone()), ..Config::default() });
    let missing = read().unwrap_err();
    assert!(missing.to_string().contains("token"), "{missing}");
    for text in ["", " \n", "two words\n", "one\ntwo\n", "töken"] {
        fs::write(&path, text).unwrap();
        assert!(matches!(read(), Err(TokenError::Invalid(_))), "{text:?}");
    }
    fs::write(&path, "fine\n").unwrap();
    read().unwrap();
}

#[test]
fn what_is_printed_holds_no_token() {
    assert!(!format!("{:?}", access()).contains("writes"));
}
