//! A network laboratory: namespaces joined by veth pairs, traffic, and processes inside them.
//!
//! Everything here is a guard. Dropping it takes away what it made; so do SIGINT, SIGTERM and SIGHUP
//! (see [`Cleanup`]); and what a killed run left behind is swept when the next one makes its first
//! namespace or directory. Names hold the process id, so labs of several processes and several tests
//! of one process stand side by side.
//!
//! Needs root and the commands `ip`, `nsenter` and, where called, `ethtool`. Commands enter a
//! namespace by `nsenter --net`, never by `ip netns exec`: that one mounts a fresh `/sys`, and pins
//! made under its bpffs would die with the command.

mod cleanup;
mod directory;
mod flood;
pub mod frame;
mod link;
mod namespace;
mod napi;
mod process;
mod sweep;

#[cfg(test)]
mod tests;

pub use cleanup::Cleanup;
pub use directory::{BpfFs, Directory};
pub use flood::{Flood, Plan};
pub use frame::Route;
pub use link::{Interface, Link};
pub use namespace::Namespace;
pub use napi::NapiThread;
pub use process::{Process, capture};

use std::{net::IpAddr, process::Command};

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::{Pid, gettid},
};

/// Two hosts and the wire between them: traffic goes from `client` to `server`.
///
/// Both ends of the wire are called `eth0`; the addresses are in [`Lab::link`]. The server's default
/// route leads to the client, so its answers to made-up sources leave by the same wire and die there
/// (neither end forwards).
#[derive(Debug)]
pub struct Lab {
    /// Where requests and floods come from.
    pub client: Namespace,
    /// What is to be protected.
    pub server: Namespace,
    /// The wire, with the addresses of both ends.
    pub link: Link,
}

impl Lab {
    /// Builds both namespaces and their wire; `name` is only there to tell labs apart in `ip netns`.
    pub fn new(name: &str) -> Result<Self> {
        let client = Namespace::new(&format!("{name}-client"))?;
        let server = Namespace::new(&format!("{name}-server"))?;
        let link = Link::new(&client, &server, 0)?;
        server
            .ip(&format!(
                "route add default via {}\nroute add default via {}",
                link.client.ipv4, link.client.ipv6
            ))
            .context("failed to route the server's answers to the client")?;
        Ok(Self { client, server, link })
    }

    /// The way of a frame from the client to the server's IPv4 address.
    pub fn route_v4(&self) -> Route {
        self.route(self.link.server.ipv4.into())
    }

    /// The way of a frame from the client to the server's IPv6 address.
    pub fn route_v6(&self) -> Route {
        self.route(self.link.server.ipv6.into())
    }

    fn route(&self, destination: IpAddr) -> Route {
        Route { from: self.link.client.mac, to: self.link.server.mac, destination }
    }

    /// Floods the wire from the client's end; see [`Flood::start`].
    pub fn flood(&self, plan: Plan) -> Result<Flood> {
        Flood::start(&self.client, &self.link.client.device, plan)
    }

    /// Makes the server's end a receive queue with NAPI, with and without an XDP program alike.
    ///
    /// A veth has no such queue without GRO, so native XDP needs it on; and without a program a frame
    /// goes by that queue only when the sending end does not segment TCP (drivers/net/veth.c,
    /// `veth_skb_is_eligible_for_gro`), so measurements that compare both need that off.
    pub fn queue_at_server(&self) -> Result<()> {
        self.server.ethtool(&["-K", &self.link.server.device, "gro", "on"])?;
        self.client.ethtool(&["-K", &self.link.client.device, "tso", "off"])
    }
}

/// Binds the calling thread, and the threads it starts later, to one CPU.
pub fn pin_thread(cpu: usize) -> Result<()> {
    pin(Pid::from_raw(0), cpu)
}

fn pin(task: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(task, &set))
        .with_context(|| format!("failed to bind task {task} to CPU {cpu}"))
}

/// Lets the calling thread, and the threads it starts later, go before the other work of this machine
/// (nice value -10), so that a measurement is not one of that work.
pub fn prioritise_thread() -> Result<()> {
    renice(gettid(), -10)
}

fn renice(task: Pid, nice: i32) -> Result<()> {
    let mut command = Command::new("renice");
    capture(command.args(["-n", &nice.to_string(), "-p", &task.to_string()])).map(drop)
}
