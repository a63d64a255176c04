use super::{
    host::{available, cpus},
    *,
};

#[test]
fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
    let read = |text| cpus(text).collect::<Vec<_>>();
    assert_eq!(read("0"), [0]);
    assert_eq!(read("0-3,8\n"), [0, 1, 2, 3, 8]);
    assert!(read("").is_empty());
}

#[test]
fn the_available_memory_is_in_kibibytes() {
    assert_eq!(available("MemTotal: 10 kB\nMemAvailable:    2048 kB\n"), Some(2048 * 1024));
    assert_eq!(available("MemTotal: 10 kB\n"), None);
}

#[test]
fn the_loopback_interface_is_seen_without_privilege() {
    let mut unseen = Vec::new();
    let state = StateDir::new("/nonexistent/ratelimit");
    let devices = devices::look(&state, false, &mut unseen);
    let loopback = devices.iter().find(|device| device.name == "lo").expect("lo");
    assert_eq!((loopback.index, loopback.no_ethernet), (1, false));
    let features = loopback.features.as_ref().unwrap_or_else(|| panic!("offloads: {unseen:?}"));
    assert!(features.contains("loopback"), "{features:?}");
}

#[test]
fn nothing_pinned_is_seen_as_nothing_pinned() {
    let places = Places {
        state: &StateDir::new("/nonexistent/ratelimit"),
        admin_socket: Path::new("/nonexistent/admin.sock"),
        rules: None,
    };
    let facts = look(places);
    assert!(!facts.pins.hidden && facts.pins.versions.is_empty() && facts.pins.links.is_empty());
    assert_eq!(facts.pins.socket, Some(Err("there is no such socket".to_owned())));
    assert_eq!(facts.policy, None);
    assert!(facts.host.cpus > 0 && facts.host.memory_available > Some(0));
}

/// The answers about all interfaces are more than the first datagram holds.
#[test]
fn offloads_of_all_interfaces_are_seen() {
    let mut unseen = Vec::new();
    let devices = devices::look(&StateDir::new("/nonexistent/ratelimit"), false, &mut unseen);
    let without: Vec<_> = devices.iter().filter(|it| it.features.is_none()).map(|it| &it.name).collect();
    assert!(without.is_empty(), "{without:?} {unseen:?}");
}
