use super::*;
use crate::{
    config::policy::AttachMode,
    network::{
        doctor::{
            Severity::{self, Note, Ok, Problem, Warning},
            facts::{Channels, Interrupts, Program, Wanted, XdpFeatures},
        },
        interfaces::Mode,
    },
};

/// A card that is as it should be, with nothing attached.
fn card() -> Device {
    Device {
        index: 2,
        name: "eth0".to_owned(),
        mtu: 1500,
        up: true,
        driver: Some("ice".to_owned()),
        channels: Some(Channels { receive: 4, receive_max: 8, combined: true }),
        features: Some(["rx-gro", "rx-checksum"].map(str::to_owned).into()),
        xdp: Some(XdpFeatures { native: true, multi_buffer: true }),
        received: 1_000_000,
        interrupts: Some(Interrupts { count: 5, cpus: 4 }),
        steered_queues: Some(0),
        ..Device::default()
    }
}

fn running(mode: Mode) -> Device {
    let own = Program { id: 7, name: Some("ratelimit".to_owned()), mode, ours: Some(true) };
    Device { programs: vec![own], ..card() }
}

fn with(features: &[&str], device: Device) -> Device {
    let features = features.iter().map(|&feature| feature.to_owned()).collect();
    Device { features: Some(features), ..device }
}

fn policy(mode: AttachMode) -> Policy {
    Policy { interfaces: vec![Wanted { name: "eth0".to_owned(), mode }], ..Policy::default() }
}

fn file() -> Policy {
    Policy { origin: Origin::File("rules.yaml".into()), ..policy(AttachMode::Auto) }
}

fn find(device: &Device, policy: Option<&Policy>, check: &str) -> Option<Finding> {
    let found = examine(std::slice::from_ref(device), policy, 4);
    found.into_iter().find(|finding| finding.check == check)
}

fn severity(device: &Device, policy: Option<&Policy>, check: &str) -> Option<Severity> {
    find(device, policy, check).map(|finding| finding.severity)
}

#[test]
fn a_card_that_runs_the_program_natively_is_as_it_should_be() {
    let found = examine(&[running(Mode::Native)], Some(&policy(AttachMode::Auto)), 4);
    assert!(found.iter().all(|finding| finding.severity == Ok), "{found:?}");
    assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["xdp_mode", "queues"]);
    assert_eq!(found[0].what, "native (driver ice)");
}

#[test]
fn without_a_policy_all_interfaces_are_judged_but_the_loopback() {
    let loopback = Device { name: "lo".to_owned(), ..card() };
    assert_eq!(examine(std::slice::from_ref(&loopback), None, 4), []);
    let found = examine(&[loopback, card()], None, 4);
    assert!(found.iter().all(|finding| finding.subject == "eth0") && !found.is_empty());
    let other = Device { name: "eth1".to_owned(), ..card() };
    assert_eq!(examine(&[other], Some(&file()), 4), []);
}

#[test]
fn interfaces_that_are_not_there_are_told() {
    let policy = Policy { without_interface: vec!["eth9".to_owned(), "wan*".to_owned()], ..file() };
    let found = examine(&[], Some(&policy), 4);
    assert_eq!(
        found.iter().map(|it| (it.subject.as_str(), it.severity)).collect::<Vec<_>>(),
        [("eth9", Problem), ("wan*", Note)]
    );
    let in_force = Policy { origin: Origin::InForce, ..policy };
    assert_eq!(examine(&[], Some(&in_force), 4)[0].severity, Warning, "it may come back");
}

#[test]
fn a_foreign_program_is_a_problem_only_where_ours_is_to_be() {
    let foreign =
        Program { id: 9, name: Some("xdp_dispatcher".to_owned()), mode: Mode::Native, ours: Some(false) };
    let device = Device { programs: vec![foreign], ..card() };
    let found = find(&device, Some(&file()), "foreign_program").expect("a finding");
    assert_eq!(found.severity, Problem);
    assert!(found.what.contains("`xdp_dispatcher`, id 9, native"), "{}", found.what);
    assert!(found.remedy.is_some_and(|remedy| remedy.contains("ip link set dev eth0 xdpdrv off")));
    assert_eq!(severity(&device, None, "foreign_program"), Some(Note));
    assert_eq!(severity(&device, Some(&file()), "xdp_mode"), None, "nothing is foretold");
}

