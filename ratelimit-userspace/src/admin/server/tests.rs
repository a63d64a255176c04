use std::{
    os::unix::fs::MetadataExt as _,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::*;
use crate::admin::{fixture::Fake, schema::What};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on a socket in a directory that it makes.
struct Served {
    fake: Fake,
    server: Server,
    socket: PathBuf,
    directory: TempDir,
}

impl Served {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/ratelimit/admin.sock");
        let fake = Fake::new();
        let mut server = Server::start(fake.handle.clone()).unwrap();
        server.listen(&socket).unwrap();
        Self { fake, server, socket, directory }
    }

    /// Listens on TCP as well, with a token to look and one to change.
    fn with_tcp() -> (Self, SocketAddr) {
        let mut served = Self::start();
        let prepared = served.server.prepare(&served.admin("127.0.0.1:0")).unwrap();
        let address = prepared.listener.as_ref().unwrap().local_address().unwrap();
        served.server.put(prepared);
        (served, address)
    }

    fn admin(&self, listen: &str) -> Admin {
        let file = |name: &str| {
            let path = self.directory.path().join(name);
            fs::write(&path, name).unwrap();
            Some(path)
        };
        let listen = Some(listen.parse().unwrap());
        Admin { listen, token_file: file("looks"), write_token_file: file("changes") }
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }

    /// What comes back over the socket until the server closes.
    async fn send(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        everything(&mut stream).await
    }
}

async fn everything(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A reset after the answer is an end, too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes");
    String::from_utf8(bytes).unwrap()
}

