//! What a connection costs that is open and does nothing. On its own, since it weighs the process.

use std::{fs, time::Duration};

use axum::{Router, routing::get};
use ratelimit::{
    config::http::Listen,
    http::serve::{connection::serve, listener::Listener},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const IDLE: usize = 2000;

/// What each may take, so that 10,000 fit into 200 MiB.
const EACH: usize = 200 * 1024 * 1024 / 10_000;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.1\r\n\r\n";

/// An answer, and the connection is still open.
async fn get_on(stream: &mut TcpStream) {
    stream.write_all(GET).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(PATIENCE, stream.read_u8()).await.expect("an answer").unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
}

/// Bytes of memory that this process has touched.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn ten_thousand_idle_connections_fit_into_200_mib() {
    let listener = Listener::bind(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.local_address().unwrap();
    let router = Router::new().route("/", get(async || ()));
    tokio::spawn(serve(listener, router, std::future::pending()));
    let connect = async || {
        let mut stream = TcpStream::connect(address).await.unwrap();
        get_on(&mut stream).await;
        stream
    };
    drop(connect().await);
    let before = resident();
    let mut idle = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        idle.push(connect().await);
    }
    let each = resident().saturating_sub(before) / IDLE;
    assert!(each < EACH, "each of {IDLE}, its client included, takes {each} bytes");
    drop(connect().await);
    for stream in idle.iter_mut().step_by(100) {
        get_on(stream).await;
    }
    println!("an idle connection takes {each} bytes");
}
