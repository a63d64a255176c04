use std::time::Duration;

use super::*;
use crate::{
    config::policy::{Block, Match},
    network::compile::tests::{network, rule},
};

fn described() -> Description {
    let mut blocking = rule("udp", Match { protocol: Some(vec![17]), ..Match::default() });
    let (within, duration) = (Duration::from_secs(10), Duration::from_mins(10));
    blocking.block = Some(Block { after: 1000, within, duration });
    let mut network = network(vec![blocking]);
    network.deny = vec!["192.0.2.0/24".parse().expect("a prefix")];
    Description::new(Path::new("/etc/rules.yaml"), &[], &network, Vec::new(), Slots::default(), 7)
}

#[test]
fn the_policy_is_told_without_its_lists() {
    let described = described();
    assert_eq!((described.allow, described.deny), (0, 1));
    let text = serde_json::to_string(&described).expect("JSON");
    let read: Description = serde_json::from_str(&text).expect("a description");
    assert_eq!(read, described);
    let network = read.network.expect("a policy");
    assert_eq!(network.rules[0].block.map(|block| block.after), Some(1000));
    assert_eq!(network.deny, []);
}

#[test]
fn a_policy_in_an_unknown_form_does_not_hide_the_rest() {
    let mut written = serde_json::to_value(described()).expect("JSON");
    written["network"]["sources"] = serde_json::json!("as another build has it");
    let read: Description = serde_json::from_value(written.clone()).expect("a description");
    assert_eq!((read.network, read.program_id), (None, 7));
    written.as_object_mut().expect("an object").remove("network");
    let read: Description = serde_json::from_value(written).expect("a description");
    assert_eq!(read.network, None);
}
