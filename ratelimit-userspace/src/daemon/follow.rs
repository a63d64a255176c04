//! Interfaces that come while the daemon runs get the program, and what becomes of all of them is told.

use std::{future, time::Duration};

use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info, warn};

use super::{
    network::log_interface,
    reload::{Daemon, text},
};
use crate::{
    admin::schema::What,
    network::{
        follow::{Change, Monitor, changes},
        interfaces::{self, Interface},
        links::{Followed, Renamed},
    },
};

/// How often the interfaces are looked at although no change was told: a program can be taken off without a
/// message.
const LOOK: Duration = Duration::from_secs(30);

/// The interfaces as they were seen last.
pub(super) struct Following {
    monitor: Option<Monitor>,
    look: Interval,
    seen: Vec<Interface>,
}

impl Following {
    /// Notices every change from now on.
    pub(super) fn new() -> Self {
        let monitor = Monitor::new();
        if let Err(error) = &monitor {
            warn!("interfaces that come or go are noticed only every {LOOK:?}: {error}");
        }
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { monitor: monitor.ok(), look, seen: interfaces::list().unwrap_or_default() }
    }

    /// Returns when it is time to look.
    pub(super) async fn changed(&mut self) {
        let Self { monitor, look, .. } = self;
        let told = async {
            match monitor {
                Some(monitor) => monitor.changed().await,
                None => future::pending().await,
            }
        };
        let told = tokio::select! {
            told = told => told,
            _ = look.tick() => Ok(()),
        };
        if let Err(error) = told {
            warn!("interfaces that come or go are noticed only every {LOOK:?}: {error}");
            self.monitor = None;
        }
    }
}

impl Daemon<'_> {
    /// Looks at the interfaces, and attaches to those that are new.
    pub(super) fn follow(&self, following: &mut Following) {
        let now = match interfaces::list() {
            Ok(now) => now,
            Err(error) => {
                error!("failed to list the network interfaces: {error}");
                return;
            }
        };
        let Some(enforcement) = &self.enforcement else {
            following.seen = now;
            return;
        };
        for change in changes(&following.seen, &now) {
            self.tell_change(change);
        }
        match enforcement.follow(&self.config.interfaces, &now) {
            Ok(followed) => self.tell_followed(followed),
            Err(error) => error!("failed to follow the network interfaces: {}", text(&error)),
        }
        following.seen = now;
    }

    fn tell_change(&self, change: Change) {
        let is_meant = |name: &str| self.config.interfaces.iter().any(|wish| wish.matches(name));
        match change {
            Change::Went(name) if is_meant(&name) => {
                warn!("{name}: the interface is gone");
                self.handle.publish(What::InterfaceGone { interface: name });
            }
            Change::Mtu { name, from, to } if is_meant(&name) => {
                info!("{name}: the MTU is {to} now, {from} before");
            }
            // What follows of the others is told when it is done.
            Change::Came(_) | Change::Renamed { .. } | Change::Went(_) | Change::Mtu { .. } => {}
        }
    }

    fn tell_followed(&self, followed: Followed) {
        for attached in followed.attached {
            log_interface(&attached);
            self.handle.publish(What::InterfaceAttached { interface: attached.name, mode: attached.mode });
        }
        for Renamed { from, to, meant } in followed.renamed {
            if meant {
                info!("{to}: called {from} before, and limited as before");
            } else {
                warn!(
                    "{to}: called {from} before, and limited as before, although the rules file does not name \
                     it: the next change of the policy lets it go"
                );
            }
        }
        for skipped in followed.skipped {
            let (interface, message) = (skipped.interface.name, skipped.reason);
            warn!("passed over: {message}");
            self.handle.publish(What::InterfaceFailed { interface, message });
        }
    }
}
