//! A listener of a process that has no file descriptors left. On its own, since the limit is the process's.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ratelimit::{
    config::http::Listen,
    http::serve::{connection::serve, listener::Listener},
};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Enough for the runtime and some connections.
const DESCRIPTORS: u64 = 64;

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Whether the other end answers.
fn answers(stream: &mut TcpStream) -> bool {
    if stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").is_err() {
        return false;
    }
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return false;
        }
        answer.extend(byte);
    }
    answer.starts_with(b"HTTP/1.1 200")
}

#[test]
fn a_listener_outlasts_a_lack_of_descriptors() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, hard).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.enter();
    let listener = Listener::bind(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.local_address().unwrap();
    let router = Router::new().route("/", get(async || ()));
    runtime.spawn(serve(listener, router, std::future::pending()));
    drop(guard);

    let mut served = connect(address).unwrap();
    assert!(answers(&mut served));
    // Client and server draw from the same descriptors; the kernel completes connections that nobody accepts.
    let others: Vec<TcpStream> = std::iter::from_fn(|| connect(address).ok()).collect();
    assert!(others.len() >= usize::try_from(DESCRIPTORS / 4).unwrap(), "{}", others.len());
    assert!(answers(&mut served), "who has a connection is served");

    drop(others);
    let deadline = Instant::now() + PATIENCE;
    let mut late = loop {
        match connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert!(answers(&mut late), "who comes later is served when there are descriptors again");
}
