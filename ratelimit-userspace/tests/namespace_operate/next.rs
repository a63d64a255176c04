//! A program of somebody else that gets what passes.

use std::path::PathBuf;

use aya::{Ebpf, programs::Xdp};
use xtask::lab::{Flood, Plan};

use crate::{PATIENCE, datagrams, eventually, host::Host, policy};

/// Pins a program that drops whatever it gets.
fn pin_drop(host: &Host) -> PathBuf {
    // Built beside the object of the limiter.
    let target = PathBuf::from(env!("CARGO_BIN_EXE_ratelimit"));
    let object =
        target.ancestors().map(|folder| folder.join("bpf/bench-drop.bpf.o")).find(|path| path.exists());
    let mut object = Ebpf::load_file(object.expect("`cargo xtask build` makes it")).expect("an object");
    let program: &mut Xdp =
        object.program_mut("bench_drop").expect("the program").try_into().expect("it is for XDP");
    program.load().expect("it loads");
    let path = host.pin_dir().with_file_name("drop");
    program.pin(&path).expect("a pin");
    path
}

/// Datagrams that the kernel's stack got, of so many that are sent.
fn received(host: &Host, packets: u64) -> u64 {
    let count = || {
        let table = host.lab.server.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
        let table = table.expect("a table");
        // Names, then values: InDatagrams and, for nobody listens, NoPorts.
        let line = table.lines().filter(|line| line.starts_with("Udp: ")).nth(1).expect("UDP").to_owned();
        let numbers: Vec<u64> =
            line.split(' ').skip(1).take(2).map(|number| number.parse().expect("a number")).collect();
        numbers.iter().sum::<u64>()
    };
    let before = count();
    let (passed, shed) = host.counts("udp");
    let source = "10.128.0.9".parse().expect("an address");
    let frames = vec![host.lab.route_v4().udp(source, 4000, 5000, b"x")];
    let plan = Plan { frames, duration: PATIENCE, packets: Some(packets), rate: None, cpu: None };
    host.lab.flood(plan).and_then(Flood::wait).expect("a flood");
    eventually("all are judged", || {
        let now = host.counts("udp");
        (now.0 + now.1 == passed + shed + packets).then_some(())
    });
    count() - before
}

#[test]
#[ignore = "requires root: network namespaces"]
fn the_next_program_gets_what_passes_and_nothing_else_also_after_the_daemon() {
    let host = Host::new("next");
    let plain = policy(&datagrams(20));
    let daemon = host.start(&plain);
    assert_eq!(received(&host, 5), 5);
    let pin = pin_drop(&host);
    let with_next = policy(&format!("next: {}, {}", pin.display(), datagrams(20)));
    std::fs::write(host.file("rules.yaml"), &with_next).expect("a file");
    daemon.tells("a changed file: enforcing");
    assert_eq!(received(&host, 5), 0, "it passes, and the next program drops it");
    assert_eq!(host.counts("udp"), (10, 0));
    daemon.kill();
    assert_eq!(received(&host, 5), 0, "without a daemon as well");
    assert_eq!(host.counts("udp"), (15, 0));
    let daemon = host.start(&with_next);
    assert_eq!(received(&host, 10), 0);
    assert_eq!(host.counts("udp"), (20, 5), "what is shed is shed all the same");
    drop(daemon);
    let _daemon = host.start(&policy(&datagrams(30)));
    assert_eq!(received(&host, 10), 10, "without `next`, the stack is the next");
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_next_program_that_is_not_there_changes_nothing() {
    let host = Host::new("no-next");
    let rules = policy(&format!("next: /sys/fs/bpf/nothing-of-the-kind, {}", datagrams(5)));
    let refusal = host.refuse(&rules);
    assert!(refusal.log.contains("nothing-of-the-kind"), "{}", refusal.log);
    assert_eq!(host.xdp_on("eth0"), "");
    let daemon = host.start(&policy(&datagrams(5)));
    std::fs::write(host.file("rules.yaml"), rules).expect("a file");
    daemon.tells("are not used, what was in force still is");
    assert_eq!(host.send(20, "udp"), (5, 15));
}
