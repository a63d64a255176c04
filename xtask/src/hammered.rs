//! A site whose API is hammered: nginx with the shipped configuration in front of a page, the daemon that it
//! asks, and clients of several addresses on the other end of a wire.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket,
            sockopt::{ReceiveTimeout, SendTimeout},
        },
        time::{TimeVal, TimeValLike as _},
    },
    time::clock_getcpuclockid,
    unistd::Pid,
};

use crate::{
    lab::{BpfFs, Directory, Lab, Process, capture, pin_thread},
    line,
    workspace::Workspace,
};

/// What the daemon is told of packets and of who asks.
pub const RULES: &str = "\
interfaces:
  - name: eth0
network:
  on_stop: detach
http:
  listen: 127.0.0.1:8081
  rules: api.yaml
  trusted_proxies: [127.0.0.1]
  client_address: x-forwarded-for
  identify: { domain: api, descriptors: [[client_ip]] }
";

/// What it is told of requests.
pub const LIMITS: &str = "\
domain: api
descriptors:
  - key: client_ip
    rate_limit:
      requests_per_unit: 30
      unit: minute
      algorithm: sliding_log
      escalate: { after: 20, within: 1m, block: 10m }
";

/// Requests that a client has, and denied ones that are too many, by [`LIMITS`].
pub const LIMIT: u32 = 30;
/// Denied requests that are too many, by [`LIMITS`].
pub const AFTER: u32 = 20;

/// After so long without an answer a client gives up.
const GIVES_UP: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);

/// The site, and the wire before it.
#[derive(Debug)]
pub struct Hammered {
    /// The wire. The server's end is protected.
    pub lab: Lab,
    binary: PathBuf,
    nginx: Process,
    daemon: Process,
    pins: BpfFs,
    files: Directory,
}

/// What a client sees of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The page.
    Page,
    /// 429.
    Denied,
    /// Nothing at all.
    Nothing,
}

// === impl Hammered ===

impl Hammered {
    /// Starts everything with these rules, such as [`RULES`]; servers run on `cpu`.
    pub fn start(
        workspace: &Workspace,
        lab: Lab,
        rules: &str,
        clients: &[Ipv4Addr],
        cpu: usize,
    ) -> Result<Self> {
        let device = &lab.link.client.device;
        let lines = clients.iter().map(|client| format!("address add {client}/32 dev {device}"));
        lab.client.ip(&lines.collect::<Vec<_>>().join("\n"))?;
        let files = Directory::new("hammered")?;
        let pins = BpfFs::mount()?;
        let binary = workspace.target.join("release/ratelimit");
        let write = |name: &str, text: &str| {
            let path = files.path().join(name);
            fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
        };
        write("rules.yaml", rules)?;
        write("api.yaml", LIMITS)?;
        write("page", "page\n")?;
        let shipped = workspace.root.join("ratelimit-userspace/integrations/nginx");
        let read = |name: &str| {
            let path = shipped.join(name);
            fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
        };
        write("ratelimit.conf", &read("ratelimit.conf")?)?;
        write("nginx.conf", &nginx_conf(&read("nginx.conf")?, files.path()))?;

        let mut daemon = lab.server.command(&binary);
        daemon.arg("daemon").arg("--config").arg(files.path().join("rules.yaml"));
        daemon.arg("--pin-dir").arg(pins.path().join("ratelimit"));
        daemon.arg("--state-dir").arg(files.path().join("state"));
        daemon.arg("--admin-socket").arg(files.path().join("admin.sock"));
        let mut nginx = lab.server.command("nginx");
        nginx.arg("-c").arg(files.path().join("nginx.conf")).args(["-e", "stderr", "-g"]);
        nginx.arg(format!("daemon off; master_process off; pid {}/pid;", files.path().display()));
        let [daemon, nginx] = [("daemon", daemon), ("nginx", nginx)].map(|(name, mut command)| {
            let log = File::create(files.path().join(format!("{name}.log")))?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            on_cpu(cpu, &mut command)
        });
        let site = Self { lab, binary, nginx: nginx?, daemon: daemon?, pins, files };
        site.listens(80, "nginx", &site.nginx)?;
        site.listens(8081, "daemon", &site.daemon)?;
        Ok(site)
    }

