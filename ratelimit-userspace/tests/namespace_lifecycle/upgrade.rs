//! A build with another version of the pinned layouts takes over from this one, and back.

use std::{fs, path::PathBuf, sync::LazyLock};

use ratelimit_common::record::ABI_VERSION;
use xtask::{build, workspace::Workspace};

use super::{attached, five_on_eth0, host::Host, rules};

/// The build that comes after this one.
static NEXT: LazyLock<PathBuf> = LazyLock::new(|| {
    let workspace = Workspace::load().expect("the workspace");
    build::next_abi(&workspace).expect("it compiles")
});

fn versions(host: &Host) -> Vec<String> {
    let entries = fs::read_dir(host.pin_dir()).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("a file").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
#[ignore = "requires root"]
fn an_upgrade_and_a_rollback_keep_buckets_and_counters() {
    let mut host = Host::new("upgrade");
    host.start(&five_on_eth0()).kill();
    assert_eq!(host.send(20, "udp"), (5, 15));
    let first = host.program_id();
    let this = std::mem::replace(&mut host.binary, NEXT.clone());

    let daemon = host.start(&five_on_eth0());
    let told = format!("version {ABI_VERSION} of the pinned state is taken over: kept: ");
    assert!(daemon.log().contains(&told), "{}", daemon.log());
    assert!(daemon.log().contains("eth0: native, swapped without a gap"), "{}", daemon.log());
    assert!(!daemon.log().contains("begin anew"), "{}", daemon.log());
    assert_ne!(host.program_id(), first);
    assert_eq!(host.interfaces(), [attached("eth0", "native")]);
    assert_eq!(host.send(10, "udp"), (5, 25));
    assert_eq!(versions(&host), ["links".to_owned(), format!("v{}", ABI_VERSION + 1)]);
    daemon.kill();

    host.binary = this;
    let daemon = host.start(&five_on_eth0());
    assert!(daemon.log().contains("swapped without a gap"), "{}", daemon.log());
    assert_eq!(host.send(10, "udp"), (5, 35));
    assert_eq!(versions(&host), ["links".to_owned(), format!("v{ABI_VERSION}")]);
}

#[test]
#[ignore = "requires root"]
fn an_upgrade_that_fails_leaves_the_old_version_in_force() {
    let mut host = Host::new("upgrade-fails");
    host.start(&five_on_eth0()).kill();
    assert_eq!(host.send(20, "udp"), (5, 15));
    let (before, program) = (versions(&host), host.program_id());
    let this = std::mem::replace(&mut host.binary, NEXT.clone());
    let refusal = host.refuse(&rules("[{ name: eth0 }, { name: lo, mode: native }]", super::FIVE));
    assert!(refusal.log.contains("What was enforced before still is"), "{}", refusal.log);

    host.binary = this;
    assert_eq!((versions(&host), host.program_id()), (before, program));
    assert_eq!(host.send(10, "udp"), (5, 25));
    let daemon = host.start(&five_on_eth0());
    assert!(!daemon.log().contains("taken over"), "{}", daemon.log());
    assert_eq!(host.send(10, "udp"), (5, 35));
}

#[test]
#[ignore = "requires root"]
fn detach_removes_the_pins_of_every_version() {
    let mut host = Host::new("upgrade-detach");
    host.start(&five_on_eth0()).kill();
    host.binary.clone_from(&NEXT);
    assert!(host.verb(&["detach"]).status.success());
    assert_eq!(host.xdp_on("eth0"), "");
    assert!(!host.pin_dir().exists());
}
