//! The admin API of a real daemon, in real network namespaces. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_admin -- --include-ignored
//! ```

#[path = "namespace_lifecycle/host.rs"]
#[expect(dead_code, reason = "shared with the tests of the daemon's life")]
mod host;

use std::{
    io::{Cursor, Read as _, Write as _},
    os::unix::net::UnixStream,
    process::Output,
    time::Duration,
};

use host::Host;
use ratelimit::{
    admin::{
        client::{BlockFilter, Client, ClientError},
        command::Kind,
        schema::{BlockRequest, Fate, Mode, Origin, What},
    },
    network::interfaces,
};

/// The source of the floods, and an address beside it.
const SOURCE: &str = "10.128.0.1";
const OTHER: &str = "10.128.0.9";

/// Five datagrams of a source pass, and for an hour none after them.
const FIVE: &str =
    "rules: [{ name: udp, match: { protocol: udp }, limits: [{ per: source, rate: 1/h, burst: 5 }] }]";

fn rules(network: &str) -> String {
    format!("interfaces: [{{ name: eth0 }}]\nnetwork: {{ sources: {{ capacity: 1024 }}, {network} }}\n")
}

fn client(host: &Host) -> Client {
    Client::new(&host.file("admin.sock")).expect("a client")
}

/// Status line, headers and body of a plain question.
fn get(host: &Host, path: &str) -> String {
    let mut stream = UnixStream::connect(host.file("admin.sock")).expect("the daemon listens");
    write!(stream, "GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n").expect("a question");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Packets that were shed since their source is blocked.
fn blocked(client: &Client) -> u64 {
    let reasons = client.counters().expect("counters").reasons;
    reasons.iter().find(|reason| reason.reason == "blocked").expect("the reason").shed.packets
}

fn kind<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> (Option<Kind>, String) {
    match outcome {
        Err(ClientError::Refused { kind, message, .. }) => (kind, message),
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "requires root"]
fn what_the_kernel_holds_is_told() {
    let host = Host::new("told");
    let daemon = host.start(&rules(&format!("management: [{{ prefix: 192.0.2.0/24, ports: 22 }}], {FIVE}")));
    let client = client(&host);

    let status = client.status().unwrap();
    assert_eq!(status.daemon.unwrap().pid, Some(daemon.id()));
    let [eth0] = status.interfaces.as_slice() else { panic!("{:?}", status.interfaces) };
    assert_eq!((eth0.name.as_str(), eth0.mode, eth0.current), ("eth0", Some(interfaces::Mode::Native), true));
    let policy = status.policy.unwrap();
    assert_eq!((policy.mode, policy.rules, policy.sources.capacity), (Mode::Enforce, 1, 1024));
    assert_eq!(policy.management[0].ports, ["22"]);
    assert!(status.reloads.unwrap().last_ok);
    assert_eq!(client.rules().unwrap().rules[0].name, "udp");

    assert_eq!(host.send(8, "udp"), (5, 3));
    let counters = client.counters().unwrap();
    assert_eq!(counters.rules[0].limits[0].shed.packets, 3);
    let address = client.source(SOURCE.parse().unwrap()).unwrap();
    assert_eq!((address.fate, address.rules[0].rule.as_str()), (Fate::Rules, "udp"));
    assert_eq!((address.rules[0].admits, address.rules[0].limits[0].left), (false, 0));
    let seen = address.seen.expect("it was seen");
    assert_eq!((seen.passed.packets, seen.shed.packets, seen.shed.packets_error), (5, 3, 0));
    let sources = client.sources(5, "shed").unwrap().sources;
    assert_eq!(sources[0].source.to_string(), "10.128.0.1/32");

    assert!(get(&host, "/readyz").ends_with("ready\n"));
    let metrics = get(&host, "/metrics");
    let line = "ratelimit_network_rule_packets_total{rule=\"udp\",limit=\"1\",outcome=\"shed\"} 3\n";
    assert!(metrics.contains(line) && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(metrics.contains("ratelimit_network_interface_current{interface=\"eth0\"} 1\n"), "{metrics}");

    daemon.kill();
    assert!(client.status().unwrap_err().is_no_daemon(), "its socket is left, and nobody listens");
}

#[test]
#[ignore = "requires root"]
fn sources_are_blocked_and_told() {
    let host = Host::new("blocks");
    let _daemon = host.start(&rules(FIVE));
    let client = client(&host);
    let hour = BlockRequest {
        duration: Some(Duration::from_hours(1)),
        reason: "a test".to_owned(),
        ..BlockRequest::default()
    };
    assert!(client.block("::ffff:10.128.0.1", &hour).unwrap().added);
    assert!(!client.block(SOURCE, &hour).unwrap().added);
    assert!(client.block("198.51.100.0/24", &BlockRequest::default()).unwrap().added);
    host.flood(4);
    host.comes_to(|| blocked(&client) == 4, "its packets are shed");
    assert_eq!(client.source(SOURCE.parse().unwrap()).unwrap().fate, Fate::Blocked);

    let within = BlockFilter { prefix: Some("10.0.0.0/8".to_owned()), ..BlockFilter::default() };
    let blocks = client.blocks(&within).unwrap().blocks;
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].reason.as_str(), blocks[0].origin), ("a test", Origin::Command));
    let by_rules = BlockFilter { origin: Some(Origin::Rule), ..BlockFilter::default() };
    assert!(client.blocks(&by_rules).unwrap().blocks.is_empty());
    let totals = client.status().unwrap().blocks.unwrap();
    assert_eq!((totals.addresses, totals.prefixes, totals.by_rules), (1, 1, 0));

    assert!(client.unblock(SOURCE).unwrap());
    assert!(!client.unblock(SOURCE).unwrap());
    assert_eq!(host.send(3, "udp"), (3, 0));
    let events = client.recent_events(100).unwrap();
    let told: Vec<&str> = events.iter().map(|event| event.what.name()).collect();
    let told: Vec<&str> = told.into_iter().filter(|name| *name != "shed").collect();
    assert!(told.ends_with(&["blocked", "blocked", "blocked", "unblocked"]), "{told:?}");
}

