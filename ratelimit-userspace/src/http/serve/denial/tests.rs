use std::{net::IpAddr, sync::Arc, time::Duration};

use http::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    config::http::{Descriptor, EntrySource, Escalate, Http, Missing, Source, ValueLabels},
    http::{clock::Now, rules::Rule, serve::fixture::Bed, witness::Witness},
};

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<(IpAddr, String)>>, Mutex<Vec<(IpAddr, u64)>>);

impl Witness for Heard {
    fn denied(&self, client: IpAddr, rule: &Rule, _: Now) {
        self.0.lock().push((client, rule.label.to_string()));
    }

    fn identified(&self, client: IpAddr, identity: u64, _: Now) {
        self.1.lock().push((client, identity));
    }
}

/// The bed of the fixture, in which every rule but one for `user` escalates.
fn bed() -> (Bed, Arc<Heard>) {
    bed_with(|_| {})
}

fn bed_with(change: impl FnOnce(&mut Http)) -> (Bed, Arc<Heard>) {
    let bed = Bed::with(|config| {
        let escalates = |descriptor: &&mut Descriptor| descriptor.key != "user";
        for descriptor in config.domains[0].descriptors.iter_mut().filter(escalates) {
            descriptor.rule.as_mut().unwrap().escalate = Some(Escalate {
                after: 20,
                within: Duration::from_mins(1),
                block: Duration::from_mins(10),
                factor: 2,
                max: Duration::from_hours(24),
                shed: None,
                identities: 2,
                line: 1,
                column: 1,
            });
        }
        change(config);
    });
    let heard = Arc::new(Heard::default());
    bed.front.tell(Arc::clone(&heard) as Arc<dyn Witness>);
    (bed, heard)
}

impl Heard {
    fn take(&self) -> Vec<(String, String)> {
        let heard = std::mem::take(&mut *self.0.lock());
        heard.into_iter().map(|(client, rule)| (client.to_string(), rule)).collect()
    }
}

fn one(client: &str, rule: &str) -> Vec<(String, String)> {
    vec![(client.to_owned(), rule.to_owned())]
}

/// Asks with descriptors, one for each of these entries.
fn described(entries: &[(&str, &str)]) -> Value {
    let descriptors = entries.iter().map(|entry| json!({ "entries": [entry] }));
    json!({ "domain": "api", "descriptors": descriptors.collect::<Vec<_>>() })
}

fn requested(forwarded: &str) -> Value {
    json!({ "request": {
        "method": "GET", "path": "/", "peer": "127.0.0.1", "headers": { "x-forwarded-for": forwarded },
    } })
}

#[tokio::test]
async fn only_what_is_denied_is_told() {
    let (bed, heard) = bed();
    for _ in 0..2 {
        bed.post("/v1/check", &requested("192.0.2.1")).await;
    }
    assert_eq!(heard.take(), []);
    bed.post("/v1/check", &requested("192.0.2.1")).await;
    assert_eq!(heard.take(), one("192.0.2.1", "per-client_ip"));
}

#[tokio::test]
async fn the_client_is_what_no_trusted_proxy_is() {
    let (bed, heard) = bed();
    for _ in 0..3 {
        bed.post("/v1/check", &requested("198.51.100.66, 192.0.2.1")).await;
    }
    assert_eq!(heard.take(), one("192.0.2.1", "per-client_ip"), "the header of an untrusted peer");
}

#[tokio::test]
async fn all_ways_to_ask_are_told() {
    let (bed, heard) = bed();
    let nginx = || {
        Request::get("/auth/nginx")
            .header("x-original-method", "GET")
            .header("x-original-uri", "/")
            .header("x-forwarded-host", "example.org")
            .header("x-forwarded-for", "192.0.2.1")
    };
    for _ in 0..3 {
        bed.ask_from("127.0.0.1", nginx(), "").await;
    }
    assert_eq!(heard.take(), one("192.0.2.1", "per-client_ip"));
    bed.post("/v1/check", &described(&[("client_ip", "192.0.2.2"), ("blocked", "x")])).await;
    assert_eq!(heard.take(), one("192.0.2.2", "per-blocked"));
    let envoy = json!({ "domain": "api", "descriptors": [
        { "entries": [{ "key": "remote_address", "value": "192.0.2.3" }] },
        { "entries": [{ "key": "blocked", "value": "x" }] },
    ] });
    bed.post("/json", &envoy).await;
    assert_eq!(heard.take(), one("192.0.2.3", "per-blocked"));
    let reserve = json!({ "domain": "api", "hits": 1, "descriptors": [
        { "entries": [["client_ip", "192.0.2.4"]] }, { "entries": [["blocked", "x"]] },
    ] });
    bed.post("/v1/reserve", &reserve).await;
    assert_eq!(heard.take(), one("192.0.2.4", "per-blocked"));
}

