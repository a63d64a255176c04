//! What can go wrong with blocks, in words for the operator.

use std::{io, path::PathBuf, time::Duration};

use aya::maps::MapError;
use ipnet::IpNet;

use super::MAX_REASON;
use crate::network::{mapping::MappingError, state::StateError};

/// What can go wrong with blocks.
#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    /// The state directory is of no use.
    #[error(transparent)]
    State(#[from] StateError),
    /// Nothing is loaded.
    #[error(
        "nothing is loaded: {} has no `{map}`. Blocks are kept in the kernel: start `ratelimit daemon` first",
        directory.display()
    )]
    NotLoaded {
        /// The state directory.
        directory: PathBuf,
        /// The first map that is missing.
        map: &'static str,
    },
    /// A map cannot be read or written.
    #[error("failed to {verb} the pinned map {}", path.display())]
    Map {
        /// What was tried.
        verb: &'static str,
        /// The pin.
        path: PathBuf,
        /// What the kernel says.
        source: MapError,
    },
    /// A map cannot be mapped.
    #[error("failed to map the pinned map {} into memory", path.display())]
    Mapping {
        /// The pin.
        path: PathBuf,
        /// Why.
        source: Box<MappingError>,
    },
    /// The two maps of a table have different sizes.
    #[error(
        "the pinned map {} and its details are of different sizes; `ratelimit detach` removes what is pinned, \
         and the next start makes it anew", path.display()
    )]
    Torn {
        /// The pin.
        path: PathBuf,
    },
    /// A prefix with host bits.
    #[error("{prefix} has bits set beyond its prefix length; the network is {network}")]
    HostBits {
        /// As it was given.
        prefix: IpNet,
        /// Without those bits.
        network: IpNet,
    },
    /// An IPv6 prefix that covers mapped IPv4 addresses.
    #[error("{prefix} holds IPv4 addresses and others; give an IPv4 prefix, or a length of at least /96")]
    Mapped {
        /// As it was given.
        prefix: IpNet,
    },
    /// A block of no time.
    #[error("a block of no time is none; leave the time out to block until somebody ends it")]
    NoTime,
    /// A block longer than the clock counts.
    #[error(
        "{} is longer than a block can be, 68 years after the start of the host; leave the time out to block \
         until somebody ends it", humantime::format_duration(*duration)
    )]
    TooLong {
        /// The time.
        duration: Duration,
    },
    /// A reason that does not fit.
    #[error("the reason has {length} bytes, {MAX_REASON} are the most")]
    LongReason {
        /// Its length.
        length: usize,
    },
    /// A reason that would steer a terminal.
    #[error("the reason holds control characters")]
    ControlCharacters,
    /// Too many different reasons.
    #[error("there are {most} different reasons already, and no more fit: use one that is there, or none")]
    TooManyReasons {
        /// How many there may be.
        most: u32,
    },
    /// More than the capacity.
    #[error(
        "no room for {new} more {what}: {live} are blocked, and `network.blocks.capacity` is {capacity}. \
         Nothing was changed; raise the capacity, or block fewer"
    )]
    Full {
        /// Single addresses or prefixes.
        what: &'static str,
        /// How many are blocked.
        live: usize,
        /// How many are to be blocked that are not.
        new: usize,
        /// The capacity.
        capacity: u32,
    },
    /// The table has no place left for this address.
    #[error("the table of blocked addresses is too full to take this one")]
    NoWay,
    /// The file of saved blocks cannot be read or written.
    #[error("failed to {verb} {}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}
