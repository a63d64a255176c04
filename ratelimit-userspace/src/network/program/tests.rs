//! The real program on real frames, by `BPF_PROG_TEST_RUN` on the virtual clock.

use proptest::{collection::vec, prelude::*, sample::select};
use ratelimit_common::{
    address::{Address, Family},
    packet::{self, Fragment, Parsed},
};

use super::*;
use crate::{
    config::policy::{Limit, Management, Match, Network},
    network::{
        compile::{
            Slots, compile,
            tests::{address, matches, network, prefix, rule},
        },
        counters::{CounterMaps, Tally},
    },
};

const PRIVATE: StateMaps =
    StateMaps { pins: None, capacity: 1024, block_sets: 2, hash_key: [1, 2], epoch: 0 };

pub(in crate::network) fn load(network: &Network) -> (Compiled, Program) {
    let names = network.rules.iter().map(|rule| rule.name.as_str());
    let compiled = compile(network, &Slots::assign(&Slots::default(), names).0).expect("it is valid");
    let program = Program::load(&compiled, &PRIVATE, Clock::Replay).unwrap_or_else(|error| panic!("{error}"));
    (compiled, program)
}

/// A frame whose sort is drawn: which headers it has and what stands in them.
#[derive(Clone, Debug)]
pub(in crate::network) struct Sketch {
    pub(in crate::network) source: Address,
    pub(in crate::network) destination: Address,
    pub(in crate::network) vlan: Option<u16>,
    pub(in crate::network) protocol: u8,
    pub(in crate::network) ports: [u16; 2],
    /// TCP flags, or the ICMP type.
    pub(in crate::network) byte: u8,
    pub(in crate::network) fragment: Fragment,
    pub(in crate::network) payload: usize,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let vlan = prop_oneof![Just(None), select(&[0, 1, 100, 4094][..]).prop_map(Some)];
    let protocol = select(&[1, 6, 17, 58, 132, 50, 255][..]);
    let ports = [select(&[0, 53, 80, 443, 1024, 65_535][..]), select(&[0, 53, 80, 443, 1024, 65_535][..])];
    let fragment = select(&[Fragment::None, Fragment::First, Fragment::Later][..]);
    let byte = select(&[0x02, 0x10, 0x12, 8, 128, 135, 255][..]);
    (address(), address(), vlan, protocol, ports, byte, fragment, 0..100_usize).prop_map(
        |(source, destination, vlan, protocol, ports, byte, fragment, payload)| Sketch {
            source,
            // A packet has one family.
            destination: Address { family: source.family, ..destination },
            vlan,
            protocol,
            ports,
            byte,
            fragment,
            payload,
        },
    )
}

/// An entry that often covers a sketch's source, on some of its ports.
pub(in crate::network) fn management() -> impl Strategy<Value = Management> {
    let ports = prop_oneof![Just(0..=53), Just(80..=80), Just(443..=65_535)];
    (prefix(), vec(ports, 1..3)).prop_map(|(prefix, ports)| Management { prefix, ports })
}

impl Sketch {
    pub(in crate::network) fn frame(&self) -> Vec<u8> {
        let Self { source, destination, vlan, protocol, ports, byte, fragment, payload } = self;
        let mut body = match protocol {
            6 => {
                let mut header = vec![0; 20];
                (header[12], header[13]) = (5 << 4, *byte);
                header
            }
            17 => vec![0; 8],
            132 => vec![0; 12],
            _ => vec![*byte, 0, 0, 0, 0, 0, 0, 0],
        };
        if matches!(protocol, 6 | 17 | 132) {
            body[..2].copy_from_slice(&ports[0].to_be_bytes());
            body[2..4].copy_from_slice(&ports[1].to_be_bytes());
        }
        body.resize(body.len() + payload, 0);
        if *protocol == 17 {
            let length = u16::try_from(body.len()).expect("it is short");
            body[4..6].copy_from_slice(&length.to_be_bytes());
        }
        let (more, offset): (u16, u16) = match fragment {
            Fragment::None => (0, 0),
            Fragment::First => (1, 0),
            Fragment::Later => (0, 100),
        };

        let mut frame = vec![2; 12];
        if let Some(vlan) = vlan {
            frame.extend([0x81, 0x00]);
            frame.extend(vlan.to_be_bytes());
        }
        let length = |body: usize| u16::try_from(body).expect("it is short").to_be_bytes();
        match source.family {
            Family::V4 => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend(length(20 + body.len()));
                frame.extend([0, 1]);
                frame.extend((more << 13 | offset).to_be_bytes());
                frame.extend([64, *protocol, 0, 0]);
                frame.extend(source.v4_octets());
                frame.extend(destination.v4_octets());
            }
            Family::V6 => {
                let fragmented = *fragment != Fragment::None;
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(length(body.len() + if fragmented { 8 } else { 0 }));
                frame.extend([if fragmented { 44 } else { *protocol }, 64]);
                frame.extend(source.v6_octets());
                frame.extend(destination.v6_octets());
                if fragmented {
                    frame.extend([*protocol, 0]);
                    frame.extend((offset << 3 | more).to_be_bytes());
                    frame.extend([0, 0, 0, 1]);
                }
            }
        }
        frame.extend(body);
        frame
    }
}