#[test]
#[ignore = "requires root"]
fn a_list_is_blocked_but_for_what_is_wrong_or_not_at_all() {
    let host = Host::new("lists");
    let _daemon = host.start(&rules(&format!("blocks: {{ capacity: 20000 }}, {FIVE}")));
    let client = client(&host);
    let list = |count: u32| {
        let lines: Vec<String> =
            (0..count).map(|number| format!("{}\n", std::net::Ipv4Addr::from(number))).collect();
        Cursor::new(lines.concat() + "nobody\n2001:db8::/32\n")
    };
    // More than the table holds at first.
    let told = client.block_list(list(18_000), &BlockRequest::default()).unwrap();
    assert_eq!((told.added, told.replaced, told.failed), (18_001, 0, 1));
    assert_eq!((told.errors[0].line, told.errors[0].entry.as_str()), (18_001, "nobody"));
    let everything = client.blocks(&BlockFilter::default()).unwrap().blocks;
    assert_eq!(everything.len(), 18_001);

    let (full, message) = kind(client.block_list(list(30_000), &BlockRequest::default()));
    assert_eq!(full, Some(Kind::Full), "{message}");
    assert_eq!(client.status().unwrap().blocks.unwrap().addresses, 18_000, "nothing was changed");
}

#[test]
#[ignore = "requires root"]
fn a_policy_is_tried_kept_and_undone() {
    let host = Host::new("tried");
    let _daemon = host.start(&rules(FIVE));
    let client = client(&host);
    let name = || client.rules().unwrap().rules[0].name.clone();
    let other = |name: &str| rules(&FIVE.replace("name: udp", &format!("name: {name}")));
    let minute = Some(Duration::from_mins(1));

    let applied = client.apply(other("first"), minute, false).unwrap();
    assert_eq!((name().as_str(), client.status().unwrap().trial.unwrap().id), ("first", applied.id.clone()));
    assert!(client.config().unwrap().applied);
    assert_eq!(kind(client.reload(false)).0, Some(Kind::Conflict));
    client.roll_back(&applied.id).unwrap();
    assert_eq!((name().as_str(), client.status().unwrap().trial), ("udp", None));
    assert_eq!(kind(client.confirm(&applied.id)).0, Some(Kind::NotFound));

    let applied = client.apply(other("second"), minute, false).unwrap();
    client.confirm(&applied.id).unwrap();
    assert_eq!(name(), "second");
    let (invalid, message) = kind(client.apply("network: { rulez: [] }\n".to_owned(), None, false));
    assert_eq!(invalid, Some(Kind::Invalid));
    assert!(message.contains("rulez"), "{message}");
    assert_eq!(name(), "second");
}