#[test]
fn nothing_is_said_of_a_program_whose_pins_are_hidden() {
    let unknown = Program { id: 9, name: None, mode: Mode::Native, ours: None };
    let device = Device { programs: vec![unknown], ..card() };
    let found = examine(&[device], Some(&policy(AttachMode::Auto)), 4);
    assert!(found.iter().all(|finding| finding.severity == Ok), "{found:?}");
}

#[test]
fn an_interface_of_the_policy_in_force_must_be_attached() {
    assert_eq!(severity(&card(), Some(&policy(AttachMode::Auto)), "attached"), Some(Problem));
    assert_eq!(severity(&card(), Some(&file()), "attached"), None);
}

#[test]
fn generic_mode_is_told_with_what_prevents_native_mode() {
    let jumbo = Device {
        mtu: 9000,
        xdp: Some(XdpFeatures { native: true, multi_buffer: false }),
        ..running(Mode::Generic)
    };
    let found = find(&jumbo, Some(&policy(AttachMode::Auto)), "xdp_mode").expect("a finding");
    assert_eq!(found.severity, Warning);
    assert!(found.what.contains("MTU of 9000 is too large"), "{}", found.what);
    assert!(found.remedy.is_some_and(|remedy| remedy.starts_with("ip link set dev eth0 mtu 1500")));
    assert_eq!(severity(&jumbo, Some(&policy(AttachMode::Generic)), "xdp_mode"), Some(Note));

    let mended = running(Mode::Generic);
    let found = find(&mended, Some(&policy(AttachMode::Auto)), "xdp_mode").expect("a finding");
    assert!(found.what.contains("nothing stands in the way"), "{}", found.what);
}

/// What is foretold of an interface, by what is known of it.
#[test]
fn the_mode_is_foretold() {
    let foretold = |device: &Device| find(device, Some(&file()), "xdp_mode").map(|it| (it.severity, it.what));
    assert_eq!(foretold(&card()), Some((Ok, "would run in native mode (driver ice)".to_owned())));
    let unknown = Device { xdp: None, ..card() };
    let sure = foretold(&unknown).expect("a finding");
    assert_eq!(sure, (Ok, "would run in native mode, if the driver can (driver ice)".to_owned()));

    let fallbacks = [
        (Device { xdp: Some(XdpFeatures::default()), ..card() }, "the driver ice has none"),
        (Device { kind: "vlan".to_owned(), ..card() }, "of the kind vlan have none"),
        (
            Device { bond_mode_without_native: Some("balance-alb".to_owned()), ..card() },
            "in mode balance-alb",
        ),
        (Device { mtu: 9000, xdp: None, ..card() }, "may be too large"),
        (with(&["rx-lro"], card()), "merges frames (lro)"),
        (with_fixed("rx-gro-hw"), "merges frames (rx-gro-hw)"),
    ];
    for (device, words) in fallbacks {
        let (severity, what) = foretold(&device).expect("a finding");
        assert!(severity == Warning && what.contains(words), "{severity:?} {what}");
        let nobody_asks = find(&device, None, "xdp_mode").map(|it| (it.severity, it.what));
        assert_eq!(nobody_asks, Some((Note, what)));
        let insisted = Policy { origin: file().origin, ..policy(AttachMode::Native) };
        let (severity, what) =
            find(&device, Some(&insisted), "xdp_mode").map(|it| (it.severity, it.what)).expect("a finding");
        assert!(severity == Problem && what.starts_with("would be refused"), "{severity:?} {what}");
    }
}

/// A card whose host decides whether it merges frames.
fn with_fixed(feature: &str) -> Device {
    Device { fixed_features: [feature.to_owned()].into(), ..with(&[feature], card()) }
}

