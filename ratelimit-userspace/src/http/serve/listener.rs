//! Sockets to be asked over: TCP and Unix alike, with an upper bound on connections.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tracing::warn;

use crate::config::http::Listen;

/// Connections that a listener has open at once. One more waits until another ends; those that do nothing
/// end by their time limits.
pub const MAX_CONNECTIONS: usize = 16_384;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Owner and group may ask; the group is how a proxy of another user is let in.
const SOCKET_MODE: u32 = 0o660;

/// How long to wait when the process or the host is out of file descriptors or memory: accepting again at
/// once would only burn the processor.
const BACK_OFF: Duration = Duration::from_millis(100);

/// A socket that listens. A Unix socket's file goes when the listener does.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    file: Option<SocketFile>,
    slots: Arc<Semaphore>,
    connections: usize,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The file of a Unix socket, and which one it was when it was made.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// Why there is no listening on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken, not ours, or not allowed.
    #[error("failed to listen on {address}; another process may have the port, or it needs a privilege")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be made.
    #[error("failed to listen on {}; its directory must exist and be writable for this user", .path.display())]
    Unix {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path is something else.
    #[error("{} is there and is not a socket, so it is left alone; remove it or name another path", .0.display())]
    NotASocket(PathBuf),
    /// Somebody answers on the socket.
    #[error("another process listens on {}; stop it first or name another path", .0.display())]
    InUse(PathBuf),
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address; one that IPv6 maps from IPv4 shows as IPv4.
    Address(IpAddr),
    /// A process on this host that may open the socket's file.
    Unix,
}

/// An accepted connection. It counts towards those of its listener until it is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: Peer,
    _slot: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

// === impl Listener ===

impl Listener {
    /// Listens. A Unix socket that nobody answers on any more is replaced; anything else at its path is not.
    pub fn bind(listen: &Listen) -> Result<Self, ListenError> {
        Self::bind_for(listen, MAX_CONNECTIONS)
    }

    /// The same for no more than so many connections at once.
    pub fn bind_for(listen: &Listen, connections: usize) -> Result<Self, ListenError> {
        let (socket, file) = match listen {
            Listen::Tcp(address) => {
                let failed = |source| ListenError::Tcp { address: *address, source };
                (Socket::Tcp(bind_tcp(*address).map_err(failed)?), None)
            }
            Listen::Unix(path) => {
                clear(path)?;
                let failed = |source| ListenError::Unix { path: path.clone(), source };
                let (listener, file) = bind_unix(path).map_err(failed)?;
                (Socket::Unix(listener), Some(file))
            }
        };
        Ok(Self { socket, file, slots: Arc::new(Semaphore::new(connections)), connections })
    }

    /// The address, where it is TCP; the port is the real one where 0 was asked for.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// The next connection. Waits while as many as may be are open; outlasts every failure.
    pub async fn accept(&self) -> Connection {
        let slot = match Arc::clone(&self.slots).acquire_owned().await {
            Ok(slot) => slot,
            // Nobody closes the semaphore.
            Err(_) => std::future::pending().await,
        };
        let mut told = false;
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => return Connection { stream, peer, _slot: slot },
                Err(error) if is_the_connections_own(&error) => {}
                Err(error) => {
                    if !told {
                        warn!(%error, "failed to accept a connection; trying again until it succeeds");
                        told = true;
                    }
                    sleep(BACK_OFF).await;
                }
            }
        }
    }

    /// Stops listening at once, and resolves when no connection of this listener is open any more.
    pub async fn close(self) {
        let Self { socket, file, slots, connections } = self;
        drop((socket, file));
        let all = u32::try_from(connections).unwrap_or(u32::MAX);
        drop(slots.acquire_many(all).await);
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Nobody can connect before `listen`, so nobody meets the file with another mode.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile::new(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok((socket.listen(BACKLOG)?, file))
}

/// Makes room for a socket at `path`, if what is there is one that a dead process left.
fn clear(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Unix { path: path.to_owned(), source };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        // It answers, its backlog is full, or it belongs to somebody else: in any case it is alive.
        Ok(_) | Err(_) => Err(ListenError::InUse(path.to_owned())),
    }
}

/// The client went away, or its network failed: no fault of ours.
fn is_the_connections_own(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionRefused
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | TimedOut
    )
}

// === impl Socket ===

impl Socket {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), Peer::Address(address.ip().to_canonical())))
            }
            Self::Unix(listener) => Ok((Stream::Unix(listener.accept().await?.0), Peer::Unix)),
        }
    }
}

// === impl SocketFile ===

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have put its own there since.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(path = %self.path.display(), %error, "failed to remove the socket");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

// === impl Connection ===

impl Connection {
    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The process that connected, where that is over a Unix socket and it is one of this PID namespace.
    pub fn process(&self) -> Option<u32> {
        match &self.stream {
            Stream::Tcp(_) => None,
            Stream::Unix(stream) => {
                let process = stream.peer_cred().ok()?.pid()?;
                u32::try_from(process).ok().filter(|&process| process != 0)
            }
        }
    }

    /// The other end and this end, where they are addresses.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        match &self.stream {
            Stream::Tcp(stream) => Some((stream.peer_addr().ok()?, stream.local_addr().ok()?)),
            Stream::Unix(_) => None,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
