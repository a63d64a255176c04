//! The contenders: what stands before a device and sheds.
//!
//! Each is set up as an operator who wants the most from it would: at the earliest hook that it has, with
//! room for every source, and with nothing else in its namespace. All get the same limit, one packet a
//! source a day.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use aya::{
    Ebpf,
    programs::{Xdp, XdpMode},
};
use serde::Deserialize;

use super::policy::Policy;
use crate::lab::{BpfFs, Directory, Interface, Namespace, Process, capture};

/// Elements that a rival's table may hold: twice the most sources, so that none is ever turned away.
const ROOM: u32 = 1 << 21;

/// The program of the object `bench-drop`.
const DROP: &str = "bench_drop";

/// A contender in place; it goes with its guard.
#[derive(Debug)]
pub(super) enum Shield {
    /// A program owned by this process.
    Program(Ebpf),
    /// Rules that go with their namespace.
    Rules,
    /// The daemon, and where its pins and files are.
    Daemon(Daemon),
}

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    /// The kernel's number of the program that it attached.
    pub(super) program: u32,
    /// From the start of the process to an attached program.
    pub(super) load: Duration,
    // Dropped in this order: the process goes before its directories.
    _process: Process,
    _pins: BpfFs,
    _files: Directory,
}

// === impl Shield ===

impl Shield {
    /// Attaches the object `bench-drop`.
    pub(super) fn drop_all(object: &Path, namespace: &Namespace, interface: &Interface) -> Result<Self> {
        let mut program =
            Ebpf::load_file(object).with_context(|| format!("failed to load {}", object.display()))?;
        let xdp: &mut Xdp = program
            .program_mut(DROP)
            .with_context(|| format!("{} has no program {DROP}", object.display()))?
            .try_into()?;
        xdp.load().context("the kernel refuses bench_drop")?;
        let device = &interface.device;
        namespace
            .run(|| xdp.attach(device, XdpMode::Driver))
            .with_context(|| format!("failed to attach bench_drop to {device}"))?;
        Ok(Self::Program(program))
    }

    /// A dynamic set at the ingress hook of the device itself, the earliest that nftables has.
    pub(super) fn nft(namespace: &Namespace, interface: &Interface) -> Result<Self> {
        let device = &interface.device;
        capture(namespace.command("nft").arg(format!(
            "table netdev bench {{
                set sources {{ type ipv4_addr; flags dynamic, timeout; size {ROOM}; timeout 1d; }}
                chain ingress {{
                    type filter hook ingress device {device} priority -500;
                    add @sources {{ ip saddr limit rate over 1/day burst 1 packets }} drop
                }}
            }}"
        )))?;
        Ok(Self::Rules)
    }

    /// The match in the first chain that iptables has. One bucket a source, and no expiry during the
    /// benchmark.
    pub(super) fn hashlimit(namespace: &Namespace, interface: &Interface) -> Result<Self> {
        let room = ROOM.to_string();
        capture(
            namespace
                .command("iptables")
                .args(["-w", "-t", "raw", "-A", "PREROUTING", "-i", &interface.device])
                .args(["-m", "hashlimit", "--hashlimit-name", "bench", "--hashlimit-mode", "srcip"])
                .args(["--hashlimit-above", "1/day", "--hashlimit-burst", "1"])
                .args(["--hashlimit-htable-size", &room, "--hashlimit-htable-max", &room])
                .args(["--hashlimit-htable-expire", "86400000", "--hashlimit-htable-gcinterval", "60000"])
                .args(["-j", "DROP"]),
        )?;
        Ok(Self::Rules)
    }

    /// The kernel's number of the XDP program, if it is one that sheds.
    pub(super) fn program(&self) -> Result<Option<u32>> {
        match self {
            Self::Program(program) => {
                let xdp: &Xdp = program.program(DROP).context("the object has changed")?.try_into()?;
                Ok(Some(xdp.info()?.id()))
            }
            Self::Rules => Ok(None),
            Self::Daemon(daemon) => Ok(Some(daemon.program)),
        }
    }
}

// === impl Daemon ===

impl Daemon {
    /// Starts the daemon and waits until its program is attached.
    pub(super) fn start(
        binary: &Path,
        namespace: &Namespace,
        interface: &Interface,
        policy: Policy,
    ) -> Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(30);

        let files = Directory::new("bench")?;
        let pins = BpfFs::mount()?;
        let config = policy.write(files.path(), &interface.device)?;
        let log = files.path().join("daemon.log");
        let stderr = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        let start = Instant::now();
        let process = Process::spawn(
            namespace
                .command(binary)
                .args(["daemon", "--config"])
                .arg(&config)
                .arg("--pin-dir")
                .arg(pins.path().join("ratelimit"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(stderr),
        )?;
        let program = loop {
            if let Some(program) = attached_program(namespace, interface)? {
                break program;
            }
            if let Some(status) = process.try_wait()? {
                bail!("the daemon ended ({status}) before it attached its program: {}", first_error(&log));
            }
            if start.elapsed() > PATIENCE {
                bail!("the daemon has attached no program within {PATIENCE:?}: {}", first_error(&log));
            }
            thread::sleep(Duration::from_millis(1));
        };
        Ok(Self { program, load: start.elapsed(), _process: process, _pins: pins, _files: files })
    }
}

/// What a log says first that is no warning; a refused program is followed by megabytes of the verifier.
fn first_error(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("error") || line.starts_with("nsenter"));
    line.unwrap_or("it does not say why").to_owned()
}

/// The number of the XDP program on the interface. Native mode only: the others measure something else.
fn attached_program(namespace: &Namespace, interface: &Interface) -> Result<Option<u32>> {
    /// `XDP_ATTACHED_DRV` of `linux/if_link.h`.
    const NATIVE: u32 = 1;

    #[derive(Deserialize)]
    struct Device {
        xdp: Option<Attached>,
    }
    #[derive(Deserialize)]
    struct Attached {
        mode: u32,
        prog: Program,
    }
    #[derive(Deserialize)]
    struct Program {
        id: u32,
    }

    let device = &interface.device;
    let json = capture(namespace.command("ip").args(["-json", "link", "show", "dev", device]))?;
    let devices: Vec<Device> =
        serde_json::from_str(&json).with_context(|| format!("failed to read what ip says: {json}"))?;
    match devices.into_iter().find_map(|device| device.xdp) {
        None => Ok(None),
        Some(Attached { mode: NATIVE, prog }) => Ok(Some(prog.id)),
        Some(Attached { mode, .. }) => bail!("the program on {device} is not in native mode, but in {mode}"),
    }
}