#[test]
fn merging_is_switched_off_by_its_name_where_it_can_be() {
    let remedy = |device: &Device| find(device, None, "xdp_mode").and_then(|finding| finding.remedy);
    assert_eq!(remedy(&with(&["rx-lro"], card())).as_deref(), Some("ethtool -K eth0 lro off"));
    assert_eq!(remedy(&with(&["rx-gro-hw"], card())), None, "the driver does it");
    assert!(remedy(&with_fixed("rx-gro-hw")).is_some_and(|remedy| remedy.contains("host")));
    let both = with(&["rx-lro", "rx-gro-hw"], running(Mode::Generic));
    let remedy = find(&both, Some(&policy(AttachMode::Auto)), "xdp_mode").and_then(|finding| finding.remedy);
    assert!(remedy.is_some_and(|remedy| remedy.starts_with("ethtool -K eth0 lro off rx-gro-hw off; then")));
}

#[test]
fn stripped_tags_are_a_problem_only_for_rules_on_tags() {
    let stripping = |mode| with(&["rx-vlan-hw-parse"], running(mode));
    let on_tags = Policy { vlan_rules: vec!["guests".to_owned()], ..policy(AttachMode::Auto) };
    for mode in [Mode::Native, Mode::Generic] {
        let found = find(&stripping(mode), Some(&on_tags), "vlan_tags").expect("a finding");
        assert_eq!((found.severity, found.remedy.as_deref()), (Problem, Some("ethtool -K eth0 rxvlan off")));
        assert!(found.why.is_some_and(|why| why.contains("`guests`")));
    }
    assert_eq!(severity(&stripping(Mode::Native), Some(&policy(AttachMode::Auto)), "vlan_tags"), None);
    assert_eq!(severity(&running(Mode::Native), Some(&on_tags), "vlan_tags"), None);
}

#[test]
fn merged_frames_are_told_in_either_mode() {
    let policy = policy(AttachMode::Auto);
    let check = |device: &Device| find(device, Some(&policy), "merged_frames");
    assert_eq!(check(&running(Mode::Native)), None);
    assert_eq!(check(&running(Mode::Generic)), None, "the kernel switches it off itself");
    let natively = check(&with(&["rx-lro"], running(Mode::Native))).expect("a finding");
    assert_eq!(natively.remedy.as_deref(), Some("ethtool -K eth0 lro off"));
    let veth = Device { kind: "veth".to_owned(), ..running(Mode::Generic) };
    assert!(check(&veth).is_some_and(|finding| finding.severity == Warning));
}

#[test]
fn a_vlan_interface_gets_what_the_one_beneath_it_merged() {
    let vlan = Device {
        name: "eth0".to_owned(),
        kind: "vlan".to_owned(),
        lower: Some("eth9".to_owned()),
        ..running(Mode::Generic)
    };
    let beneath = |features: &[&str]| Device { name: "eth9".to_owned(), ..with(features, card()) };
    let merged = |beneath: Device| {
        let found = examine(&[vlan.clone(), beneath], Some(&policy(AttachMode::Auto)), 4);
        found.into_iter().find(|finding| finding.check == "merged_frames").and_then(|finding| finding.remedy)
    };
    assert!(merged(beneath(&["rx-gro"])).is_some_and(|remedy| remedy.contains("ethtool -K eth9 gro off")));
    assert_eq!(merged(beneath(&[])), None);
}

#[test]
fn one_queue_is_one_cpu() {
    let single = |receive_max| Channels { receive: 1, receive_max, combined: true };
    let policy = policy(AttachMode::Auto);
    let check = |device: Device| find(&device, Some(&policy), "queues").expect("a finding");

    let more = check(Device { channels: Some(single(8)), ..running(Mode::Native) });
    assert_eq!((more.severity, more.remedy.as_deref()), (Warning, Some("ethtool -L eth0 combined 4")));
    let no_more = check(Device { channels: Some(single(1)), ..running(Mode::Native) });
    assert_eq!(no_more.severity, Warning);
    assert!(no_more.remedy.is_some_and(|remedy| !remedy.contains("ethtool")));
    let generic = Device { channels: Some(single(1)), ..running(Mode::Generic) };
    let remedy = check(generic.clone()).remedy.expect("a remedy");
    assert_eq!(remedy, "echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus");
    assert_eq!(check(Device { steered_queues: Some(1), ..generic }).severity, Ok);

    let pairs = Channels { receive: 1, receive_max: 2, combined: false };
    let remedy = check(Device { channels: Some(pairs), ..running(Mode::Native) }).remedy;
    assert_eq!(remedy.as_deref(), Some("ethtool -L eth0 rx 2"));
}

