//! A web server with the shipped configuration, which asks a daemon for every request, and clients on the other
//! end of the wire.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use axum::Router;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime,
    time::timeout,
};
use xtask::lab::Process;

use crate::host::{Daemon, Host};

/// Far longer than anything here takes: a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_mins(1);
/// After so long without an answer a client gives up.
const GIVES_UP: Duration = Duration::from_secs(2);
/// What is shipped for nginx.
const INTEGRATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/integrations/nginx");

pub(crate) struct Site {
    pub(crate) host: Host,
    /// Addresses of clients.
    pub(crate) clients: Vec<String>,
    /// Addresses of clients in one network.
    pub(crate) clients_v6: Vec<String>,
    daemon: Option<Daemon>,
    rule: String,
    _nginx: Process,
}

/// What a client sees of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The page that it asked for.
    Page,
    /// 429.
    Denied,
    /// Nothing at all.
    Nothing,
}

// === impl Site ===

impl Site {
    /// A site on which every client has `limit` requests a minute, and vanishes when `after` of them are denied
    /// within one.
    pub(crate) fn start(name: &str, limit: usize, after: usize) -> Self {
        let host = Host::new(name);
        let clients: Vec<_> = (2..4).map(|host| format!("10.88.0.{host}")).collect();
        let clients_v6: Vec<_> = (2..4).map(|host| format!("fd00:88::{host}")).collect();
        let device = &host.lab.link.client.device;
        let added = clients.iter().map(|address| format!("address add {address}/32 dev {device}"));
        let added_v6 =
            clients_v6.iter().map(|address| format!("address add {address}/128 dev {device} nodad"));
        let lines: Vec<_> = added.chain(added_v6).collect();
        host.lab.client.ip(&lines.join("\n")).expect("addresses");

        let rule = format!(
            "domain: api\ndescriptors:\n  - key: client_ip\n    rate_limit: {{ unit: minute, requests_per_unit: \
             {limit}, algorithm: sliding_log, escalate: {{ after: {after}, within: 1m, block: 10m, shed: tight }} }}\n"
        );
        let mut site = Self { _nginx: nginx(&host), host, clients, clients_v6, daemon: None, rule };
        site.restart();
        site
    }

    /// Starts the daemon, or ends it and starts another one.
    pub(crate) fn restart(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.terminate();
        }
        fs::write(self.host.file("api.yaml"), &self.rule).expect("a rule file");
        fs::write(self.host.file("keys.txt"), "key-1 basic\nkey-2 basic\n").expect("a map file");
        self.daemon = Some(self.host.start(&rules("")));
    }

    /// Puts other keys of `network` in force.
    pub(crate) fn reload(&self, network: &str) {
        fs::write(self.host.file("rules.yaml"), rules(network)).expect("a rules file");
        self.tell(&["reload"]);
    }

    /// What a verb that succeeds prints.
    pub(crate) fn tell(&self, arguments: &[&str]) -> String {
        let socket = self.host.file("admin.sock");
        let socket = ["--admin-socket", socket.to_str().expect("text")];
        let Output { status, stdout, stderr } = self.host.verb(&[arguments, &socket].concat());
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("text")
    }

    pub(crate) fn daemon_log(&self) -> String {
        self.daemon.as_ref().map(Daemon::log).unwrap_or_default()
    }

    /// What the daemon tells Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let mut stream =
            std::os::unix::net::UnixStream::connect(self.host.file("admin.sock")).expect("a daemon");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Packets that were shed for a block.
    pub(crate) fn blocked(&self) -> u64 {
        let counters: Value = serde_json::from_str(&self.tell(&["counters", "--json"])).expect("JSON");
        let reasons = counters["reasons"].as_array().expect("a list");
        let reason = reasons.iter().find(|reason| reason["reason"] == "blocked").expect("the reason");
        reason["shed"]["packets"].as_u64().expect("a number")
    }

    /// A client asks for a page, on a connection of its own.
    pub(crate) fn get(&self, client: &str) -> Seen {
        self.get_as(client, "")
    }

    /// The same with an API key.
    pub(crate) fn get_as(&self, client: &str, key: &str) -> Seen {
        let source: IpAddr = client.parse().expect("an address");
        let link = &self.host.lab.link.server;
        let server: IpAddr = if source.is_ipv4() { link.ipv4.into() } else { link.ipv6.into() };
        let answer = self.host.lab.client.run(move || ask(source, (server, 80).into(), key));
        match answer.as_deref().map(status) {
            Some("200") => Seen::Page,
            Some("429") => Seen::Denied,
            None => Seen::Nothing,
            Some(_) => panic!("{answer:?}: {}", self.daemon_log()),
        }
    }
}

