//! Addresses to listen on.

use std::{net::SocketAddr, path::Path};

use crate::config::{
    diagnostic::{Code, Mistake, Quoted},
    http::Listen,
};

/// `sun_path` without its final zero.
const MAX_SOCKET_PATH: usize = 107;

/// Reads an address and a port, or `unix:` and a path relative to a directory.
pub(in crate::config) fn listen(directory: &Path) -> impl Fn(&str) -> Result<Listen, Mistake> {
    move |text| match text.strip_prefix("unix:") {
        Some(path) => {
            let path = super::path(directory)(path)?;
            if path.as_os_str().len() > MAX_SOCKET_PATH {
                let message =
                    format!("the path {} is longer than 107 bytes", Quoted(&path.to_string_lossy()));
                return Err(Mistake::new(Code::BadValue, message)
                    .expected("a shorter path: the kernel takes no longer one for a socket"));
            }
            Ok(Listen::Unix(path))
        }
        None => match text.parse::<SocketAddr>() {
            Ok(address) if !text.contains('%') => Ok(Listen::Tcp(address)),
            _ => Err(Mistake::new(Code::BadAddress, format!("{} is no address and port", Quoted(text)))
                .nearest(meant(text))),
        },
    }
}

/// Names the usual slips: a port alone, a host name that is this host, no brackets.
fn meant(text: &str) -> Option<String> {
    if text.starts_with('/') {
        return Some(format!("unix:{text}"));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let host = match host {
        "" | "localhost" => "127.0.0.1",
        "*" => "0.0.0.0",
        host => host,
    };
    [format!("{host}:{port}"), format!("[{host}]:{port}")]
        .into_iter()
        .find(|meant| meant != text && !meant.contains('%') && meant.parse::<SocketAddr>().is_ok())
}