async fn over_tcp(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    everything(&mut stream).await
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[tokio::test]
async fn the_socket_is_for_owner_and_group_in_a_directory_that_everybody_may_enter() {
    let served = Served::start();
    assert_eq!(mode(&served.socket), 0o660);
    assert_eq!(mode(served.socket.parent().unwrap()), 0o755);
    assert_eq!(mode(&served.directory.path().join("run")), 0o755);
    let group = fs::read_to_string("/etc/group").ok().and_then(|text| group(&text, GROUP));
    let own = fs::metadata(served.directory.path()).unwrap().gid();
    assert_eq!(fs::metadata(&served.socket).unwrap().gid(), group.unwrap_or(own));
    let answer = served.send(&get("/v1/status", "host: localhost\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let Served { server, socket, .. } = served;
    server.stop().await;
    assert!(!socket.exists());
}

#[test]
fn a_group_is_found_by_its_whole_name() {
    let text = "root:x:0:\nratelimit-old:x:7:\n# ratelimit:x:8:\nratelimit:x:991:alice,bob\n";
    assert_eq!(group(text, "ratelimit"), Some(991));
    assert_eq!(group(text, "rate"), None);
    assert_eq!(group("ratelimit:x", "ratelimit"), None);
    assert_eq!(group("ratelimit:x:many:", "ratelimit"), None);
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let mut server = Server::start(Fake::new().handle).unwrap();
    let error = server.listen(&directory.path().join("file/admin.sock")).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[tokio::test]
async fn a_second_server_does_not_take_the_socket() {
    let served = Served::start();
    let mut second = Server::start(Fake::new().handle).unwrap();
    let error = second.listen(&served.socket).unwrap_err();
    assert!(error.to_string().contains("another process listens on"), "{error}");
    assert!(served.send(&get("/healthz", "")).await.ends_with("ok\n"));
}

#[tokio::test]
async fn over_tcp_it_takes_a_token_and_a_host_of_this_machine() {
    let (served, address) = Served::with_tcp();
    let host = format!("host: {address}\r\n");
    let looks = format!("{host}authorization: Bearer looks\r\n");
    let cases = [
        (get("/v1/status", &host), "401 Unauthorized"),
        (get("/v1/status", &looks), "200 OK"),
        (get("/v1/config", &looks), "403 Forbidden"),
        (get("/v1/config", &format!("{host}authorization: Bearer changes\r\n")), "200 OK"),
        (
            get("/v1/status", "host: evil.example\r\nauthorization: Bearer looks\r\n"),
            "421 Misdirected Request",
        ),
        (get("/healthz", &host), "200 OK"),
        (get("/healthz", "host: evil.example\r\n"), "421 Misdirected Request"),
    ];
    for (request, status) in cases {
        let answer = over_tcp(address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}\n{answer}");
    }
    served.server.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn another_configuration_changes_tokens_and_listener_without_a_restart() {
    let (mut served, address) = Served::with_tcp();
    let host = format!("host: {address}\r\n");
    let ask = async |token: &str| {
        let request = get("/v1/status", &format!("{host}authorization: Bearer {token}\r\n"));
        over_tcp(address, &request).await[9..12].to_owned()
    };
    // The port that was asked for is the same: the listener stays.
    let admin = served.admin("127.0.0.1:0");
    fs::write(admin.token_file.as_ref().unwrap(), "another").unwrap();
    let prepared = served.server.prepare(&admin).unwrap();
    assert!(prepared.listener.is_none());
    assert_eq!(ask("looks").await, "200", "nothing has changed yet");
    served.server.put(prepared);
    assert_eq!((ask("looks").await.as_str(), ask("another").await.as_str()), ("401", "200"));

    let prepared = served.server.prepare(&Admin::default()).unwrap();
    served.server.put(prepared);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).await.is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
        tokio::task::yield_now().await;
    }
    assert!(served.send(&get("/healthz", "")).await.ends_with("ok\n"), "the socket stays");
}

#[tokio::test]
async fn what_cannot_be_put_in_force_changes_nothing() {
    let (served, address) = Served::with_tcp();
    let error = served.server.prepare(&served.admin("192.0.2.1:9100")).unwrap_err();
    assert!(error.to_string().contains("on loopback only, not on 192.0.2.1:9100"), "{error}");
    let error = served.server.prepare(&served.admin(&address.to_string())).unwrap_err();
    assert!(error.to_string().contains("another process may have the port"), "{error}");
    let missing = Admin { token_file: Some("/nonexistent".into()), ..served.admin("127.0.0.1:0") };
    assert!(matches!(served.server.prepare(&missing), Err(ServerError::Token(_))));
    assert!(over_tcp(address, &get("/healthz", "host: localhost\r\n")).await.ends_with("ok\n"));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_comes() {
    let served = Served::start();
    let cases = [("PUT /v1/mode", 1 << 20), ("POST /v1/apply", 32 << 20)];
    for (line, max) in cases {
        let head = format!("{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", max + 1);
        let answer = served.send(&head).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("application/problem+json") && answer.contains(&max.to_string()), "{answer}");
    }
    assert!(served.fake.told().is_empty());
}

#[tokio::test]
async fn a_list_that_breaks_off_blocks_nobody() {
    let served = Served::start();
    let mut stream = served.connect().await;
    let head = "POST /v1/blocks HTTP/1.1\r\ncontent-length: 100\r\n\r\n192.0.2.1\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = everything(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(served.fake.told().is_empty());
}

#[tokio::test]
async fn streams_of_events_end_when_the_server_stops() {
    let served = Served::start();
    let mut stream = served.connect().await;
    stream.write_all(get("/v1/events?after=0", "").as_bytes()).await.unwrap();
    served.fake.handle.publish(What::Stopping);
    let reading = tokio::spawn(async move { everything(&mut stream).await });
    let mut told = served.connect().await;
    told.write_all(get("/healthz", "").as_bytes()).await.unwrap();
    everything(&mut told).await;
    timeout(PATIENCE, served.server.stop()).await.unwrap();
    let text = reading.await.unwrap();
    assert!(text.contains("event: stopping\n"), "{text}");
}

#[tokio::test]
async fn a_command_that_nobody_obeys_does_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin.sock");
    // The daemon is busy with something else until it ends.
    let (commands, mut inbox) = tokio::sync::mpsc::channel(1);
    let state = crate::network::state::StateDir::new(directory.path());
    let mut server = Server::start(Handle::new(state, commands)).unwrap();
    server.listen(&socket).unwrap();
    let mut stream = UnixStream::connect(&socket).await.unwrap();
    stream.write_all(b"POST /v1/reload HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    let command = timeout(PATIENCE, inbox.recv()).await.unwrap();
    let began = Instant::now();
    server.stop().await;
    assert!(began.elapsed() < connection::GRACE, "{:?}", began.elapsed());
    let answer = everything(&mut stream).await;
    assert!(answer.contains("the daemon is stopping"), "{answer}");
    drop(command);
}