#[tokio::test]
async fn a_request_is_told_once_for_each_rule() {
    let (bed, heard) = bed();
    let twice = described(&[("client_ip", "192.0.2.1"), ("blocked", "x"), ("blocked", "y")]);
    bed.post("/v1/check", &twice).await;
    assert_eq!(heard.take(), one("192.0.2.1", "per-blocked"));
}

#[tokio::test]
async fn shadow_rules_peeks_and_reads_are_not_told() {
    let (bed, heard) = bed();
    bed.post("/v1/check", &described(&[("client_ip", "192.0.2.1"), ("trial", "x")])).await;
    let mut peek = described(&[("client_ip", "192.0.2.1"), ("blocked", "x")]);
    peek["peek"] = json!(true);
    bed.post("/v1/check", &peek).await;
    let mut read = described(&[("client_ip", "192.0.2.1"), ("blocked", "x")]);
    read["hits"] = json!(0);
    bed.post("/v1/check", &read).await;
    assert_eq!(heard.take(), []);
}

#[tokio::test]
async fn rules_that_do_not_escalate_are_not_told() {
    let (bed, heard) = bed();
    for _ in 0..4 {
        bed.post("/v1/check", &described(&[("client_ip", "192.0.2.1"), ("user", "u")])).await;
    }
    let told = heard.take();
    assert!(told.iter().all(|(_, rule)| rule == "per-client_ip"), "{told:?}");
}

#[tokio::test]
async fn askers_on_other_hosts_are_not_heard() {
    let (bed, heard) = bed_with(|config| config.access.allow_from = vec!["10.0.0.0/8".parse().unwrap()]);
    let body = described(&[("client_ip", "192.0.2.1"), ("blocked", "x")]).to_string();
    let told = bed.ask_from("10.0.0.1", Request::post("/v1/check"), body.clone()).await;
    assert_eq!(told.status, 429);
    assert_eq!(heard.take(), []);
    bed.ask_from("unix", Request::post("/v1/check"), body).await;
    assert_eq!(heard.take(), one("192.0.2.1", "per-blocked"));
}

#[tokio::test]
async fn a_value_that_is_no_address_is_nobody() {
    let (bed, heard) = bed();
    bed.post("/v1/check", &described(&[("client_ip", "192.0.2.0/24"), ("blocked", "x")])).await;
    bed.post("/v1/check", &described(&[("blocked", "x")])).await;
    assert_eq!(heard.take(), []);
}

/// An item that maps an API key to a tier.
fn tiers(config: &mut Http, secret: bool) {
    let entry =
        |key: &str, source, secret, missing| EntrySource { key: key.to_owned(), source, secret, missing };
    let labels = ValueLabels {
        file: "tiers.txt".into(),
        values: vec![("key-1".to_owned(), "gold".into()), ("key-2".to_owned(), "gold".into())],
    };
    let tier = Source::Mapped { by: "key".to_owned(), labels: Arc::new(labels) };
    for item in &mut config.identify {
        item.descriptors = vec![
            vec![entry("tier", tier.clone(), false, Missing::Empty)],
            vec![entry("key", Source::Header("x-api-key".to_owned()), secret, Missing::Skip)],
        ];
    }
}

fn with_key(key: &str) -> Value {
    let mut requested = requested("192.0.2.1");
    requested["request"]["headers"]["x-api-key"] = json!(key);
    requested
}

#[tokio::test]
async fn secrets_that_a_map_file_lists_are_identities() {
    let (bed, heard) = bed_with(|config| tiers(config, true));
    for key in ["key-1", "key-2", "key-1", "key-3", ""] {
        bed.post("/v1/check", &with_key(key)).await;
    }
    let told = heard.1.lock().clone();
    let [(client, one), (_, two), (_, again)] = told[..] else { panic!("{told:?}") };
    assert_eq!(client.to_string(), "192.0.2.1");
    assert!(one != two && one == again, "{told:?}");
}

#[tokio::test]
async fn what_is_no_secret_proves_nothing() {
    let (bed, heard) = bed_with(|config| tiers(config, false));
    bed.post("/v1/check", &with_key("key-1")).await;
    assert_eq!(*heard.1.lock(), []);
}

#[tokio::test]
async fn without_rules_that_escalate_nobody_is_identified() {
    let (bed, heard) = bed_with(|config| {
        tiers(config, true);
        for descriptor in &mut config.domains[0].descriptors {
            descriptor.rule.as_mut().unwrap().escalate = None;
        }
    });
    bed.post("/v1/check", &with_key("key-1")).await;
    assert_eq!(*heard.1.lock(), []);
}