#[test]
#[ignore = "requires root"]
fn what_happens_is_followed() {
    let host = Host::new("followed");
    let daemon = host.start(&rules(FIVE));
    let client = client(&host);
    let mut following = client.follow(Some(0)).unwrap();
    let mut until = |is: &dyn Fn(&What) -> bool| {
        following.by_ref().map(|event| event.unwrap().what).find(|what| is(what)).expect("it happens")
    };
    assert!(client.set_mode(Mode::Monitor, false).unwrap().changed);
    assert_eq!(client.status().unwrap().policy.unwrap().mode, Mode::Monitor);
    assert!(client.set_mode(Mode::Enforce, false).unwrap().changed);
    until(&|what| *what == What::ModeChanged { mode: Mode::Enforce });
    host.flood(6);
    let What::Shed(shed) = until(&|what| matches!(what, What::Shed(_))) else { unreachable!() };
    assert_eq!(shed.source, Some(SOURCE.parse().unwrap()));
    assert_eq!((shed.rule.as_deref(), shed.limit, shed.reason.as_str()), (Some("udp"), Some(1), "limited"));
    assert_eq!((shed.interface.as_str(), shed.protocol.as_deref()), ("eth0", Some("udp")));
    std::fs::write(host.file("rules.yaml"), "network: { rulez: [] }\n").unwrap();
    let (invalid, _) = kind(client.reload(false));
    assert_eq!(invalid, Some(Kind::Invalid));
    until(&|what| matches!(what, What::ReloadFailed { .. }));
    assert!(!client.status().unwrap().reloads.unwrap().last_ok);
    assert_eq!(daemon.terminate().0, Some(0));
    until(&|what| *what == What::Stopping);
    assert!(following.next().is_none());
}

#[test]
#[ignore = "requires root"]
fn whoever_asks_does_not_cut_their_own_connection() {
    let host = Host::new("lockedout");
    let _daemon = host.start(&rules(FIVE));
    let client = client(&host);
    // As under `ssh` from the source of the floods.
    let ask = |arguments: &[&str]| -> Output {
        let mut command = host.lab.server.command(&host.binary);
        command.args(arguments).arg("--admin-socket").arg(host.file("admin.sock"));
        command.arg("--pin-dir").arg(host.pin_dir());
        command.env("SSH_CONNECTION", format!("{SOURCE} 50000 10.128.0.2 22"));
        command.output().expect("the verb runs")
    };
    let words = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for prefix in [SOURCE, "10.0.0.0/8", "0.0.0.0/0"] {
        let output = ask(&["block", prefix, "--for", "1m"]);
        assert_eq!(output.status.code(), Some(1), "{}", words(&output));
        assert!(words(&output).contains("--force"), "{}", words(&output));
    }
    assert_eq!(ask(&["block", OTHER, "--for", "1m"]).status.code(), Some(0));
    let told = client.blocks(&BlockFilter::default()).unwrap().blocks;
    assert_eq!(told.len(), 1, "{told:?}");
    let output = ask(&["block", SOURCE, "--for", "1m", "--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}
