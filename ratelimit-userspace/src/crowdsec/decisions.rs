//! What `CrowdSec` decided about whom.
//!
//! Several decisions may stand about one address, each with its id, and a deletion is of one of them: an address
//! is free when none stands any more. The stream is asked for with `dedup=false`, so that every id is known.

mod duration;

use std::{
    collections::{HashMap, HashSet},
    mem,
    net::IpAddr,
    time::Duration,
};

use ipnet::IpNet;
use serde::Deserialize;

use self::duration::parse;

/// What reasons of these blocks begin with: it tells them from everybody else's.
pub const REASON: &str = "crowdsec: ";
/// Ends that differ by less are the same: durations are rounded, and take their time to arrive.
const SAME: Duration = Duration::from_secs(2);

/// An answer of the API: `null` for nothing.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Stream {
    /// Decisions that stand.
    #[serde(default)]
    pub new: Option<Vec<Decision>>,
    /// Decisions that were taken back or have expired.
    #[serde(default)]
    pub deleted: Option<Vec<Decision>>,
}

/// One decision, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub struct Decision {
    /// Unique.
    pub id: i64,
    /// What to do, such as `ban`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What `value` is: `Ip`, `Range`, or something that is none of a packet.
    pub scope: String,
    /// About whom.
    pub value: String,
    /// How long it stands from now on, such as `3h59m49.4s`.
    pub duration: String,
    /// Why.
    #[serde(default)]
    pub scenario: String,
}

/// All that stand.
#[derive(Debug, Default)]
pub struct Decisions {
    standing: HashMap<IpNet, Vec<Standing>>,
    /// Whom somebody unblocked by hand: until something new is decided, nothing is done.
    lifted: HashSet<IpNet>,
}

/// A decision that stands. Times are on any clock that does not stand still.
#[derive(Clone, Debug)]
struct Standing {
    id: i64,
    until: Duration,
    scenario: String,
}

/// What to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whom to block for how long, and why.
    pub block: Vec<(IpNet, Duration, String)>,
    /// Whom to let go.
    pub release: Vec<IpNet>,
    /// Decisions that are none about packets.
    pub ignored: Ignored,
}

/// Decisions that nothing is done about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// About other things than addresses.
    pub scopes: u64,
    /// Something else than to block.
    pub kinds: u64,
    /// With an address or a duration that cannot be read.
    pub malformed: u64,
}

// === impl Decisions ===

impl Decisions {
    /// Takes an answer that came at `now`: everything there is, or what is new.
    pub fn take(&mut self, all: bool, stream: Stream, now: Duration) -> Changes {
        let mut changes = Changes::default();
        let mut touched = HashSet::new();
        let old = if all { mem::take(&mut self.standing) } else { HashMap::new() };
        // When each that is touched ended before.
        let mut ends: HashMap<_, _> =
            old.iter().map(|(prefix, standing)| (*prefix, longest(standing, now))).collect();
        touched.extend(old.keys().copied());
        for decision in stream.deleted.into_iter().flatten() {
            let Some(prefix) = about(&decision) else { continue };
            if let Some(standing) = self.standing.get_mut(&prefix) {
                ends.entry(prefix).or_insert_with(|| longest(standing, now));
                standing.retain(|standing| standing.id != decision.id);
                touched.insert(prefix);
            }
        }
        for decision in stream.new.into_iter().flatten() {
            if let Some((prefix, until)) = changes.ignored.read(&decision, now) {
                let standing = self.standing.entry(prefix).or_default();
                ends.entry(prefix).or_insert_with(|| longest(standing, now));
                let mut known = old.get(&prefix).into_iter().flatten().chain(standing.iter());
                if known.all(|known| known.id != decision.id) && self.lifted.remove(&prefix) {
                    // Nothing holds at the moment.
                    ends.insert(prefix, None);
                }
                standing.retain(|standing| standing.id != decision.id);
                standing.push(Standing { id: decision.id, until, scenario: decision.scenario });
                touched.insert(prefix);
            }
        }
        for prefix in touched {
            let before = ends.remove(&prefix).flatten().map(|(until, _)| until);
            self.settle(prefix, before, now, &mut changes);
        }
        changes
    }

