//! The policy to explain: the one in force, from its pins, or one that a rules file holds.

use std::net::IpAddr;

use aya::{
    maps::{
        Map, MapData, MapError,
        lpm_trie::{Key, LpmTrie},
    },
    programs::{ProgramError, Xdp},
};
use aya_obj::programs::XdpAttachType;
use ipnet::IpNet;
use ratelimit_common::{
    address::{Address, Family},
    policy::listed,
};

use super::{
    compile::{self, CompileError, Compiled, Slots},
    description::Description,
    state::{StateDir, StateError},
};
use crate::config::policy::Network;

/// A policy, compiled.
#[derive(Debug)]
pub struct Policy {
    /// What it says.
    pub network: Network,
    /// What the program makes of that.
    pub compiled: Compiled,
    /// The lists are here and not in `network`, which has none.
    kernel: Option<KernelLists>,
    /// Counter slots of rules that have never been in force.
    fresh: Vec<u32>,
}

/// The lists that the program in force reads.
#[derive(Debug)]
struct KernelLists {
    v4: LpmTrie<MapData, [u8; 4], u32>,
    v6: LpmTrie<MapData, [u8; 16], u32>,
}

/// What the lists say of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Bits of [`listed`].
    pub bits: u32,
    /// The longest entry of `allow` that covers it, if that can be told.
    pub allow: Option<IpNet>,
    /// The same of `deny`.
    pub deny: Option<IpNet>,
}

/// Why there is no policy to explain.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Pinned state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// It has no compiled form.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Another build wrote it down.
    #[error(
        "the policy in force was recorded by ratelimit {version} in a form that this build cannot read; give its \
         rules file: --config {}", rules_file.display()
    )]
    Form {
        /// That build.
        version: String,
        /// The rules file.
        rules_file: std::path::PathBuf,
    },
    /// The program cannot be opened.
    #[error("failed to open the program in force, to look at its lists (that takes root)")]
    Program(#[from] ProgramError),
    /// Its lists cannot be read.
    #[error("failed to read the lists of the program in force (that takes root)")]
    Lists(#[source] MapError),
    /// The program has no lists.
    #[error("the program in force has no map `{0}`: it is not one of this build")]
    NoList(&'static str),
}

// === impl Policy ===

impl Policy {
    /// A policy of a rules file. Rules that are in force as well have the same buckets.
    pub fn of_file(network: Network, in_force: Option<&Description>) -> Result<Self, CompileError> {
        let names = network.rules.iter().map(|rule| rule.name.as_str());
        let (slots, fresh) = match in_force {
            Some(in_force) => Slots::assign(&in_force.slots, names),
            // Whoever has buckets all the same knows whose they are.
            None => (Slots::assign(&Slots::default(), names).0, Vec::new()),
        };
        let compiled = compile::compile(&network, &slots)?;
        Ok(Self { network, compiled, kernel: None, fresh })
    }

    /// The policy in force. `None`: there is none.
    pub fn pinned(state: &StateDir) -> Result<Option<Self>, PolicyError> {
        let Some(description) = Description::read(&state.state())? else { return Ok(None) };
        let Description { version, rules_file, allow, deny, slots, network, .. } = description;
        let network = network.ok_or(PolicyError::Form { version, rules_file })?;
        let compiled = compile::compile(&network, &slots)?;
        let kernel = if allow + deny > 0 { Some(KernelLists::open(state)?) } else { None };
        Ok(Some(Self { network, compiled, kernel, fresh: Vec::new() }))
    }

    /// Whether nobody can have met a rule yet: what stands in its `per: rule` buckets is another's.
    pub fn is_fresh(&self, rule: usize) -> bool {
        self.compiled.rules.get(rule).is_some_and(|rule| self.fresh.contains(&rule.counter_slot))
    }

    /// What the lists say of an address.
    pub fn listed(&self, address: &Address) -> Result<Listed, PolicyError> {
        if let Some(kernel) = &self.kernel {
            let bits = kernel.look_up(address).map_err(PolicyError::Lists)?;
            return Ok(Listed { bits, ..Listed::default() });
        }
        let own = ip(address);
        let covering = |list: &[IpNet]| {
            let covering = list.iter().filter(|prefix| prefix.contains(&own));
            covering.max_by_key(|prefix| prefix.prefix_len()).copied()
        };
        Ok(Listed {
            bits: self.compiled.lists.look_up(address),
            allow: covering(&self.network.allow),
            deny: covering(&self.network.deny),
        })
    }
}

// === impl KernelLists ===

impl KernelLists {
    fn open(state: &StateDir) -> Result<Self, PolicyError> {
        let program = Xdp::from_pin(state.program(), XdpAttachType::Interface)?;
        let (mut v4, mut v6) = (None, None);
        for id in program.info()?.map_ids()?.unwrap_or_default() {
            let data = MapData::from_id(id).map_err(PolicyError::Lists)?;
            let info = data.info().map_err(PolicyError::Lists)?;
            match info.name_as_str() {
                Some("listed_v4") => v4 = Some(data),
                Some("listed_v6") => v6 = Some(data),
                _ => {}
            }
        }
        let trie = |data: Option<MapData>, name| data.map(Map::LpmTrie).ok_or(PolicyError::NoList(name));
        Ok(Self {
            v4: trie(v4, "listed_v4")?.try_into().map_err(PolicyError::Lists)?,
            v6: trie(v6, "listed_v6")?.try_into().map_err(PolicyError::Lists)?,
        })
    }

    fn look_up(&self, address: &Address) -> Result<u32, MapError> {
        let found = match address.family {
            Family::V4 => self.v4.get(&Key::new(32, address.v4_octets()), 0),
            Family::V6 => self.v6.get(&Key::new(128, address.v6_octets()), 0),
        };
        match found {
            Err(MapError::KeyNotFound) => Ok(0),
            found => found,
        }
    }
}

// === impl Listed ===

impl Listed {
    /// It is on the allow list.
    pub fn is_allowed(&self) -> bool {
        self.bits & listed::ALLOW != 0
    }

    /// It is on the deny list.
    pub fn is_denied(&self) -> bool {
        self.bits & listed::DENY != 0
    }
}

/// An address as the rest of the world has it.
pub fn ip(address: &Address) -> IpAddr {
    match address.family {
        Family::V4 => address.v4_octets().into(),
        Family::V6 => address.v6_octets().into(),
    }
}

/// An address as the program has it; `::ffff:a.b.c.d` is a.b.c.d.
pub fn address(ip: IpAddr) -> Address {
    match ip.to_canonical() {
        IpAddr::V4(ip) => Address::v4(ip.octets()),
        IpAddr::V6(ip) => Address::v6(ip.octets()),
    }
}
