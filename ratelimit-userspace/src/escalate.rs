//! From HTTP down to the kernel: a client that requests are denied to again and again has its packets shed.
//!
//! The one place where limits on requests meet those on packets: `http` tells whom it denies and knows nothing
//! of packets, `network` blocks and knows nothing of requests.
//!
//! Denials are counted on the request's way (`denials`), under a lock that only denied requests take. One too
//! many goes into a queue for the daemon, which looks who must be left alone (`exempt`), how often the client
//! offended before (`offences`), and blocks it as an operator would; or, where several identities that are
//! known live behind the address (`sharers`), puts it under a rule on packets.

mod denials;
mod exempt;
mod offences;
mod sharers;
mod table;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    iter,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub use self::exempt::Exempt;
use self::{denials::Denials, exempt::Exempted, offences::Offences, sharers::Sharers};
use crate::{
    config::{
        http::Escalate,
        policy::{Config, Network},
    },
    http::{clock::Now, rules::Rule, witness::Witness},
    network::blocks::{MAX_REASON, NewBlock},
};

/// Crossings that wait for the daemon. Those for which there is no room are counted, and the client has to
/// offend again.
const QUEUE: usize = 1024;

/// Counts denials. Shared by everybody who answers requests.
#[derive(Debug)]
pub struct Counting {
    denials: Mutex<Denials>,
    sharers: Mutex<Sharers>,
    /// Bits of an IPv6 address that make one client; 0: packets are not limited, and nobody is counted.
    ipv6_prefix: AtomicU8,
    rules: RandomState,
    crossings: mpsc::Sender<Crossing>,
    lost: AtomicU64,
}

/// A client was denied too often.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The address that the last denied request came from.
    pub address: IpAddr,
    /// Everybody who is taken for the same client.
    pub client: IpNet,
    /// The id of the rule that denied.
    pub rule: Arc<str>,
    /// By which terms.
    pub terms: Escalate,
    /// When.
    pub now: Now,
}

/// Whose packets are to be shed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whom {
    /// Theirs.
    pub prefix: IpNet,
    /// The rule on packets that they are put under, since several live there; `None`: they are blocked.
    pub shed: Option<String>,
}

/// How a client is blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Whom, how long and why.
    pub block: NewBlock,
    /// Which offence of those that weigh it is, from 1.
    pub offence: u32,
}

/// Decides about crossings. The daemon has it.
#[derive(Debug)]
pub struct Escalation {
    counting: Arc<Counting>,
    offences: Offences,
}

/// Both ends: who counts, and what the daemon waits for.
pub fn escalation() -> (Escalation, mpsc::Receiver<Crossing>) {
    let (crossings, queue) = mpsc::channel(QUEUE);
    let counting = Counting {
        denials: Mutex::new(Denials::new()),
        sharers: Mutex::new(Sharers::new()),
        ipv6_prefix: AtomicU8::new(0),
        rules: RandomState::new(),
        crossings,
        lost: AtomicU64::new(0),
    };
    (Escalation { counting: Arc::new(counting), offences: Offences::new() }, queue)
}

// === impl Counting ===

impl Counting {
    /// Everybody of an address who is one client; `None`: packets are not limited, and nobody is counted.
    fn client(&self, address: IpAddr) -> Option<IpNet> {
        let ipv6_prefix = self.ipv6_prefix.load(Ordering::Relaxed);
        (ipv6_prefix != 0).then(|| exempt::client(address, ipv6_prefix))
    }
}

