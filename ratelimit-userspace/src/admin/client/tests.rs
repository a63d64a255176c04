use std::{io::Cursor, os::unix::net::UnixListener, path::PathBuf};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::admin::{
    fixture::{BLOCKED, Fake, ROOM, UNBLOCKABLE},
    schema::What,
    server::Server,
};

/// A fake daemon that is served, and a client for it.
struct Bed {
    client: Client,
    fake: Fake,
    _server: Server,
    _directory: TempDir,
    /// The daemon's.
    _runtime: Runtime,
}

impl Bed {
    fn new() -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("admin.sock");
        let fake = {
            let _context = runtime.enter();
            Fake::new()
        };
        let mut server = Server::start(fake.handle.clone()).unwrap();
        server.listen(&socket).unwrap();
        let client = Client::new(&socket).unwrap();
        Self { client, fake, _server: server, _directory: directory, _runtime: runtime }
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> (u16, Option<Kind>, String) {
    match outcome {
        Err(ClientError::Refused { status, kind, message }) => (status.as_u16(), kind, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_question_is_answered() {
    let Bed { client, fake, .. } = &Bed::new();
    assert_eq!(client.status().unwrap().policy, None);
    assert_eq!(client.config().unwrap().text, "network: {}\n");
    assert_eq!(client.reload(true).unwrap().rules, 3);
    let applied = client.apply("network: {}".to_owned(), Some(Duration::from_mins(1)), false).unwrap();
    assert_eq!(text::time(applied.deadline.unwrap()), "2027-01-15T08:01:00Z");
    client.confirm(&applied.id).unwrap();
    client.roll_back(&applied.id).unwrap();
    assert!(client.set_mode(Mode::Monitor, false).unwrap().changed);
    let request =
        BlockRequest { duration: Some(Duration::from_mins(10)), reason: "abuse".to_owned(), force: true };
    assert!(client.block("2001:db8::/32", &request).unwrap().added);
    assert!(!client.block("192.0.2.1", &BlockRequest::default()).unwrap().added);
    assert!(client.unblock(BLOCKED).unwrap());
    assert!(!client.unblock("192.0.2.9").unwrap());
    let expected = [
        "config",
        "reload force=true",
        "apply 11 bytes confirm=Some(60s) force=false",
        "confirm trial-1",
        "rollback trial-1",
        "monitor=true force=false",
        "block 2001:db8::/32 Some(600s) \"abuse\" force=true",
        "block 192.0.2.1/32 None \"\" force=false",
        "unblock [192.0.2.1/32]",
        "unblock [192.0.2.9/32]",
    ];
    assert_eq!(fake.told(), expected);
}

#[test]
fn refusals_say_what_the_daemon_says() {
    let Bed { client, .. } = &Bed::new();
    let told = refusal(client.apply("bad: yes".to_owned(), None, false));
    assert_eq!(told, (422, Some(Kind::Invalid), "rules.yaml:1:1: error: unknown key `bad`".to_owned()));
    let (status, kind, _) = refusal(client.apply("everything".to_owned(), None, false));
    assert_eq!((status, kind), (409, Some(Kind::LockedOut)));
    assert_eq!(
        refusal(client.confirm("a/b c")),
        (404, Some(Kind::NotFound), "there is no trial a/b c".to_owned())
    );
    let (status, kind, message) = refusal(client.rules());
    assert_eq!((status, kind), (404, Some(Kind::NotFound)));
    assert!(message.starts_with("no policy is in force"), "{message}");
}

#[test]
fn a_list_is_sent_as_it_is_read() {
    let Bed { client, fake, .. } = &Bed::new();
    let request = BlockRequest { reason: "a & b".to_owned(), ..BlockRequest::default() };
    let list = format!("192.0.2.1\n{UNBLOCKABLE}\nnonsense\n198.51.100.0/24\n");
    let told = client.block_list(Cursor::new(list), &request).unwrap();
    assert_eq!((told.added, told.replaced, told.failed), (1, 1, 2));
    let lines: Vec<u64> = told.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 3]);
    client.block_list(Cursor::new("192.0.2.7"), &request).unwrap();
    assert_eq!(fake.told(), ["block 3 force=false", "block 192.0.2.7/32 None \"a & b\" force=false"]);
}

#[test]
fn a_list_that_is_refused_before_its_end_is_told() {
    let Bed { client, fake, .. } = &Bed::new();
    let full = "192.0.2.7\n".repeat(ROOM + 1);
    let (status, kind, _) = refusal(client.block_list(Cursor::new(full), &BlockRequest::default()));
    assert_eq!((status, kind), (507, Some(Kind::Full)));
    fake.told();
    let request = BlockRequest { reason: "x".repeat(121), ..BlockRequest::default() };
    // Far more than the connection holds while nobody reads.
    let comment = |bytes: usize| Cursor::new(vec![b'#'; bytes]);
    let (status, _, message) = refusal(client.block_list(comment(8 << 20), &request));
    assert_eq!(status, 422, "{message}");
    let (status, _, message) = refusal(client.block_list(comment((64 << 20) + 1), &BlockRequest::default()));
    assert_eq!(status, 413, "{message}");
    assert!(fake.told().is_empty());
}

#[test]
fn a_list_that_cannot_be_read_blocks_nobody() {
    struct Broken(bool);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("the disk is gone"));
            }
            buffer[..10].copy_from_slice(b"192.0.2.7\n");
            Ok(10)
        }
    }
    let Bed { client, fake, .. } = &Bed::new();
    let error = client.block_list(Broken(false), &BlockRequest::default()).unwrap_err();
    assert!(
        matches!(&error, ClientError::List(error) if error.to_string() == "the disk is gone"),
        "{error:?}"
    );
    client.status().unwrap();
    assert!(fake.told().is_empty());
}

#[test]
fn events_are_followed_from_where_one_was_and_end_with_the_daemon() {
    let Bed { client, fake, .. } = &Bed::new();
    for trial in ["a", "b"] {
        fake.handle.publish(What::Confirmed { trial: trial.to_owned() });
    }
    let recent = client.recent_events(5).unwrap();
    assert_eq!(recent.len(), 2);
    let mut following = client.follow(Some(recent[0].id)).unwrap();
    assert_eq!(following.next().unwrap().unwrap(), recent[1]);
    fake.handle.publish(What::Stopping);
    assert_eq!(following.next().unwrap().unwrap().what, What::Stopping);
    fake.handle.events().close();
    assert!(following.next().is_none());
}

#[test]
fn that_no_daemon_listens_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: PathBuf| Client::new(&path).unwrap().status().unwrap_err();
    let error = at(directory.path().join("none.sock"));
    assert!(error.is_no_daemon(), "{error:?}");
    let left = directory.path().join("left.sock");
    drop(UnixListener::bind(&left).unwrap());
    assert!(at(left.clone()).is_no_daemon(), "a daemon that was killed left its socket");
    let file = directory.path().join("file/admin.sock");
    std::fs::write(directory.path().join("file"), "").unwrap();
    let error = at(file);
    assert!(!error.is_no_daemon(), "{error:?}");
}

#[test]
fn what_is_no_daemon_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("other.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let other = std::thread::spawn(move || {
        for answer in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] {
            let (mut stream, _) = listener.accept().unwrap();
            // Not before the question is there: an answer to none is an error of its own.
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    });
    let client = Client::new(&socket).unwrap();
    assert!(matches!(client.status(), Err(ClientError::Connection { .. })));
    let error = client.status().unwrap_err();
    assert!(matches!(error, ClientError::Garbled { .. }), "{error:?}");
    drop(client);
    other.join().unwrap();
}
