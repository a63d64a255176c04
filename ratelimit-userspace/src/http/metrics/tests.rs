mod log;

use std::{borrow::Cow, path::PathBuf, sync::Arc, thread};

use self::log::logged;
use super::*;
use crate::{
    config::http::{self as config, Algorithm, ValuePattern},
    http::{
        ask::{Descriptor, Entry, Standing, Status, Whose},
        limiter::Limiter,
        rules::Rule,
        serve::fixture,
        store::{Identity, memory::Stats},
    },
};

const NOW: Now = Now::at(1_800_000_000_000_000_000);

const SECRET: &str = "s3cr3t-api-key-of-a-client";

// === what is observed ===

/// A rule of 10 units.
fn rule(id: &str, cost: u64) -> Arc<Rule> {
    fixture::rule(id, policy(cost))
}

fn policy(cost: u64) -> config::Rule {
    config::Rule { cost, ..fixture::policy(fixture::limit(10, 60, Algorithm::FixedWindow)) }
}

fn status(rule: &Arc<Rule>, identity: u64) -> Status {
    Status { identity: Some(Identity::new([0, identity])), ..fixture::status(rule, 9, 0) }
}

fn refused(rule: &Arc<Rule>, identity: u64) -> Status {
    Status { allowed: false, retry_after: Some(30), ..status(rule, identity) }
}

fn ask(hits: &[i64]) -> Ask<'static> {
    let entry = Entry { key: Cow::Borrowed("api_key"), value: Cow::Borrowed(SECRET) };
    let descriptors =
        hits.iter().map(|hits| Descriptor { entries: vec![entry.clone()], hits: *hits, limit: None });
    Ask {
        domain: Cow::Borrowed("api"),
        descriptors: descriptors.collect(),
        peek: false,
        whose: Whose::default(),
    }
}

fn answer(decision: Decision, statuses: Vec<Status>) -> Answer {
    Answer { decision, rule: None, standing: None, retry_after: None, delay: None, statuses, refusal: None }
}

/// Observes a request of one descriptor.
fn observe(metrics: &Metrics, hits: i64, decision: Decision, status: Status) {
    metrics.observe(&ask(&[hits]), &answer(decision, vec![status]), 0, NOW);
}

fn figures(rule: &Rule) -> RuleFigures {
    rule.metrics.figures(NOW.steady)
}

// === what is counted ===

#[test]
fn a_rule_counts_what_it_did() {
    let metrics = Metrics::default();
    let rule = rule("api/api_key", 1);
    for _ in 0..3 {
        observe(&metrics, 1, Decision::Allow, status(&rule, 1 << 60));
    }
    observe(&metrics, 1, Decision::Deny, refused(&rule, 2 << 60));
    observe(&metrics, 1, Decision::Deny, refused(&rule, 2 << 60));
    observe(&metrics, 1, Decision::Allow, Status { soft_over: true, ..status(&rule, 1 << 60) });
    observe(
        &metrics,
        1,
        Decision::Shadow,
        Status { shadow_denied: true, standing: None, ..status(&rule, 3 << 60) },
    );
    let expected = RuleFigures {
        allowed: 4,
        denied: 2,
        shadow_denied: 1,
        soft_over: 1,
        near_limit: 0,
        clients: 3,
        denied_clients: 2,
    };
    assert_eq!(figures(&rule), expected);
}

#[test]
fn another_rules_denial_is_not_this_ones() {
    let metrics = Metrics::default();
    let (broad, narrow) = (rule("api/org", 1), rule("api/user", 1));
    let statuses = vec![status(&broad, 1), refused(&narrow, 2)];
    metrics.observe(&ask(&[1, 1]), &answer(Decision::Deny, statuses), 0, NOW);
    assert_eq!((figures(&broad).allowed, figures(&broad).denied), (1, 0));
    assert_eq!((figures(&narrow).allowed, figures(&narrow).denied), (0, 1));

    // A quota rule that alone would refuse, beside one that has something left.
    let statuses = vec![status(&broad, 1), refused(&narrow, 2)];
    metrics.observe(&ask(&[1, 1]), &answer(Decision::Allow, statuses), 0, NOW);
    assert_eq!((figures(&narrow).allowed, figures(&narrow).denied), (1, 1));
}

