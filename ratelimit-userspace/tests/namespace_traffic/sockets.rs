//! TCP, UDP and ICMP by both families, through limits, in every mode.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::{
    PATIENCE,
    client::{PORT, Ping, arrive, families, receiver, send},
    host::Host,
    ledger::{Ledger, unjudged},
    policy,
};

/// Long for a round trip on this wire; passing it only ends the wait for what was shed.
const SHORT: Duration = Duration::from_millis(300);

const RULES: &str = "rules: [
  { name: handshakes, match: { protocol: tcp, tcp_flags: syn }, limits: [{ per: source, rate: 1/h, burst: 3 }] },
  { name: datagrams, match: { protocol: udp, destination_port: 5000 }, limits: [{ per: source, rate: 1/h, burst: 5 }] },
  { name: echoes, match: { protocol: [icmp, icmpv6], icmp_type: echo-request },
    limits: [{ per: source, rate: 1/h, burst: 4 }] }]";

/// A connection, both ends.
struct Connection(TcpStream, TcpStream);

impl Connection {
    fn open(host: &Host, listener: &TcpListener) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let near = host.lab.client.run(|| TcpStream::connect_timeout(&address, PATIENCE))?;
        near.set_read_timeout(Some(PATIENCE))?;
        let (far, _) = listener.accept()?;
        far.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(near, far))
    }

    /// Sends more than a window there and a word back.
    fn works(&mut self) {
        let Self(near, far) = self;
        let sent = vec![7; 200_000];
        let received = thread::scope(|scope| {
            scope.spawn(|| near.write_all(&sent).expect("it is taken"));
            let mut received = vec![0; sent.len()];
            far.read_exact(&mut received).expect("it arrives");
            received
        });
        assert_eq!(received, sent);
        far.write_all(b"thanks").expect("it is taken");
        let mut answer = [0; 6];
        near.read_exact(&mut answer).expect("it arrives");
        assert_eq!(&answer, b"thanks");
    }
}

fn tcp(host: &Host, to: IpAddr) {
    let listener = host.lab.server.run(|| TcpListener::bind((to, PORT))).expect("a listener");
    let mut open: Vec<_> =
        (0..3).map(|_| Connection::open(host, &listener).expect("within the limit")).collect();
    // The handshake's last packet and the data are no handshakes of their own.
    open.iter_mut().for_each(Connection::works);
    let address = (to, PORT).into();
    host.lab.client.run(|| TcpStream::connect_timeout(&address, SHORT)).expect_err("one too many");
    open.iter_mut().for_each(Connection::works);
}

fn echoes(host: &Host, from: IpAddr, to: IpAddr) {
    let mut ping = Ping::new(host, from, to);
    for _ in 0..4 {
        ping.ask();
        assert!(ping.answered(PATIENCE));
    }
    for _ in 0..16 {
        ping.ask();
    }
    assert!(!ping.answered(SHORT));
}

fn first_burst_passes(name: &str, mode: &str) {
    let host = Host::new(name);
    let _daemon = host.start(&policy(mode, RULES));
    assert_eq!(host.interfaces(), [("eth0".to_owned(), mode.to_owned(), true)]);
    let before = unjudged(&host);

    for (number, (from, to)) in (1..).zip(families(&host)) {
        let receiver = receiver(&host, to);
        send(&host, from, to, 20, 100);
        let ledger = Ledger::after(&host, "datagrams", number * 20);
        assert_eq!(ledger.packets("datagrams"), (number * 5, number * 15));
        arrive(&receiver, 5, 100);

        echoes(&host, from, to);
        Ledger::after(&host, "echoes", number * 20);

        tcp(&host, to);
    }

    let ledger = Ledger::read(&host);
    assert_eq!(ledger.packets("datagrams"), (10, 30));
    assert_eq!(ledger.packets("echoes"), (8, 32));
    let (passed, shed) = ledger.packets("handshakes");
    assert_eq!(passed, 6, "one packet of each handshake is counted");
    assert!(shed >= 2, "{shed} handshakes shed");
    assert_eq!(ledger.reason("within_limit").passed.packets, 10 + 8 + 6);
    assert_eq!(ledger.reason("limited").shed.packets, 30 + 32 + shed);
    assert_eq!(unjudged(&host), before, "every frame has one reason");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn the_first_burst_passes_and_the_rest_is_shed() {
    first_burst_passes("native", "native");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn generic_mode_does_the_same() {
    first_burst_passes("generic", "generic");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn monitor_mode_sheds_nothing_and_counts() {
    let host = Host::new("monitor");
    let deny = "deny: [10.77.0.1]";
    let rule = "rules: [{ name: datagrams, match: { protocol: udp }, limits: [{ per: source, rate: 1/h, burst: 5 }] }]";
    let _daemon = host.start(&policy("auto", &format!("mode: monitor, {deny}, {rule}")));
    assert_eq!(host.status()["policy"]["mode"], "monitor");
    for (from, to) in families(&host) {
        let receiver = receiver(&host, to);
        send(&host, from, to, 20, 100);
        arrive(&receiver, 20, 100);
    }
    let ledger = Ledger::after(&host, "datagrams", 20);
    let rule = ledger.rule("datagrams");
    assert_eq!((rule.passed.packets, rule.limits[0].would_shed.packets), (5, 15));
    assert_eq!(ledger.reason("limited").would_shed.packets, 15);
    assert!(ledger.reason("denied").would_shed.packets == 20);
    assert!(ledger.0.reasons.iter().all(|reason| reason.shed.packets == 0));
}
