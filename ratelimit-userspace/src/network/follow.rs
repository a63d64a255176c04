//! Interfaces that come, go, are renamed or changed, as rtnetlink tells it.
//!
//! A message is only a reason to look: what became of the interfaces is told by comparing two lists of them,
//! so that messages that were lost, or that said nothing new, are no trouble.

use std::{fmt, io, time::Duration};

use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use tokio::time::{Instant, timeout_at};

use super::interfaces::Interface;

/// `RTNLGRP_LINK` of `linux/rtnetlink.h`.
const RTNLGRP_LINK: u32 = 1;

/// A change is told once nothing has happened for this long: making an interface takes several messages…
const QUIET: Duration = Duration::from_millis(100);
/// …but no later than this after the first.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells when something happens to an interface of the network namespace that it was made in.
pub struct Monitor {
    socket: TokioSocket,
    /// Something happened: until when to wait for more. Kept here, so that a wait that is given up forgets
    /// nothing.
    patience: Option<Instant>,
}

/// What became of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is a new one of this name.
    Came(String),
    /// It is gone.
    Went(String),
    /// It has another name.
    Renamed {
        /// The name before.
        from: String,
        /// The name now.
        to: String,
    },
    /// It takes frames of another size.
    Mtu {
        /// Its name now.
        name: String,
        /// The MTU before.
        from: u32,
        /// The MTU now.
        to: u32,
    },
}

// === impl Monitor ===

impl Monitor {
    /// Listens from now on.
    pub fn new() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
        socket.socket_mut().add_membership(RTNLGRP_LINK)?;
        Ok(Self { socket, patience: None })
    }

    /// Returns when something has happened and it is quiet again.
    pub async fn changed(&mut self) -> io::Result<()> {
        if self.patience.is_none() {
            self.message().await?;
        }
        let patience = *self.patience.get_or_insert_with(|| Instant::now() + PATIENCE);
        loop {
            let quiet = Instant::now() + QUIET;
            let Ok(received) = timeout_at(quiet.min(patience), self.message()).await else { break };
            received?;
        }
        self.patience = None;
        Ok(())
    }

    /// Takes one message, whatever it says.
    async fn message(&self) -> io::Result<()> {
        // What does not fit is cut off.
        let mut buffer = [0; 64];
        match self.socket.recv(&mut buffer.as_mut_slice()).await {
            // There were more than the socket holds.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => Ok(()),
            received => received,
        }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// What happened between two lists of interfaces. One that is made anew under its name went and came.
pub fn changes(before: &[Interface], now: &[Interface]) -> Vec<Change> {
    let went = before.iter().filter(|it| find(now, it.index).is_none());
    let mut changes: Vec<_> = went.map(|it| Change::Went(it.name.clone())).collect();
    for interface in now {
        let Some(before) = find(before, interface.index) else {
            changes.push(Change::Came(interface.name.clone()));
            continue;
        };
        if before.name != interface.name {
            changes.push(Change::Renamed { from: before.name.clone(), to: interface.name.clone() });
        }
        if before.mtu != interface.mtu {
            let (from, to) = (before.mtu, interface.mtu);
            changes.push(Change::Mtu { name: interface.name.clone(), from, to });
        }
    }
    changes
}

fn find(list: &[Interface], index: u32) -> Option<&Interface> {
    list.iter().find(|interface| interface.index == index)
}

#[cfg(test)]
mod tests;