    /// Notes that somebody unblocked an address by hand.
    pub fn lift(&mut self, prefix: IpNet) {
        if self.standing.contains_key(&prefix) {
            self.lifted.insert(prefix);
        }
    }

    /// What stands about an address: for how much longer, and why.
    pub fn find(&self, prefix: &IpNet, now: Duration) -> Option<(Duration, String)> {
        if self.lifted.contains(prefix) {
            return None;
        }
        let (until, scenario) = longest(self.standing.get(prefix)?, now)?;
        Some((until.saturating_sub(now), reason(&scenario)))
    }

    /// How many addresses and networks something stands about.
    pub fn len(&self) -> usize {
        self.standing.len()
    }

    /// Whether nothing stands.
    pub fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// Forgets what has ended by itself.
    pub fn sweep(&mut self, now: Duration) {
        self.standing.retain(|_, standing| {
            standing.retain(|standing| standing.until > now);
            !standing.is_empty()
        });
        self.lifted.retain(|prefix| self.standing.contains_key(prefix));
    }

    fn settle(&mut self, prefix: IpNet, before: Option<Duration>, now: Duration, changes: &mut Changes) {
        match self.standing.get(&prefix).and_then(|standing| longest(standing, now)) {
            None => {
                self.standing.remove(&prefix);
                if !self.lifted.remove(&prefix) && before.is_some() {
                    changes.release.push(prefix);
                }
            }
            Some(_) if self.lifted.contains(&prefix) => {}
            Some((until, _)) if before.is_some_and(|before| before.abs_diff(until) < SAME) => {}
            Some((until, scenario)) => {
                changes.block.push((prefix, until.saturating_sub(now), reason(&scenario)));
            }
        }
    }
}

/// When the last of some decisions ends, and what it is for; `None`: none stands any more.
fn longest(standing: &[Standing], now: Duration) -> Option<(Duration, String)> {
    let live = standing.iter().filter(|standing| standing.until > now);
    live.max_by_key(|standing| standing.until).map(|longest| (longest.until, longest.scenario.clone()))
}

/// A reason that blocks have room for.
fn reason(scenario: &str) -> String {
    const MAX: usize = crate::network::blocks::MAX_REASON;
    let mut text: String = REASON.chars().chain(scenario.chars().filter(|c| !c.is_control())).collect();
    text.truncate(text.floor_char_boundary(MAX));
    text
}

/// The address or the network that a decision is about.
fn about(Decision { scope, value, .. }: &Decision) -> Option<IpNet> {
    let is = |name: &str| scope.eq_ignore_ascii_case(name);
    let prefix = if is("ip") {
        value.parse::<IpAddr>().map(IpNet::from).ok()?
    } else if is("range") {
        value.parse().ok()?
    } else {
        return None;
    };
    canonical(prefix)
}

/// Without host bits, and as IPv4 what IPv6 maps from it.
fn canonical(prefix: IpNet) -> Option<IpNet> {
    match (prefix.addr().to_canonical(), prefix.addr()) {
        (canonical, written) if canonical == written => Some(prefix.trunc()),
        (canonical, _) => {
            IpNet::new(canonical, prefix.prefix_len().checked_sub(96)?).ok().map(|prefix| prefix.trunc())
        }
    }
}

// === impl Ignored ===

impl Ignored {
    /// About whom a decision is and until when it stands, or counts why nothing is done.
    fn read(&mut self, decision: &Decision, now: Duration) -> Option<(IpNet, Duration)> {
        let scope = &decision.scope;
        if !scope.eq_ignore_ascii_case("ip") && !scope.eq_ignore_ascii_case("range") {
            self.scopes += 1;
            return None;
        }
        if !decision.kind.eq_ignore_ascii_case("ban") {
            self.kinds += 1;
            return None;
        }
        let (Some(prefix), Some(duration)) = (about(decision), parse(&decision.duration)) else {
            self.malformed += 1;
            return None;
        };
        Some((prefix, now.saturating_add(duration)))
    }
}

#[cfg(test)]
mod tests;