struct Bytes<'a>(&'a [u8]);

impl packet::Frame for Bytes<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}

/// What is to become of a frame under rules whose rates are zero, from the compiled tables alone.
fn expected(compiled: &Compiled, frame: &[u8]) -> (bool, Reason, Option<usize>) {
    let packet = match packet::parse(&Bytes(frame)) {
        Parsed::Ip(packet) => packet,
        Parsed::Malformed(reason) => return (true, reason, None),
        Parsed::NotIp => return (false, Reason::NotIp, None),
        Parsed::Cut => return (false, Reason::NoRule, None),
    };
    if let Some(reason) = compiled.lists.judge(&packet) {
        (reason == Reason::Denied, reason, None)
    } else if packet.neighbour {
        (false, Reason::Neighbour, None)
    } else if let Some(reason) = packet.malformed {
        (true, reason, None)
    } else {
        let length = u32::try_from(frame.len()).expect("it is short");
        match compiled.classify(&packet, length) {
            Some(rule) => (true, Reason::ZeroRate, Some(rule)),
            None => (false, Reason::NoRule, None),
        }
    }
}

proptest! {
    // Each case loads a program.
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "requires root"]
    fn the_kernel_finds_what_the_tables_say(
        matches in vec(matches(), 0..8),
        allow in vec(prefix(), 0..3),
        management in vec(management(), 0..4),
        deny in vec(prefix(), 0..4),
        sketches in vec(sketch(), 64),
    ) {
        let zero = |(number, matches)| {
            let mut rule = rule(&format!("r{number}"), matches);
            rule.limits[0].bucket = None;
            rule
        };
        let policy = Network { allow, deny, management, ..network((0..).zip(matches).map(zero).collect()) };
        let (compiled, mut program) = load(&policy);
        for sketch in sketches {
            let frame = sketch.frame();
            let length = u32::try_from(frame.len()).expect("it is short");
            let verdict = program.test_run(&frame, length, 0).expect("it runs");
            let Verdict { dropped, reason, rule, .. } = verdict;
            prop_assert_eq!((dropped, reason, rule), expected(&compiled, &frame), "{:?}", sketch);
            prop_assert_eq!(verdict.limit, rule.map(|_| 0));
        }
    }
}

fn udp(source: [u8; 4]) -> Vec<u8> {
    let sketch = Sketch {
        source: Address::v4(source),
        destination: Address::v4([192, 0, 2, 1]),
        vlan: None,
        protocol: 17,
        ports: [1234, 53],
        byte: 0,
        fragment: Fragment::None,
        payload: 18,
    };
    sketch.frame()
}

