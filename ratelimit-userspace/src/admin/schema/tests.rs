use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::*;

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

#[test]
fn times_have_thousandths_only_where_there_are_any() {
    assert_eq!(text::time(at(1_800_000_000_000)), "2027-01-15T08:00:00Z");
    assert_eq!(text::time(at(1_800_000_000_250)), "2027-01-15T08:00:00.250Z");
    assert_eq!(text::time(UNIX_EPOCH + Duration::from_secs(u64::MAX >> 2)), "9999-12-31T23:59:59Z");
    assert_eq!(text::time(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
}

#[test]
fn durations_are_text_that_reads_back() {
    for (duration, words) in
        [(Duration::from_mins(10), "10m"), (Duration::from_millis(5_400_250), "1h 30m 250ms")]
    {
        assert_eq!(text::duration(duration), words);
        let request: BlockRequest = serde_json::from_value(json!({ "for": words })).unwrap();
        assert_eq!(request.duration, Some(duration));
    }
    let error = serde_json::from_value::<BlockRequest>(json!({ "for": "soon" })).unwrap_err().to_string();
    assert!(error.contains("\"soon\" is no duration such as 90s"), "{error}");
}

#[test]
fn a_request_says_only_what_it_asks_for() {
    assert_eq!(serde_json::to_value(BlockRequest::default()).unwrap(), json!({}));
    let error = serde_json::from_value::<BlockRequest>(json!({ "fro": "10m" })).unwrap_err().to_string();
    assert!(error.contains("unknown field `fro`"), "{error}");
}

#[test]
fn an_event_reads_back() {
    let event = Event {
        id: 7,
        time: at(1_800_000_000_250),
        what: What::Blocked {
            prefix: "192.0.2.0/24".parse().unwrap(),
            until: Some(at(1_800_000_600_000)),
            reason: "abuse".to_owned(),
            origin: Origin::Command,
        },
    };
    let value = serde_json::to_value(&event).unwrap();
    let expected = json!({
        "id": 7, "time": "2027-01-15T08:00:00.250Z", "type": "blocked", "prefix": "192.0.2.0/24",
        "until": "2027-01-15T08:10:00Z", "reason": "abuse", "origin": "command",
    });
    assert_eq!(value, expected);
    assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event);
}

/// One of each kind. A new one fails to compile here until it is added.
fn all() -> Vec<What> {
    let (prefix, trial) = ("192.0.2.0/24".parse().unwrap(), || "t".to_owned());
    let (interface, cause, message) = (|| "eth0".to_owned(), || "SIGHUP".to_owned(), || "no".to_owned());
    let shed = Shed {
        reason: "limited".to_owned(),
        rule: None,
        limit: None,
        source: Some([192, 0, 2, 1].into()),
        destination: Some([192, 0, 2, 2].into()),
        protocol: Some("tcp".to_owned()),
        source_port: None,
        destination_port: Some(80),
        length: 64,
        weight: 1,
        interface: interface(),
    };
    let all = vec![
        What::Shed(shed),
        What::SamplesLost { count: 1 },
        What::Reloaded { cause: cause(), changed: true, rules: 1, warnings: Vec::new(), milliseconds: 1 },
        What::ReloadFailed { cause: cause(), message: message() },
        What::Applied { trial: trial(), deadline: None },
        What::Confirmed { trial: trial() },
        What::RolledBack { trial: trial(), cause: cause() },
        What::ModeChanged { mode: Mode::Monitor },
        What::Blocked { prefix, until: None, reason: String::new(), origin: Origin::Rule },
        What::Escalated {
            prefix,
            client: [192, 0, 2, 1].into(),
            rule: "api/client_ip".to_owned(),
            denials: 20,
            within: "1m".to_owned(),
            offence: 1,
            until: at(0),
            under: None,
        },
        What::BlockedMany { added: 1, replaced: 1, failed: 1 },
        What::Unblocked { prefix },
        What::InterfaceAttached { interface: interface(), mode: crate::network::interfaces::Mode::Native },
        What::InterfaceGone { interface: interface() },
        What::InterfaceFailed { interface: interface(), message: message() },
        What::Stopping,
        What::Lost { count: 1 },
    ];
    for what in &all {
        match what {
            What::Shed(_)
            | What::SamplesLost { .. }
            | What::Reloaded { .. }
            | What::ReloadFailed { .. }
            | What::Applied { .. }
            | What::Confirmed { .. }
            | What::RolledBack { .. }
            | What::ModeChanged { .. }
            | What::Blocked { .. }
            | What::Escalated { .. }
            | What::BlockedMany { .. }
            | What::Unblocked { .. }
            | What::InterfaceAttached { .. }
            | What::InterfaceGone { .. }
            | What::InterfaceFailed { .. }
            | What::Stopping
            | What::Lost { .. } => {}
        }
    }
    all
}

#[test]
fn every_event_reads_back_and_its_name_is_its_type() {
    for what in all() {
        let event = Event { id: 7, time: at(0), what };
        // As text, where a name that stands there twice does not get lost.
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["type"], &value["id"]), (&json!(event.what.name()), &json!(7)));
    }
}
