//! What cannot be replayed: each with its exit code and a message that names the file and what to do.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

use super::{
    capture::{ETHERNET, Order, PcapNg, Record, pcap, pcap_header},
    frame::udp,
    recording::{Outcome, Recording},
};

const RULES: &str = "rules: [{ name: all, limits: { per: source, rate: 1/s } }]";
const LINUX_COOKED: u16 = 113;

fn records(count: u64) -> Vec<Record> {
    (0..count).map(|second| Record::whole(second * 1_000_000_000, udp("10.0.0.1").frame())).collect()
}

#[test]
fn what_is_no_capture_is_named_before_any_privilege_is_asked_for() {
    for junk in [&b""[..], b"rules:\n", &[0; 100], &[0x7f; 5000], &pcap(Order::Little, true, &[])[..10]] {
        let recording = Recording::new(RULES, junk);
        let outcome = recording.run(&["--json"]);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""), "{junk:?}: {}", outcome.err);
        assert!(outcome.err.contains(&recording.capture().display().to_string()), "{}", outcome.err);
        assert!(outcome.err.starts_with("error: ") && outcome.err.lines().count() == 1, "{}", outcome.err);
    }
}

#[test]
fn files_that_cannot_be_read_are_bad_usage_and_bad_rules_a_failure() {
    let recording = Recording::new(RULES, &pcap(Order::Little, true, &records(1)));
    let (rules, capture) = (recording.rules(), recording.capture());
    let missing = recording.folder().join("missing");
    let broken = recording.folder().join("broken.yaml");
    fs::write(&broken, "network: { ruls: [] }").expect("it can be written");
    let empty = recording.folder().join("empty.yaml");
    fs::write(&empty, "interfaces: [{ name: eth0 }]\n").expect("it can be written");
    let [rules, capture, missing, broken, empty, folder] =
        [rules, capture, missing, broken, empty, recording.folder()].map(|path| path.display().to_string());
    let cases = [
        (vec![&missing, "--config", &rules], 2, "missing"),
        (vec![&folder, "--config", &rules], 2, &folder),
        (vec![&capture, "--config", &missing], 2, "missing"),
        (vec![&capture, "--config", &broken], 1, "ruls"),
        (vec![&capture, "--config", &empty], 1, "network"),
        (vec![&capture], 2, "--config"),
        (vec!["--config", &rules], 2, "FILE"),
        (vec![&capture, "--config", &rules, "--jsn"], 2, "--json"),
    ];
    for (arguments, code, named) in cases {
        let outcome = Outcome::of(&arguments);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(code), ""), "{arguments:?}: {}", outcome.err);
        assert!(outcome.err.contains(named), "{arguments:?}: {}", outcome.err);
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn without_privilege_the_missing_capabilities_are_named() {
    let recording = Recording::new(RULES, &pcap(Order::Little, true, &records(1)));
    // Where nobody can get at it.
    let binary = recording.folder().join("ratelimit");
    fs::copy(env!("CARGO_BIN_EXE_ratelimit"), &binary).expect("it can be copied");
    fs::set_permissions(recording.folder(), Permissions::from_mode(0o755)).expect("it is ours");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(binary)
        .arg("replay")
        .arg(recording.capture())
        .arg("--config")
        .arg(recording.rules())
        .output();
    let outcome = Outcome::new(output.expect("it runs"));
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(3), ""), "{}", outcome.err);
    assert!(outcome.err.contains("CAP_BPF") && outcome.err.contains("CAP_NET_ADMIN"), "{}", outcome.err);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn another_link_type_is_refused_by_its_number() {
    let captures = [
        pcap_header(Order::Little, false, LINUX_COOKED),
        PcapNg::new(Order::Big).interface(LINUX_COOKED, None).bytes(),
    ];
    for capture in captures {
        let outcome = Recording::new(RULES, &capture).run(&["--json"]);
        assert_eq!(outcome.code, Some(1), "{}", outcome.err);
        assert!(outcome.err.contains("113") && outcome.err.contains("Ethernet"), "{}", outcome.err);
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_capture_that_ends_early_or_is_damaged_tells_all_that_came_before() {
    let pcap = pcap(Order::Little, true, &records(3));
    let whole = records(1).remove(0);
    let pcapng = |interface| {
        PcapNg::new(Order::Little)
            .interface(ETHERNET, None)
            .packet(0, 1, &whole)
            .packet(0, 2, &whole)
            .packet(interface, 3, &whole)
            .bytes()
    };
    let record = 16 + whole.data.len();
    let mut endless = pcap.clone();
    // The captured length of the third packet.
    endless[24 + 2 * record + 8..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let damaged = [
        ("ends within the third packet", pcap[..pcap.len() - 1].to_vec()),
        ("ends within the third header", pcap[..24 + 2 * record + 7].to_vec()),
        ("ends within a block", pcapng(0)[..pcapng(0).len() - 5].to_vec()),
        ("an endless packet", endless),
        ("an interface that is not there", pcapng(7)),
        (
            "a link type within",
            [pcapng(0), PcapNg::new(Order::Little).interface(LINUX_COOKED, None).bytes()].concat(),
        ),
    ];
    for (what, capture) in damaged {
        let recording = Recording::new(RULES, &capture);
        let outcome = recording.run(&["--json"]);
        let (lines, summary) = outcome.lines();
        let before = if what == "a link type within" { 3 } else { 2 };
        assert_eq!((outcome.code, lines.len()), (Some(1), before), "{what}: {}", outcome.err);
        assert_eq!(summary["packets"], before, "{what}");
        assert!(outcome.err.contains(&recording.capture().display().to_string()), "{what}: {}", outcome.err);
        assert_eq!(outcome.err.lines().count(), 1, "{what}: {}", outcome.err);
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_reader_that_goes_away_is_no_failure() {
    let recording = Recording::new(RULES, &pcap(Order::Little, true, &records(5000)));
    let mut replay = recording
        .command()
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(replay.stdout.take());
    let outcome = Outcome::new(replay.wait_with_output().expect("it ends"));
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_kind_of_capture_that_hardly_exists_is_refused_and_not_misread() {
    let mut later = pcap(Order::Little, true, &records(3));
    later[4] = 9;
    let mut modified = pcap(Order::Little, true, &records(3));
    modified[..4].copy_from_slice(&0xa1b2_cd34_u32.to_le_bytes());
    for capture in [later, modified] {
        let outcome = Recording::new(RULES, &capture).run(&["--json"]);
        assert_eq!(outcome.code, Some(1), "{}", outcome.err);
        assert!(outcome.err.contains("editcap -F pcapng"), "{}", outcome.err);
    }
}
