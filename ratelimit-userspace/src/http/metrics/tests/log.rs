use std::io::{self, Write};

use parking_lot::Mutex;

use super::*;

/// Everything that is logged while something is done.
pub(super) fn logged(action: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, action);
    let lines = lines.0.lock().clone();
    String::from_utf8(lines).unwrap()
}

#[test]
fn a_denial_is_logged_with_rule_identity_and_reason() {
    let metrics = Metrics::default();
    let rule = rule("api/api_key", 1);
    let log = logged(|| {
        observe(&metrics, 1, Decision::Allow, status(&rule, 1));
        observe(&metrics, 1, Decision::Deny, refused(&rule, 0xfeed));
        observe(&metrics, 1, Decision::Deny, Status { retry_after: None, ..refused(&rule, 1) });
        metrics.refused(Refusal::StoreFull, NOW);
    });
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines[0].contains("denials: denied"), "{log}");
    assert!(lines[0].contains(r#"rule="api/api_key""#), "{log}");
    assert!(lines[0].contains(r#"identity="0000000000000000000000000000feed""#), "{log}");
    assert!(lines[0].contains(r#"reason="over limit" left_out=0"#), "{log}");
    assert!(lines[1].contains(r#"reason="can never pass""#), "{log}");
    assert!(lines[2].contains(r#"reason="memory is full""#), "{log}");
}

#[test]
fn a_flood_of_denials_is_a_few_lines() {
    let metrics = Metrics::default();
    let rule = rule("api/api_key", 1);
    let log = logged(|| {
        for number in 0..10_000 {
            observe(&metrics, 1, Decision::Deny, refused(&rule, number));
        }
        rule.metrics.flush(&rule, NOW.steady + 1_000_000_000);
    });
    assert_eq!(log.lines().count(), 11);
    assert!(log.ends_with("denied more rule=\"api/api_key\" left_out=9990\n"), "{log}");
}

#[test]
fn a_clients_secret_appears_nowhere() {
    let metrics = Arc::new(Metrics::default());
    let rule = rule("api/api_key", 1);
    let log = logged(|| {
        for decision in [Decision::Allow, Decision::Deny, Decision::Delay, Decision::Shadow] {
            let status = Status { shadow_denied: decision == Decision::Shadow, ..refused(&rule, 7) };
            observe(&metrics, 1, decision, status);
        }
        metrics.refused(Refusal::MissingEntry, NOW);
    });
    assert_eq!(log.lines().count(), 2);
    let told = format!("{log}{}{metrics:?}{rule:?}", text(&metrics, Format::OpenMetrics));
    assert!(!told.contains(SECRET));
}
