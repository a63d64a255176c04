//! A policy on trial.

use std::fs;

use crate::{datagrams, eventually, host::Host, json, policy, refusal, tell};

/// Puts a policy on trial; its id.
fn try_out(host: &Host, rules: &str, time: &str) -> String {
    let file = host.file("new.yaml");
    fs::write(&file, rules).expect("a file");
    let applied = json(host, &["apply", file.to_str().expect("text"), "--confirm", time]);
    applied["id"].as_str().expect("an id").to_owned()
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_trial_is_confirmed_or_rolled_back_and_no_bucket_is_filled() {
    let host = Host::new("trial");
    let (before, after) = (policy(&datagrams(5)), policy(&datagrams(8)));
    let _daemon = host.start(&before);
    assert_eq!(host.send(20, "udp"), (5, 15));
    let program = host.program_id();

    let id = try_out(&host, &after, "1h");
    assert_eq!(json(&host, &["status"])["trial"]["id"], *id);
    assert_eq!(host.send(20, "udp"), (8, 32), "it is in force");
    assert_eq!(fs::read_to_string(host.file("rules.yaml")).expect("a file"), before, "not for good");
    assert!(refusal(&host, &["apply", host.file("new.yaml").to_str().expect("text")]).contains("on trial"));
    tell(&host, &["apply", "rollback", &id]);
    assert_eq!(host.program_id(), program, "the very generation before");
    assert_eq!(host.send(10, "udp"), (8, 42), "with nothing to give");

    let id = try_out(&host, &after, "1h");
    tell(&host, &["apply", "confirm", &id]);
    assert_eq!(fs::read_to_string(host.file("rules.yaml")).expect("a file"), after);
    assert!(json(&host, &["status"])["trial"].is_null());
    assert!(refusal(&host, &["apply", "rollback", &id]).contains("confirmed or rolled back already"));
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_trial_that_nobody_confirms_ends_with_the_daemon_or_without_it() {
    let host = Host::new("deadline");
    let (before, after) = (policy(&datagrams(5)), policy(&datagrams(8)));
    for dies in [false, true] {
        let daemon = host.start(&before);
        let program = host.program_id();
        try_out(&host, &after, "5s");
        assert_ne!(host.program_id(), program);
        let daemon = if dies {
            daemon.kill();
            None
        } else {
            Some(daemon)
        };
        eventually("the generation before is back", || (host.program_id() == program).then_some(()));
        assert!(host.interfaces().iter().all(|(_, _, current)| *current), "{}", host.status());
        assert!(json(&host, &["status"])["trial"].is_null());
        assert_eq!(fs::read_to_string(host.file("rules.yaml")).expect("a file"), before);
        drop(daemon);
    }
}
