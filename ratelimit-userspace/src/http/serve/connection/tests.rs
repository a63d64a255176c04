use std::net::SocketAddr;

use axum::{
    Extension,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::*;
use crate::config::http::Listen;

/// Far longer than anything here takes, also where time is virtual.
const PATIENCE: Duration = Duration::from_mins(5);

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn router() -> Router {
    Router::new()
        .route("/", get(async |Extension(peer): Extension<Peer>| format!("{peer:?}")))
        .route("/slow", get(async || sleep(GRACE / 2).await))
        .route("/stuck", get(async || sleep(GRACE * 100).await))
        .route("/refuse", post(async || http::StatusCode::FORBIDDEN))
        .route("/read", post(async |body: String| body.len().to_string()))
        .route("/large", get(async || "x".repeat(8 * 1024 * 1024)))
}

/// A listener on loopback, being served until told to stop.
struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Served {
    fn start() -> Self {
        let listener = Listener::bind(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = listener.local_address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, router(), async { drop(stopped.await) }));
        Self { address, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// What comes back until the server closes.
    async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The server may close before it has everything.
        drop(stream.write_all(bytes).await);
        everything(&mut stream).await
    }

    /// Somebody well-behaved is served.
    async fn serves(&self) {
        let answer = self.send(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("Address(127.0.0.1)"), "{answer}");
    }
}

async fn everything(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    // A reset after the answer is an end, too.
    while let Ok(count @ 1..) = timeout(PATIENCE, stream.read(&mut chunk)).await.expect("the server closes") {
        bytes.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer without body, and the connection is still open.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(timeout(PATIENCE, stream.read_u8()).await.expect("an answer").unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

/// A connection in memory, whose time is virtual.
fn attended() -> (DuplexStream, watch::Sender<()>, JoinHandle<()>) {
    let (client, server) = duplex(1024);
    let (running, stopped) = watch::channel(());
    (client, running, tokio::spawn(attend(server, Peer::Unix, router(), stopped)))
}

/// A timer is exact to the millisecond.
fn about(elapsed: Duration, expected: Duration) {
    assert!(elapsed >= expected && elapsed < expected + Duration::from_millis(10), "{elapsed:?}");
}

#[tokio::test]
async fn garbage_is_refused_and_others_are_served() {
    let served = Served::start();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /read HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxy",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
    ] {
        let mut request = garbage.to_vec();
        request.extend_from_slice(b"\r\n\r\n");
        let answer = served.send(&request).await;
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 400 ");
        assert!(refused, "{:?}: {answer}", String::from_utf8_lossy(garbage));
        served.serves().await;
    }
}

#[tokio::test]
async fn headers_that_are_too_large_or_too_many_are_refused() {
    let served = Served::start();
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEADER_BYTES));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(2000));
    let endless = "z".repeat(4 * MAX_HEADER_BYTES);
    for request in [long, many, endless] {
        let answer = served.send(request.as_bytes()).await;
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{answer}");
        served.serves().await;
    }
    let near =
        format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: {}\r\n\r\n", "y".repeat(32 * 1024));
    assert!(
        served.send(near.as_bytes()).await.starts_with("HTTP/1.1 200 "),
        "what a proxy lets through is fine"
    );
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for_when_nobody_wants_it() {
    let served = Served::start();
    let mut stream = served.connect().await;
    stream
        .write_all(b"POST /refuse HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let endless = tokio::spawn(async move {
        let chunk = [b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat();
        while writing.write_all(&chunk).await.is_ok() {}
    });
    let answer = everything(&mut reading).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 403 "), "{answer}");
    timeout(PATIENCE, endless).await.expect("the server closes").unwrap();
    served.serves().await;
}

#[tokio::test]
async fn a_client_that_has_said_all_still_gets_its_answer() {
    let served = Served::start();
    let mut stream = served.connect().await;
    stream.write_all(GET).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = everything(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mut broken = served.connect().await;
    broken.write_all(b"POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nfive!").await.unwrap();
    broken.shutdown().await.unwrap();
    let answer = everything(&mut broken).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    served.serves().await;
}

#[tokio::test]
async fn stopping_ends_idle_connections_and_lets_requests_end() {
    let served = Served::start();
    let mut idle = served.connect().await;
    idle.write_all(GET).await.unwrap();
    assert!(head(&mut idle).await.starts_with("HTTP/1.1 200 "));
    served.stop.send(()).unwrap();
    everything(&mut idle).await;
    timeout(PATIENCE, served.task).await.expect("it stops").unwrap();
    TcpStream::connect(served.address).await.expect_err("nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn a_request_amid_a_stop_is_answered_within_the_grace() {
    let (mut client, running, task) = attended();
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    drop(running);
    let answer = everything(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_outlasts_the_grace_is_cut_off() {
    let (mut client, running, task) = attended();
    client.write_all(b"GET /stuck HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    drop(running);
    let begun = Instant::now();
    assert_eq!(everything(&mut client).await, "");
    about(begun.elapsed(), GRACE);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_header_is_not_waited_for() {
    let (mut client, _running, task) = attended();
    let begun = Instant::now();
    client.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    everything(&mut client).await;
    about(begun.elapsed(), HEADER_TIMEOUT);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_kept_alive_ends_after_the_idle_time() {
    let (mut client, _running, task) = attended();
    for _ in 0..3 {
        client.write_all(GET).await.unwrap();
        sleep(IDLE_TIMEOUT / 2).await;
    }
    let begun = Instant::now();
    let answers = everything(&mut client).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    about(begun.elapsed(), IDLE_TIMEOUT / 2);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_is_given_up() {
    let (mut client, _running, task) = attended();
    let begun = Instant::now();
    client.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    task.await.unwrap();
    about(begun.elapsed(), WRITE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let (mut client, _running, task) = attended();
    client
        .write_all(&[GET, b"GET /none HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"].concat())
        .await
        .unwrap();
    let answers = everything(&mut client).await;
    let statuses: Vec<&str> = answers.lines().filter(|line| line.contains("HTTP/1.1 ")).collect();
    assert_eq!(statuses.len(), 2, "{answers}");
    assert!(statuses[0].ends_with("200 OK") && statuses[1].ends_with("404 Not Found"), "{answers}");
    task.await.unwrap();
}
