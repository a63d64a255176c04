use std::path::PathBuf;

use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::*;

use super::*;
use crate::{
    config::http::{self as config, Compatibility, ValuePattern},
    http::serve::fixture,
};

const DOMAIN: &str = "api";

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = rate_limit_descriptor::Entry { key: key.to_owned(), value: value.to_owned() };
    RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
}

fn counting(hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor("user", "7") }
}

fn negative(descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..descriptor }
}

fn bringing(requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit }),
        ..descriptor("user", "s3cr3t")
    }
}

fn request(descriptors: Vec<RateLimitDescriptor>, hits_addend: u32) -> RateLimitRequest {
    RateLimitRequest { domain: DOMAIN.to_owned(), descriptors, hits_addend }
}

fn question(request: &RateLimitRequest) -> Result<Question<'_>, QuestionError> {
    Question::new(request, Arc::default)
}

#[test]
fn an_ask_borrows_every_text_of_the_message() {
    let request = request(vec![descriptor("user", "7"), descriptor("", "")], 0);
    let Question { ask, needs } = question(&request).unwrap();
    assert_eq!(needs, Rights::Ask);
    assert!(matches!(ask.domain, Cow::Borrowed(DOMAIN)));
    assert!(!ask.peek);
    let entries: Vec<_> = ask.descriptors.iter().flat_map(|descriptor| &descriptor.entries).collect();
    assert_eq!(entries.len(), 2);
    for entry in entries {
        assert!(matches!((&entry.key, &entry.value), (Cow::Borrowed(_), Cow::Borrowed(_))));
    }
}

#[test]
fn hits_are_the_descriptors_own_else_the_requests() {
    // The request's, the descriptor, what counts.
    let cases = [
        (0, descriptor("user", "7"), 1),
        (1, descriptor("user", "7"), 1),
        (5, descriptor("user", "7"), 5),
        (u32::MAX, descriptor("user", "7"), i64::from(u32::MAX)),
        (5, counting(2), 2),
        (5, counting(0), 0),
        (0, counting(0), 0),
        (0, counting(u64::MAX), i64::MAX),
        (0, negative(counting(3)), -3),
        (0, negative(counting(0)), 0),
        (0, negative(counting(u64::MAX)), -i64::MAX),
        (0, negative(descriptor("user", "7")), -1),
        (5, negative(descriptor("user", "7")), -5),
    ];
    for (of_request, descriptor, hits) in cases {
        let request = request(vec![descriptor.clone()], of_request);
        let Question { ask, needs } = question(&request).unwrap();
        assert_eq!(ask.descriptors[0].hits, hits, "{of_request} {descriptor:?}");
        let expected = if hits < 0 { Rights::Write } else { Rights::Ask };
        assert_eq!(needs, expected, "{descriptor:?}");
    }
}

#[test]
fn what_says_nothing_is_refused_in_envoys_words() {
    let nothing = RateLimitRequest { domain: String::new(), ..request(vec![descriptor("a", "b")], 1) };
    assert_eq!(question(&nothing).unwrap_err().to_string(), "rate limit domain must not be empty");
    let nothing = request(Vec::new(), 1);
    assert_eq!(question(&nothing).unwrap_err().to_string(), "rate limit descriptor list must not be empty");
}

#[test]
fn descriptors_have_an_upper_bound() {
    let most = request(vec![descriptor("a", "b"); MAX_DESCRIPTORS], 1);
    assert_eq!(question(&most).unwrap().ask.descriptors.len(), MAX_DESCRIPTORS);
    let more = request(vec![descriptor("a", "b"); MAX_DESCRIPTORS + 1], 1);
    assert_eq!(question(&more), Err(QuestionError::TooManyDescriptors(MAX_DESCRIPTORS + 1)));
}

#[test]
fn a_limit_of_its_own_needs_the_write_right() {
    let request = request(vec![descriptor("user", "7"), bringing(5, 2)], 0);
    let Question { ask, needs } = question(&request).unwrap();
    assert_eq!(needs, Rights::Write);
    assert_eq!(ask.descriptors[0].limit, None);
    let limit = ask.descriptors[1].limit.as_deref().unwrap();
    assert_eq!(limit.units, 5);
    assert_eq!(limit.window, config::Window::Fixed(NonZeroU64::new(60_000_000_000).unwrap()));
    assert_eq!(limit.algorithm, Algorithm::SlidingWindow { round_up: false });
}

