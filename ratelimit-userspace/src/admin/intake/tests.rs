use super::*;

/// What becomes of a text that comes in pieces of so many bytes.
fn read(text: &[u8], piece: usize) -> (Batch, Intake) {
    let mut intake = Intake::new(Some(Duration::from_mins(10)), "list".to_owned()).unwrap();
    for piece in text.chunks(piece) {
        intake.push(piece).unwrap();
    }
    let batch = intake.finish().unwrap();
    (batch, intake)
}

fn block(prefix: &str, minutes: u64, reason: &str) -> NewBlock {
    let duration = Some(Duration::from_mins(minutes));
    NewBlock { prefix: prefix.parse().unwrap(), duration, reason: reason.to_owned() }
}

fn prefixes(batch: &Batch) -> Vec<IpNet> {
    batch.entries.iter().map(|entry| entry.prefix).collect()
}

const LIST: &[u8] = b"# a list\r\n192.0.2.1\n\n  198.51.100.0/24  # a net\r\n::ffff:203.0.113.7\n\
    {\"prefix\": \"2001:db8::/32\", \"for\": \"1h\", \"reason\": \"spam\"}\n2001:db8::1";

#[test]
fn lines_are_read_whatever_pieces_they_come_in() {
    let expected = [
        block("192.0.2.1/32", 10, ""),
        block("198.51.100.0/24", 10, ""),
        block("203.0.113.7/32", 10, ""),
        block("2001:db8::/32", 60, "spam"),
        block("2001:db8::1/128", 10, ""),
    ];
    for piece in [1, 2, 3, 7, 64, LIST.len()] {
        let (batch, intake) = read(LIST, piece);
        assert_eq!(batch.entries, expected, "{piece}");
        assert_eq!(intake.lines, [2, 4, 5, 6, 7]);
        assert_eq!((batch.sizes(), intake.failed), ((3, 2), 0));
        let reasons: Vec<String> = batch.into_entries().map(|entry| entry.reason).collect();
        assert_eq!(reasons, ["list", "list", "list", "spam", "list"]);
    }
}

#[test]
fn a_wrong_line_is_told_and_keeps_no_other_one_from_being_blocked() {
    let wrong = [
        ("192.0.2.300", "`192.0.2.300` is neither an address nor a prefix"),
        ("fe80::1%eth0", "did you mean `fe80::1`?"),
        ("192.0.2.1/24", "did you mean `192.0.2.0/24`?"),
        ("{\"prefix\": \"192.0.2.1\", \"fro\": \"1h\"}", "unknown field `fro`"),
        ("{\"prefix\": \"192.0.2.1\", \"for\": \"0s\"}", "a block of no time"),
        ("{\"prefix\": \"192.0.2.1\", \"reason\": \"\\u001b[2J\"}", "control characters"),
        ("{\"for\": \"1h\"}", "missing field `prefix`"),
    ];
    let mut text = "192.0.2.1\n".to_owned();
    for (line, _) in wrong {
        text.push_str(line);
        text.push_str("\n192.0.2.1\n");
    }
    let (batch, intake) = read(text.as_bytes(), 5);
    assert_eq!(batch.entries.len(), wrong.len() + 1);
    let answer = intake.answer(&prefixes(&batch), Blocked { added: 1, replaced: 8, errors: Vec::new() });
    assert_eq!(answer.failed, wrong.len());
    for (index, ((line, words), error)) in wrong.iter().zip(&answer.errors).enumerate() {
        assert_eq!((error.line, error.entry.as_str()), (2 * index as u64 + 2, *line));
        assert!(error.message.contains(words), "{words:?} is not in {:?}", error.message);
    }
}

#[test]
fn what_the_daemon_could_not_block_is_told_by_its_line() {
    let (batch, intake) = read(b"# one\n192.0.2.1\nnonsense\n192.0.2.2\n", 100);
    let errors = vec![(0, "no".to_owned()), (1, "neither".to_owned())];
    let answer = intake.answer(&prefixes(&batch), Blocked { added: 0, replaced: 0, errors });
    let told: Vec<_> = answer.errors.iter().map(|error| (error.line, error.entry.as_str())).collect();
    assert_eq!(told, [(2, "192.0.2.1/32"), (3, "nonsense"), (4, "192.0.2.2/32")]);
    assert_eq!(answer.failed, 3);
}

#[test]
fn a_line_without_end_takes_no_memory() {
    let mut intake = Intake::new(None, String::new()).unwrap();
    for _ in 0..1000 {
        intake.push(&[b'1'; 1000]).unwrap();
        assert!(intake.partial.len() <= MAX_LINE + 1);
    }
    intake.push(b"\n192.0.2.1\n").unwrap();
    assert_eq!(intake.finish().unwrap().entries.len(), 1);
    assert_eq!(intake.errors.len(), 1);
    assert!(intake.errors[0].message.contains("more than 4096 bytes"));
    assert_eq!(intake.errors[0].entry.len(), MAX_QUOTED);
}

#[test]
fn errors_without_end_are_counted_and_the_first_told() {
    let (batch, intake) = read(&b"x\n".repeat(MAX_ERRORS + 5), 4096);
    let answer = intake.answer(&prefixes(&batch), Blocked::default());
    assert_eq!((answer.failed, answer.errors.len()), (MAX_ERRORS + 5, MAX_ERRORS));
}

#[test]
fn a_reason_must_fit() {
    assert!(check(None, &"x".repeat(MAX_REASON)).is_ok());
    assert!(check(None, &"x".repeat(MAX_REASON + 1)).unwrap_err().contains("121 bytes"));
    assert!(Intake::new(Some(Duration::ZERO), String::new()).is_err());
}