#[test]
fn fewer_queues_than_cpus_are_noted_where_more_are_possible() {
    let two = |receive_max| Channels { receive: 2, receive_max, combined: true };
    let check = |channels| severity(&Device { channels: Some(channels), ..card() }, None, "queues");
    assert_eq!(check(two(8)), Some(Note));
    assert_eq!(check(two(2)), Some(Ok));
    let one_cpu = examine(&[Device { channels: Some(Channels { receive: 1, ..two(8) }), ..card() }], None, 1);
    assert!(one_cpu.iter().any(|finding| finding.check == "queues" && finding.severity == Ok));
}

#[test]
fn interrupts_that_all_go_to_one_cpu_are_a_warning() {
    let interrupts = |count, cpus| Some(Interrupts { count, cpus });
    let check = |interrupts| severity(&Device { interrupts, ..card() }, None, "interrupts");
    assert_eq!(check(interrupts(5, 1)), Some(Warning));
    assert_eq!(check(interrupts(5, 2)), None);
    assert_eq!(check(interrupts(1, 1)), None, "one interrupt cannot be spread");
    assert_eq!(check(None), None);
}

#[test]
fn frames_lost_in_the_card_are_told_by_their_share() {
    let check = |missed| severity(&Device { missed, ..card() }, None, "lost_frames");
    assert_eq!(check(0), None);
    assert_eq!(check(10), Some(Note));
    assert_eq!(check(10_000), Some(Warning));
}

#[test]
fn a_link_without_ethernet_frames_is_a_problem_where_it_is_to_be_protected() {
    let tunnel = Device { no_ethernet: true, kind: "wireguard".to_owned(), ..card() };
    assert_eq!(severity(&tunnel, Some(&file()), "link_layer"), Some(Problem));
    assert_eq!(severity(&tunnel, None, "link_layer"), None);
}

#[test]
fn an_interface_that_is_off_is_noted() {
    assert_eq!(severity(&Device { up: false, ..card() }, Some(&file()), "link"), Some(Note));
    assert_eq!(severity(&Device { up: false, ..card() }, None, "link"), None);
}

#[test]
fn stacked_interfaces_are_explained() {
    for kind in ["vlan", "bond", "bridge", "macvlan"] {
        let device = Device { kind: kind.to_owned(), lower: Some("eth9".to_owned()), ..card() };
        assert_eq!(severity(&device, Some(&file()), "kind"), Some(Note), "{kind}");
    }
    assert_eq!(severity(&Device { kind: "veth".to_owned(), ..card() }, Some(&file()), "kind"), None);
}

#[test]
fn a_bond_and_its_member_are_not_both_to_be_named() {
    let upper = |kind: &str| Some(("bond0".to_owned(), kind.to_owned()));
    let member = Device { upper: upper("bond"), ..card() };
    let mut both = file();
    both.interfaces.push(Wanted { name: "bond0".to_owned(), mode: AttachMode::Auto });
    assert_eq!(severity(&member, Some(&both), "members"), Some(Problem));
    assert_eq!(severity(&member, Some(&file()), "members"), Some(Note));
    assert_eq!(severity(&member, None, "members"), None);
    assert_eq!(severity(&Device { upper: upper("bridge"), ..card() }, Some(&file()), "members"), Some(Note));
}

#[test]
fn masks_of_many_cpus_are_written_in_groups() {
    for (cpus, mask) in [(1, "1"), (4, "f"), (32, "ffffffff"), (36, "f,ffffffff"), (64, "ffffffff,ffffffff")]
    {
        assert_eq!(queues::all(cpus), mask);
    }
}
