//! What [`examine`](super::examine) judges: what was seen, and no opinion. `None` is what could not be seen.

use std::{collections::BTreeSet, path::PathBuf};

use ratelimit_common::bucket_table::sets_for;

use crate::{
    config::policy::{AttachMode, Config, Interface, Network},
    network::{interfaces::Mode, state::Holder},
};

/// Everything.
#[derive(Debug, Default)]
pub struct Facts {
    /// The kernel and this process.
    pub host: Host,
    /// What is pinned, and who works with it.
    pub pins: Pins,
    /// The policy in force, or the one of a rules file; `None`: neither.
    pub policy: Option<Policy>,
    /// The interfaces of this network namespace.
    pub devices: Vec<Device>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// The kernel and this process.
#[derive(Debug, Default)]
pub struct Host {
    /// As `uname -r` says it.
    pub release: String,
    /// What of it the limiter lacks, each in words.
    pub lacking: Vec<Lack>,
    /// `net.core.bpf_jit_enable`.
    pub jit: Option<u8>,
    /// `net.core.bpf_jit_harden`.
    pub jit_harden: Option<u8>,
    /// `kernel.bpf_stats_enabled`.
    pub statistics: Option<u8>,
    /// CPUs that are online.
    pub cpus: usize,
    /// Bytes of memory that can be had without swapping.
    pub memory_available: Option<u64>,
    /// The names of capabilities that this process has not.
    pub missing_capabilities: Option<String>,
}

/// Something that the limiter cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What is lacking.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// What matters here of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where it is from.
    pub origin: Origin,
    /// Its interfaces, patterns resolved.
    pub interfaces: Vec<Wanted>,
    /// Patterns and names that no interface has.
    pub without_interface: Vec<String>,
    /// Sets of its bucket table.
    pub sets: u64,
    /// Rules that look at VLAN tags.
    pub vlan_rules: Vec<String>,
    /// Nothing is shed.
    pub monitor: bool,
    /// The pinned program that gets what passes.
    pub next: Option<PathBuf>,
}

/// Where a policy is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// It is in force.
    #[default]
    InForce,
    /// A rules file says so.
    File(PathBuf),
}

/// An interface that the policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// How to attach.
    pub mode: AttachMode,
}

/// One network interface.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Bytes of layer 3 in one frame.
    pub mtu: u32,
    /// It is switched on.
    pub up: bool,
    /// Its frames have no Ethernet header.
    pub no_ethernet: bool,
    /// What kind of virtual interface it is, as `ip` names it; empty for a card.
    pub kind: String,
    /// The driver.
    pub driver: Option<String>,
    /// The interface beneath it (of a VLAN, say) or the other end (of a veth pair, if it is in this namespace).
    pub lower: Option<String>,
    /// The bond or bridge that it is part of, with its kind.
    pub upper: Option<(String, String)>,
    /// A bond's mode and hash policy as `ip` names them, if it has no native XDP in them.
    pub bond_mode_without_native: Option<String>,
    /// The XDP programs on it.
    pub programs: Vec<Program>,
    /// Queues.
    pub channels: Option<Channels>,
    /// The names of the offloads that are on, as the kernel has them.
    pub features: Option<BTreeSet<String>>,
    /// The names of the offloads that stay as they are, on or off.
    pub fixed_features: BTreeSet<String>,
    /// What the driver can do with XDP.
    pub xdp: Option<XdpFeatures>,
    /// Frames that came in.
    pub received: u64,
    /// Frames that the card lost for want of room.
    pub missed: u64,
    /// Distinct CPUs that serve its interrupts, and how many interrupts there are.
    pub interrupts: Option<Interrupts>,
    /// Receive queues whose packets are spread over CPUs in software.
    pub steered_queues: Option<usize>,
}

/// An XDP program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its id in the kernel.
    pub id: u32,
    /// Its name, if it may be looked up.
    pub name: Option<String>,
    /// Where it runs.
    pub mode: Mode,
    /// A pinned link of ours carries it; `None`: the pins cannot be read.
    pub ours: Option<bool>,
}

/// Queues of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Receive queues, those included that also send.
    pub receive: u32,
    /// How many there can be.
    pub receive_max: u32,
    /// They also send: `combined` for `ethtool -L`.
    pub combined: bool,
}

