//! Rules that change while the daemon runs.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
};

use http::Method;
use nix::sys::signal::Signal;

use super::daemon::{Files, eventually, limit};

/// What the log says of a reload.
const RELOADED: &str = ": in force, rules:";

#[test]
fn sighup_keeps_what_was_counted() {
    let files = Files::with_limit(5);
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 6), 5);
    for number in 1..=10 {
        daemon.signal(Signal::SIGHUP);
        eventually("it is dealt with", || daemon.times_logged("has not changed") == number);
    }
    files.write_rules(&format!(
        "{}\n  - key: other\n    rate_limit: {{ requests_per_unit: 1, unit: day }}\n",
        limit(5).trim_end()
    ));
    eventually("the new rule is in force", || daemon.logged("rules: 2, domains: 1"));
    assert_eq!(daemon.passed("192.0.2.1", 3), 0);
}

#[test]
fn a_changed_limit_holds_at_once_and_owes_what_was_used() {
    let files = Files::with_limit(5);
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 9), 5);
    files.write_rules(&limit(8));
    eventually("it is in force", || daemon.logged(RELOADED));
    assert_eq!(daemon.passed("192.0.2.1", 9), 3);
    files.write_rules(&limit(2));
    eventually("it is in force", || daemon.times_logged(RELOADED) == 2);
    let (status, answer) = daemon.check("192.0.2.1");
    assert_eq!((status, &answer["remaining"]), (429, &0.into()));
}

#[test]
fn every_way_to_replace_a_file_is_one_reload() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    let rules = files.path("rules.d/api.yaml");
    let change = |requests: u32| limit(requests);

    fs::write(&rules, change(2)).unwrap();
    eventually("written in place", || daemon.times_logged(RELOADED) == 1);
    fs::write(files.path("rules.d/.staged"), change(3)).unwrap();
    fs::rename(files.path("rules.d/.staged"), &rules).unwrap();
    eventually("renamed over", || daemon.times_logged(RELOADED) == 2);
    fs::remove_file(&rules).unwrap();
    fs::write(&rules, change(4)).unwrap();
    eventually("deleted and created again", || daemon.times_logged(RELOADED) == 3);
    assert_eq!(daemon.passed("192.0.2.1", 6), 4);
    assert_eq!(daemon.times_logged(RELOADED), 3, "{}", daemon.log());
}

#[test]
fn a_swapped_directory_is_one_reload() {
    let files = Files::with_limit(1);
    let directory = files.path("rules.d");
    fs::remove_file(directory.join("api.yaml")).unwrap();
    for (name, requests) in [("..1", 1), ("..2", 2)] {
        fs::create_dir(directory.join(name)).unwrap();
        fs::write(directory.join(name).join("api.yaml"), limit(requests)).unwrap();
    }
    symlink("..1", directory.join("..data")).unwrap();
    symlink("..data/api.yaml", directory.join("api.yaml")).unwrap();
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 3), 1);

    symlink("..2", directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    eventually("it is in force", || daemon.logged(RELOADED));
    assert_eq!(daemon.passed("192.0.2.1", 3), 1);
    assert_eq!(daemon.times_logged(RELOADED), 1);
}

#[test]
fn a_bad_file_changes_nothing_and_is_told_once() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    files.write_rules(&limit(7).replace("requests_per_unit", "requests_per_unti"));
    eventually("it is told", || daemon.logged("requests_per_unti"));
    files.write_rules(&limit(7).replace("requests_per_unit", "requests_per_unti"));
    daemon.signal(Signal::SIGHUP);
    let failures = || daemon.get("/metrics").1.contains("ratelimit_http_reload_failures_total 0");
    eventually("it shows in the metrics", || !failures());
    assert!(daemon.logged("api.yaml:4:"), "{}", daemon.log());
    assert_eq!(daemon.times_logged("are not used"), 1, "{}", daemon.log());
    assert_eq!(daemon.passed("192.0.2.1", 3), 1);

    files.write_rules(&limit(7));
    eventually("it is in force", || daemon.logged(RELOADED));
    assert_eq!(daemon.passed("192.0.2.2", 9), 7);
}

