//! What must stay reachable whatever the policy says.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, TcpListener, TcpStream},
    time::Duration,
};

use crate::{eventually, host::Host, ledger::Ledger, policy, tell};

/// Long for a round trip on this wire; passing it only ends the wait for what was shed.
const SHORT: Duration = Duration::from_millis(500);

const MANAGED: u16 = 22;
const OTHER: u16 = 23;

/// Whether the client reaches this port, there and back.
fn reaches(host: &Host, to: IpAddr, port: u16) -> bool {
    let listener = host.lab.server.run(|| TcpListener::bind((to, port))).expect("a listener");
    let connected = host.lab.client.run(|| TcpStream::connect_timeout(&(to, port).into(), SHORT));
    let Ok(mut near) = connected else { return false };
    let (mut far, _) = listener.accept().expect("the other end");
    near.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    far.read_exact(&mut heard).expect("it arrives");
    &heard == b"hello"
}

#[test]
#[ignore = "requires root: network namespaces"]
fn management_passes_a_denial_of_everybody_blocks_and_a_rule_that_admits_nothing() {
    let host = Host::new("management");
    let link = &host.lab.link;
    let management = "management: [{ prefix: [10.77.0.0/24, \"fd00:77::/64\"], ports: 22 }]";
    let deny = "deny: [0.0.0.0/0, \"::/0\"]";
    let nothing =
        "rules: [{ name: tcp, match: { protocol: tcp }, limits: [{ per: source, rate: 0/s, burst: 0 }] }]"
            .replace(", burst: 0", "");
    let daemon = host.start(&policy(&format!("{management}, {deny}, {nothing}")));
    let addresses: [IpAddr; 2] = [link.server.ipv4.into(), link.server.ipv6.into()];
    let check = || {
        for address in addresses {
            eventually("management passes", || reaches(&host, address, MANAGED).then_some(()));
            assert!(!reaches(&host, address, OTHER), "{address}");
        }
    };
    check();
    // The default route of the client's answers is no matter: blocks of everybody come on top.
    for block in ["10.77.0.0/24", "10.77.0.1", "fd00:77::/64"] {
        tell(&host, &["block", block, "--force"]);
    }
    check();
    let ledger = Ledger::read(&host);
    assert!(ledger.reason("management").passed.packets > 0);
    assert_eq!(ledger.reason("management").shed.packets, 0);
    assert!(ledger.reason("denied").shed.packets > 0);
    daemon.kill();
    check();

    // A rule that admits nothing, without the denial.
    let _daemon = host.start(&policy(&format!("{management}, {nothing}")));
    tell(&host, &["unblock", "--all"]);
    check();
    assert!(Ledger::read(&host).reason("zero_rate").shed.packets > 0);
}