/// What a driver says of XDP (Linux 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Native programs.
    pub native: bool,
    /// Frames in several buffers.
    pub multi_buffer: bool,
}

/// Who serves a card's interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// How many interrupts it has.
    pub count: usize,
    /// CPUs that serve them.
    pub cpus: usize,
}

/// What is pinned, and who works with it.
#[derive(Debug, Default)]
pub struct Pins {
    /// The pin directory.
    pub root: PathBuf,
    /// It cannot be read: nothing below is known.
    pub hidden: bool,
    /// Layout versions that have a directory.
    pub versions: Vec<u32>,
    /// The layout version of this build.
    pub version: u32,
    /// Pinned links.
    pub links: Vec<Link>,
    /// Pinned state maps that this build cannot use, and in what they differ.
    pub misfits: Vec<(String, String)>,
    /// What interrupted starts left behind.
    pub leftovers: Vec<String>,
    /// The program that the policy in force was recorded with.
    pub program_id: Option<u32>,
    /// The version of the daemon that loaded the policy.
    pub loaded_by: Option<String>,
    /// The daemon.
    pub daemon: Option<Holder>,
    /// Whether the admin socket answers; `None`: nobody may ask it from here.
    pub socket: Option<Result<(), String>>,
    /// Where that is.
    pub socket_path: PathBuf,
    /// A policy is on trial.
    pub trial: bool,
    /// New sources that displaced others which still owed.
    pub displaced: u64,
    /// Packets of new sources that were shed because the table was full.
    pub table_full: u64,
}

/// A pinned link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface's name.
    pub interface: String,
    /// The program that it carries.
    pub program_id: Option<u32>,
    /// The interface runs it.
    pub alive: bool,
}

// === impl Policy ===

impl Policy {
    /// What a policy says, for the interfaces that there are.
    pub fn new<'a>(
        origin: Origin,
        network: &Network,
        wanted: impl Iterator<Item = (&'a str, AttachMode)>,
        devices: &[Device],
    ) -> Self {
        let mut policy = Self {
            origin,
            sets: sets_for(network.sources.capacity),
            vlan_rules: network
                .rules
                .iter()
                .filter(|rule| rule.matches.vlan.is_some())
                .map(|rule| rule.name.clone())
                .collect(),
            monitor: network.monitor,
            next: network.next.clone(),
            ..Self::default()
        };
        for (name, mode) in wanted {
            let names: Vec<_> =
                devices.iter().map(|device| &device.name).filter(|it| matches(name, it)).collect();
            if names.is_empty() {
                policy.without_interface.push(name.to_owned());
            }
            for name in names {
                if policy.wanted(name).is_none() {
                    policy.interfaces.push(Wanted { name: name.clone(), mode });
                }
            }
        }
        policy
    }

    /// What a rules file says, for the interfaces that there are. `None`: it has no `network:` section.
    pub fn of_file(path: PathBuf, config: &Config, devices: &[Device]) -> Option<Self> {
        let wanted = config.interfaces.iter().map(|interface| (interface.name.as_str(), interface.mode));
        config.network.as_ref().map(|network| Self::new(Origin::File(path), network, wanted, devices))
    }

    /// How an interface is to be attached to, if at all.
    pub fn wanted(&self, name: &str) -> Option<AttachMode> {
        self.interfaces.iter().find(|wanted| wanted.name == name).map(|wanted| wanted.mode)
    }
}

/// Whether a name is meant by a name or pattern of a rules file.
fn matches(pattern: &str, name: &str) -> bool {
    Interface { name: pattern.to_owned(), mode: AttachMode::Auto }.matches(name)
}

// === impl Device ===

impl Device {
    /// Whether an offload is on; `None`: unknown.
    pub fn has(&self, feature: &str) -> Option<bool> {
        self.features.as_ref().map(|features| features.contains(feature))
    }

    /// The limiter's own program on it.
    pub fn own(&self) -> Option<&Program> {
        self.programs.iter().find(|program| program.ours == Some(true))
    }

    /// A program of somebody else.
    pub fn foreign(&self) -> Option<&Program> {
        self.programs.iter().find(|program| program.ours == Some(false))
    }
}