impl Witness for Counting {
    fn denied(&self, address: IpAddr, rule: &Rule, now: Now) {
        let Some(terms) = &rule.policy.escalate else { return };
        let Some(client) = self.client(address) else { return };
        let address = address.to_canonical();
        let key = self.rules.hash_one(&rule.id);
        if self.denials.lock().count(client, key, terms, now.steady) {
            let rule = Arc::clone(&rule.id);
            let crossing = Crossing { address, client, rule, terms: terms.clone(), now };
            if self.crossings.try_send(crossing).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn identified(&self, address: IpAddr, identity: u64, now: Now) {
        let Some(client) = self.client(address) else { return };
        // Whoever comes in vain comes again: requests do not wait for each other here.
        if let Some(mut sharers) = self.sharers.try_lock() {
            sharers.note(client, identity, now.steady);
        }
    }
}

// === impl Escalation ===

impl Escalation {
    /// Whom `http` is to tell of denials.
    pub fn witness(&self) -> Arc<Counting> {
        Arc::clone(&self.counting)
    }

    /// Another configuration is in force.
    pub fn follow(&self, config: &Config) {
        let ipv6_prefix = config.network.as_ref().map_or(0, |network| network.sources.ipv6_prefix);
        self.counting.ipv6_prefix.store(ipv6_prefix, Ordering::Relaxed);
    }

    /// Crossings that there was no room for.
    pub fn lost(&self) -> u64 {
        self.counting.lost.load(Ordering::Relaxed)
    }

    /// Whose packets are to be shed, or why nobody's are. `own` are the addresses of this host.
    pub fn whom(
        &self,
        crossing: &Crossing,
        network: &Network,
        trusted_proxies: &[IpNet],
        own: &[IpAddr],
    ) -> Result<Whom, Exempt> {
        let exempted = Exempted { network, trusted_proxies, own };
        if let Some(exempt) = exempted.why(crossing.address) {
            return Err(exempt);
        }
        let prefix = exempted.prefix(crossing.client, crossing.address);
        let identities = self.counting.sharers.lock().count(&crossing.client, crossing.now.steady);
        if identities < crossing.terms.identities.into() {
            return Ok(Whom { prefix, shed: None });
        }
        match &crossing.terms.shed {
            // Whoever must be left alone beside them would be put under the rule as well.
            Some(rule) if prefix == crossing.client => Ok(Whom { prefix, shed: Some(rule.clone()) }),
            _ => Err(Exempt::Shared),
        }
    }

    /// How `prefix` is blocked for that. `None`: it has been for something else meanwhile.
    pub fn sentence(&mut self, crossing: &Crossing, prefix: IpNet) -> Option<Sentence> {
        let Crossing { rule, terms, now, .. } = crossing;
        let (offence, duration) = self.offences.offend(prefix, terms, now.steady)?;
        let reason = reason(rule, terms, offence);
        Some(Sentence { block: NewBlock { prefix, duration: Some(duration), reason }, offence })
    }

    /// Forgets what is known of everybody within some prefixes, and of clients that single addresses belong to:
    /// the next offence is the first.
    pub fn forget(&mut self, prefixes: &[IpNet]) {
        let is_single = |prefix: &IpNet| prefix.prefix_len() == prefix.max_prefix_len();
        let mut denials = self.counting.denials.lock();
        for prefix in prefixes {
            let client = is_single(prefix).then(|| self.counting.client(prefix.addr())).flatten();
            for client in client.into_iter().chain([*prefix]) {
                denials.forget(client);
                self.offences.forget(client);
            }
        }
        // What is wider than a client may hold many of them.
        let networks: HashSet<_> = prefixes.iter().filter(|prefix| !is_single(prefix)).collect();
        if !networks.is_empty() {
            let within = |client: &IpNet| supernets(*client).any(|net| networks.contains(&net));
            denials.forget_all(within);
            self.offences.forget_all(within);
        }
    }

    /// The client that an address belongs to, if it was blocked for its requests.
    pub fn offender(&self, address: IpAddr) -> Option<IpNet> {
        self.counting.client(address).filter(|client| self.offences.knows(client))
    }
}

/// A network and all that it lies in.
fn supernets(net: IpNet) -> impl Iterator<Item = IpNet> {
    iter::successors(Some(net), IpNet::supernet)
}

/// Why a client is blocked, in words that `blocks` and `show` have room for.
fn reason(rule: &str, terms: &Escalate, offence: u32) -> String {
    let within = humantime::format_duration(terms.within);
    let times = if terms.after == 1 { "once".to_owned() } else { format!("{} times", terms.after) };
    let rest = format!(": denied {times} within {within}, offence {offence}");
    // Ids of rules may be longer than reasons.
    let mut id: String = rule.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let room = MAX_REASON.saturating_sub(rest.len() + "rule ".len());
    if id.len() > room {
        id.truncate(id.floor_char_boundary(room.saturating_sub("…".len())));
        id.push('…');
    }
    format!("rule {id}{rest}")
}
