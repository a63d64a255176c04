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

/// Reads an address of this host alone, and a port.
pub(in crate::config) fn loopback(text: &str) -> Result<SocketAddr, Mistake> {
    let is_loopback = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
    let mistake = |message: String| Mistake::new(Code::BadAddress, message);
    if text.starts_with("unix:") || text.starts_with('/') {
        let message = format!("{} is no address and port", Quoted(text));
        return Err(mistake(message).expected(
            "a loopback address and a port such as 127.0.0.1:9100; the Unix socket is there all the same, where \
             `ratelimit daemon --admin-socket` says",
        ));
    }
    let on_this_host =
        |port: u16, v4: bool| if v4 { format!("127.0.0.1:{port}") } else { format!("[::1]:{port}") };
    match text.parse::<SocketAddr>() {
        Ok(address) if text.contains('%') || !is_loopback(&address) => {
            let message = format!(
                "other hosts reach {}, and whoever may change this host's limits over the network could shut \
                 everybody out",
                Quoted(text)
            );
            let expected = format!(
                "a loopback address; from elsewhere, come through SSH (ssh -L {port}:127.0.0.1:{port} HOST) or a \
                 proxy of your own",
                port = address.port()
            );
            let nearest = on_this_host(address.port(), address.is_ipv4());
            Err(mistake(message).expected(expected).nearest(Some(nearest)))
        }
        Ok(address) => Ok(address),
        Err(_) => {
            let meant = meant(text).and_then(|meant| meant.parse::<SocketAddr>().ok());
            let nearest = meant.map(|meant| {
                if is_loopback(&meant) {
                    meant.to_string()
                } else {
                    on_this_host(meant.port(), meant.is_ipv4())
                }
            });
            Err(mistake(format!("{} is no address and port", Quoted(text))).nearest(nearest))
        }
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