#[test]
fn what_charges_nothing_is_not_counted() {
    let metrics = Metrics::default();
    let rule = rule("api/api_key", 1);
    observe(&metrics, 0, Decision::Allow, status(&rule, 1));
    observe(&metrics, -5, Decision::Allow, status(&rule, 1));
    let peek = Ask { peek: true, ..ask(&[1]) };
    metrics.observe(&peek, &answer(Decision::Deny, vec![refused(&rule, 1)]), 0, NOW);
    assert_eq!(figures(&rule), RuleFigures::default());
}

#[test]
fn units_above_four_fifths_are_near_the_limit() {
    // Limit, used before, used after, hits, whether it is admitted; near the limit. Envoy's own examples,
    // except that a request which fits only in part is charged nothing here, so none of it is near.
    let cases = [
        (15, 12, 13, 1, true, 1),
        (15, 15, 15, 1, false, 0),
        (20, 2, 5, 3, true, 0),
        (8, 5, 7, 2, true, 1),
        (20, 16, 19, 3, true, 3),
        (20, 19, 19, 3, false, 0),
        (20, 15, 15, 7, false, 0),
        (10, 10, 10, 3, false, 0),
        (1, 0, 1, 1, true, 1),
        (0, 0, 0, 1, false, 0),
        (u64::MAX, 0, u64::MAX, i64::MAX, true, u64::MAX - u64::MAX / 5 * 4),
    ];
    for (limit, before, after, hits, admitted, near) in cases {
        let metrics = Metrics::default();
        let rule = rule("api/api_key", 1);
        let standing = Some(Standing { limit, remaining: limit - after, reset: 0 });
        let (decision, status) =
            if admitted { (Decision::Allow, status(&rule, 1)) } else { (Decision::Deny, refused(&rule, 1)) };
        observe(&metrics, hits, decision, Status { standing, ..status });
        assert_eq!(figures(&rule).near_limit, near, "{limit}: {before} -> {after}");
    }
}

#[test]
fn near_the_limit_is_counted_in_units_of_cost() {
    let metrics = Metrics::default();
    let rule = rule("api/api_key", 5);
    let standing = Some(Standing { limit: 100, remaining: 8, reset: 0 });
    observe(&metrics, 2, Decision::Allow, Status { standing, ..status(&rule, 1) });
    assert_eq!(figures(&rule).near_limit, 10, "of the 12 above 80, this request charged 10");
}

#[test]
fn nothing_is_lost_between_threads() {
    let metrics = Metrics::default();
    let rule = rule("api/api_key", 1);
    thread::scope(|scope| {
        for identity in 0..8 {
            let (metrics, rule) = (&metrics, &rule);
            scope.spawn(move || {
                for _ in 0..1_000 {
                    observe(metrics, 1, Decision::Allow, status(rule, identity << 54));
                }
            });
        }
    });
    let RuleFigures { allowed, clients, .. } = figures(&rule);
    assert_eq!((allowed, clients), (8_000, 8));
    assert_eq!(metrics.latency.recorded().buckets[0], 8_000);
}

#[test]
fn a_rule_that_nothing_meets_holds_no_sketch() {
    assert_eq!(figures(&rule("api/api_key", 1)), RuleFigures::default());
    assert!(size_of::<RuleMetrics>() <= 64);
}

#[test]
fn a_latency_of_a_bound_belongs_to_its_bucket() {
    let latency = Latency::default();
    for nanos in [0, 250, 251, 10_000_000, 10_000_001, u64::MAX] {
        latency.record(nanos);
    }
    let buckets = latency.recorded().buckets;
    assert_eq!((buckets[0], buckets[1]), (2, 1));
    assert_eq!((buckets[14], buckets[15]), (1, 2));
}

// === text ===

