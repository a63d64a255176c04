//! An honest client: it asks the protected host at a constant pace, and waits for each answer.

use std::{
    io::ErrorKind,
    net::{IpAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{eventually, host::Host, party::Role};

/// Between two questions; it never asks sooner, so it stays within its limit however late it is.
const PACE: Duration = Duration::from_millis(5);
/// How long it waits for an answer. A question can be lost where the flood fills the wire; that this was so
/// is seen by what the wire dropped.
const LOST: Duration = Duration::from_secs(1);

/// Answers every datagram with itself, until it is dropped.
pub(crate) struct Echo {
    _worker: Worker,
}

/// The client while it asks.
pub(crate) struct Honest {
    _worker: Worker,
}

/// What honest clients did so far.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    questions: AtomicU64,
    answers: AtomicU64,
}

struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

// === impl Echo ===

impl Echo {
    pub(crate) fn start(host: &Host, address: IpAddr) -> Self {
        let socket = host.lab.server.run(|| UdpSocket::bind((address, Role::Honest.port())));
        let socket = socket.expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        Self {
            _worker: Worker::start(move |stop| {
                let mut buffer = [0; 64];
                while !stop() {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        socket.send_to(&buffer[..length], from).expect("the answer leaves");
                    }
                }
            }),
        }
    }
}

// === impl Honest ===

impl Honest {
    pub(crate) fn start(host: &Host, from: IpAddr, to: IpAddr, asked: &Arc<Asked>) -> Self {
        let (socket, asked) = (connect(host, from, to), Arc::clone(asked));
        Self {
            _worker: Worker::start(move |stop| {
                while !stop() {
                    let number = asked.questions.fetch_add(1, Ordering::Relaxed).to_ne_bytes();
                    socket.send(&number).expect("the question leaves");
                    if answered(&socket, number) {
                        asked.answers.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(PACE);
                }
            }),
        }
    }
}

/// Asks until there is an answer: on a new wire, addresses are not usable the moment they are there.
pub(crate) fn reach(host: &Host, from: IpAddr, to: IpAddr) {
    let socket = connect(host, from, to);
    eventually("the first answer", || {
        socket.send(&u64::MAX.to_ne_bytes()).expect("the question leaves");
        answered(&socket, u64::MAX.to_ne_bytes()).then_some(())
    });
}

fn connect(host: &Host, from: IpAddr, to: IpAddr) -> UdpSocket {
    let socket = host.lab.client.run(|| UdpSocket::bind((from, 0))).expect("a socket");
    socket.connect((to, Role::Honest.port())).expect("a peer");
    socket.set_read_timeout(Some(LOST)).expect("a timeout");
    socket
}

/// Whether the answer to this question comes; earlier ones that come late are none.
fn answered(socket: &UdpSocket, number: [u8; 8]) -> bool {
    let mut buffer = [0; 64];
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) if buffer[..length] == number => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

// === impl Asked ===

impl Asked {
    /// Questions and answers. Only a client that rests has as many of both.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.questions.load(Ordering::Relaxed), self.answers.load(Ordering::Relaxed))
    }
}

// === impl Worker ===

impl Worker {
    fn start(work: impl FnOnce(&dyn Fn() -> bool) + Send + 'static) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || work(&|| stopped.load(Ordering::Relaxed)));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("see above");
        }
    }
}
