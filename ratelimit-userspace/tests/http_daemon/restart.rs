//! Counters that outlive the process.

use std::fs;

use super::daemon::Files;

#[test]
fn counters_of_long_windows_outlive_a_restart() {
    let files = Files::with_limit(3);
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 2), 2);
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
    let daemon = files.start();
    assert!(daemon.logged("1 counters of the last start are kept"), "{}", daemon.log());
    assert_eq!(daemon.passed("192.0.2.1", 3), 1);
}

#[test]
fn damaged_counters_are_told_of_and_left() {
    let files = Files::with_limit(1);
    let daemon = files.start();
    assert_eq!(daemon.passed("192.0.2.1", 2), 1);
    daemon.stop();
    let counters = files.path("state/http.counters");
    let mut bytes = fs::read(&counters).unwrap();
    bytes.pop();
    fs::write(&counters, bytes).unwrap();
    let daemon = files.start();
    assert!(daemon.logged("http.counters is not used"), "{}", daemon.log());
    assert_eq!(daemon.passed("192.0.2.1", 2), 1);
}