#[test]
#[ignore = "requires root"]
fn counters_add_up() {
    let mut policy = network(vec![rule("all", Match::default()), rule("never", Match::default())]);
    let bucket = policy.rules[0].limits[0].bucket.as_mut().expect("it has a rate");
    bucket.burst = 2;
    let (compiled, mut program) = load(&policy);
    let frame = udp([10, 0, 0, 1]);
    let verdicts: Vec<_> = (0..5)
        .map(|_| {
            // More was on the wire than was captured: the wire's length counts.
            let verdict = program.test_run(&frame, 1000, 0).expect("it runs");
            (verdict.reason, verdict.dropped, verdict.rule, verdict.limit)
        })
        .collect();
    let passed = (Reason::WithinLimit, false, Some(0), None);
    let shed = (Reason::Limited, true, Some(0), Some(0));
    assert_eq!(verdicts, [passed, passed, shed, shed, shed]);

    let maps = CounterMaps::of(&program).expect("it has counters");
    let counters = maps.read(&compiled.descriptions).expect("they can be read");
    let tally = |packets| Tally { packets, bytes: packets * 1000 };
    let [all, never] = &counters.rules[..] else { panic!("two rules") };
    assert_eq!((all.rule.as_str(), all.passed, all.limits[0].shed), ("all", tally(2), tally(3)));
    assert_eq!(all.limits[0].would_shed, tally(0));
    assert_eq!((never.passed, never.limits[0].shed), (tally(0), tally(0)));
    for reason in &counters.reasons {
        let (passed, shed) = match reason.reason.as_str() {
            "within_limit" => (2, 0),
            "limited" => (0, 3),
            _ => (0, 0),
        };
        assert_eq!((reason.passed, reason.shed), (tally(passed), tally(shed)), "{}", reason.reason);
    }
    assert!(counters.events.iter().all(|event| event.count == 0));
}

#[test]
#[ignore = "requires root"]
fn a_large_policy_loads() {
    let rules = (0..64_u16)
        .map(|number| {
            let matches = Match {
                protocol: Some(vec![17]),
                destination_port: Some(vec![number * 10..=number * 10 + 9]),
                source: Some(vec![format!("10.{number}.0.0/16").parse().expect("a prefix")]),
                ..Match::default()
            };
            let mut rule = rule(&format!("r{number}"), matches);
            rule.limits = vec![Limit { bucket: None, ..rule.limits[0] }];
            rule
        })
        .collect();
    let deny = (0..100_000_u32)
        .map(|number| {
            let network = (0xc000_0000 + (number << 9)).into();
            ipnet::Ipv4Net::new(network, 24).expect("24 is a length").into()
        })
        .collect();
    let (_, mut program) = load(&Network { deny, ..network(rules) });
    let mut judge = |frame: &[u8]| {
        let verdict = program.test_run(frame, 60, 0).expect("it runs");
        (verdict.reason, verdict.rule)
    };
    // Port 53 is that of the rule r5.
    assert_eq!(judge(&udp([10, 5, 1, 1])), (Reason::ZeroRate, Some(5)));
    assert_eq!(judge(&udp([10, 6, 1, 1])), (Reason::NoRule, None));
    assert_eq!(judge(&udp([0xc0, 0, 0, 1])), (Reason::Denied, None));
    assert_eq!(judge(&udp([0xc0, 0, 1, 1])), (Reason::NoRule, None));
    // The last of them: 0xc0000000 + (99_999 << 9).
    assert_eq!(judge(&udp([0xc3, 0x0d, 0x3e, 0xff])), (Reason::Denied, None));
}

#[test]
#[ignore = "requires root"]
fn only_a_replayed_program_tells_details() {
    let compiled = compile(&network(Vec::new()), &Slots::default()).expect("it is valid");
    let mut program =
        Program::load(&compiled, &PRIVATE, Clock::Kernel).unwrap_or_else(|error| panic!("{error}"));
    let frame = udp([10, 0, 0, 1]);
    assert!(matches!(program.test_run(&frame, 60, 0), Err(TestRunError::NoReplay)));
    let (action, _) = program.run(&frame, 100).expect("it runs");
    assert_eq!(action, XDP_PASS);
}

#[test]
fn errors_say_what_helps() {
    let create = |errno: Errno| LoadError::Create {
        source: EbpfError::FileError { path: "map".into(), error: errno.into() },
    };
    let permission = create(Errno::PERM);
    assert!(permission.is_permission() && permission.to_string().contains("CAP_BPF"), "{permission}");
    let memory = create(Errno::NOMEM);
    assert!(!memory.is_permission() && memory.to_string().contains("sources.capacity"), "{memory}");
    let verifier = LoadError::Verifier { io_error: Errno::ACCESS.into(), log: "0: R1=ctx()".to_owned() };
    assert!(!verifier.is_permission() && verifier.to_string().ends_with("\n0: R1=ctx()"), "{verifier}");
}
