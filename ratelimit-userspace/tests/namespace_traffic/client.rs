//! Real sockets at both ends of the wire.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, socket};

use crate::{PATIENCE, host::Host};

/// Where the protected host listens.
pub(crate) const PORT: u16 = 5000;

/// Client and server, by family.
pub(crate) fn families(host: &Host) -> [(IpAddr, IpAddr); 2] {
    let link = &host.lab.link;
    [(link.client.ipv4.into(), link.server.ipv4.into()), (link.client.ipv6.into(), link.server.ipv6.into())]
}

/// A socket of the protected host.
pub(crate) fn receiver(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host.lab.server.run(|| UdpSocket::bind((address, PORT))).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Sends datagrams from this address, numbered by their first byte.
pub(crate) fn send(host: &Host, from: IpAddr, to: IpAddr, count: u8, length: usize) {
    let socket = host.lab.client.run(|| UdpSocket::bind((from, 0))).expect("a socket");
    for number in 0..count {
        let mut payload = vec![0; length];
        payload[0] = number;
        assert_eq!(socket.send_to(&payload, (to, PORT)).expect("it leaves"), length);
    }
}

/// Receives exactly these many, in order, each of this length.
pub(crate) fn arrive(socket: &UdpSocket, count: u8, length: usize) {
    let mut buffer = vec![0; length + 1];
    for number in 0..count {
        let (received, _) = socket.recv_from(&mut buffer).expect("a datagram");
        assert_eq!((received, buffer[0]), (length, number));
    }
    socket.set_nonblocking(true).expect("a flag");
    let more = socket.recv_from(&mut buffer).expect_err("no more");
    assert_eq!(more.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).expect("a flag");
}

/// An echo socket: the kernel writes identifier and checksum, and hands back only answers of its own.
pub(crate) struct Ping {
    socket: UdpSocket,
    to: SocketAddr,
    sequence: u16,
}

impl Ping {
    pub(crate) fn new(host: &Host, from: IpAddr, to: IpAddr) -> Self {
        // Echo sockets are for these groups; the first group is root's.
        host.lab.client.sysctl("net/ipv4/ping_group_range", "0 0").expect("a setting");
        let (family, protocol) = match from {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let descriptor =
            host.lab.client.run(|| socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol));
        let socket = descriptor.expect("an echo socket");
        bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0))).expect("an own address");
        Self { socket: socket.into(), to: (to, 0).into(), sequence: 0 }
    }

    /// Asks once.
    pub(crate) fn ask(&mut self) {
        self.sequence += 1;
        let [high, low] = self.sequence.to_be_bytes();
        let kind = if self.to.is_ipv4() { 8 } else { 128 };
        self.socket.send_to(&[kind, 0, 0, 0, 0, 0, high, low, b'x'], self.to).expect("it leaves");
    }

    /// Whether the last question is answered within this time.
    pub(crate) fn answered(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut buffer = [0; 64];
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).expect("a timeout");
            match self.socket.recv(&mut buffer) {
                Ok(_) if buffer[6..8] == self.sequence.to_be_bytes() => return true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return false;
                }
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }
}

/// Counts what arrives until it is dropped.
pub(crate) struct Sink {
    shared: Arc<(AtomicBool, AtomicU64)>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    pub(crate) fn new(host: &Host, address: IpAddr) -> Self {
        let socket = receiver(host, address);
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let shared = Arc::<(AtomicBool, AtomicU64)>::default();
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (stop, arrived) = &*shared;
                while !stop.load(Ordering::Relaxed) {
                    if socket.recv(&mut [0; 64]).is_ok() {
                        arrived.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        Self { shared, thread: Some(thread) }
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.shared.1.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
