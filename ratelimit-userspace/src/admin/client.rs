//! Asking a daemon over its Unix socket, for the command line: typed, and blocking.

mod exchange;
mod sse;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use tokio::runtime::{self, Runtime};

use self::exchange::Exchange;
pub use self::sse::Following;
use super::{
    command::Kind,
    schema::{
        Address, Applied, BlockRequest, Blocked, Blocks, BulkBlocked, Config, Event, Events, Mode,
        ModeAnswer, ModeRequest, Origin, Problem, Reloaded, Rules, Sources, Status, text,
    },
};
use crate::network::counters::Counters;

/// Where a daemon answers unless it was told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/ratelimit/admin.sock";

/// A connection is made anew for every question.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there: what is pinned is all there is to know.
    #[error("no daemon listens on {}; is `ratelimit daemon` running, and with this --admin-socket?", .socket.display())]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// This user may not use the socket.
    #[error(
        "this user may not use {}: become root, or a member of the group `ratelimit` (`usermod -aG ratelimit \
         USER`, then log in again)", .socket.display()
    )]
    Denied {
        /// The socket.
        socket: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The connection cannot be made, or broke.
    #[error("failed to ask the daemon on {}", .socket.display())]
    Connection {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It takes too long.
    #[error(
        "the daemon on {} did not answer within {} s; what was asked may still be done", .socket.display(),
        .patience.as_secs()
    )]
    Slow {
        /// The socket.
        socket: PathBuf,
        /// How long that was waited for.
        patience: Duration,
    },
    /// What answers there is no daemon of this version.
    #[error("what listens on {} gave no answer that this `ratelimit` understands: {what}", .socket.display())]
    Garbled {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The daemon does not do it.
    #[error("{message}")]
    Refused {
        /// The status of its answer.
        status: StatusCode,
        /// What kind of refusal it is, where it says so.
        kind: Option<Kind>,
        /// What failed, where, why, and what to do next.
        message: String,
    },
    /// The list to send cannot be read.
    #[error("failed to read the list of sources")]
    List(#[source] io::Error),
    /// There is no thread to ask with.
    #[error("failed to prepare to ask the daemon")]
    Runtime(#[source] io::Error),
}

/// Which blocks are asked for.
#[derive(Clone, Debug, Default)]
pub struct BlockFilter {
    /// Those that cover this address or prefix, or lie within it.
    pub prefix: Option<String>,
    /// Those that these made.
    pub origin: Option<Origin>,
    /// No more than so many.
    pub limit: Option<usize>,
}

// === impl Client ===

impl Client {
    /// Asks on this socket. Nobody need listen yet.
    pub fn new(socket: &Path) -> Result<Self, ClientError> {
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(ClientError::Runtime)?;
        Ok(Self { socket: socket.to_owned(), runtime })
    }

    /// What is enforced, and where.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status")
    }

    /// The rules on packets.
    pub fn rules(&self) -> Result<Rules, ClientError> {
        self.get("/v1/rules")
    }

    /// What was counted.
    pub fn counters(&self) -> Result<Counters, ClientError> {
        self.get("/v1/counters")
    }

    /// The sources that sent the most: `by` is `passed` or `shed`.
    pub fn sources(&self, top: usize, by: &str) -> Result<Sources, ClientError> {
        self.get(&target("/v1/sources", &[("top", Some(top.to_string())), ("by", Some(by.to_owned()))]))
    }

    /// What is known of an address.
    pub fn source(&self, address: std::net::IpAddr) -> Result<Address, ClientError> {
        self.get(&format!("/v1/sources/{address}"))
    }

    /// Blocked sources.
    pub fn blocks(&self, filter: &BlockFilter) -> Result<Blocks, ClientError> {
        let BlockFilter { prefix, origin, limit } = filter;
        let origin = origin.map(|origin| match origin {
            Origin::Command => "command".to_owned(),
            Origin::Rule => "rule".to_owned(),
        });
        let limit = limit.map(|limit| limit.to_string());
        self.get(&target("/v1/blocks", &[("prefix", prefix.clone()), ("origin", origin), ("limit", limit)]))
    }

    /// Blocks an address or a prefix.
    pub fn block(&self, prefix: &str, request: &BlockRequest) -> Result<Blocked, ClientError> {
        self.read(&self.send(Exchange::json(Method::PUT, &blocks_path(prefix), request))?)
    }

    /// Ends a block. `false`: there was none.
    pub fn unblock(&self, prefix: &str) -> Result<bool, ClientError> {
        match self.send(Exchange::new(Method::DELETE, &blocks_path(prefix))) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused { kind: Some(Kind::NotFound), .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Blocks every source of a list, which is sent as it is read. `request` holds for lines that do not say
    /// otherwise.
    pub fn block_list(
        &self,
        list: impl Read + Send + 'static,
        request: &BlockRequest,
    ) -> Result<BulkBlocked, ClientError> {
        let BlockRequest { duration, reason, force } = request;
        let target = target(
            "/v1/blocks",
            &[
                ("for", duration.map(text::duration)),
                ("reason", (!reason.is_empty()).then(|| reason.clone())),
                ("force", force.then(|| "true".to_owned())),
            ],
        );
        self.read(&self.send(Exchange::stream(Method::POST, &target, list))?)
    }

    /// The configuration in force.
    pub fn config(&self) -> Result<Config, ClientError> {
        self.get("/v1/config")
    }

    /// Makes the daemon read its files again.
    pub fn reload(&self, force: bool) -> Result<Reloaded, ClientError> {
        let target = target("/v1/reload", &[("force", force.then(|| "true".to_owned()))]);
        self.read(&self.send(Exchange::new(Method::POST, &target))?)
    }

    /// Puts another rules file in force, on trial if there is a time to confirm it.
    pub fn apply(
        &self,
        yaml: String,
        confirm: Option<Duration>,
        force: bool,
    ) -> Result<Applied, ClientError> {
        let confirm = confirm.map(text::duration);
        let target =
            target("/v1/apply", &[("confirm", confirm), ("force", force.then(|| "true".to_owned()))]);
        self.read(&self.send(Exchange::text(Method::POST, &target, "application/yaml", yaml))?)
    }

    /// Keeps what is on trial.
    pub fn confirm(&self, id: &str) -> Result<(), ClientError> {
        self.send(Exchange::new(Method::POST, &format!("/v1/apply/{}/confirm", escaped(id)))).map(drop)
    }

    /// Goes back to what was in force before the trial.
    pub fn roll_back(&self, id: &str) -> Result<(), ClientError> {
        self.send(Exchange::new(Method::POST, &format!("/v1/apply/{}/rollback", escaped(id)))).map(drop)
    }

    /// Sheds, or only counts what would be shed.
    pub fn set_mode(&self, mode: Mode, force: bool) -> Result<ModeAnswer, ClientError> {
        self.read(&self.send(Exchange::json(Method::PUT, "/v1/mode", &ModeRequest { mode, force }))?)
    }

    /// The last events, the newest last.
    pub fn recent_events(&self, limit: usize) -> Result<Vec<Event>, ClientError> {
        let Events { events } = self.get(&target("/v1/events", &[("limit", Some(limit.to_string()))]))?;
        Ok(events)
    }

    /// Events as they happen, from now on or from the one after number `after` on. Ends with the daemon.
    pub fn follow(&self, after: Option<u64>) -> Result<Following<'_>, ClientError> {
        let target = target("/v1/events", &[("after", after.map(|after| after.to_string()))]);
        Following::begin(self, Exchange::new(Method::GET, &target))
    }

    fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        self.read(&self.send(Exchange::new(Method::GET, target))?)
    }

    fn send(&self, exchange: Exchange) -> Result<Bytes, ClientError> {
        self.runtime.block_on(exchange.run(&self.socket))
    }

    fn read<T: DeserializeOwned>(&self, body: &Bytes) -> Result<T, ClientError> {
        serde_json::from_slice(body)
            .map_err(|error| ClientError::Garbled { socket: self.socket.clone(), what: error.to_string() })
    }
}

// === impl ClientError ===

impl ClientError {
    /// Whether nobody listens, so that the pins are all there is to know.
    pub fn is_no_daemon(&self) -> bool {
        matches!(self, Self::NoDaemon { .. })
    }

    fn connect(socket: &Path, source: io::Error) -> Self {
        let socket = socket.to_owned();
        match source.kind() {
            // The file of a daemon that was killed stays.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::NoDaemon { socket, source },
            io::ErrorKind::PermissionDenied => Self::Denied { socket, source },
            _ => Self::Connection { socket, source },
        }
    }

    fn refused(status: StatusCode, body: &[u8]) -> Self {
        match serde_json::from_slice::<Problem>(body) {
            Ok(Problem { kind, detail, .. }) => {
                Self::Refused { status, kind: kind.as_deref().and_then(Kind::named), message: detail }
            }
            Err(_) => Self::Refused { status, kind: None, message: format!("the daemon answered {status}") },
        }
    }
}

/// A path with those parameters that have a value.
fn target(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn blocks_path(prefix: &str) -> String {
    format!("/v1/blocks/{}", escaped(prefix))
}

/// A segment of a path.
fn escaped(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests;
