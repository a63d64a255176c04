//! Interfaces that come and go while the daemon runs.

use std::{fs, thread, time::Duration};

use crate::{FIVE, attached, five_on_eth0, host::Host, rules};

/// Adds a pair of interfaces to the host; `peer` is the name of the other end.
fn plug(host: &Host, name: &str, peer: &str) {
    let lines = format!("link add {name} type veth peer name {peer}\nlink set {name} up\nlink set {peer} up");
    host.lab.server.ip(&lines).expect("another interface");
}

fn unplug(host: &Host, name: &str) {
    host.lab.server.ip(&format!("link delete {name}")).expect("it goes");
}

fn on(interfaces: &str) -> String {
    rules(interfaces, FIVE)
}

fn pins(host: &Host) -> usize {
    fs::read_dir(host.pin_dir().join("links")).expect("the pins").count()
}

#[test]
#[ignore = "requires root"]
fn an_interface_that_a_pattern_means_is_limited_when_it_comes() {
    let host = Host::new("plug");
    let daemon = host.start(&on("[{ name: 'eth*' }]"));
    assert_eq!(host.interfaces(), [attached("eth0", "native")]);
    let program = host.program_id();
    plug(&host, "eth7", "peer7");
    daemon.tells("eth7: native, attached");
    assert_eq!(host.interfaces(), [attached("eth0", "native"), attached("eth7", "native")]);
    assert_eq!(host.program_id(), program);
    assert!(!daemon.log().contains("swapped"), "what runs is not touched: {}", daemon.log());
    assert_eq!(host.xdp_on("peer7"), "");

    host.lab.server.ip("link set eth7 mtu 1400").expect("another MTU");
    daemon.tells("eth7: the MTU is 1400 now, 1500 before");
    unplug(&host, "eth7");
    daemon.tells("eth7: the interface is gone");
    host.comes_to(|| host.interfaces() == [attached("eth0", "native")], "the pin goes with the interface");
    assert_eq!(host.send(20, "udp"), (5, 15));
}

