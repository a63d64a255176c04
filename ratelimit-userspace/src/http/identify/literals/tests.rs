use std::{num::NonZeroU64, path::PathBuf, sync::Arc};

use super::{
    super::{
        Identifier,
        tests::{KEY, config, entry, header, item},
    },
    *,
};
use crate::config::http::{Algorithm, Align, Compatibility, EntrySource, Limit, RequestMatch, Rule, Window};

#[test]
fn rules_for_a_value_apply_to_the_secret_that_stands_for_it() {
    let limit = Arc::new(Limit {
        units: 1,
        window: Window::Fixed(NonZeroU64::MIN),
        algorithm: Algorithm::FixedWindow,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    });
    let exact = |value: &str| ValuePattern::Exact(value.to_owned());
    let node = |key: &str, value, overrides, descriptors| Descriptor {
        key: key.to_owned(),
        value,
        share_threshold: false,
        rule: Some(Rule {
            name: None,
            limit: Some(Arc::clone(&limit)),
            shadow: false,
            quota: false,
            replaces: Vec::new(),
            cost: 1,
            overrides,
            escalate: None,
        }),
        descriptors,
        line: 1,
    };
    let other = |value, tier: Option<&str>| Override { value, tier: tier.map(str::to_owned), limit: None };
    let overrides = vec![
        other(Some(exact("partner-1")), Some("gold")),
        other(Some(ValuePattern::Prefix("partner-".to_owned())), None),
        other(None, Some("gold")),
    ];
    let domain = |name: &str| Domain {
        name: name.to_owned(),
        file: PathBuf::from("rules.yaml"),
        compatibility: Compatibility::Native,
        descriptors: vec![
            node("api_key", ValuePattern::Any, overrides.clone(), Vec::new()),
            node("user", exact("u"), Vec::new(), vec![node("api_key", exact("k"), Vec::new(), Vec::new())]),
        ],
    };
    let api_key = EntrySource { secret: true, ..entry("api_key", header("x-api-key")) };
    let mut config = config(vec![item("api", RequestMatch::default(), vec![vec![api_key]])]);
    config.domains = vec![domain("api"), domain("other")];
    let identifier = Identifier::new(&config, KEY);
    let joined = identifier.domains(&config);
    assert_eq!(joined[1], config.domains[1], "no item makes a secret of it there");

    let hidden = |value: &str| exact(&Keyed::new(KEY).secret(value.as_bytes()));
    let values = |descriptors: &[Descriptor]| {
        descriptors.iter().map(|descriptor| descriptor.value.clone()).collect::<Vec<_>>()
    };
    let api = &joined[0].descriptors;
    assert_eq!(values(api), [ValuePattern::Any, exact("u")]);
    assert_eq!(values(&api[1].descriptors), [exact("k"), hidden("k")]);
    let [first, second, third] = <[Override; 3]>::try_from(overrides).unwrap();
    let copy = Override { value: Some(hidden("partner-1")), ..first.clone() };
    assert_eq!(api[0].rule.as_ref().unwrap().overrides, [first, copy, second, third]);
}
