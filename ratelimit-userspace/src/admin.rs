//! How a running daemon is asked and told: an API over a Unix socket, and over TCP on this host.
//!
//! What it answers about packets is read from the pinned maps at that moment: what the kernel holds, not
//! what the daemon remembers. What changes something goes to the daemon as a [`command::Command`], one
//! after the other.

#![forbid(unsafe_code)]

mod access;
pub mod client;
pub mod command;
pub mod events;
#[cfg(test)]
mod fixture;
pub mod handle;
pub mod intake;
pub mod metrics;
mod problem;
pub mod read;
pub mod router;
pub mod schema;
pub mod server;