    /// A client asks for the page, on a connection of its own.
    pub fn ask(&self, client: Ipv4Addr) -> Result<Seen> {
        self.lab.client.run(|| ask(client, self.address()))
    }

    /// The same so many times, all from one thread: how often it saw what came first, and what came after that.
    pub fn ask_often(&self, client: Ipv4Addr, times: u32) -> Result<Vec<Seen>> {
        let address = self.address();
        self.lab.client.run(|| (0..times).map(|_| ask(client, address)).collect())
    }

    /// What a verb prints.
    pub fn tell(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--pin-dir").arg(self.pins.path().join("ratelimit"));
        command.arg("--admin-socket").arg(self.files.path().join("admin.sock"));
        capture(&mut command)
    }

    /// CPU time that nginx and the daemon have used so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let of = |process: &Process| -> Result<Duration> {
            let pid = Pid::from_raw(process.id().cast_signed());
            let time = clock_getcpuclockid(pid).and_then(nix::time::ClockId::now);
            Ok(time.with_context(|| format!("failed to read the CPU time of process {pid}"))?.into())
        };
        Ok(of(&self.nginx)? + of(&self.daemon)?)
    }

    /// Where the site is.
    pub fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.lab.link.server.ipv4, 80)
    }

    fn listens(&self, port: u16, name: &str, process: &Process) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        while self.lab.server.run(|| TcpStream::connect(address)).is_err() {
            let log =
                || fs::read_to_string(self.files.path().join(format!("{name}.log"))).unwrap_or_default();
            if let Some(status) = process.try_wait()? {
                bail!("{name} ended ({status}):\n{}", log());
            }
            if Instant::now() > deadline {
                bail!("{name} does not listen after {PATIENCE:?}:\n{}", log());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

/// The shipped configuration, on every address, with a page of its own and all files in one folder.
fn nginx_conf(shipped: &str, folder: &Path) -> String {
    let folder = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n")).concat();
    shipped
        .replace("listen 127.0.0.1:8080;", "listen 80;")
        .replace("proxy_pass http://127.0.0.1:9000;", &format!("root {folder};"))
        .replace("http {\n", &format!("http {{\n    access_log off;\n{temporary}"))
}

fn on_cpu(cpu: usize, command: &mut Command) -> Result<Process> {
    thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            pin_thread(cpu)?;
            Process::spawn(command)
        });
        spawned.join().expect("a process is started or not")
    })
    .with_context(|| format!("failed to start {}", line(command)))
}

fn ask(client: Ipv4Addr, server: SocketAddrV4) -> Result<Seen> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .context("failed to make a socket")?;
    let time = TimeVal::milliseconds(i64::try_from(GIVES_UP.as_millis()).unwrap_or(i64::MAX));
    setsockopt(&socket, SendTimeout, &time).context("failed to limit the time to connect")?;
    setsockopt(&socket, ReceiveTimeout, &time).context("failed to limit the time to wait")?;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&socket);
    bind(descriptor, &SockaddrIn::from(SocketAddrV4::new(client, 0)))
        .with_context(|| format!("failed to be {client}"))?;
    if connect(descriptor, &SockaddrIn::from(server)).is_err() {
        return Ok(Seen::Nothing);
    }
    let mut stream = TcpStream::from(socket);
    let mut answer = [0; 16];
    let exchange = stream
        .write_all(b"GET /page HTTP/1.1\r\nHost: hammered\r\nConnection: close\r\n\r\n")
        .and_then(|()| stream.read_exact(&mut answer));
    match (exchange, &answer[9..12]) {
        // A connection that was open when its client was blocked is silent, too.
        (Err(_), _) => Ok(Seen::Nothing),
        (Ok(()), b"200") => Ok(Seen::Page),
        (Ok(()), b"429") => Ok(Seen::Denied),
        (Ok(()), _) => {
            bail!("an answer that is neither a page nor 429: {}", String::from_utf8_lossy(&answer))
        }
    }
}
