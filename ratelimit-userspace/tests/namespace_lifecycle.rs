//! The daemon's life in real network namespaces: start, kill, restart, failure and removal, and what each
//! leaves enforced. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_lifecycle -- --include-ignored
//! ```

#[path = "namespace_lifecycle/host.rs"]
mod host;
#[path = "namespace_lifecycle/interfaces.rs"]
mod interfaces;
#[path = "namespace_lifecycle/next.rs"]
mod next;
#[path = "namespace_lifecycle/upgrade.rs"]
mod upgrade;

use std::{fs, os::unix::process::CommandExt as _, process::Command};

use aya::maps::{Array, MapData};
use host::{Daemon, Host};
use ratelimit_common::record::ABI_VERSION;

/// Five datagrams of a source pass, and for an hour none after them.
const FIVE: &str =
    "rules: [{ name: udp, match: { protocol: udp }, limits: [{ per: source, rate: 1/h, burst: 5 }] }]";

/// A policy for `interfaces`, in YAML flow style, with a small table.
fn rules(interfaces: &str, network: &str) -> String {
    format!("interfaces: {interfaces}\nnetwork: {{ sources: {{ capacity: 1024 }}, {network} }}\n")
}

fn five_on_eth0() -> String {
    rules("[{ name: eth0 }]", FIVE)
}

fn attached(name: &str, mode: &str) -> (String, String, bool) {
    (name.to_owned(), mode.to_owned(), true)
}

#[test]
#[ignore = "requires root"]
fn a_killed_daemon_leaves_enforcement_and_the_next_start_adopts_it() {
    let host = Host::new("killed");
    let daemon = host.start(&five_on_eth0());
    assert_eq!(host.send(20, "udp"), (5, 15));
    let before = host.program_id();
    assert_eq!(host.status()["daemon"]["pid"], daemon.id());
    daemon.kill();

    assert!(host.status()["daemon"].is_null());
    assert_eq!(host.interfaces().len(), 1);
    assert_eq!(host.send(10, "udp"), (5, 25), "enforcement goes on without a process");

    let daemon = host.start(&five_on_eth0());
    assert_ne!(host.program_id(), before, "a start is a new generation");
    assert!(daemon.log().contains("swapped without a gap"), "{}", daemon.log());
    assert_eq!(host.send(10, "udp"), (5, 35), "buckets and counters are kept");
    let (code, _) = daemon.terminate();
    assert_eq!(code, Some(0));
    assert_eq!(host.send(10, "udp"), (5, 45), "on_stop: keep is the default");
}

#[test]
#[ignore = "requires root"]
fn verdicts_are_told_one_by_one_when_the_log_is_to_hold_them() {
    let host = Host::new("traced");
    let daemon = host.start(&five_on_eth0());
    assert_eq!(host.send(6, "udp"), (5, 1));
    assert!(!daemon.log().contains("limited"), "{}", daemon.log());
    daemon.terminate();

    let file = host.file("rules.yaml");
    let mut command = host.daemon_command(&host.pin_dir(), &file);
    let Ok(daemon) = Daemon::spawn(command.args(["--log-level", "debug"])) else { panic!("it starts") };
    assert_eq!(host.send(1, "udp"), (5, 2));
    host.comes_to(
        || daemon.log().lines().any(|line| line.contains("refused limited") && line.contains("from 10.")),
        "a refused packet is told",
    );
    // The next generation tells as well.
    let enforced = daemon.log().matches("enforcing").count();
    fs::write(&file, five_on_eth0().replace("burst: 5", "burst: 6")).expect("a rules file");
    host.comes_to(|| daemon.log().matches("enforcing").count() > enforced, "the file is read again");
    let told = daemon.log().matches("refused limited").count();
    assert_eq!(host.send(2, "udp"), (6, 3));
    host.comes_to(|| daemon.log().matches("refused limited").count() == told + 1, "it is told");
}

#[test]
#[ignore = "requires root"]
fn a_second_daemon_is_refused_and_names_the_first() {
    let host = Host::new("second");
    let first = host.start(&five_on_eth0());
    let before = host.program_id();
    let refusal = host.refuse(&five_on_eth0());
    assert_eq!(refusal.code, Some(1));
    let words = format!("process {} (", first.id());
    assert!(refusal.log.contains(&words) && refusal.log.contains("daemon --config"), "{}", refusal.log);
    assert_eq!(host.program_id(), before);
}

