//! A policy on trial.

use std::fs;

use nix::sys::signal::Signal;

use crate::{datagrams, eventually, host::Host, json, policy, refusal, tell, terminal::Terminal};

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

#[test]
#[ignore = "requires root: network namespaces"]
fn a_daemon_that_starts_during_a_trial_goes_back_to_its_rules_file() {
    let host = Host::new("started");
    let (before, after) = (policy(&datagrams(5)), policy(&datagrams(8)));
    let daemon = host.start(&before);
    assert_eq!(host.send(20, "udp"), (5, 15));
    let id = try_out(&host, &after, "1h");
    assert_eq!(host.send(5, "udp"), (8, 17));
    daemon.kill();
    assert_eq!(host.send(5, "udp"), (8, 22), "the policy on trial needs no daemon");
    let daemon = host.start(&before);
    assert!(daemon.log().contains("a policy was on trial when the daemon ended"), "{}", daemon.log());
    assert!(json(&host, &["status"])["trial"].is_null());
    assert!(refusal(&host, &["apply", "confirm", &id]).contains("confirmed or rolled back already"));
    assert_eq!(fs::read_to_string(host.file("rules.yaml")).expect("a file"), before);
    assert_eq!(host.send(10, "udp"), (8, 32), "no bucket is filled");

    // The next trial has nothing to do with that one.
    let id = try_out(&host, &after, "1h");
    tell(&host, &["apply", "confirm", &id]);
    assert_eq!(fs::read_to_string(host.file("rules.yaml")).expect("a file"), after);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_person_at_a_terminal_is_asked_and_answers() {
    let host = Host::new("asked");
    let (before, after) = (policy(&datagrams(5)), policy(&datagrams(8)));
    let _daemon = host.start(&before);
    let program = host.program_id();
    let file = host.file("new.yaml");
    fs::write(&file, &after).expect("a file");
    let ask = |time: &str| {
        let mut terminal = Terminal::run(&host, &["apply", file.to_str().expect("text"), "--confirm", time]);
        terminal.shows("keeps it");
        assert_ne!(host.program_id(), program, "it is in force");
        terminal
    };
    let in_file = || fs::read_to_string(host.file("rules.yaml")).expect("a file");

    for keys in ["n\n", "\u{3}", "\u{4}"] {
        let mut terminal = ask("1h");
        terminal.types(keys);
        let (code, shown) = terminal.ends();
        assert_eq!(code, Some(1), "{keys:?}: {shown}");
        assert!(shown.contains("rolled back"), "{keys:?}: {shown}");
        assert_eq!(host.program_id(), program, "{keys:?}");
    }
    let (code, shown) = ask("5s").ends();
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("the time is over"), "{shown}");
    eventually("the generation before is back", || (host.program_id() == program).then_some(()));
    eventually("the trial is over", || json(&host, &["status"])["trial"].is_null().then_some(()));
    assert_eq!(in_file(), before);

    let mut terminal = ask("1h");
    terminal.types("y\n");
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("confirmed"), "{shown}");
    assert_eq!(in_file(), after);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_terminal_that_dies_leaves_the_trial_to_be_confirmed_elsewhere() {
    let host = Host::new("hung-up");
    let (before, after) = (policy(&datagrams(5)), policy(&datagrams(8)));
    let _daemon = host.start(&before);
    let file = host.file("new.yaml");
    fs::write(&file, &after).expect("a file");
    let mut terminal = Terminal::run(&host, &["apply", file.to_str().expect("text"), "--confirm", "1h"]);
    terminal.shows("keeps it");
    assert_eq!(terminal.dies(), Some(Signal::SIGHUP as i32));
    let id = json(&host, &["status"])["trial"]["id"].as_str().expect("it is on trial still").to_owned();
    tell(&host, &["apply", "confirm", &id]);
    assert_eq!(host.send(20, "udp"), (8, 12));
    assert_eq!(fs::read_to_string(host.file("rules.yaml")).expect("a file"), after);
}