#[test]
#[ignore = "requires root"]
fn a_pattern_may_mean_no_interface_for_a_while() {
    let host = Host::new("none");
    let daemon = host.start(&on("[{ name: 'nic?' }]"));
    assert!(daemon.log().contains("there is no interface nic? now"), "{}", daemon.log());
    assert_eq!(host.interfaces(), []);
    plug(&host, "nic0", "peer0");
    daemon.tells("nic0: native, attached");
    unplug(&host, "nic0");
    host.comes_to(|| pins(&host) == 0, "the last pin goes with its interface");
    // Longer than it takes the daemon to notice that somebody detached everything: nobody did.
    thread::sleep(Duration::from_secs(6));
    // A new name counts as well as a new interface.
    host.lab.server.ip("link set eth0 down\nlink set eth0 name nic1\nlink set nic1 up").expect("a new name");
    daemon.tells("nic1: native, attached");
    assert_eq!(host.send(20, "udp"), (5, 15));
    let (code, log) = daemon.terminate();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
#[ignore = "requires root"]
fn an_interface_that_comes_back_is_limited_again() {
    let host = Host::new("again");
    plug(&host, "eth5", "peer5");
    let daemon = host.start(&on("[{ name: eth0 }, { name: eth5, mode: generic }]"));
    unplug(&host, "eth5");
    daemon.tells("eth5: the interface is gone");
    let gone = ("eth5".to_owned(), "none".to_owned(), false);
    assert_eq!(host.interfaces(), [attached("eth0", "native"), gone], "status tells what is missing");
    plug(&host, "eth5", "peer5");
    host.comes_to(
        || host.interfaces() == [attached("eth0", "native"), attached("eth5", "generic")],
        "the new one runs the policy, and the old pin is gone",
    );
    // Gone and back before anybody looks, and with the same index.
    let index = host.status()["interfaces"][1]["index"].clone();
    let again = format!("link delete eth5\nlink add eth5 index {index} type veth peer name peer5");
    host.lab.server.ip(&again).expect("another one");
    host.comes_to(
        || host.interfaces() == [attached("eth0", "native"), attached("eth5", "generic")],
        "so does one that took the index of the old one",
    );
    drop(daemon);
}

#[test]
#[ignore = "requires root"]
fn a_renamed_interface_stays_limited() {
    let host = Host::new("rename");
    let daemon = host.start(&five_on_eth0());
    assert_eq!(host.send(20, "udp"), (5, 15));
    host.lab.server.ip("link set eth0 down\nlink set eth0 name wan\nlink set wan up").expect("a new name");
    daemon.tells("wan: called eth0 before, and limited as before");
    assert_eq!(host.interfaces(), [attached("wan", "native")]);
    assert_eq!(host.send(10, "udp"), (5, 25));
    assert_eq!(pins(&host), 1);
    assert!(host.verb(&["detach"]).status.success());
    assert_eq!(host.xdp_on("wan"), "");
}

#[test]
#[ignore = "requires root"]
fn a_foreign_program_on_one_of_many_interfaces_is_told_once_and_left_alone() {
    let host = Host::new("pass");
    let theirs = host.pin_dir().with_file_name("theirs");
    let Ok(owner) = host.try_start_in(&theirs, &five_on_eth0()) else { panic!("it refused") };
    let before = host.xdp_on("eth0");
    plug(&host, "eth1", "peer1");
    let daemon = host.start(&on("[{ name: 'eth*' }]"));
    assert_eq!(host.interfaces(), [attached("eth1", "native")]);
    let words = "passed over: interface eth0 already has an XDP program";
    daemon.tells(words);
    plug(&host, "eth2", "peer2");
    daemon.tells("eth2: native, attached");
    assert_eq!(daemon.log().matches(words).count(), 1, "{}", daemon.log());
    assert_eq!(host.xdp_on("eth0"), before);

    // What comes with a foreign program is left alone too, and taken when that is gone.
    drop(owner);
    let mut detach = host.lab.server.command(env!("CARGO_BIN_EXE_ratelimit"));
    assert!(detach.arg("detach").arg("--pin-dir").arg(&theirs).status().expect("it runs").success());
    host.lab.server.ip("link set eth0 mtu 1400").expect("something that is told");
    daemon.tells("eth0: native, attached");
    assert_eq!(host.send(20, "udp"), (5, 15));
}

#[test]
#[ignore = "requires root"]
fn what_was_detached_is_not_attached_again() {
    let host = Host::new("off");
    let mut daemon = host.start(&on("[{ name: 'eth*' }]"));
    assert!(host.verb(&["detach"]).status.success());
    plug(&host, "eth3", "peer3");
    assert_eq!(daemon.wait().code(), Some(1), "{}", daemon.log());
    assert_eq!((host.xdp_on("eth0"), host.xdp_on("eth3")), (String::new(), String::new()));
}

#[test]
#[ignore = "requires root"]
fn status_explains_interfaces_that_are_no_cards() {
    let host = Host::new("kinds");
    plug(&host, "eth1", "peer1");
    host.lab
        .server
        .ip("link add br0 type bridge\nlink set eth0 master br0\n\
             link add link eth1 name eth2 type macvlan\ntuntap add dev eth3 mode tun")
        .expect("interfaces");
    let daemon = host.start(&on("[{ name: 'eth*' }]"));
    let status = String::from_utf8(host.verb(&["status"]).stdout).expect("text");
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).expect("a line").to_owned();
    for (name, words) in
        [("eth0", "a port of the bridge br0"), ("eth2", "a share of eth1"), ("eth3", "not protected")]
    {
        assert!(line(name).contains(words), "{status}");
    }
    assert!(line("eth1").trim_end().ends_with(char::is_numeric), "nothing to say of eth1: {status}");
    drop(daemon);
}
