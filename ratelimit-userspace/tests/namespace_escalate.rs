//! From 429 to silence: a client that hammers an API through a real nginx vanishes at layer 3, and whoever is
//! beside it notices nothing. In real network namespaces, through the `ratelimit` binary. Needs root:
//!
//! ```text
//! cargo test -p ratelimit-userspace --test namespace_escalate -- --include-ignored
//! ```

#[expect(dead_code, reason = "each test file uses a part of it")]
#[path = "namespace_lifecycle/host.rs"]
mod host;
#[path = "namespace_escalate/site.rs"]
mod site;

use serde_json::Value;

use site::{Seen, Site};

/// Requests a minute that a client has.
const LIMIT: usize = 5;
/// Denied ones that are too many.
const AFTER: usize = 20;

/// Lets a client ask until its packets are shed; how many requests were denied before.
fn hammer(site: &Site, client: &str) -> usize {
    let mut denied = 0;
    for _ in 0..1000 {
        match site.get(client) {
            Seen::Page => {}
            Seen::Denied => denied += 1,
            Seen::Nothing => return denied,
        }
    }
    panic!("{client} is answered for ever: {}", site.daemon_log());
}

fn escalations(site: &Site) -> Vec<Value> {
    let events = site.tell(&["events", "--limit", "100", "--json"]);
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.filter(|event| event["type"] == "escalated").collect()
}

#[test]
#[ignore = "requires root: network namespaces"]
fn who_hammers_an_api_vanishes_and_who_is_beside_notices_nothing() {
    let site = Site::start("escalate", LIMIT, AFTER);
    let (honest, abuser) = (site.clients[0].as_str(), site.clients[1].as_str());
    assert_eq!(site.get(honest), Seen::Page);
    let denied = hammer(&site, abuser);
    // While the block is made, requests are denied as before.
    assert!(denied >= AFTER, "{denied}");
    for _ in 0..3 {
        assert_eq!(site.get(honest), Seen::Page);
        assert_eq!(site.get(abuser), Seen::Nothing);
    }
    assert!(site.blocked() > 0, "its packets are shed");

    let escalations = escalations(&site);
    let [event] = &escalations[..] else { panic!("{escalations:?}") };
    assert_eq!(event["client"], abuser);
    assert_eq!(event["rule"], "api/client_ip");
    assert_eq!((&event["denials"], &event["offence"]), (&AFTER.into(), &1.into()));
    let reason = "rule api/client_ip: denied 20 times within 1m, offence 1";
    assert!(site.tell(&["show", abuser]).contains(reason));
    assert!(site.tell(&["blocks"]).contains(reason));
    assert!(
        site.metrics().contains(r#"ratelimit_escalations_total{rule="api/client_ip",outcome="blocked"} 1"#)
    );

    site.tell(&["unblock", abuser]);
    assert_ne!(site.get(abuser), Seen::Nothing, "it is back");
    // Forgiven, it begins anew; one denial was just seen.
    assert!(hammer(&site, abuser) >= AFTER - 1);
    assert_eq!(self::escalations(&site)[1]["offence"], 1);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_network_of_ipv6_is_one_client() {
    let site = Site::start("escalate6", LIMIT, AFTER);
    let (first, second) = (site.clients_v6[0].as_str(), site.clients_v6[1].as_str());
    let mut denied = 0;
    // A link that is new needs a moment until neighbours find each other.
    while site.get(first) == Seen::Nothing {}
    let unseen = (0..1000).map(|turn| [first, second][turn % 2]).find(|client| match site.get(client) {
        Seen::Page => false,
        Seen::Denied => {
            denied += 1;
            false
        }
        Seen::Nothing => true,
    });
    assert!(unseen.is_some() && denied >= AFTER, "{denied}");
    assert_eq!([site.get(first), site.get(second)], [Seen::Nothing; 2]);
    assert_eq!(site.get(&site.clients[0]), Seen::Page);
    // An address stands for its network.
    site.tell(&["unblock", second]);
    assert_ne!(site.get(first), Seen::Nothing);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn who_is_allowed_is_denied_and_never_vanishes_and_a_reload_says_who_that_is() {
    let site = Site::start("spared", LIMIT, AFTER);
    let client = site.clients[1].as_str();
    site.reload(&format!("allow: [{client}]"));
    for _ in 0..LIMIT + 3 * AFTER {
        assert_ne!(site.get(client), Seen::Nothing);
    }
    assert_eq!(escalations(&site), Vec::<Value>::new());
    assert!(site.metrics().contains(r#"{rule="api/client_ip",outcome="spared"} 3"#), "{}", site.metrics());
    site.reload("");
    assert!(hammer(&site, client) >= AFTER);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn a_block_for_requests_outlives_a_restart() {
    let mut site = Site::start("outlives", LIMIT, AFTER);
    let client = site.clients[1].clone();
    hammer(&site, &client);
    site.restart();
    assert_eq!(site.get(&client), Seen::Nothing);
    site.tell(&["unblock", &client]);
    assert_ne!(site.get(&client), Seen::Nothing);
}

#[test]
#[ignore = "requires root: network namespaces"]
fn an_address_of_two_known_keys_is_put_under_a_tighter_rule_and_not_blocked() {
    let site = Site::start("shared", LIMIT, AFTER);
    let client = site.clients[1].as_str();
    for key in ["key-1", "key-2", "unknown"] {
        assert_eq!(site.get_as(client, key), Seen::Page);
    }
    assert!(hammer(&site, client) >= AFTER);
    let blocks = site.tell(&["blocks", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&blocks).expect("JSON")["blocks"], Value::Array(Vec::new()));
    let (_, shed) = site.host.counts("tight");
    assert!(shed > 0, "the tighter rule sheds");
    assert_eq!(escalations(&site)[0]["under"], "tight");
    let shown: Value = serde_json::from_str(&site.tell(&["show", client, "--json"])).expect("JSON");
    assert_eq!(shown["under"]["rule"], "tight");
    assert_eq!(shown["rules"][0]["rule"], "tight", "{shown}");
    let explained =
        site.tell(&["explain", "--source", client, "--protocol", "tcp", "--destination-port", "80"]);
    assert!(explained.contains("is put under the rule `tight`"), "{explained}");
    assert!(site.metrics().contains(r#"{rule="api/client_ip",outcome="put_under"} 1"#));
    assert_eq!(site.get(&site.clients[0]), Seen::Page);
    // Also when the rules are others.
    site.reload("mode: enforce\n  allow: [192.0.2.1]");
    assert_eq!(site.get(client), Seen::Nothing);
    site.tell(&["unblock", client]);
    assert_ne!(site.get(client), Seen::Nothing);
}