#[test]
fn another_address_to_listen_on_waits_for_a_restart() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    let main = "http: { listen: \"127.0.0.2:0\", rules: rules.d, state_dir: state }\n";
    fs::write(files.path("rules.yaml"), main).unwrap();
    eventually("it is told", || daemon.logged("addresses to listen on take effect"));
    assert_eq!(daemon.send(Method::GET, "/readyz", String::new()).0, 200);
}

/// A directory of rules beside the one in use, with this limit.
fn staged(files: &Files, requests: u32) -> PathBuf {
    let directory = files.path("rules.staged");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("api.yaml"), limit(requests)).unwrap();
    directory
}

#[test]
fn changes_are_noticed_in_a_directory_that_was_replaced() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    let directory = files.path("rules.d");
    // Twice: the second one takes the name of a directory that was not watched from the start.
    for round in 0..2 {
        let next = staged(&files, 2 + 2 * round);
        fs::rename(&directory, files.path(&format!("rules.old{round}"))).unwrap();
        fs::rename(next, &directory).unwrap();
        let reloads = || daemon.times_logged(RELOADED);
        let before = 2 * usize::try_from(round).unwrap();
        eventually("the new directory is in force", || reloads() == before + 1);
        files.write_rules(&limit(3 + 2 * round));
        eventually("a change in it is noticed", || reloads() == before + 2);
    }
    assert_eq!(daemon.passed("192.0.2.1", 9), 5);
}

#[test]
fn a_directory_that_goes_and_comes_back_later_is_noticed() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    let directory = files.path("rules.d");
    fs::remove_dir_all(&directory).unwrap();
    eventually("it is missed", || daemon.logged("are not used"));
    fs::create_dir(&directory).unwrap();
    files.write_rules(&limit(4));
    eventually("it is in force", || daemon.logged(RELOADED));
    assert_eq!(daemon.passed("192.0.2.1", 9), 4);
}

/// A token file that nobody else can read.
fn write_token(files: &Files, token: &str) {
    let path = files.path("token");
    fs::write(&path, token).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn rules_that_a_bad_token_file_kept_out_are_in_force_once_it_is_good() {
    let files = Files::new(
        "http: { listen: \"127.0.0.1:0\", rules: rules.d, state_dir: state, token_file: token }\n",
        &limit(1),
    );
    write_token(&files, "a-token-of-some-length");
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 9), 1);

    fs::remove_file(files.path("token")).unwrap();
    eventually("the missing token file is told", || daemon.logged("are not used"));
    files.write_rules(&limit(6));
    daemon.signal(Signal::SIGHUP);
    let failures = || daemon.get("/metrics").1.contains("ratelimit_http_reload_failures_total 0");
    eventually("it shows in the metrics", || !failures());
    assert_eq!(daemon.passed("192.0.2.2", 9), 1, "the rules before are in force");

    write_token(&files, "a-token-of-some-length");
    eventually("the new rules are in force", || daemon.logged(RELOADED));
    assert_eq!(daemon.passed("192.0.2.3", 9), 6);
}

#[test]
fn a_token_file_that_was_bad_for_a_while_is_used_again() {
    let files = Files::new(
        "http: { listen: \"127.0.0.1:0\", rules: rules.d, state_dir: state, token_file: token }\n",
        &limit(1),
    );
    write_token(&files, "a-token-of-some-length");
    let daemon = files.start();
    write_token(&files, "short");
    eventually("it is told", || daemon.logged("are not used"));
    write_token(&files, "another-token-of-some-length");
    eventually("it is told that this one is good", || daemon.logged("has not changed"));
    assert_eq!(daemon.times_logged("are not used"), 1, "{}", daemon.log());
}