#[test]
fn what_a_limit_of_its_own_does_not_say_is_as_in_the_rule() {
    let limit = Limit {
        align: Align::First,
        count_denied: true,
        soft_margin_permille: 100,
        ..fixture::limit(9, 30, Algorithm::TokenBucket { burst: 3, interval: true })
    };
    let user = config::Descriptor {
        key: "user".to_owned(),
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(fixture::policy(limit.clone())),
        descriptors: Vec::new(),
        line: 1,
    };
    let domain = config::Domain {
        name: DOMAIN.to_owned(),
        file: PathBuf::new(),
        compatibility: Compatibility::Native,
        descriptors: vec![user],
    };
    let rules = Arc::new(RuleBook::new(&[domain], None));
    let request = request(vec![bringing(5, 1)], 0);
    let Question { ask, .. } = Question::new(&request, || Arc::clone(&rules)).unwrap();
    let algorithm = Algorithm::TokenBucket { burst: 5, interval: true };
    let expected = Limit {
        align: limit.align,
        count_denied: true,
        soft_margin_permille: 100,
        ..fixture::limit(5, 1, algorithm)
    };
    assert_eq!(ask.descriptors[0].limit.as_deref(), Some(&expected));
}

#[test]
fn a_unit_that_is_none_is_refused_with_the_descriptor_and_no_secret() {
    for unit in (-100..=1_000).chain([i32::MIN, i32::MAX]) {
        let request = request(vec![descriptor("user", "7"), bringing(5, unit)], 0);
        let asked = question(&request);
        assert_eq!(asked.is_ok(), (1..=6).contains(&unit), "{unit}");
        let Err(error) = asked else { continue };
        assert_eq!(error, QuestionError::Unit { number: 2, keys: "user".to_owned(), unit });
        let message = error.to_string();
        assert!(message.starts_with("descriptor 2 (user) brings a limit whose unit is "), "{message}");
        assert!(!message.contains("s3cr3t"), "{message}");
    }
}

#[test]
fn keys_in_a_message_are_short_and_printable() {
    let long = RateLimitDescriptor {
        entries: vec![rate_limit_descriptor::Entry { key: "a\n\0".to_owned(), value: String::new() }; 1_000],
        ..RateLimitDescriptor::default()
    };
    let keys = keys(&long);
    assert!(keys.starts_with(r"a\n\0, a\n\0, ") && keys.ends_with('…') && keys.len() <= 210, "{keys}");
}

#[test]
fn a_limit_of_its_own_is_counted_as_the_one_it_replaces() {
    let minute = unit::window(RateLimitUnit::Minute).unwrap();
    let second = unit::window(RateLimitUnit::Second).unwrap();
    let bucket = Algorithm::TokenBucket { burst: 3, interval: true };
    assert_eq!(algorithm(bucket, 9, minute), Algorithm::TokenBucket { burst: 9, interval: true });
    let leaky = Algorithm::LeakyBucket { burst: 3, max_delay: Some(1) };
    assert_eq!(algorithm(leaky, 9, minute), Algorithm::LeakyBucket { burst: 9, max_delay: Some(1) });
    let segments = Algorithm::Segments { segments: 60 };
    assert_eq!(algorithm(segments, 9, minute), segments);
    // A second is no whole number of nanoseconds times 60.
    assert_eq!(algorithm(segments, 9, second), Algorithm::SlidingWindow { round_up: false });
    for same in [Algorithm::FixedWindow, Algorithm::SlidingLog, Algorithm::SlidingWindow { round_up: true }] {
        assert_eq!(algorithm(same, 9, minute), same);
    }
}

proptest! {
    #[test]
    fn no_message_makes_it_panic(
        domain in ".{0,8}",
        hits_addend: u32,
        hits: Option<u64>,
        is_negative_hits: bool,
        limit in prop::option::of((any::<u32>(), prop_oneof![-2..10i32, any::<i32>()])),
        entries in prop::collection::vec((".{0,8}", ".{0,8}"), 0..4),
        copies in 0..70usize,
    ) {
        let entries = entries.into_iter().map(|(key, value)| rate_limit_descriptor::Entry { key, value });
        let descriptor = RateLimitDescriptor {
            entries: entries.collect(),
            limit: limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit }),
            hits_addend: hits.map(|value| UInt64Value { value }),
            is_negative_hits,
        };
        let request = RateLimitRequest { domain, descriptors: vec![descriptor; copies], hits_addend };
        if let Ok(Question { ask, .. }) = question(&request) {
            prop_assert_eq!(ask.descriptors.len(), copies);
        }
    }
}
