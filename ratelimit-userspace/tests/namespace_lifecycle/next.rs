//! Another XDP program behind the limiter.

use std::{fs, path::Path};

use aya::{
    Ebpf,
    maps::{Array, MapData},
    programs::Xdp,
};
use ratelimit_common::record::ABI_VERSION;

use crate::{FIVE, five_on_eth0, host::Host, rules};

/// A program that drops all it gets, as the BPF object of it.
fn dropper() -> Vec<u8> {
    let object = Path::new(env!("RATELIMIT_BPF_OBJECT")).with_file_name("bench-drop.bpf.o");
    fs::read(&object).unwrap_or_else(|error| panic!("{}: {error}", object.display()))
}

/// Pins the XDP program of an object beside the pin directory and returns where.
fn pin(host: &Host, object: &[u8]) -> String {
    let path = host.pin_dir().with_file_name("behind");
    let mut ebpf = Ebpf::load(object).expect("the object loads");
    let program: &mut Xdp = ebpf.program_mut("bench_drop").expect("a program").try_into().expect("for XDP");
    program.load().expect("the kernel takes it");
    program.pin(&path).expect("a pin");
    path.display().to_string()
}

/// Ten datagrams of a source pass; what passes goes to the program at `next`.
fn ten(next: &str) -> String {
    rules(
        "[{ name: eth0 }]",
        &format!("next: {next}, {}", FIVE.replace("udp,", "ten,").replace("5 }", "10 }")),
    )
}

/// Datagrams to no socket that the host's own stack received.
fn arrived(host: &Host) -> u64 {
    let output = host.lab.server.command("cat").arg("/proc/net/snmp").output().expect("cat runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let column = names.split(' ').position(|name| name == "NoPorts").expect("the column");
    values.split(' ').nth(column).expect("a value").parse().expect("a number")
}

fn next_pin(host: &Host) -> std::path::PathBuf {
    host.pin_dir().join(format!("v{ABI_VERSION}")).join("next")
}

#[test]
#[ignore = "requires root"]
fn what_passes_goes_to_the_next_program_with_a_daemon_or_without() {
    let host = Host::new("next");
    let daemon = host.start(&five_on_eth0());
    assert_eq!(host.send(20, "udp"), (5, 15));
    host.comes_to(|| arrived(&host) == 5, "what passes arrives");
    daemon.kill();

    let behind = pin(&host, &dropper());
    let daemon = host.start(&ten(&behind));
    assert_eq!(host.send(4, "ten"), (4, 0));
    assert_eq!(arrived(&host), 5, "the next program drops what passes");
    daemon.kill();
    // It stays behind the limiter even when nobody else holds it.
    fs::remove_file(&behind).expect("it goes");
    assert_eq!(host.send(4, "ten"), (8, 0));
    assert_eq!(arrived(&host), 5);
    let status = String::from_utf8(host.verb(&["status"]).stdout).expect("text");
    assert!(status.contains(&behind), "{status}");

    // A failed start leaves it where it is.
    let refusal = host.refuse(&rules("[{ name: eth0 }, { name: lo, mode: native }]", FIVE));
    assert!(refusal.log.contains("What was enforced before still is"), "{}", refusal.log);
    assert_eq!(host.send(1, "ten"), (9, 0));
    assert_eq!(arrived(&host), 5);

    // And it goes with the policy that names it.
    let without = ten(&behind).replace(&format!("next: {behind}, "), "");
    let daemon = host.start(&without);
    assert!(!next_pin(&host).exists());
    assert_eq!(host.send(2, "ten"), (10, 1));
    host.comes_to(|| arrived(&host) == 6, "what passes arrives again");
    drop(daemon);
}

#[test]
#[ignore = "requires root"]
fn a_next_program_that_is_of_no_use_is_refused_and_nothing_changes() {
    let host = Host::new("unfit");
    host.start(&five_on_eth0()).kill();
    let before = host.program_id();
    let refused = |next: &str, words: &[&str]| {
        let refusal = host.refuse(&ten(next));
        assert_eq!(refusal.code, Some(1), "{}", refusal.log);
        assert!(words.iter().all(|words| refusal.log.contains(words)), "{words:?}: {}", refusal.log);
        assert_eq!(host.program_id(), before);
        assert!(!next_pin(&host).exists());
    };
    refused("/sys/fs/bpf/nobody/home", &["/sys/fs/bpf/nobody/home, where nothing is pinned"]);

    let map = host.pin_dir().with_file_name("map");
    Array::<MapData, u64>::create(1, 0).expect("a map").pin(&map).expect("a pin");
    refused(&map.display().to_string(), &[&map.display().to_string()]);

    let own = host.pin_dir().join(format!("v{ABI_VERSION}")).join("program");
    refused(&own.display().to_string(), &["a program of ratelimit"]);

    // The same program, but not for frames of several buffers.
    let (frags, plain) = (b"xdp.frags\0", b"xdp\0\0\0\0\0\0\0");
    let mut object = dropper();
    while let Some(at) = object.windows(frags.len()).position(|bytes| bytes == frags) {
        object[at..at + plain.len()].copy_from_slice(plain);
    }
    refused(&pin(&host, &object), &["the kernel refuses", "SEC(\"xdp.frags\")"]);

    assert_eq!(host.send(20, "udp"), (5, 15), "the policy before is still in force");
}
