//! Blocks that outlive a boot.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use ratelimit::network::blocks::{BlocksError, Saved};
use ratelimit_common::policy::stage;
use xtask::lab::Directory;

use super::{
    host::{BOOT, Host},
    verdicts::block_by_rule,
};
use crate::{frame::udp, limiter::SECOND};

fn some() -> Host {
    let mut host = Host::with_stages("mode: enforce", stage::RULE_BLOCKS);
    for (prefix, seconds, reason) in [
        ("192.0.2.1", 100, "probes, \"quoted\""),
        ("2001:db8::1", 10, ""),
        ("198.51.100.0/24", 0, "net"),
        ("2001:db8:1::/48", 100, "net"),
    ] {
        host.try_block(prefix, seconds, reason).expect("it fits");
    }
    block_by_rule(&host, "203.0.113.9", 32, 5000);
    host
}

#[test]
#[ignore = "requires root: BPF maps"]
fn the_time_that_is_left_is_kept_over_a_boot() {
    let directory = Directory::new("blocks").expect("a directory");
    let file = directory.path().join("blocks");
    assert!(Saved::read(&file).expect("none is no error").is_none());
    let saved = some().blocks.save(&file).expect("it can be written");
    assert_eq!(saved, 4, "what rules blocked is theirs");
    let mode = fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);

    // The host booted, and its clock began anew, while 30 s passed on the wall.
    let mut host = Host::new("mode: enforce");
    host.at(1030 * SECOND);
    let saved = Saved::read(&file).expect("it can be read").expect("it is there");
    assert_eq!((saved.singles(), saved.prefixes().count()), (2, 4));
    let restored = host.blocks.restore(saved);
    assert_eq!((restored.blocks, restored.ended, restored.errors.len()), (3, 1, 0));
    assert_eq!(
        host.list(),
        [
            "192.0.2.1/32 1000..1100 probes, \"quoted\"",
            "198.51.100.0/24 1000..ever net",
            "2001:db8:1::/48 1000..1100 net"
        ]
    );
    assert_eq!(host.say(&udp("192.0.2.1")), "drop blocked");
    assert_eq!(host.say(&udp("2001:db8::1")), "pass no_rule");
    assert_eq!(host.blocks.count().prefixes_v6, 1);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn a_clock_that_lags_makes_no_block_longer() {
    let directory = Directory::new("blocks").expect("a directory");
    let file = directory.path().join("blocks");
    some().blocks.save(&file).expect("it can be written");
    // A boot without a battery: the wall clock is 900 s behind the time of saving.
    let mut host = Host::new("mode: enforce");
    host.at(100 * SECOND);
    let restored = host.blocks.restore(Saved::read(&file).expect("it can be read").expect("it is there"));
    assert_eq!(restored.blocks, 4);
    assert_eq!(host.find("2001:db8:1::1"), ["2001:db8:1::/48 1000..200 net"]);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn lines_that_are_wrong_are_told_and_the_others_restored() {
    let directory = Directory::new("blocks").expect("a directory");
    let file = directory.path().join("blocks");
    let end = (BOOT + Duration::from_secs(1060)).as_secs();
    let text = format!(
        "{{\"saved\":1}}\n\
         {{\"prefix\":\"192.0.2.1/32\",\"until\":{end},\"since\":5,\"reason\":\"a\",\"later\":true}}\n\
         \n\
         {{\"prefix\":\"192.0.2.2/33\",\"since\":5}}\n\
         {{\"prefix\":\"192.0.2.3/24\",\"since\":5}}\n\
         {}\n\
         {{\"prefix\":\"192.0.2.4/32\",\"until\":18446744073709551615,\"since\":18446744073709551615}}\n\
         {{\"prefix\":\"192.0.2.5/32\",\"since\":1799999000}}\n\
         {{\"prefix\":\"192.0.2.6/32\",\"sin",
        "x".repeat(10_000)
    );
    fs::write(&file, text).expect("it can be written");
    let mut host = Host::new("mode: enforce");
    let restored = host.blocks.restore(Saved::read(&file).expect("it can be read").expect("it is there"));
    let lines: Vec<_> = restored.errors.iter().map(|error| error.line).collect();
    assert_eq!((restored.blocks, lines), (2, vec![4, 5, 6, 7, 9]), "{:?}", restored.errors);
    assert!(restored.errors[1].message.contains("the network is 192.0.2.0/24"));
    assert_eq!(host.find("192.0.2.1").len(), 1);
    assert_eq!(host.find("192.0.2.5").len(), 1);
}

#[test]
#[ignore = "requires root: BPF maps"]
fn a_file_that_cannot_be_written_is_told_with_its_name() {
    let host = Host::new("mode: enforce");
    let Err(error) = host.blocks.save("/nonexistent/blocks".as_ref()) else { panic!("it was written") };
    assert!(matches!(error, BlocksError::File { .. }));
    assert_eq!(error.to_string(), "failed to write /nonexistent/blocks");
}
