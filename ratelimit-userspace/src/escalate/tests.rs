use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use tokio::sync::mpsc::Receiver;

use super::{Crossing, Escalation, Exempt, Sentence, Whom, escalation, fixture::terms, reason};
use crate::{
    config::{self, http::Escalate, policy::Config},
    http::{
        clock::Now,
        rules::Rule,
        serve::fixture::{limit, policy, rule},
        witness::Witness as _,
    },
};

const START: Now = Now::at(1_800_000_000_000_000_000);

fn config() -> Config {
    let text = "interfaces: [{ name: eth0 }]\nnetwork: { allow: [198.51.100.0/24] }\n";
    config::parse(text.as_bytes(), Path::new("rules.yaml")).unwrap().config
}

fn escalating(terms: Escalate) -> Arc<Rule> {
    let limit = limit(2, 60, config::http::Algorithm::SlidingLog);
    rule("api/client_ip", config::http::Rule { escalate: Some(terms), ..policy(limit) })
}

fn begun() -> (Escalation, Receiver<Crossing>) {
    let (escalation, queue) = escalation();
    escalation.follow(&config());
    (escalation, queue)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Denies so often, and takes what that leads to.
fn deny(
    escalation: &Escalation,
    queue: &mut Receiver<Crossing>,
    address: &str,
    times: usize,
) -> Vec<Crossing> {
    let rule = escalating(terms());
    for _ in 0..times {
        escalation.witness().denied(ip(address), &rule, START);
    }
    std::iter::from_fn(|| queue.try_recv().ok()).collect()
}

#[test]
fn the_last_straw_blocks_with_its_whole_reason() {
    let (mut escalation, mut queue) = begun();
    assert!(deny(&escalation, &mut queue, "192.0.2.1", 19).is_empty());
    let crossings = deny(&escalation, &mut queue, "192.0.2.1", 1);
    let [crossing] = &crossings[..] else { panic!("{crossings:?}") };
    let config = config();
    let Whom { prefix, shed } =
        escalation.whom(crossing, config.network.as_ref().unwrap(), &[], &[]).unwrap();
    assert_eq!(shed, None);
    let Sentence { block, offence } = escalation.sentence(crossing, prefix).unwrap();
    assert_eq!(block.prefix, "192.0.2.1/32".parse().unwrap());
    assert_eq!(block.duration, Some(Duration::from_mins(10)));
    assert_eq!(block.reason, "rule api/client_ip: denied 20 times within 1m, offence 1");
    assert_eq!(offence, 1);
    assert_eq!(escalation.sentence(crossing, prefix), None, "blocked already");
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let (escalation, mut queue) = begun();
    let rule = escalating(terms());
    for host in 1..=20 {
        escalation.witness().denied(ip(&format!("2001:db8:b::{host:x}")), &rule, START);
    }
    let crossing = queue.try_recv().unwrap();
    let config = config();
    let whom = escalation.whom(&crossing, config.network.as_ref().unwrap(), &[], &[]);
    assert_eq!(whom, Ok(Whom { prefix: "2001:db8:b::/64".parse().unwrap(), shed: None }));
}

#[test]
fn who_is_allowed_is_left_alone_and_keeps_no_level() {
    let (escalation, mut queue) = begun();
    let crossings = deny(&escalation, &mut queue, "198.51.100.7", 20);
    let config = config();
    let whom = escalation.whom(&crossings[0], config.network.as_ref().unwrap(), &[], &[]);
    assert_eq!(whom, Err(Exempt::Allowed));
    assert_eq!(escalation.offender(ip("198.51.100.7")), None);
}

#[test]
fn an_address_of_several_known_identities_is_not_blocked() {
    let config = config();
    let network = config.network.as_ref().unwrap();
    let with = |shed: Option<&str>, identities: &[u64]| {
        let (escalation, mut queue) = begun();
        for identity in identities {
            escalation.witness().identified(ip("192.0.2.1"), *identity, START);
        }
        let terms = Escalate { after: 1, shed: shed.map(str::to_owned), identities: 3, ..terms() };
        escalation.witness().denied(ip("192.0.2.1"), &escalating(terms), START);
        escalation.whom(&queue.try_recv().unwrap(), network, &[], &[])
    };
    let prefix = "192.0.2.1/32".parse().unwrap();
    let two = [1 << 32, 2 << 32];
    let three = [1 << 32, 2 << 32, 3 << 32];
    assert_eq!(with(Some("tight"), &two), Ok(Whom { prefix, shed: None }));
    assert_eq!(with(Some("tight"), &three), Ok(Whom { prefix, shed: Some("tight".to_owned()) }));
    assert_eq!(with(None, &three), Err(Exempt::Shared));
}

#[test]
fn without_limits_on_packets_nobody_is_counted() {
    let (escalation, mut queue) = begun();
    escalation.follow(&Config { network: None, ..config() });
    assert!(deny(&escalation, &mut queue, "192.0.2.1", 100).is_empty());
}

#[test]
fn whoever_is_forgiven_begins_anew() {
    let (mut escalation, mut queue) = begun();
    let crossings = deny(&escalation, &mut queue, "2001:db8:b::1", 39);
    let client = crossings[0].client;
    escalation.sentence(&crossings[0], client).unwrap();
    assert_eq!(escalation.offender(ip("2001:db8:b::77")), Some(client));
    // Somebody else's address changes nothing, one of its own does.
    escalation.forget(&["2001:db8:c::77/128".parse().unwrap(), "192.0.2.0/24".parse().unwrap()]);
    assert_eq!(escalation.offender(ip("2001:db8:b::77")), Some(client));
    escalation.forget(&["2001:db8:b::78/128".parse().unwrap()]);
    assert_eq!(escalation.offender(ip("2001:db8:b::77")), None);
    assert!(deny(&escalation, &mut queue, "2001:db8:b::1", 19).is_empty());
    assert_eq!(escalation.sentence(&crossings[0], client).unwrap().offence, 1);
}

#[test]
fn a_network_is_forgiven_with_everybody_in_it() {
    let (mut escalation, mut queue) = begun();
    let crossings = deny(&escalation, &mut queue, "192.0.2.1", 20);
    escalation.sentence(&crossings[0], crossings[0].client).unwrap();
    escalation.forget(&["192.0.0.0/16".parse().unwrap()]);
    assert_eq!(escalation.offender(ip("192.0.2.1")), None);
}

#[test]
fn crossings_that_nobody_takes_are_counted() {
    let (escalation, _queue) = begun();
    let rule = escalating(Escalate { after: 1, ..terms() });
    for client in 0..2000_u32 {
        escalation.witness().denied(IpAddr::from(client.to_be_bytes()), &rule, START);
    }
    assert_eq!(escalation.lost(), 2000 - 1024);
}

#[test]
fn the_reason_of_a_rule_with_a_long_name_has_room() {
    let text = reason(&"ä".repeat(200), &terms(), 64);
    assert!(text.len() <= 120, "{}", text.len());
    assert!(text.ends_with("…: denied 20 times within 1m, offence 64"), "{text}");
    assert_eq!(
        reason("a\nb", &Escalate { after: 1, ..terms() }, 1),
        "rule a?b: denied once within 1m, offence 1"
    );
}
