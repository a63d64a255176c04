//! What replay says of packets: the same in every format, on the capture's clock, and never more than what
//! the capture holds.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
};

use ratelimit::network::state::DEFAULT_PIN_DIR;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::{
    capture::{ETHERNET, Order, PcapNg, Record, pcap, pcap_header, pcap_record},
    frame::{SYN, Transport, ethernet, icmp, packet, tcp, udp},
    recording::Recording,
};

const SECOND: u64 = 1_000_000_000;
/// Some time in 2026.
const START: u64 = 1_780_000_000 * SECOND;

const ONE_A_SECOND: &str = "rules: [{ name: all, limits: { per: source, rate: 1/s, burst: 1 } }]";

fn little(records: &[Record]) -> Vec<u8> {
    pcap(Order::Little, true, records)
}

/// The values of one key, line by line.
fn column(lines: &[Value], key: &str) -> Vec<Value> {
    lines.iter().map(|line| line[key].clone()).collect()
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn every_format_gives_the_same_verdicts_at_the_same_times() {
    // A quarter of a second apart, exactly: representable in all the resolutions below.
    let times = [0, 1, 4, 7, 8];
    let records = times.map(|n| Record::whole(START + n * SECOND / 4, udp("10.0.0.1").frame()));
    let pcapng = |order, resolution: Option<u8>, units: u64| {
        let file = PcapNg::new(order).other().interface(ETHERNET, resolution);
        let unit =
            |record: &Record| u64::try_from(u128::from(record.nanos) * u128::from(units) / 1_000_000_000);
        records
            .iter()
            .fold(file, |file, record| file.packet(0, unit(record).expect("64 bits"), record))
            .bytes()
    };
    let two_interfaces = || {
        let file = PcapNg::new(Order::Little).interface(ETHERNET, Some(3)).interface(ETHERNET, Some(9));
        let file = records.iter().zip([0, 1].into_iter().cycle()).fold(file, |file, (record, interface)| {
            let units = if interface == 0 { record.nanos / 1_000_000 } else { record.nanos };
            file.packet(interface, units, record).other()
        });
        file.bytes()
    };
    // Each section has interfaces of its own.
    let two_sections = || {
        let section = |order, resolution, divisor, records: &[Record]| {
            let file = PcapNg::new(order).interface(ETHERNET, resolution);
            records.iter().fold(file, |file, record| file.packet(0, record.nanos / divisor, record)).bytes()
        };
        let (first, second) = records.split_at(2);
        [section(Order::Little, None, 1000, first), section(Order::Big, Some(9), 1, second)].concat()
    };
    let captures = [
        ("pcap, microseconds", pcap(Order::Little, false, &records)),
        ("pcap, microseconds, big endian", pcap(Order::Big, false, &records)),
        ("pcap, nanoseconds", pcap(Order::Little, true, &records)),
        ("pcap, nanoseconds, big endian", pcap(Order::Big, true, &records)),
        ("pcapng", pcapng(Order::Little, None, 1_000_000)),
        ("pcapng, big endian", pcapng(Order::Big, None, 1_000_000)),
        ("pcapng, nanoseconds", pcapng(Order::Little, Some(9), SECOND)),
        ("pcapng, milliseconds", pcapng(Order::Little, Some(3), 1000)),
        ("pcapng, 2^-10 s", pcapng(Order::Big, Some(0x8a), 1024)),
        ("pcapng, two interfaces", two_interfaces()),
        ("pcapng, two sections", two_sections()),
    ];
    for (format, capture) in captures {
        let (lines, summary) = Recording::new(ONE_A_SECOND, &capture).json();
        assert_eq!(column(&lines, "time"), [0.0, 0.25, 1.0, 1.75, 2.0].map(Value::from), "{format}");
        assert_eq!(column(&lines, "verdict"), ["pass", "drop", "pass", "drop", "pass"], "{format}");
        assert_eq!(
            (&summary["packets"], &summary["seconds"], &summary["clamped"]),
            (&json!(5), &json!(2.0), &json!(0))
        );
    }
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_line_has_exactly_the_keys_of_the_contract() {
    let rules = "allow: [192.0.2.0/24], management: [{ prefix: 198.51.100.0/24, ports: 80 }], \
        deny: [198.51.100.0/24], rules: [\
        { name: none, match: { protocol: esp }, limits: [{ per: source, rate: 1/s }, { per: source, rate: 0/s }] }, \
        { name: udp, match: { protocol: udp }, limits: [{ per: rule, rate: 10/s, burst: 10 }, { per: source, rate: 1/h, burst: 1 }] }, \
        { name: seen, match: { protocol: tcp }, limits: { per: source, rate: 1/h, burst: 1 }, action: count }]";
    let frames = [
        (udp("192.0.2.1").frame(), "pass", "allowed", json!(null), json!(null), false),
        (udp("198.51.100.1").frame(), "drop", "denied", json!(null), json!(null), false),
        (icmp("10.0.0.1", 8).frame(), "pass", "no_rule", json!(null), json!(null), false),
        (udp("10.0.0.1").frame(), "pass", "within_limit", json!("udp"), json!(null), false),
        (udp("10.0.0.1").frame(), "drop", "limited", json!("udp"), json!(1), false),
        (
            packet("10.0.0.1", Transport::Bare(50)).frame(),
            "drop",
            "zero_rate",
            json!("none"),
            json!(1),
            false,
        ),
        (tcp("10.0.0.1", SYN).frame(), "pass", "within_limit", json!("seen"), json!(null), false),
        (tcp("10.0.0.1", SYN).frame(), "pass", "limited", json!("seen"), json!(0), true),
        (
            packet("10.0.0.1", Transport::Bare(6)).payload(3).frame(),
            "drop",
            "malformed_tcp",
            json!(null),
            json!(null),
            false,
        ),
        (ethernet(0x0806, &[0; 46]), "pass", "not_ip", json!(null), json!(null), false),
        (icmp("fe80::1", 135).hop_limit(255).frame(), "pass", "neighbour", json!(null), json!(null), false),
        // Too short for an Ethernet header, and empty.
        (vec![1; 13], "pass", "not_ip", json!(null), json!(null), false),
        (Vec::new(), "pass", "not_ip", json!(null), json!(null), false),
        (tcp("198.51.100.1", SYN).frame(), "pass", "management", json!(null), json!(null), false),
    ];
    let records: Vec<_> = (0..)
        .zip(&frames)
        .map(|(n, (frame, ..))| Record::whole(START + n * SECOND / 8, frame.clone()))
        .collect();
    let recording = Recording::new(rules, &little(&records));
    let (lines, summary) = recording.json();
    assert_eq!(lines.len(), frames.len());
    for ((number, line), (_, verdict, reason, rule, limit, would_drop)) in (1_u32..).zip(&lines).zip(&frames)
    {
        let expected = json!({
            "packet": number, "time": f64::from(number - 1) / 8.0, "verdict": verdict, "reason": reason,
            "rule": rule, "limit": limit, "would_drop": would_drop,
        });
        assert_eq!(*line, expected);
    }

    let bytes = |packets: &[usize]| packets.iter().map(|packet| frames[*packet].0.len()).sum::<usize>();
    let count = |packets: &[usize]| json!({ "packets": packets.len(), "bytes": bytes(packets) });
    let dropped = [1, 4, 5, 8];
    let passed: Vec<_> =
        (0..frames.len()).filter(|packet| !dropped.contains(packet) && *packet != 7).collect();
    assert_eq!((&summary["passed"], &summary["dropped"]), (&count(&passed), &count(&dropped)));
    assert_eq!(summary["would_drop"], count(&[7]));
    assert_eq!(
        (&summary["packets"], &summary["bytes"]),
        (&json!(frames.len()), &json!(frames.iter().map(|frame| frame.0.len()).sum::<usize>()))
    );
    assert_eq!(summary["reasons"]["not_ip"]["passed"], count(&[9, 11, 12]));
    assert_eq!(summary["reasons"]["limited"]["would_drop"], count(&[7]));
    let [none, udp, seen] = &summary["rules"].as_array().expect("rules")[..] else { panic!("{summary}") };
    assert_eq!((&none["name"], &none["refused_by_limit"]), (&json!("none"), &json!([0, 1])));
    assert_eq!(
        (&udp["passed"], &udp["dropped"], &udp["refused_by_limit"]),
        (&count(&[3]), &count(&[4]), &json!([0, 1]))
    );
    assert_eq!((&seen["would_drop"], &seen["refused_by_limit"]), (&count(&[7]), &json!([1])));
    // The source with the most refused packets comes first.
    let first = &summary["sources"][0];
    assert_eq!(
        (&first["address"], &first["packets"], &first["refused"]),
        (&json!("10.0.0.1"), &json!(7), &json!(4))
    );

    // The same again, to the byte, and nothing pinned.
    let pinned = Path::new(DEFAULT_PIN_DIR).exists();
    assert_eq!(recording.run(&["--json"]).out, recording.run(&["--json"]).out);
    assert_eq!(Path::new(DEFAULT_PIN_DIR).exists(), pinned);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn people_get_a_summary_by_reason_rule_and_source() {
    let sources = (0..25).map(|n| udp(&format!("10.0.0.{n}")).frame());
    let more = (0..50).map(|_| udp("10.9.9.9").frame());
    let records: Vec<_> = sources.chain(more).map(|frame| Record::whole(START, frame)).collect();
    let outcome = Recording::new(ONE_A_SECOND, &little(&records)).run(&[]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    let line = |start: &str| {
        let found = outcome.out.lines().find(|line| line.starts_with(start));
        found
            .unwrap_or_else(|| panic!("no line {start}:\n{}", outcome.out))
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    assert!(outcome.out.starts_with("75 packets, "), "{}", outcome.out);
    assert_eq!(line("within_limit")[1..], ["26", "0", "0"]);
    assert_eq!(line("limited")[1..], ["0", "49", "0"]);
    assert_eq!(line("all")[1..], ["26", "49", "0"]);
    assert_eq!(line("10.9.9.9")[1..3], ["50", "49"]);
    assert_eq!(outcome.out.lines().filter(|line| line.starts_with("10.")).count(), 20, "{}", outcome.out);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn a_packet_that_the_capture_cut_is_judged_on_what_is_there_and_costs_its_length() {
    let frame = tcp("10.0.0.1", SYN).payload(946).frame();
    assert_eq!(frame.len(), 1000);
    let rules = "rules: [{ name: syn, match: { tcp_flags: syn }, limits: { per: source, rate: 0/s } }, \
        { name: all, limits: { per: source, bandwidth: 8bit/s, burst: 2500B } }]";
    let mut wrong = frame.clone();
    wrong[14] = 0x44;
    let cuts = [
        // (captured, verdict, reason, rule)
        (1000, &frame, "drop", "zero_rate", json!("syn")),
        (54, &frame, "drop", "zero_rate", json!("syn")),
        // Within the TCP header, just after and within the IP header, before it, within Ethernet's, none.
        (53, &frame, "pass", "within_limit", json!("all")),
        (34, &frame, "pass", "within_limit", json!("all")),
        (34, &frame, "drop", "limited", json!("all")),
        (33, &frame, "pass", "no_rule", json!(null)),
        (14, &frame, "pass", "no_rule", json!(null)),
        (13, &frame, "pass", "no_rule", json!(null)),
        (0, &frame, "pass", "no_rule", json!(null)),
        // What is wrong with the bytes that are there is wrong all the same.
        (34, &wrong, "drop", "malformed_ipv4", json!(null)),
    ];
    let records: Vec<_> =
        cuts.iter().map(|(captured, frame, ..)| Record::cut(START, frame, *captured)).collect();
    let (lines, summary) = Recording::new(rules, &little(&records)).json();
    for (line, (captured, _, verdict, reason, rule)) in lines.iter().zip(&cuts) {
        assert_eq!(
            (&line["verdict"], &line["reason"], &line["rule"]),
            (&json!(verdict), &json!(reason), rule),
            "{captured}"
        );
        let truncated = if *captured < 1000 { json!(true) } else { json!(null) };
        assert_eq!(line.get("truncated").cloned().unwrap_or_default(), truncated, "{captured}");
    }
    assert_eq!(lines.len(), cuts.len());
    assert_eq!(summary["bytes"], 10_000);
    assert_eq!((&summary["truncated"], &summary["headers_cut"]), (&json!(9), &json!(7)));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn time_that_steps_back_is_held_and_counted_and_refills_nothing() {
    let times = [10, 5, 9, 10, 11, 3, 12].map(|second| START + second * SECOND);
    let records = times.map(|nanos| Record::whole(nanos, udp("10.0.0.1").frame()));
    let (lines, summary) = Recording::new(ONE_A_SECOND, &little(&records)).json();
    assert_eq!(column(&lines, "time"), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0].map(Value::from));
    assert_eq!(column(&lines, "verdict"), ["pass", "drop", "drop", "drop", "pass", "drop", "pass"]);
    assert_eq!((&summary["clamped"], &summary["seconds"]), (&json!(3), &json!(2.0)));
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn simple_packets_have_the_time_of_the_packet_before() {
    let frame = Record::whole(0, udp("10.0.0.1").frame());
    let cut = Record::cut(0, &udp("10.0.0.2").payload(100).frame(), 60);
    let capture = PcapNg::new(Order::Little)
        .interface(ETHERNET, None)
        .simple(&frame)
        .packet(0, START / 1000, &frame)
        .simple(&frame)
        .packet(0, (START + SECOND) / 1000, &frame)
        .simple(&cut);
    let (lines, _) = Recording::new(ONE_A_SECOND, &capture.bytes()).json();
    let times =
        column(&lines, "time").iter().map(|time| time.as_f64().expect("a number")).collect::<Vec<_>>();
    // The first has no packet before it: the clock starts there, whatever it reads.
    assert_eq!((times[0], times[2] - times[1], times[4] - times[3]), (0.0, 0.0, 0.0));
    assert!((times[3] - times[1] - 1.0).abs() < 1e-6, "{times:?}");
    assert_eq!(lines[4]["truncated"], true);
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn an_empty_capture_has_a_summary_of_nothing() {
    for capture in [
        little(&[]),
        PcapNg::new(Order::Big).bytes(),
        PcapNg::new(Order::Little).interface(ETHERNET, None).bytes(),
    ] {
        let recording = Recording::new(ONE_A_SECOND, &capture);
        let (lines, summary) = recording.json();
        assert_eq!((lines.len(), &summary["packets"], &summary["reasons"]), (0, &json!(0), &json!({})));
        assert_eq!(recording.run(&[]).code, Some(0));
    }
}

/// The most memory that a running process had, in KiB.
fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[ignore = "requires root: BPF_PROG_TEST_RUN"]
fn memory_does_not_grow_with_the_capture() {
    let recording = Recording::new("rules: [{ name: all, limits: { per: source, rate: 1/s } }]", &[]);
    let pipe = recording.capture();
    fs::remove_file(&pipe).expect("it is there");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a named pipe");
    let mut replay = recording.command().arg("--json").stdout(Stdio::piped()).spawn().expect("it runs");
    let lines = replay.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || BufReader::new(lines).lines().count());

    let mut file = File::create(&pipe).expect("it can be written");
    let mut write = |bytes: &[u8]| file.write_all(bytes).expect("it is read");
    write(&pcap_header(Order::Little, true, ETHERNET));
    let source = |n: u32| udp(&std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string());
    // Ten megabytes, then ninety more, in large frames and in small ones of ever new sources. That a pipe
    // holds 64 KiB that are not read yet does not matter.
    let mut peaks = Vec::new();
    for frames in [0..150, 150..1500] {
        for n in frames {
            let sources = [(n, 60_000)].into_iter().chain((0..20).map(|small| (n * 20 + small, 32)));
            for (number, payload) in sources {
                let record = Record::whole(START + u64::from(n), source(number).payload(payload).frame());
                write(&pcap_record(Order::Little, true, &record));
            }
        }
        peaks.push(peak(replay.id()));
    }
    drop(file);
    assert!(replay.wait().expect("it ends").success());
    assert_eq!(reader.join().expect("it counts"), 1500 * 21 + 1);
    let growth = peaks[1] - peaks[0];
    assert!(growth < 8 * 1024, "{growth} KiB more for 90 MB: {peaks:?}");
}
