//! The listeners of the API. They have a thread of their own, so that it answers while the daemon puts a
//! policy in force.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::Extension;
use tokio::{
    runtime::{self, Runtime},
    sync::watch,
    task::JoinSet,
};
use tracing::{info, warn};

use super::{
    access::Origin,
    handle::Handle,
    router::{self, Api, Shared},
};
use crate::{
    config::{http::Listen, policy::Admin},
    http::serve::{
        access::{TokenError, Tokens},
        connection,
        listener::{ListenError, Listener},
    },
};

/// The group whose members may use the socket, where there is such a group.
const GROUP: &str = "ratelimit";

/// Connections of each listener.
const MAX_CONNECTIONS: usize = 256;

/// Why the API is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// There is no thread for it.
    #[error("failed to start a thread for the admin API")]
    Thread(#[source] io::Error),
    /// The directory of the socket cannot be made.
    #[error("failed to make {}, the directory of the admin socket", .path.display())]
    Directory {
        /// It.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket cannot be given to the group.
    #[error("failed to give {} to the group {GROUP}", .path.display())]
    Group {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Other hosts would reach the address.
    #[error("the admin API listens on loopback only, not on {0}: come through SSH or a proxy from elsewhere")]
    NotLoopback(SocketAddr),
    /// A token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The API being served.
#[derive(Debug)]
pub struct Server {
    api: Shared,
    thread: Thread,
    tasks: JoinSet<()>,
    /// Listeners stop when their sender goes.
    stop: watch::Sender<()>,
    tcp: Option<Tcp>,
}

/// The runtime, there until it is dropped.
#[derive(Debug)]
struct Thread(Option<Runtime>);

#[derive(Debug)]
struct Tcp {
    address: SocketAddr,
    _stop: watch::Sender<()>,
}

/// What another configuration asks for, ready to be put in force.
#[derive(Debug)]
pub struct Prepared {
    tokens: Tokens,
    listen: Option<SocketAddr>,
    /// There if the address is another one than before.
    listener: Option<Listener>,
}

// === impl Server ===

impl Server {
    /// Listens nowhere yet.
    pub fn start(handle: Handle) -> Result<Self, ServerError> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("admin")
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        Ok(Self {
            api: Api::new(handle),
            thread: Thread(Some(runtime)),
            tasks: JoinSet::new(),
            stop: watch::Sender::new(()),
            tcp: None,
        })
    }

    /// Answers on a Unix socket. Its directory is made where it is missing.
    pub fn listen(&mut self, socket: &Path) -> Result<(), ServerError> {
        if let Some(directory) = socket.parent() {
            make(directory)
                .map_err(|source| ServerError::Directory { path: directory.to_owned(), source })?;
        }
        let listener = self.bind(&Listen::Unix(socket.to_owned()))?;
        if let Some(group) = fs::read_to_string("/etc/group").ok().and_then(|text| group(&text, GROUP)) {
            chown(socket, None, Some(group))
                .map_err(|source| ServerError::Group { path: socket.to_owned(), source })?;
        }
        info!("listening for commands on {}", socket.display());
        let stopped = self.stop.subscribe();
        self.serve(listener, stopped);
        Ok(())
    }

    /// Reads the tokens and binds the address that `admin` has; nothing changes yet.
    pub fn prepare(&self, admin: &Admin) -> Result<Prepared, ServerError> {
        let Admin { listen, token_file, write_token_file } = admin;
        let tokens = Tokens::read(token_file.as_deref(), write_token_file.as_deref())?;
        let listener = match *listen {
            Some(address) if !address.ip().to_canonical().is_loopback() => {
                return Err(ServerError::NotLoopback(address));
            }
            Some(address) if self.tcp.as_ref().is_none_or(|tcp| tcp.address != address) => {
                Some(self.bind(&Listen::Tcp(address))?)
            }
            _ => None,
        };
        Ok(Prepared { tokens, listen: *listen, listener })
    }

    /// Puts in force what was prepared.
    pub fn put(&mut self, prepared: Prepared) {
        let Prepared { tokens, listen, listener } = prepared;
        if listen.is_some() && !tokens.any() {
            warn!("the admin API has no token, so nobody may use it over TCP; name a `token_file`");
        }
        self.api.tokens.store(Arc::new(tokens));
        if let (Some(listener), Some(address)) = (listener, listen) {
            // The real port, where any was asked for.
            info!("listening for commands on {}", listener.local_address().unwrap_or(address));
            let stop = watch::Sender::new(());
            let stopped = stop.subscribe();
            self.tcp = Some(Tcp { address, _stop: stop });
            self.serve(listener, stopped);
        } else if listen.is_none() {
            self.tcp = None;
        }
    }

    /// Stops listening, ends the streams of events, and lets requests that have begun end: those that wait
    /// for the daemon get no other answer than that it stops.
    pub async fn stop(self) {
        let Self { api, thread: _thread, mut tasks, stop, tcp } = self;
        drop((stop, tcp));
        api.handle.close();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                warn!("a listener of the admin API ended badly: {error}");
            }
        }
    }

    fn bind(&self, listen: &Listen) -> Result<Listener, ServerError> {
        let _context = self.thread.0.as_ref().map(Runtime::enter);
        Ok(Listener::bind_for(listen, MAX_CONNECTIONS)?)
    }

    fn serve(&mut self, listener: Listener, mut stopped: watch::Receiver<()>) {
        let Some(runtime) = &self.thread.0 else { return };
        let router = router::router(Arc::clone(&self.api));
        let serving = connection::serve_each(
            listener,
            move |connection| router.clone().layer(Extension(Origin::of(connection))),
            // An error says that the sender is gone: the end that is waited for.
            async move { while stopped.changed().await.is_ok() {} },
        );
        self.tasks.spawn_on(serving, runtime.handle());
    }
}

// === impl Thread ===

impl Drop for Thread {
    fn drop(&mut self) {
        // Dropping it otherwise waits, which is not allowed amid asynchronous code.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Makes a directory that everybody may enter, if it is not there, whatever the process's mask.
fn make(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.exists() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make(parent)?;
    }
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(0o755)),
    }
}

/// The id of a group in the text of `/etc/group`.
fn group(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests;