/// A rules file with these keys of `network` besides.
fn rules(network: &str) -> String {
    format!(
        "interfaces: [{{ name: eth0 }}]
network:
  sources: {{ capacity: 1024 }}
  rules:
    - {{ name: all, match: {{ protocol: tcp }}, limits: {{ per: source, rate: 100000/s }} }}
    - {{ name: tight, match: {{ protocol: tcp }}, limits: {{ per: source, rate: 1/h, burst: 5 }} }}
  {network}
http:
  listen: 127.0.0.1:8081
  rules: api.yaml
  trusted_proxies: [127.0.0.1]
  client_address: x-forwarded-for
  identify:
    domain: api
    descriptors:
      - [client_ip]
      - [{{ key: key, header: x-api-key, secret: true }}]
      - [{{ key: tier, map: keys.txt, by: key }}]
"
    )
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// The answer to one request; `None`: nobody answers in time.
fn ask(source: IpAddr, server: SocketAddr, key: &str) -> Option<String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut stream = runtime.block_on(async {
        let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.expect("a socket");
        socket.bind((source, 0).into()).expect("an address of this end");
        let connected = timeout(GIVES_UP, socket.connect(server)).await.ok()?;
        Some(connected.expect("a listener").into_std().expect("a socket"))
    })?;
    stream.set_nonblocking(false).expect("a socket");
    stream.set_read_timeout(Some(GIVES_UP)).expect("a socket");
    let request =
        format!("GET / HTTP/1.1\r\nHost: example.org\r\nX-Api-Key: {key}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    // A connection that was open when its client was blocked is silent, too.
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// nginx with the shipped configuration, and an application behind it.
fn nginx(host: &Host) -> Process {
    let server = &host.lab.server;
    drop(server.spawn(|| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 9000)).await.expect("a port");
            let router = Router::new().fallback(async || "application");
            axum::serve(listener, router).await.expect("it serves");
        });
    }));
    let folder = host.file("nginx");
    fs::create_dir(&folder).expect("a directory");
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("    {kind}_temp_path {}/{kind};\n", folder.display())).concat();
    let whole = fs::read_to_string(Path::new(INTEGRATION).join("nginx.conf")).expect("it is shipped");
    let whole = whole
        .replace("listen 127.0.0.1:8080;", "listen 80;\n        listen [::]:80;")
        .replace("http {\n", &format!("http {{\n    access_log off;\n{temporary}"));
    fs::write(folder.join("nginx.conf"), whole).expect("a file");
    fs::copy(Path::new(INTEGRATION).join("ratelimit.conf"), folder.join("ratelimit.conf")).expect("a file");
    let mut command = server.command(program("nginx"));
    command.arg("-c").arg(folder.join("nginx.conf")).args(["-e", "stderr", "-g"]);
    command.arg(format!("daemon off; master_process off; pid {}/pid;", folder.display()));
    let nginx = Process::spawn(command.stdin(Stdio::null())).expect("nginx runs");
    let deadline = Instant::now() + PATIENCE;
    let listens = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, 80)).is_ok();
    while !server.run(listens) {
        assert!(nginx.try_wait().expect("a process").is_none(), "nginx ended");
        assert!(Instant::now() < deadline, "nginx does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    nginx
}

/// Finds a server's program, also where only root looks.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()));
    found.unwrap_or_else(|| panic!("{name} is not installed; `cargo xtask setup` does it"))
}
