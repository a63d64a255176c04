//! Files that change while the daemon runs.

use std::{fs, os::unix::fs::symlink};

use nix::sys::signal::Signal;

use crate::{
    datagrams, eventually,
    host::{Daemon, Host},
    json, ledger, policy, refusal, tell,
};

/// What the log says of a policy in force.
const IN_FORCE: &str = "enforcing, ";

fn reloads(daemon: &Daemon) -> usize {
    // One is the start.
    daemon.log().matches(IN_FORCE).count() - 1
}

/// Waits for a reload.
fn reloaded(daemon: &Daemon, how: &str, count: usize) {
    eventually(how, || (reloads(daemon) >= count).then_some(()));
    assert_eq!(reloads(daemon), count, "{how}: {}", daemon.log());
}

#[test]
#[ignore = "requires root: network namespaces"]
fn every_way_to_change_the_file_is_one_reload_that_keeps_what_was_used() {
    let host = Host::new("changed");
    let daemon = host.start(&policy(&datagrams(5)));
    assert_eq!(host.send(20, "udp"), (5, 15));
    let before = ledger::unjudged(&host);
    let file = host.file("rules.yaml");

    fs::write(&file, policy(&datagrams(6))).expect("a file");
    reloaded(&daemon, "written in place", 1);
    assert_eq!(host.send(20, "udp"), (6, 34), "one more, and at once");

    let staged = host.file("staged");
    fs::write(&staged, policy(&datagrams(7))).expect("a file");
    fs::rename(&staged, &file).expect("a file");
    reloaded(&daemon, "renamed over", 2);
    assert_eq!(host.send(20, "udp"), (7, 53));

    fs::remove_file(&file).expect("it was there");
    fs::write(&file, policy(&datagrams(8))).expect("a file");
    reloaded(&daemon, "deleted and created again", 3);
    assert_eq!(host.send(20, "udp"), (8, 72));

    // As Kubernetes has it: the name is a link to a name in a directory that another link stands for.
    for (directory, burst) in [("..1", 8), ("..2", 9)] {
        fs::create_dir(host.file(directory)).expect("a directory");
        fs::write(host.file(directory).join("rules.yaml"), policy(&datagrams(burst))).expect("a file");
    }
    symlink("..1", host.file("..data")).expect("a link");
    symlink("..data/rules.yaml", &staged).expect("a link");
    fs::rename(&staged, &file).expect("a link");
    // The links say what the file said.
    daemon.signal(Signal::SIGHUP);
    daemon.tells("SIGHUP: the configuration has not changed");
    symlink("..2", host.file("..data_tmp")).expect("a link");
    fs::rename(host.file("..data_tmp"), host.file("..data")).expect("a link");
    reloaded(&daemon, "a swapped link", 4);
    assert_eq!(host.send(20, "udp"), (9, 91));
    assert_eq!(ledger::unjudged(&host), before, "no frame passed beside a program");
    assert_eq!(json(&host, &["status"])["reloads"]["failed"], 0);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_bad_file_is_told_once_with_its_line_and_changes_nothing() {
    let host = Host::new("bad");
    let daemon = host.start(&policy(&datagrams(5)));
    let program = host.program_id();
    let file = host.file("rules.yaml");
    fs::write(&file, policy(&datagrams(9)).replace("burst", "brust")).expect("a file");
    daemon.tells("are not used, what was in force still is");
    let status = json(&host, &["status"]);
    assert_eq!((&status["reloads"]["last_ok"], &status["reloads"]["failed"]), (&false.into(), &1.into()));
    let error = status["reloads"]["error"].as_str().expect("a reason").to_owned();
    assert!(error.contains("rules.yaml:2:") && error.contains("brust"), "{error}");

    // Asked again, it is the same.
    assert!(refusal(&host, &["reload"]).contains("rules.yaml:2:"));
    daemon.signal(Signal::SIGHUP);
    assert!(refusal(&host, &["reload"]).contains("brust"));
    assert_eq!(daemon.log().matches("are not used").count(), 1, "{}", daemon.log());
    assert_eq!(host.program_id(), program, "the program is the one before");
    assert_eq!(host.send(20, "udp"), (5, 15));

    fs::write(&file, policy(&datagrams(6))).expect("a file");
    reloaded(&daemon, "a good file", 1);
    let reloads = &json(&host, &["status"])["reloads"];
    assert_eq!((&reloads["last_ok"], &reloads["error"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(host.send(20, "udp"), (6, 34));
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_reload_on_command_tells_what_it_did() {
    let host = Host::new("asked");
    let daemon = host.start(&policy(&datagrams(5)));
    let unchanged = json(&host, &["reload"]);
    assert_eq!((&unchanged["changed"], &unchanged["rules"]), (&false.into(), &1.into()));
    assert_eq!(host.send(20, "udp"), (5, 15));
    tell(&host, &["mode", "monitor"]);
    assert_eq!(host.status()["policy"]["mode"], "monitor");
    assert_eq!(host.send(0, "udp"), (5, 15), "counters stay");
    tell(&host, &["mode", "enforce"]);
    assert_eq!(host.send(10, "udp"), (5, 25), "and so do buckets");
    drop(daemon);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_changed_deny_file_is_read_again() {
    let host = Host::new("denied");
    let list = host.file("deny.txt");
    fs::write(&list, "192.0.2.0/24\n").expect("a list");
    let daemon = host.start(&policy(&format!("deny_files: [deny.txt], {}", datagrams(100))));
    assert_eq!(host.send(10, "udp"), (10, 0));
    fs::write(&list, "192.0.2.0/24\n10.128.0.0/16 # the source of the flood\n").expect("a list");
    reloaded(&daemon, "a longer list", 1);
    host.flood(10);
    eventually("it is denied", || {
        (ledger::Ledger::read(&host).reason("denied").shed.packets == 10).then_some(())
    });
    assert_eq!(host.counts("udp"), (10, 0));
    fs::remove_file(&list).expect("it was there");
    daemon.tells("are not used, what was in force still is");
    assert!(daemon.log().contains("deny.txt"), "{}", daemon.log());
    fs::write(&list, "192.0.2.0/24\n").expect("a list");
    reloaded(&daemon, "the list before", 2);
    assert_eq!(host.send(10, "udp"), (20, 0));
}