#[test]
#[ignore = "requires root"]
fn a_foreign_program_is_named_and_untouched() {
    let host = Host::new("foreign");
    let owner = host.start(&five_on_eth0());
    let before = host.xdp_on("eth0");
    // To a daemon with other pins, this one's program is somebody else's.
    let other = host.pin_dir().with_file_name("other");
    let Err(refusal) = host.try_start_in(&other, &rules("[{ name: lo }, { name: eth0 }]", FIVE)) else {
        panic!("a foreign program was replaced");
    };
    assert_eq!(refusal.code, Some(1));
    let id = format!("`ratelimit`, program id {}", host.program_id());
    assert!(
        refusal.log.contains("interface eth0 already has") && refusal.log.contains(&id),
        "{}",
        refusal.log
    );
    assert_eq!(host.xdp_on("eth0"), before);
    assert_eq!(host.xdp_on("lo"), "", "nothing was attached before the refusal");
    assert!(!other.exists(), "nothing was pinned");
    assert_eq!(host.send(20, "udp"), (5, 15));
    drop(owner);
}

#[test]
#[ignore = "requires root"]
fn a_program_that_was_attached_without_a_link_is_foreign_too() {
    let host = Host::new("netlink");
    let daemon = host.start(&five_on_eth0());
    let id = host.program_id().to_string();
    let attach =
        host.lab.server.command("bpftool").args(["net", "attach", "xdp", "id", &id, "dev", "lo"]).status();
    assert!(attach.expect("bpftool runs").success());
    daemon.kill();
    // The same program as in our own link, but on an interface for which nothing of ours is pinned.
    let before = host.xdp_on("lo");
    let refusal = host.refuse(&rules("[{ name: eth0 }, { name: lo }]", FIVE));
    assert_eq!(refusal.code, Some(1));
    assert!(refusal.log.contains("interface lo already has"), "{}", refusal.log);
    assert_eq!(host.xdp_on("lo"), before);
    assert_eq!(host.program_id().to_string(), id, "the own interface keeps its program");
}

#[test]
#[ignore = "requires root"]
fn a_missing_interface_is_named_and_nothing_changes() {
    let host = Host::new("missing");
    let refusal = host.refuse(&rules("[{ name: eth0 }, { name: eth1 }]", FIVE));
    assert_eq!(refusal.code, Some(1));
    assert!(refusal.log.contains("interface eth1 does not exist"), "{}", refusal.log);
    assert!(refusal.log.contains("did you mean eth0?"), "{}", refusal.log);
    assert_eq!(host.xdp_on("eth0"), "");
    assert!(!host.pin_dir().exists(), "no directory is left");
}

#[test]
#[ignore = "requires root"]
fn on_stop_detach_leaves_nothing() {
    let host = Host::new("stop");
    let daemon = host.start(&rules("[{ name: eth0 }]", &format!("on_stop: detach, {FIVE}")));
    assert_ne!(host.xdp_on("eth0"), "");
    let (code, log) = daemon.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(host.xdp_on("eth0"), "");
    assert!(!host.pin_dir().exists());
}

