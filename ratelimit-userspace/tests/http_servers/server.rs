//! A web server between a client and an application, with its shipped configuration.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ratelimit::config::http::Listen;
use tempfile::TempDir;
use xtask::lab::Process;

use crate::limiter::Served;

/// Far longer than any server takes to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is shipped.
const INTEGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/integrations");

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Nginx,
    Haproxy,
    /// Refuses when the limiter does not answer.
    HaproxyClosed,
    Caddy,
}

/// Server, limiter and application.
pub(crate) struct Stack {
    /// Where clients go.
    pub(crate) address: SocketAddr,
    limiter: Option<Served>,
    _server: Process,
    _application: Served,
    _folder: TempDir,
}

/// What goes into a configuration.
struct Places<'a> {
    folder: &'a Path,
    server: SocketAddr,
    limiter: &'a Listen,
    application: SocketAddr,
}

// === impl Stack ===

impl Stack {
    /// Starts all three, and waits until the server listens.
    pub(crate) fn start(kind: Kind) -> Self {
        Self::start_with(kind, Served::limiter(Served::free()), tempfile::tempdir().unwrap())
    }

    /// The same, with the limiter on a Unix socket.
    pub(crate) fn start_on_unix(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limiter = Served::limiter(Listen::Unix(folder.path().join("ratelimit.sock")));
        Self::start_with(kind, limiter, folder)
    }

    fn start_with(kind: Kind, limiter: Served, folder: TempDir) -> Self {
        let application = Served::application();
        let address = free();
        let places = Places {
            folder: folder.path(),
            server: address,
            limiter: &limiter.listen,
            application: tcp(&application.listen),
        };
        let log = folder.path().join("log");
        let mut command = match kind {
            Kind::Nginx => places.nginx(),
            Kind::Haproxy => places.haproxy(),
            Kind::HaproxyClosed => {
                let mut command = places.haproxy();
                command.env("RATELIMIT_FAIL_OPEN", "false");
                command
            }
            Kind::Caddy => places.caddy(),
        };
        let output = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let server = Process::spawn(&mut command).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            let ended = server.try_wait().unwrap();
            let said = || fs::read_to_string(&log).unwrap();
            assert!(ended.is_none(), "{kind:?} does not start: {}", said());
            assert!(Instant::now() < deadline, "{kind:?} does not listen: {}", said());
            thread::sleep(Duration::from_millis(10));
        }
        Self { address, limiter: Some(limiter), _server: server, _application: application, _folder: folder }
    }

    /// From now on nobody listens where the limiter was.
    pub(crate) fn stop_limiter(&mut self) {
        self.limiter = None;
    }
}

/// The address, where it is on TCP.
fn tcp(listen: &Listen) -> SocketAddr {
    match listen {
        Listen::Tcp(address) => *address,
        Listen::Unix(path) => panic!("it is at {}", path.display()),
    }
}

/// An address on loopback that nobody uses.
fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Finds a server's program, also where only root looks.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()));
    found.unwrap_or_else(|| panic!("{name} is not installed; `cargo xtask setup` does it"))
}

// === impl Places ===

impl Places<'_> {
    /// A shipped configuration, with the addresses of this stack. `unix` is how the server writes a socket's path.
    fn configuration(&self, file: &str, unix: &str) -> String {
        let limiter = match self.limiter {
            Listen::Tcp(address) => address.to_string(),
            Listen::Unix(path) => format!("{unix}{}", path.display()),
        };
        let mut text = fs::read_to_string(Path::new(INTEGRATIONS).join(file)).unwrap();
        for (shipped, here) in [
            ("127.0.0.1:8080", self.server.to_string()),
            ("127.0.0.1:8081", limiter),
            ("127.0.0.1:9000", self.application.to_string()),
        ] {
            text = text.replace(shipped, &here);
        }
        text
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// One process, whose files all lie in the folder.
    fn nginx(&self) -> Command {
        let folder = self.folder.display();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = kinds.map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n")).concat();
        let whole = self
            .configuration("nginx/nginx.conf", "unix:")
            .replace("http {\n", &format!("http {{\n    access_log off;\n{temporary}"))
            .replace(
                "        location / {",
                "        location /forbidden { deny all; }\n        location / {",
            );
        self.write("ratelimit.conf", &self.configuration("nginx/ratelimit.conf", "unix:"));
        let file = self.write("nginx.conf", &whole);
        let mut command = Command::new(program("nginx"));
        command.arg("-c").arg(file).args([
            "-e",
            "stderr",
            "-g",
            &format!("daemon off; master_process off; pid {folder}/pid;"),
        ]);
        command
    }

    fn haproxy(&self) -> Command {
        let file = self.write("haproxy.cfg", &self.configuration("haproxy/haproxy.cfg", ""));
        let mut command = Command::new(program("haproxy"));
        command.args(["-db", "-C"]).arg(Path::new(INTEGRATIONS).join("haproxy")).arg("-f").arg(file);
        match self.limiter {
            Listen::Tcp(address) => {
                command.env("RATELIMIT_ADDRESS", address.ip().to_string());
                command.env("RATELIMIT_PORT", address.port().to_string());
            }
            Listen::Unix(path) => {
                command.env("RATELIMIT_ADDRESS", format!("unix@{}", path.display()));
            }
        }
        command
    }

    fn caddy(&self) -> Command {
        let text = self.configuration("caddy/Caddyfile", "unix/");
        let text = text.replace("\n:8080 {", &format!("\n:{} {{", self.server.port()));
        let file = self.write("Caddyfile", &format!("{{\n\tadmin off\n}}\n{text}"));
        let mut command = Command::new(program("caddy"));
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
        command
            .env("HOME", self.folder)
            .env("XDG_DATA_HOME", self.folder)
            .env("XDG_CONFIG_HOME", self.folder);
        command
    }
}
