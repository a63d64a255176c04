use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::{
    config::policy::{Management, Match, Rule, TcpFlags},
    network::{
        compile::{
            Slots, compile,
            tests::{matches, network, prefix, rule},
        },
        program::tests::{Sketch, load, management},
    },
};

fn session(client: &str, server: &str) -> Session {
    Session { client: client.parse().expect("an end"), server: Some(server.parse().expect("an end")) }
}

fn ssh() -> Session {
    session("198.51.100.7:51000", "203.0.113.5:22")
}

fn compiled(network: &Network) -> Compiled {
    let names = network.rules.iter().map(|rule| rule.name.as_str());
    compile(network, &Slots::assign(&Slots::default(), names).0).expect("it is valid")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

fn managed(prefix: &str, port: u16) -> Vec<Management> {
    vec![Management { prefix: net(prefix), ports: vec![port..=port] }]
}

/// A policy with one rule that refuses everything it meets.
fn zero(matches: Match) -> Network {
    let mut zero = rule("nothing", matches);
    zero.limits[0].bucket = None;
    network(vec![zero])
}

#[test]
fn what_sshd_says_is_read() {
    let read = |text: &str| in_environment(text.replace('|', "\0").as_bytes());
    assert_eq!(read("HOME=/root|SSH_CONNECTION=198.51.100.7 51000 203.0.113.5 22|A=b|"), Some(ssh()));
    assert_eq!(
        read("SSH_CONNECTION=2001:db8::7 1 2001:db8::5 2222"),
        Some(session("[2001:db8::7]:1", "[2001:db8::5]:2222"))
    );
    assert_eq!(
        read("SSH_CONNECTION=fe80::7%eth0 51000 fe80::5%eth0 22|"),
        Some(session("[fe80::7]:51000", "[fe80::5]:22"))
    );
    // Half of it is better than nothing.
    assert_eq!(read("SSH_CONNECTION=198.51.100.7 51000|"), Some(Session { server: None, ..ssh() }));
    for text in [
        "",
        "SSH_CONNECTION=|",
        "SSH_CONNECTION=198.51.100.7|",
        "SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535|",
        "SSH_CONNECTION=198.51.100.7 65536 203.0.113.5 22|",
        "MY_SSH_CONNECTION=198.51.100.7 51000 203.0.113.5 22|",
        "SSH_CLIENT=198.51.100.7 51000 22|",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
    assert_eq!(in_environment(b"SSH_CONNECTION=\xff 1 \xff 2"), None);
}

#[test]
fn a_name_with_brackets_and_blanks_hides_no_parent() {
    assert_eq!(parent_in("77 (bash) S 76 77 77 0 -1"), Some(76));
    assert_eq!(parent_in("77 (a) S 1 (b) R 42 1"), Some(42));
    assert_eq!(parent_in("77 (bash"), None);
    assert_eq!(parent_in("77 (bash) S"), None);
}

#[test]
fn a_connection_is_found_behind_a_cleared_environment() {
    // The inner shell stands for one under sudo: it was told nothing, and its parent was.
    let mut shell = Command::new("sh")
        .args(["-c", "env -i sh -c 'echo $$; read line'; true"])
        .env("SSH_CONNECTION", "198.51.100.7 51000 203.0.113.5 22")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut line = String::new();
    BufReader::new(shell.stdout.as_mut().expect("piped")).read_line(&mut line).expect("it says its number");
    let inner = line.trim().parse().expect("a number");
    assert_ne!(inner, shell.id());
    assert_eq!((session_of(inner), session_of(shell.id())), (Some(ssh()), Some(ssh())));
    drop(shell.stdin.take());
    shell.wait().expect("it ends with its input");
    assert_eq!((session_of(1), session_of(0)), (None, None));
}

#[test]
fn lists_and_rules_are_named() {
    let denied = Network { deny: vec![net("198.51.100.0/24")], ..network(Vec::new()) };
    let says = |network: &Network| policy_sheds(&compiled(network), &ssh());
    assert_eq!(says(&denied).as_deref(), Some("`deny` covers 198.51.100.7"));
    assert_eq!(
        says(&zero(Match::default())).as_deref(),
        Some("the rule `nothing` has a rate of zero and meets new connections (SYN) to port 22")
    );
    let segments = Match { tcp_flags: Some(vec![TcpFlags { set: 0x10, clear: 0x02 }]), ..Match::default() };
    assert_eq!(
        says(&zero(segments)).as_deref(),
        Some("the rule `nothing` has a rate of zero and meets its segments (ACK) to port 22")
    );
}

#[test]
fn what_lets_the_connection_be_is_no_lockout() {
    let denied = || Network { deny: vec![net("198.51.100.0/24")], ..zero(Match::default()) };
    let safe = |network: &Network| policy_sheds(&compiled(network), &ssh()).is_none();
    assert!(!safe(&denied()));
    assert!(safe(&Network { monitor: true, ..denied() }));
    assert!(safe(&Network { allow: vec![net("198.51.100.7/32")], ..denied() }));
    assert!(safe(&Network { management: managed("198.51.100.0/25", 22), ..denied() }));
    assert!(!safe(&Network { management: managed("198.51.100.0/25", 2222), ..denied() }));
    assert!(!safe(&Network { management: managed("203.0.113.0/24", 22), ..denied() }));

    let to_web = Match { destination_port: Some(vec![80..=80]), ..Match::default() };
    assert!(safe(&zero(to_web)));
    let udp = Match { protocol: Some(vec![17]), ..Match::default() };
    assert!(safe(&zero(udp)));
    let mut counting = zero(Match::default());
    counting.rules[0].count_only = true;
    assert!(safe(&counting));
    // A limit may refuse, but not for certain.
    assert!(safe(&network(vec![rule("some", Match::default())])));
    let mut behind = zero(Match::default());
    behind.rules.insert(0, rule("some", Match::default()));
    assert!(safe(&behind));
}

#[test]
fn an_unknown_end_is_the_port_of_ssh() {
    let unknown = Session { server: None, ..ssh() };
    let policy = |port| zero(Match { destination_port: Some(vec![port..=port]), ..Match::default() });
    assert!(policy_sheds(&compiled(&policy(22)), &unknown).is_some());
    assert!(policy_sheds(&compiled(&policy(23)), &unknown).is_none());
    let open = Network { management: managed("198.51.100.0/24", 22), ..network(Vec::new()) };
    assert!(!block_sheds(&net("198.51.100.7/32"), &open, &unknown));
}

#[test]
fn mapped_addresses_are_ipv4_and_loopback_is_nobodys() {
    let denied = Network {
        deny: vec![net("198.51.100.0/24"), net("127.0.0.0/8"), net("::1/128")],
        ..network(Vec::new())
    };
    let compiled = compiled(&denied);
    let mapped = session("[::ffff:198.51.100.7]:51000", "[::ffff:203.0.113.5]:22");
    assert_eq!(policy_sheds(&compiled, &mapped).as_deref(), Some("`deny` covers 198.51.100.7"));
    assert!(block_sheds(&net("198.51.100.7/32"), &denied, &mapped));
    for client in ["127.0.0.1:5000", "[::1]:5000", "[::ffff:127.0.0.1]:5000"] {
        let local = session(client, "127.0.0.1:22");
        assert_eq!(policy_sheds(&compiled, &local), None);
        assert!(!block_sheds(&net("127.0.0.0/8"), &denied, &local));
    }
}

#[test]
fn blocks_spare_who_is_allowed_or_manages() {
    let open = network(Vec::new());
    assert!(block_sheds(&net("198.51.100.7/32"), &open, &ssh()));
    assert!(block_sheds(&net("0.0.0.0/0"), &open, &ssh()));
    assert!(!block_sheds(&net("198.51.100.8/32"), &open, &ssh()));
    assert!(!block_sheds(&net("::/0"), &open, &ssh()));
    // The mode may change while the block stands.
    assert!(block_sheds(&net("198.51.100.7/32"), &Network { monitor: true, ..open.clone() }, &ssh()));
    let allowed = Network { allow: vec![net("198.51.100.0/24")], ..open.clone() };
    assert!(!block_sheds(&net("198.51.100.7/32"), &allowed, &ssh()));
    let manages = |port| Network { management: managed("198.51.100.0/24", port), ..open.clone() };
    assert!(!block_sheds(&net("198.51.100.0/24"), &manages(22), &ssh()));
    assert!(block_sheds(&net("198.51.100.0/24"), &manages(443), &ssh()));
}

/// Ends that often meet the prefixes and ports of drawn policies.
fn ends() -> impl Strategy<Value = Session> {
    let v4 =
        || (select(&[10, 192][..]), 0..2_u8, Just(0), select(&[0, 1, 128][..])).prop_map(<[u8; 4]>::from);
    let v6 = || {
        (select(&[0x20, 0xfe, 0x0a][..]), 0..2_u8, 0..2_u8).prop_map(|(first, fourth, last)| {
            let mut octets = [0; 16];
            (octets[0], octets[3], octets[15]) = (first, fourth, last);
            octets
        })
    };
    let addresses = prop_oneof![
        (v4(), v4()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        (v6(), v6()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
    ];
    let ports = (select(&[1023, 1024, 51_000][..]), select(&[0, 53, 80, 443, 22][..]));
    (addresses, ports).prop_map(|((client, server), (from, to))| Session {
        client: SocketAddr::new(client, from),
        server: Some(SocketAddr::new(server, to)),
    })
}

/// A rule that refuses everything, one that only counts that, or one that refuses nothing yet.
fn rules() -> impl Strategy<Value = Vec<Rule>> {
    vec((matches(), any::<bool>(), any::<bool>()), 0..6).prop_map(|drawn| {
        let named = (0_usize..).zip(drawn).map(|(number, (matches, is_zero, count_only))| {
            let mut rule = rule(&format!("r{number}"), matches);
            if is_zero {
                rule.limits[0].bucket = None;
            }
            rule.count_only = count_only;
            rule
        });
        named.collect()
    })
}

proptest! {
    // Each case loads a program.
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "requires root"]
    fn the_kernel_sheds_what_the_guard_says(
        rules in rules(),
        allow in vec(prefix(), 0..2),
        management in vec(management(), 0..3),
        deny in vec(prefix(), 0..4),
        monitor in prop::bool::weighted(0.1),
        sessions in vec(ends(), 32),
    ) {
        let policy = Network { monitor, allow, deny, management, ..network(rules) };
        let (compiled, mut program) = load(&policy);
        for session in sessions {
            let mut shed = false;
            for (packet, length) in segments(&Ends::of(&session)) {
                let mut frame = Sketch {
                    source: packet.source,
                    destination: packet.destination,
                    vlan: None,
                    protocol: 6,
                    ports: [session.client.port(), session.server.expect("it has one").port()],
                    byte: u8::try_from(packet.tcp_flags).expect("a byte"),
                    fragment: Fragment::None,
                    payload: 0,
                };
                frame.payload = length as usize - frame.frame().len();
                let verdict = program.test_run(&frame.frame(), length, 0).expect("it runs");
                shed |= verdict.dropped;
            }
            let said = policy_sheds(&compiled, &session);
            prop_assert_eq!(said.is_some(), shed, "{:?}: {:?}", session, said);
        }
    }
}
