//! A host that lets in one client, behind a router, stays reachable for it: ARP and neighbour discovery of
//! the router, whose addresses are denied, go on.

use std::{thread, time::Duration};

use crate::{
    client::{Ping, families},
    eventually,
    host::Host,
    ledger::Ledger,
    policy,
};

const CLIENT: [&str; 2] = ["192.0.2.7", "2001:db8::7"];
/// How long an entry of a neighbour is taken as true, in milliseconds; the kernel varies it by half.
const LIFETIME: u64 = 100;

/// Makes entries of neighbours live for moments instead of half a minute, and then ask at once.
fn shorten(host: &Host) {
    let settings = [
        ("base_reachable_time_ms", LIFETIME),
        ("retrans_time_ms", LIFETIME),
        ("delay_first_probe_time", 0),
        ("gc_stale_time", 1),
    ];
    for namespace in [&host.lab.client, &host.lab.server] {
        for family in ["ipv4", "ipv6"] {
            for (name, value) in settings {
                let key = format!("net/{family}/neigh/eth0/{name}");
                namespace.sysctl(&key, &value.to_string()).expect("a setting");
            }
        }
    }
}

fn forget(host: &Host) {
    for namespace in [&host.lab.client, &host.lab.server] {
        namespace.ip("neigh flush dev eth0").expect("nothing is known");
    }
}

/// Frames of ARP and of neighbour discovery that passed.
fn confirmations(host: &Host) -> [u64; 2] {
    let ledger = Ledger::read(host);
    ["not_ip", "neighbour"].map(|reason| ledger.reason(reason).passed.packets)
}

#[test]
#[ignore = "requires root: network namespaces"]
fn neighbours_are_found_under_a_policy_that_denies_everybody_else() {
    let host = Host::new("neighbours");
    let [v4, v6] = CLIENT;
    host.lab
        .client
        .ip(&format!("address add {v4}/32 dev lo\naddress add {v6}/128 dev lo nodad"))
        .expect("addresses behind the router");
    shorten(&host);
    let lists = format!("allow: [{v4}, \"{v6}\"], deny: [0.0.0.0/0, \"::/0\"]");
    let _daemon = host.start(&policy("native", &lists));
    forget(&host);

    let friends = CLIENT.map(|address| address.parse().expect("an address"));
    let mut friends: Vec<_> =
        families(&host).iter().zip(friends).map(|((_, to), from)| Ping::new(&host, from, *to)).collect();
    let mut reach = || {
        for ping in &mut friends {
            eventually("an answer", || {
                ping.ask();
                ping.answered(Duration::from_secs(1)).then_some(())
            });
        }
    };
    reach();

    // An entry is asked for anew in each lifetime in which it is used.
    let before = confirmations(&host);
    eventually("ten lifetimes", || {
        reach();
        thread::sleep(Duration::from_millis(2 * LIFETIME));
        let now = confirmations(&host);
        now.iter().zip(before).all(|(now, before)| *now >= before + 20).then_some(())
    });
    for _ in 0..3 {
        forget(&host);
        reach();
    }
    let now = confirmations(&host);
    eventually("the entries of nobody's traffic are gone", || {
        let output = host.lab.server.command("ip").args(["neigh", "show", "nud", "reachable"]).output();
        output.expect("ip runs").stdout.is_empty().then_some(())
    });
    reach();
    eventually("they were asked for again", || {
        confirmations(&host).iter().zip(now).all(|(after, now)| *after > now).then_some(())
    });

    for (from, to) in families(&host) {
        let shed = Ledger::read(&host).reason("denied").shed.packets;
        Ping::new(&host, from, to).ask();
        eventually("the router itself is denied", || {
            (Ledger::read(&host).reason("denied").shed.packets > shed).then_some(())
        });
    }
    assert!(Ledger::read(&host).reason("allowed").passed.packets > 0);
}
