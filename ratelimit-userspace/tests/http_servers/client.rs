//! A client with an address of its own, which writes its requests itself.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use tokio::{net::TcpSocket, runtime};

/// Far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    server: SocketAddr,
    source: IpAddr,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

// === impl Client ===

impl Client {
    pub(crate) fn new(server: SocketAddr, source: IpAddr) -> Self {
        Self { server, source }
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, target: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: example.org\r\n");
        if !headers.iter().any(|(name, _)| *name == "Connection") {
            request.push_str("Connection: close\r\n");
        }
        for (name, value) in headers {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("\r\n");
        self.raw(request.as_bytes())
    }

    /// One request, byte by byte.
    pub(crate) fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Reply::parse(&String::from_utf8_lossy(&answer))
    }

    fn connect(&self) -> TcpStream {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((self.source, 0).into()).unwrap();
            socket.connect(self.server).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

// === impl Reply ===

impl Reply {
    fn parse(answer: &str) -> Self {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if chunked { joined(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    /// The value of a header that is there at most once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| &**value);
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }
}

/// A body that came in chunks.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        body.push_str(&rest[..size]);
        chunks = &rest[size + 2..];
    }
    body
}
