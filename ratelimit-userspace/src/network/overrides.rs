//! Clients that are put under a rule for a time, in the pinned map `overrides`: see
//! [`ratelimit_common::overrides`].
//!
//! Like blocks they live in the kernel alone and end there by themselves. They do not outlive a reboot.

use std::{
    fmt, io,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use aya::maps::{HashMap, Map, MapData, MapError};
use ipnet::IpNet;
use ratelimit_common::{
    blocks::Runtime,
    bucket_table::Cell as _,
    overrides::{Client, Override},
};
use rustix::io::Errno;
use serde::Serialize;

use super::{
    blocks::{BlocksError, Now, address_of, mapping, open},
    description::Description,
    mapping::{Mapping, Word},
    state::StateDir,
};
use crate::admin::schema::text;

/// The pin's name in the state directory.
const NAME: &str = "overrides";

/// The clients of a host that are put under a rule.
pub struct Overrides {
    path: PathBuf,
    map: HashMap<MapData, Client, Override>,
    runtime: Mapping<Runtime<Word>>,
    rules: Rules,
    clock: Box<dyn Fn() -> Now + Send + Sync>,
}

/// The rules that clients may be under.
#[derive(Debug)]
struct Rules {
    /// Name and counter slot, in file order.
    slots: Vec<(String, u32)>,
    ipv6_prefix: u8,
}

/// A client that is put under a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Under {
    /// Everybody who is taken for the client.
    pub client: IpNet,
    /// The name of the rule.
    pub rule: String,
    /// Until when.
    #[serde(with = "text::rfc3339")]
    pub until: SystemTime,
    /// The index of the rule in the policy.
    #[serde(skip)]
    pub index: usize,
}

// === impl Overrides ===

impl Overrides {
    /// Opens the pinned map.
    pub fn open(state: &StateDir) -> Result<Self, BlocksError> {
        Self::open_with(state, Now::read)
    }

    /// Opens the pinned map of programs on another clock.
    pub fn open_with(
        state: &StateDir,
        clock: impl Fn() -> Now + Send + Sync + 'static,
    ) -> Result<Self, BlocksError> {
        let directory = state.state();
        let path = directory.join(NAME);
        let map = HashMap::try_from(Map::HashMap(open(&directory, NAME)?))
            .map_err(|source| BlocksError::Map { verb: "use", path: path.clone(), source })?;
        let runtime = mapping(&directory, "runtime")?;
        Ok(Self { path, map, runtime, rules: Rules::in_force(state)?, clock: Box::new(clock) })
    }

    /// Puts a client under a rule, by its name; whether there is such a rule.
    pub fn put(&mut self, client: IpNet, rule: &str, duration: Duration) -> Result<bool, BlocksError> {
        let Some(index) = self.rules.slots.iter().position(|(name, _)| name == rule) else {
            return Ok(false);
        };
        let now = (self.clock)();
        let until = now.end(Some(duration))?;
        let counter_slot = self.rules.slots[index].1;
        let rule = u32::try_from(index).unwrap_or(u32::MAX);
        let entry = Override { until, rule, counter_slot, unused: 0 };
        let key = self.rules.key(client.addr());
        match self.map.insert(key, entry, 0) {
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(Errno::TOOBIG.raw_os_error()) =>
            {
                self.sweep()?;
                self.map.insert(key, entry, 0)
            }
            other => other,
        }
        .map_err(|source| self.failed("write", source))?;
        if let Some(runtime) = self.runtime.first()
            && runtime.overrides_until.read() < until.into()
        {
            // Only one process writes it.
            runtime.overrides_until.write(until.into());
        }
        Ok(true)
    }

    /// Ends that a client is under a rule; whether it was.
    pub fn remove(&mut self, address: IpAddr) -> Result<bool, BlocksError> {
        let was_live = self.find(address)?.is_some();
        match self.map.remove(&self.rules.key(address)) {
            Ok(()) => Ok(was_live),
            Err(MapError::KeyNotFound) => Ok(false),
            // What `remove` makes of a key that is not there.
            Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(source) => Err(self.failed("write", source)),
        }
    }

