//! A web server as small as one can be: it answers every request with the same page.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::client::TIMEOUT;
use crate::lab::{Namespace, pin_thread};

/// Threads that answer; each serves one connection at a time.
const WORKERS: usize = 64;
/// How long a worker waits for a client that says or takes nothing.
const PATIENCE: Duration = TIMEOUT;
/// Length of the page, that of a modest real one: it takes several round trips.
pub(super) const PAGE_LENGTH: usize = 64 * 1024;

/// Listens inside the namespace and answers on one CPU until this process ends.
pub(super) fn start(namespace: &Namespace, address: SocketAddr, cpu: usize) -> Result<()> {
    let listener = namespace
        .run(|| TcpListener::bind(address))
        .with_context(|| format!("failed to listen on {address}"))?;
    let listener = Arc::new(listener);
    let response: Arc<[u8]> = response().into();
    for _ in 0..WORKERS {
        let (listener, response) = (Arc::clone(&listener), Arc::clone(&response));
        thread::spawn(move || {
            pin_thread(cpu).expect("the CPU was there a moment ago");
            for stream in listener.incoming() {
                // A client that gives up is its own affair.
                drop(stream.and_then(|stream| answer(stream, &response)));
            }
        });
    }
    Ok(())
}

fn response() -> Vec<u8> {
    let mut response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {PAGE_LENGTH}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    response.resize(response.len() + PAGE_LENGTH, b'.');
    response
}

fn answer(mut stream: TcpStream, response: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The honest client's request is one short segment.
    if stream.read(&mut [0; 1024])? > 0 {
        stream.write_all(response)?;
    }
    Ok(())
}
