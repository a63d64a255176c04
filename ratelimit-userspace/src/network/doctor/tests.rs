use ipnet::IpNet;

use super::{
    facts::{Device, Host, Lack, Origin, Pins, Policy, Unseen},
    *,
};
use crate::{
    config::policy::{AttachMode, Match, Vlan},
    network::compile::tests::{network, rule},
};

fn device(name: &str) -> Device {
    Device { name: name.to_owned(), ..Device::default() }
}

#[test]
fn the_host_comes_first_and_what_was_not_seen_last() {
    let facts = Facts {
        host: Host {
            lacking: vec![Lack { what: "too old".to_owned(), remedy: "newer".to_owned() }],
            cpus: 1,
            ..Host::default()
        },
        pins: Pins::default(),
        policy: None,
        devices: vec![device("eth0")],
        unseen: vec![Unseen { what: "the pins".to_owned(), why: "permission denied".to_owned() }],
    };
    let checks: Vec<_> = examine(&facts).iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["kernel", "daemon", "xdp_mode", "unseen"]);
}

#[test]
fn severities_are_ordered_and_named() {
    use Severity::{Note, Ok, Problem, Warning};

    assert!(Ok < Note && Note < Warning && Warning < Problem);
    let finding = Finding::warning("check", "eth0", "what").why("why").remedy("remedy");
    assert_eq!(
        serde_json::to_value(finding).expect("JSON"),
        serde_json::json!({
            "severity": "warning", "check": "check", "subject": "eth0", "what": "what", "why": "why",
            "remedy": "remedy",
        })
    );
}

#[test]
fn patterns_mean_the_interfaces_that_there_are_but_the_loopback() {
    let devices = ["lo", "eth0", "eth1", "wan"].map(device);
    let wanted = [
        ("eth1", AttachMode::Native),
        ("eth*", AttachMode::Auto),
        ("*", AttachMode::Generic),
        ("ppp?", AttachMode::Auto),
    ];
    let vlan = Match { vlan: Some(vec![Vlan::Id(7)]), ..Match::default() };
    let source: IpNet = "192.0.2.0/24".parse().expect("a prefix");
    let mut network = network(vec![
        rule("tagged", vlan),
        rule("all", Match { source: Some(vec![source]), ..Match::default() }),
    ]);
    network.monitor = true;
    let policy = Policy::new(Origin::InForce, &network, wanted.into_iter(), &devices);
    let names: Vec<_> = policy.interfaces.iter().map(|it| (it.name.as_str(), it.mode)).collect();
    assert_eq!(
        names,
        [("eth1", AttachMode::Native), ("eth0", AttachMode::Auto), ("wan", AttachMode::Generic)]
    );
    assert_eq!(policy.without_interface, ["ppp?"]);
    assert_eq!(policy.vlan_rules, ["tagged"]);
    assert!(policy.monitor && policy.sets == 512);
}