#[test]
fn requests_that_no_rule_judged_are_counted_apart() {
    let metrics = Arc::new(Metrics::default());
    metrics.unmatched();
    metrics.observe(&ask(&[]), &answer(Decision::Allow, Vec::new()), 1_500, NOW);
    let unruled = Status { rule: None, identity: None, ..status(&rule("api/api_key", 1), 1) };
    observe(&metrics, 1, Decision::Allow, unruled);
    let full = Answer { refusal: Some(Refusal::StoreFull), ..answer(Decision::Deny, Vec::new()) };
    metrics.observe(&ask(&[]), &full, 0, NOW);
    metrics.refused(Refusal::MissingEntry, NOW);
    metrics.reloaded(true);
    metrics.reloaded(false);
    let text = text(&metrics, Format::OpenMetrics);
    for line in [
        "ratelimit_http_unmatched_requests_total 1",
        "ratelimit_http_undescribed_requests_total 2",
        "ratelimit_http_unruled_requests_total 1",
        "ratelimit_http_store_full_denied_total 1",
        "ratelimit_http_missing_entry_denied_total 1",
        "ratelimit_http_decision_seconds_count 3",
        "ratelimit_http_decision_seconds_bucket{le=\"0.000001\"} 2",
        "ratelimit_http_decision_seconds_bucket{le=\"0.0000025\"} 3",
        "ratelimit_http_decision_seconds_bucket{le=\"+Inf\"} 3",
        "ratelimit_http_counters 5",
        "ratelimit_http_counters_max 100",
        "ratelimit_http_counters_evicted_total 7",
        "ratelimit_http_counters_uncounted_total 3",
        "ratelimit_http_reloads_total 1",
        "ratelimit_http_reload_failures_total 1",
        "ratelimit_http_last_reload_ok 0",
    ] {
        assert!(text.lines().any(|have| have == line), "no {line:?} in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_client_gets_the_format_it_accepts() {
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
    assert_eq!(Format::accepted(Some("*/*")), Format::Prometheus);
    assert_eq!(Format::accepted(None), Format::Prometheus);
    let metrics = Arc::new(Metrics::default());
    assert!(!text(&metrics, Format::Prometheus).contains("# EOF"));
}

fn text(metrics: &Arc<Metrics>, format: Format) -> String {
    let store = Stats { keys: 5, max_keys: 100, evictions: 7, uncounted: 3, ..Stats::default() };
    metrics.text(Arc::default(), store, NOW, format).unwrap()
}

/// A domain with these rules.
fn domain(rules: Vec<(&str, ValuePattern, config::Rule)>) -> config::Domain {
    let node = |(key, value, rule): (&str, _, _)| config::Descriptor {
        key: key.to_owned(),
        value,
        share_threshold: false,
        rule: Some(rule),
        descriptors: Vec::new(),
        line: 1,
    };
    config::Domain {
        name: "api".to_owned(),
        file: PathBuf::new(),
        compatibility: config::Compatibility::Native,
        descriptors: rules.into_iter().map(node).collect(),
    }
}

/// Two rules; the second has a quoted value in its id.
fn book(previous: Option<&RuleBook>) -> Arc<RuleBook> {
    let quoted = ValuePattern::Exact("/a\"b\nc".to_owned());
    let rules = vec![("api_key", ValuePattern::Any, policy(1)), ("route", quoted, policy(1))];
    Arc::new(RuleBook::new(&[domain(rules)], previous))
}

#[test]
fn a_million_clients_make_no_series() {
    let metrics = Arc::new(Metrics::default());
    let rules = book(None);
    let text = || metrics.text(Arc::clone(&rules), Stats::default(), NOW, Format::OpenMetrics).unwrap();
    let before = text();
    let series = before.lines().filter(|line| !line.starts_with('#'));
    let (of_rules, others): (Vec<_>, Vec<_>) = series.partition(|line| line.contains("domain=\"api\",rule="));
    assert_eq!((of_rules.len(), others.len()), (2 * 7, 30));
    assert!(of_rules.iter().any(|line| line.contains(r#"rule="api/route=%2Fa\"b%0Ac""#)), "{before}");

    let rule = rules.rules().next().unwrap();
    let ask = ask(&[1]);
    let mut allowed = answer(Decision::Allow, vec![status(rule, 0)]);
    let mut denied = answer(Decision::Deny, vec![refused(rule, 0)]);
    for number in 0..1_000_000u64 {
        let answer = if number % 4 == 0 { &mut denied } else { &mut allowed };
        answer.statuses[0].identity = Some(sketch::tests::identity(1, number));
        metrics.observe(&ask, answer, number, NOW);
    }
    let after = text();
    assert_eq!(after.lines().count(), before.lines().count());
    let RuleFigures { allowed, denied, clients, denied_clients, .. } = figures(rule);
    assert_eq!((allowed, denied), (750_000, 250_000));
    assert!(clients.abs_diff(1_000_000) < 100_000, "{clients}");
    assert!(denied_clients.abs_diff(250_000) < 25_000, "{denied_clients}");
}

#[test]
fn a_rule_keeps_its_counts_over_a_reload() {
    let metrics = Metrics::default();
    let before = book(None);
    let rule = before.rules().next().unwrap();
    observe(&metrics, 1, Decision::Allow, status(rule, 1));
    let after = book(Some(&before));
    let rule = after.rules().next().unwrap();
    observe(&metrics, 1, Decision::Allow, status(rule, 1));
    assert_eq!(figures(rule).allowed, 2);
}

#[test]
fn what_the_limiter_decides_is_counted_over_a_reload() {
    let hourly = |units| fixture::policy(fixture::limit(units, 3_600, Algorithm::SlidingLog));
    let shadow = config::Rule { shadow: true, ..hourly(2) };
    let soft =
        config::Limit { soft_margin_permille: 100, ..fixture::limit(10, 3_600, Algorithm::SlidingLog) };
    let rules = vec![
        ("api_key", ValuePattern::Any, hourly(5)),
        ("watched", ValuePattern::Any, shadow),
        ("soft", ValuePattern::Any, fixture::policy(soft)),
    ];
    let config = config::Http { domains: vec![domain(rules)], ..fixture::config() };
    let limiter = Limiter::new(&config, [7; 32]);
    let metrics = Arc::new(Metrics::default());
    let log = logged(|| {
        for number in 0..20 {
            if number == 10 {
                limiter.reload(&config);
            }
            for key in ["api_key", "watched", "soft"] {
                let mut ask = ask(&[1]);
                ask.descriptors[0].entries[0].key = Cow::Borrowed(key);
                metrics.observe(&ask, &limiter.decide(&ask, NOW), 0, NOW);
            }
        }
    });
    let rules = limiter.rules();
    let of = |id| figures(rules.rule(id).unwrap());
    let one = RuleFigures { clients: 1, denied_clients: 1, ..RuleFigures::default() };
    assert_eq!(of("api/api_key"), RuleFigures { allowed: 5, denied: 15, near_limit: 1, ..one });
    assert_eq!(of("api/watched"), RuleFigures { allowed: 2, shadow_denied: 18, ..one });
    let soft = RuleFigures { allowed: 11, denied: 9, soft_over: 1, near_limit: 3, ..one };
    assert_eq!(of("api/soft"), soft);

    let mut asked = ask(&[1]);
    let identity = limiter.inspect(&asked, NOW)[0].take().unwrap().identity;
    assert!(log.contains(&format!("identity=\"{identity}\"")), "{log}");
    asked.descriptors.clear();
    metrics.observe(&asked, &limiter.decide(&asked, NOW), 0, NOW);
    let text = metrics.text(rules, limiter.stats(), NOW, Format::OpenMetrics).unwrap();
    assert!(text.contains("\nratelimit_http_undescribed_requests_total 1\n"), "{text}");
    assert!(text.contains("\nratelimit_http_counters 3\n"), "{text}");
    assert!(!format!("{text}{log}{limiter:?}").contains(SECRET));
}
