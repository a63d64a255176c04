use super::*;

const START: Duration = Duration::from_secs(1_000_000);

fn stream(json: &str) -> Stream {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn decision(id: i64, value: &str, duration: &str) -> String {
    let scope = if value.contains('/') { "Range" } else { "Ip" };
    format!(
        r#"{{"id":{id},"type":"ban","scope":"{scope}","value":"{value}","duration":"{duration}","origin":"crowdsec","scenario":"crowdsecurity/ssh-bf"}}"#
    )
}

fn new(decisions: &[String]) -> Stream {
    stream(&format!(r#"{{"new":[{}],"deleted":null}}"#, decisions.join(",")))
}

fn deleted(decisions: &[String]) -> Stream {
    stream(&format!(r#"{{"new":null,"deleted":[{}]}}"#, decisions.join(",")))
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

fn blocked(prefix: &str, duration: Duration) -> (IpNet, Duration, String) {
    (net(prefix), duration, "crowdsec: crowdsecurity/ssh-bf".to_owned())
}

#[test]
fn addresses_and_ranges_are_blocked_for_their_time() {
    let mut decisions = Decisions::default();
    let stream = new(&[decision(1, "192.0.2.1", "4h"), decision(2, "2001:db8::/32", "1h30m")]);
    let mut changes = decisions.take(true, stream, START);
    changes.block.sort();
    let expected = [blocked("192.0.2.1/32", hours(4)), blocked("2001:db8::/32", Duration::from_mins(90))];
    assert_eq!(changes.block, expected);
    assert_eq!(changes.release, []);
}

#[test]
fn null_and_missing_lists_are_nothing() {
    for json in [r#"{"new":null,"deleted":null}"#, "{}", r#"{"new":[],"deleted":[]}"#] {
        assert_eq!(Decisions::default().take(true, stream(json), START), Changes::default());
    }
}

#[test]
fn an_address_is_free_when_its_last_decision_is_deleted() {
    let mut decisions = Decisions::default();
    let [short, long] = [decision(1, "192.0.2.1", "1h"), decision(2, "192.0.2.1", "4h")];
    let changes = decisions.take(true, new(&[short.clone(), long.clone()]), START);
    assert_eq!(changes.block, [blocked("192.0.2.1/32", hours(4))]);
    // The shorter one says nothing.
    assert_eq!(decisions.take(false, deleted(std::slice::from_ref(&short)), START), Changes::default());
    assert_eq!(
        decisions.take(false, deleted(std::slice::from_ref(&long)), START).release,
        [net("192.0.2.1/32")]
    );
    // The other way about, it holds for the rest of its time.
    decisions.take(true, new(&[short.clone(), long.clone()]), START);
    let changes = decisions.take(false, deleted(&[long]), START);
    assert_eq!((changes.block, changes.release), (vec![blocked("192.0.2.1/32", hours(1))], vec![]));
    assert_eq!(decisions.take(false, deleted(&[short]), START).release, [net("192.0.2.1/32")]);
}

#[test]
fn a_deletion_of_what_nobody_knows_is_none() {
    let mut decisions = Decisions::default();
    decisions.take(true, new(&[decision(1, "192.0.2.1", "1h")]), START);
    let unknown = deleted(&[decision(9, "192.0.2.1", "-1h"), decision(8, "192.0.2.9", "-1h")]);
    assert_eq!(decisions.take(false, unknown, START), Changes::default());
}

#[test]
fn what_is_not_in_everything_is_gone() {
    let mut decisions = Decisions::default();
    decisions.take(true, new(&[decision(1, "192.0.2.1", "4h"), decision(2, "192.0.2.2", "4h")]), START);
    let later = START + hours(1);
    let changes = decisions.take(true, new(&[decision(2, "192.0.2.2", "2h59m59.5s")]), later);
    assert_eq!(changes.release, [net("192.0.2.1/32")]);
    assert_eq!(changes.block, [], "it ends when it would have");
    let changes = decisions.take(true, new(&[decision(2, "192.0.2.2", "10m")]), later);
    assert_eq!(changes.block, [blocked("192.0.2.2/32", Duration::from_mins(10))]);
}

#[test]
fn what_has_ended_by_itself_is_not_released() {
    let mut decisions = Decisions::default();
    decisions.take(true, new(&[decision(1, "192.0.2.1", "1h")]), START);
    let changes = decisions.take(false, deleted(&[decision(1, "192.0.2.1", "-1s")]), START + hours(2));
    assert_eq!(changes, Changes::default());
    decisions.sweep(START + hours(2));
    assert!(decisions.is_empty());
}

#[test]
fn who_is_unblocked_by_hand_stays_so_until_something_new_is_decided() {
    let mut decisions = Decisions::default();
    let first = decision(1, "192.0.2.1", "4h");
    decisions.take(true, new(std::slice::from_ref(&first)), START);
    decisions.lift(net("192.0.2.1/32"));
    assert_eq!(decisions.find(&net("192.0.2.1/32"), START), None);
    assert_eq!(decisions.take(true, new(std::slice::from_ref(&first)), START), Changes::default());
    let changes = decisions.take(false, new(&[decision(2, "192.0.2.1", "1h")]), START);
    assert_eq!(changes.block.len(), 1);
    assert_eq!(decisions.find(&net("192.0.2.1/32"), START).map(|(left, _)| left), Some(hours(4)));
}

#[test]
fn decisions_that_are_not_about_packets_are_counted() {
    let mut decisions = Decisions::default();
    let odd = |key: &str, from: &str, to: &str| {
        decision(1, "192.0.2.1", "4h").replace(&format!(r#""{key}":"{from}""#), &format!(r#""{key}":"{to}""#))
    };
    let stream = new(&[
        odd("scope", "Ip", "Country"),
        odd("scope", "Ip", "AS"),
        odd("type", "ban", "captcha"),
        odd("value", "192.0.2.1", "somebody"),
        odd("duration", "4h", "for ever"),
        odd("scope", "Ip", "ip"),
    ]);
    let changes = decisions.take(true, stream, START);
    assert_eq!(changes.ignored, Ignored { scopes: 2, kinds: 1, malformed: 2 });
    assert_eq!(changes.block.len(), 1);
}

#[test]
fn values_are_brought_into_the_one_form_that_blocks_have() {
    let mut decisions = Decisions::default();
    let stream = new(&[decision(1, "198.51.100.7/24", "1h"), decision(2, "::ffff:192.0.2.1", "1h")]);
    let mut changes = decisions.take(true, stream, START);
    changes.block.sort();
    assert_eq!(changes.block, [blocked("192.0.2.1/32", hours(1)), blocked("198.51.100.0/24", hours(1))]);
}
