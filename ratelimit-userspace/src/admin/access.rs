//! Who asks, and what they may. Whoever may open the Unix socket may do everything. Over TCP it takes a
//! token, since every process of this host reaches a loopback address, and a name of this host in `Host`:
//! a web page that a browser loaded from elsewhere cannot ask through a name that resolves to this host.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{FromRequestParts, Request},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{
    StatusCode,
    header::{AUTHORIZATION, HOST},
    request::Parts,
    uri::Authority,
};

use super::{command::Session, problem::Problem, router::Shared};
use crate::{
    http::serve::{
        access::{Rights, Tokens},
        listener::{Connection, Peer},
    },
    network::lockout::session_of,
};

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A process, where it is known which.
    Unix(Option<u32>),
    /// An address of this host, and the one that it connected to.
    Tcp(SocketAddr, SocketAddr),
    /// An address that is not known any more: the connection has ended.
    Gone,
}

/// Who asks and may look. Extracting it turns away who may not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) origin: Origin,
    rights: Rights,
}

/// Who asks and may change something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer(Origin);

// === impl Origin ===

impl Origin {
    pub(super) fn of(connection: &Connection) -> Self {
        match (connection.peer(), connection.ends()) {
            (Peer::Unix, _) => Self::Unix(connection.process()),
            (Peer::Address(_), Some((client, server))) => Self::Tcp(client, server),
            (Peer::Address(_), None) => Self::Gone,
        }
    }

    fn rights(self, tokens: &Tokens, parts: &Parts) -> Rights {
        match self {
            Self::Unix(_) => Rights::Write,
            Self::Tcp(..) => tokens.rights(parts.headers.get(AUTHORIZATION)),
            Self::Gone => Rights::None,
        }
    }
}

// === impl Writer ===

impl Writer {
    /// The operator's own connection to this host, as far as it can be found.
    pub(super) async fn session(self) -> Option<Session> {
        match self.0 {
            Origin::Unix(process) => {
                let process = process?;
                tokio::task::spawn_blocking(move || session_of(process)).await.ok().flatten()
            }
            Origin::Tcp(client, server) => Some(Session { client, server: Some(server) }),
            Origin::Gone => None,
        }
    }
}

// === impl Reader ===

impl FromRequestParts<Shared> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, Problem> {
        let origin = parts.extensions.get::<Origin>().copied().unwrap_or(Origin::Gone);
        let tokens = api.tokens.load();
        let rights = origin.rights(&tokens, parts);
        if rights >= Rights::Ask {
            Ok(Self { origin, rights })
        } else if tokens.any() {
            Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "this needs `Authorization: Bearer TOKEN` with a token of the daemon's `admin:` section; the \
                 Unix socket needs none",
            ))
        } else {
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                "nobody may ask over TCP, since there is no token: name a `token_file` or a `write_token_file` \
                 in the daemon's `admin:` section, or use the Unix socket",
            ))
        }
    }
}

impl FromRequestParts<Shared> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Shared) -> Result<Self, Problem> {
        let Reader { origin, rights } = Reader::from_request_parts(parts, api).await?;
        if rights >= Rights::Write {
            Ok(Self(origin))
        } else {
            Err(Problem::new(
                StatusCode::FORBIDDEN,
                "this token may only look: use that of the daemon's `write_token_file`, or the Unix socket",
            ))
        }
    }
}

/// Turns away requests over TCP that were meant for another host.
pub(super) async fn check_host(request: Request, next: Next) -> Response {
    let over_tcp = !matches!(request.extensions().get::<Origin>(), Some(Origin::Unix(_)));
    if over_tcp && !is_for_this_host(&request) {
        let detail = "`Host` must be a loopback address or `localhost`: from elsewhere, come through SSH or a \
                      proxy that sets it";
        return Problem::new(StatusCode::MISDIRECTED_REQUEST, detail).into_response();
    }
    next.run(request).await
}

/// Every `Host`, and the target's where it has one.
fn is_for_this_host(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter().peekable();
    let named = hosts.peek().is_some();
    named
        && hosts.all(|host| host.to_str().is_ok_and(is_loopback))
        && request.uri().authority().is_none_or(|authority| is_loopback(authority.as_str()))
}

fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    !authority.as_str().contains('@')
        && (host.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback()))
}

#[cfg(test)]
mod tests;