#[test]
#[ignore = "requires root"]
fn detach_works_without_a_daemon_and_twice() {
    let host = Host::new("detach");
    host.start(&five_on_eth0()).kill();
    let output = host.verb(&["detach"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("detached from eth0"));
    assert_eq!(host.xdp_on("eth0"), "");
    assert!(!host.pin_dir().exists());
    let again = host.verb(&["detach"]);
    assert!(again.status.success());
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to detach"));
    assert_eq!(host.verb(&["status"]).status.code(), Some(1));
    assert_eq!(host.verb(&["counters"]).status.code(), Some(1));
}

#[test]
#[ignore = "requires root"]
fn a_daemon_that_was_detached_ends_with_an_error() {
    let host = Host::new("brake");
    let mut daemon = host.start(&five_on_eth0());
    let output = host.verb(&["detach"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("a daemon still runs"));
    assert_eq!(host.xdp_on("eth0"), "");
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(daemon.log().contains("somebody detached ratelimit"), "{}", daemon.log());
    drop(host.start(&five_on_eth0()));
}

#[test]
#[ignore = "requires root"]
fn a_pinned_map_of_another_layout_is_refused() {
    let host = Host::new("layout");
    let directory = host.pin_dir().join(format!("v{ABI_VERSION}"));
    fs::create_dir_all(&directory).expect("directories");
    let path = directory.join("rule_buckets");
    Array::<MapData, [u64; 9]>::create(512, 0x400).expect("a map").pin(&path).expect("a pin");
    let refusal = host.refuse(&five_on_eth0());
    assert_eq!(refusal.code, Some(1));
    let words = "its values have 72 bytes, expected 64";
    assert!(refusal.log.contains("rule_buckets") && refusal.log.contains(words), "{}", refusal.log);
    assert_eq!(host.xdp_on("eth0"), "");
    let left: Vec<_> =
        fs::read_dir(&directory).expect("still there").map(|entry| entry.expect("a file").path()).collect();
    assert_eq!(left, [path], "the pin stays and no other is made");
    assert!(host.verb(&["detach"]).status.success());
    drop(host.start(&five_on_eth0()));
}

#[test]
#[ignore = "requires root"]
fn another_capacity_makes_the_buckets_anew_and_keeps_the_counters() {
    let host = Host::new("capacity");
    host.start(&five_on_eth0()).kill();
    assert_eq!(host.send(20, "udp"), (5, 15));
    let daemon = host.start(&five_on_eth0().replace("1024", "4096"));
    assert!(daemon.log().contains("the capacity for sources changed"), "{}", daemon.log());
    assert_eq!(host.send(20, "udp"), (10, 30), "a fresh bucket, the old counters");
    drop(daemon);
    // A start that fails leaves the table that is used, whatever it had moved.
    let refusal = host.refuse(&rules("[{ name: eth0 }, { name: lo, mode: native }]", FIVE));
    assert!(refusal.log.contains("What was enforced before still is"), "{}", refusal.log);
    assert_eq!(host.send(10, "udp"), (10, 40));
    drop(host.start(&five_on_eth0().replace("1024", "4096")));
    assert_eq!(host.send(10, "udp"), (10, 50));
}

#[test]
#[ignore = "requires root"]
fn a_failed_attachment_undoes_the_others() {
    let host = Host::new("undo");
    let both = rules("[{ name: eth0 }, { name: lo, mode: native }]", FIVE);
    let refusal = host.refuse(&both);
    assert_eq!(refusal.code, Some(1));
    assert!(refusal.log.contains("failed to attach to lo"), "{}", refusal.log);
    assert_eq!(host.xdp_on("eth0"), "", "the new link is undone");
    assert!(!host.pin_dir().exists());

    // With a policy in force, its program comes back.
    let daemon = host.start(&five_on_eth0());
    assert_eq!(host.send(20, "udp"), (5, 15));
    let before = host.program_id();
    daemon.kill();
    let refusal = host.refuse(&both);
    assert!(refusal.log.contains("What was enforced before still is"), "{}", refusal.log);
    assert_eq!(host.program_id(), before);
    assert_eq!(host.interfaces(), [attached("eth0", "native")]);
    assert_eq!(host.send(10, "udp"), (5, 25));
}

#[test]
#[ignore = "requires root"]
fn what_the_driver_refuses_falls_back_with_a_reason() {
    let host = Host::new("fallback");
    let daemon = host.start(&rules("[{ name: eth0 }, { name: lo }]", FIVE));
    assert_eq!(host.interfaces(), [attached("lo", "generic"), attached("eth0", "native")]);
    let log = daemon.log();
    assert!(log.contains("lo: generic, attached; native was refused: Operation not supported"), "{log}");
    assert!(log.contains("eth0: native, attached"), "{log}");
}

#[test]
#[ignore = "requires root"]
fn jumbo_frames_stay_native() {
    let host = Host::new("jumbo");
    host.lab.client.ip("link set eth0 mtu 9000").expect("a larger MTU");
    host.lab.server.ip("link set eth0 mtu 9000").expect("a larger MTU");
    let daemon = host.start(&rules("[{ name: eth0, mode: native }]", FIVE));
    assert_eq!(host.interfaces(), [attached("eth0", "native")]);
    drop(daemon);
}

#[test]
#[ignore = "requires root"]
fn a_changed_mode_is_taken_over() {
    let host = Host::new("mode");
    host.start(&rules("[{ name: eth0, mode: generic }]", FIVE)).kill();
    assert_eq!(host.interfaces(), [attached("eth0", "generic")]);
    let daemon = host.start(&rules("[{ name: eth0, mode: native }]", FIVE));
    assert_eq!(host.interfaces(), [attached("eth0", "native")]);
    assert!(daemon.log().contains("a moment without enforcement"), "{}", daemon.log());
    daemon.kill();
    // `auto` leaves the mode as it is.
    let daemon = host.start(&five_on_eth0());
    assert!(daemon.log().contains("eth0: native, swapped without a gap"), "{}", daemon.log());
}

#[test]
#[ignore = "requires root"]
fn what_the_file_no_longer_has_is_no_longer_enforced() {
    let host = Host::new("fewer");
    host.start(&rules("[{ name: eth0 }, { name: lo }]", FIVE)).kill();
    assert_eq!(host.interfaces().len(), 2);
    let refusal =
        host.refuse("interfaces: [{ name: eth0 }]\nnetwork: { rules: [{ name: udp, limit: 5 }] }\n");
    assert_eq!(refusal.code, Some(1));
    assert_eq!(host.interfaces().len(), 2, "an invalid file changes nothing");
    assert_eq!(host.send(20, "udp"), (5, 15));

    let other = FIVE.replace("name: udp", "name: other").replace("burst: 5", "burst: 8");
    let daemon = host.start(&rules("[{ name: eth0 }]", &other));
    assert!(daemon.log().contains("lo: detached, the rules file no longer names it"), "{}", daemon.log());
    assert_eq!(host.interfaces(), [attached("eth0", "native")]);
    assert_eq!(host.xdp_on("lo"), "");
    assert_eq!(host.send(20, "other"), (8, 12), "a new rule begins with zeroes");
}

#[test]
#[ignore = "requires root"]
fn a_name_with_a_dot_can_be_pinned_and_an_interface_that_came_back_is_new() {
    let host = Host::new("names");
    host.lab
        .server
        .ip("link set eth0 down\nlink set eth0 name eth0.5\nlink set eth0.5 up")
        .expect("a new name");
    let dotted = rules("[{ name: eth0.5 }]", FIVE);
    let daemon = host.start(&dotted);
    assert_eq!(host.interfaces(), [attached("eth0.5", "native")]);
    daemon.kill();
    host.lab.server.ip("link delete eth0.5").expect("it goes");
    assert_eq!(host.interfaces(), [("eth0.5".to_owned(), "none".to_owned(), false)]);
    host.lab.server.ip("link add eth0.5 type veth peer name peer0\nlink set eth0.5 up").expect("another one");
    let daemon = host.start(&dotted);
    assert!(daemon.log().contains("eth0.5: native, attached"), "{}", daemon.log());
    assert_eq!(host.interfaces(), [attached("eth0.5", "native")], "the stale pin is gone");
}

#[test]
#[ignore = "requires root"]
fn pins_need_a_bpf_file_system() {
    let host = Host::new("bpffs");
    let plain = tempfile::tempdir().expect("a directory");
    let Err(refusal) = host.try_start_in(&plain.path().join("pins"), &five_on_eth0()) else {
        panic!("pins were made on a plain file system");
    };
    assert_eq!(refusal.code, Some(3));
    assert!(refusal.log.contains("mount -t bpf bpf"), "{}", refusal.log);
    assert_eq!(host.xdp_on("eth0"), "");
}

#[test]
#[ignore = "requires root"]
fn privilege_is_needed_only_for_a_network_section() {
    // The binary is copied to where everybody may run it.
    let directory = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .expect("a directory");
    let binary = directory.path().join("ratelimit");
    fs::copy(env!("CARGO_BIN_EXE_ratelimit"), &binary).expect("a copy");
    let start = |rules: &str| {
        let file = directory.path().join("rules.yaml");
        fs::write(&file, rules).expect("a rules file");
        Daemon::spawn(Command::new(&binary).uid(65534).gid(65534).arg("daemon").arg("--config").arg(file))
    };
    let Err(refusal) = start(&rules("[{ name: lo }]", FIVE)) else { panic!("it started") };
    assert_eq!(refusal.code, Some(3), "{}", refusal.log);
    assert!(refusal.log.contains("missing CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"), "{}", refusal.log);

    let Ok(daemon) = start("interfaces: [{ name: lo }]\n") else { panic!("it refused") };
    let (code, log) = daemon.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("nothing to enforce at layers 3 and 4"), "{log}");
}