    /// Ends that exactly this client, or the one that a single address belongs to, is under a rule; whether it was.
    pub fn release(&mut self, prefix: IpNet) -> Result<bool, BlocksError> {
        let is_single = prefix.prefix_len() == prefix.max_prefix_len();
        let client = self.rules.client(prefix.addr());
        if is_single || client == prefix { self.remove(prefix.addr()) } else { Ok(false) }
    }

    /// The rule that an address is put under.
    pub fn find(&self, address: IpAddr) -> Result<Option<Under>, BlocksError> {
        let now = (self.clock)();
        let found = match self.map.get(&self.rules.key(address), 0) {
            Ok(found) if found.until > now.seconds() => found,
            Ok(_) | Err(MapError::KeyNotFound) => return Ok(None),
            Err(source) => return Err(self.failed("read", source)),
        };
        let rules = self.rules.slots.iter().enumerate();
        let rule = rules.into_iter().find(|(_, (_, slot))| *slot == found.counter_slot);
        Ok(rule.map(|(index, (name, _))| Under {
            client: self.rules.client(address),
            rule: name.clone(),
            until: now.wall(found.until),
            index,
        }))
    }

    /// Another policy is in force: rules may stand elsewhere, or be gone.
    pub fn follow(&mut self, state: &StateDir) -> Result<(), BlocksError> {
        self.rules = Rules::in_force(state)?;
        for (client, entry) in self.all()? {
            let slots = self.rules.slots.iter();
            match (0..).zip(slots).find(|(_, (_, slot))| *slot == entry.counter_slot) {
                Some((rule, _)) if rule == entry.rule => {}
                Some((rule, _)) => self
                    .map
                    .insert(client, Override { rule, ..entry }, 0)
                    .map_err(|source| self.failed("write", source))?,
                None => self.map.remove(&client).map_err(|source| self.failed("write", source))?,
            }
        }
        Ok(())
    }

    /// Takes out what has ended.
    pub fn sweep(&mut self) -> Result<(), BlocksError> {
        let now = (self.clock)().seconds();
        if self.runtime.first().is_none_or(|runtime| runtime.overrides_until.read() == 0) {
            return Ok(());
        }
        let all = self.all()?;
        for (client, _) in all.iter().filter(|(_, entry)| entry.until <= now) {
            self.map.remove(client).map_err(|source| self.failed("write", source))?;
        }
        if all.iter().all(|(_, entry)| entry.until <= now)
            && let Some(runtime) = self.runtime.first()
        {
            runtime.overrides_until.write(0);
        }
        Ok(())
    }

    fn all(&self) -> Result<Vec<(Client, Override)>, BlocksError> {
        self.map.iter().collect::<Result<_, _>>().map_err(|source| self.failed("read", source))
    }

    fn failed(&self, verb: &'static str, source: MapError) -> BlocksError {
        BlocksError::Map { verb, path: self.path.clone(), source }
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides").field("path", &self.path).finish_non_exhaustive()
    }
}

// === impl Rules ===

impl Rules {
    fn in_force(state: &StateDir) -> Result<Self, BlocksError> {
        let Description { rules, sources, .. } = Description::read(&state.state())?.unwrap_or_default();
        let slots = rules.into_iter().map(|rule| (rule.name, rule.counter_slot)).collect();
        Ok(Self { slots, ipv6_prefix: sources.ipv6_prefix })
    }

    fn key(&self, address: IpAddr) -> Client {
        Client::of(&address_of(address.to_canonical()), self.ipv6_prefix.into())
    }

    fn client(&self, address: IpAddr) -> IpNet {
        match address.to_canonical() {
            address @ IpAddr::V4(_) => address.into(),
            address @ IpAddr::V6(_) => {
                IpNet::new(address, self.ipv6_prefix).map_or_else(|_| address.into(), |client| client.trunc())
            }
        }
    }
}
